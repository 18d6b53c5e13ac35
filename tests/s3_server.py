"""A server of the S3 protocol on the loopback, in this process, that can be told to fail."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
INTERNAL = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


@dataclass
class Server:
    """The server.

    Attributes:
        port: Where it listens.
        requests: `METHOD PATH` of each request so far; of a listing with its prefix.
        answer: Called before each request with that text; a status and body to answer instead, or None.
    """

    port: int = 0
    requests: list[str] = field(default_factory=list)
    answer: Callable[[str], tuple[str, bytes] | None] = lambda request: None

    def url(self, place: str) -> str:
        """URL of a place `BUCKET/PATH`."""
        return f"s3://{place}?endpoint_override=127.0.0.1:{self.port}&scheme=http"

    def failing(self, times: int, status: str, body: bytes, method: str = "") -> None:
        """Answer the next requests of a method with an error, then as usual."""
        left = iter(range(times))
        self.answer = lambda request: (
            (status, body) if request.startswith(method) and next(left, None) is not None else None
        )


@contextmanager
def s3_server() -> Iterator[Server]:
    """A server with an empty bucket `bucket`."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    server = Server()
    application = DomainDispatcherApplication(create_backend_app)

    def serve(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        prefix = re.search(r"prefix=([^&]*)", environ.get("QUERY_STRING", ""))
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}{' ' + unquote(prefix[1]) if prefix else ''}"
        server.requests.append(request)
        if (instead := server.answer(request)) is not None:
            start(instead[0], [("Content-Type", "application/xml"), ("Content-Length", str(len(instead[1])))])
            return [instead[1]]
        answer: Iterable[bytes] = application(environ, start)
        return answer

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *arguments: Any) -> None:
            pass

    listening = make_server("127.0.0.1", 0, serve, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    server.port = listening.server_port
    create_bucket(server.port)
    server.requests.clear()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def create_bucket(port: int) -> None:
    """`bucket`, on a server that is about to listen."""
    from pyarrow.fs import S3FileSystem

    files = S3FileSystem(
        access_key="key",
        secret_key="secret",
        region="us-east-1",
        scheme="http",
        endpoint_override=f"127.0.0.1:{port}",
        allow_bucket_creation=True,
    )
    for _ in range(5):
        try:
            files.create_dir("bucket")
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"no S3 server on port {port}")
