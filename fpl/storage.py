"""The file system of a URL, and requests to it that are repeated where a server is busy or a connection breaks."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from fpl.errors import FplError, ShortageError
from fpl.text import first_line

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

Result = TypeVar("Result")

SCHEMES = ("s3", "gs", "gcs", "file")
# Of pyarrow's, those under which an object is not replaced in one piece: Azure empties it when a new one is begun, and
# HDFS removes it before another is moved there.
TORN = ("hdfs", "viewfs", "abfs", "abfss")
# A path that is made of a URL has lost one of its slashes.
_OURS = "|".join((*SCHEMES, *TORN))
_URL = re.compile(rf"({_OURS}):/+([^?]+)(\?.*)?", re.IGNORECASE)
# What no folder is meant by. A scheme has two letters at least.
_FOREIGN = re.compile(rf"\s*([a-z][a-z0-9+.-]+:/|({_OURS}):)", re.IGNORECASE)
# Seconds between the tries of a request that failed, beside those of the library itself; then it is given up.
PAUSES = (1.0, 2.0, 4.0, 8.0)
# Seconds in which Google's library repeats a request; its own 15 minutes nobody could interrupt.
GCS_SECONDS = 10
# What can be said of an S3 server behind the `?` of a URL.
_S3_OPTIONS = ("region", "scheme", "endpoint_override")
S3_ATTEMPTS = 4
# What the library says of a request that the server refuses, and of one that it has no time for.
_REFUSED = re.compile("ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_ACCESS_KEY|SIGNATURE|OAuth2 access token")
_BUSY = re.compile("SLOW_DOWN|INTERNAL_FAILURE|UNAVAILABLE|THROTTLING|HTTP status 5")
# Letters of what a library says about a failed request: keys are long, and why it failed stands behind them.
LONGEST = 500

HINT = (
    "check the name, the connection and what you may do there (for S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
    "AWS_REGION, AWS_ENDPOINT_URL or ?endpoint_override=HOST:PORT&scheme=http; for Google's: "
    "GOOGLE_APPLICATION_CREDENTIALS); the same command then continues"
)
# URLs that have answered once, to this process or to the one that handed them to it.
_ANSWERED: set[str] = set()


def is_ours(text: str) -> bool:
    """Whether a text is a URL of a kind that stores are known by."""
    return _URL.fullmatch(text) is not None


def url_of(path: Path | str) -> str | None:
    """The URL that a path is meant to be (`s3://bucket/x`, also where it has become `s3:/bucket/x`); None: a folder.

    Raises:
        FplError: It is a URL of another kind.
    """
    found = _URL.fullmatch(str(path))
    if found is None:
        if _FOREIGN.match(str(path)):
            hint = f"write it as s3://BUCKET/PATH (allowed: {', '.join(SCHEMES)}); a folder of that name is ./NAME"
            raise FplError("is no URL of a place where results can be", where=str(path), hint=hint)
        return None
    scheme, place, options = found[1].lower(), found[2].strip("/"), found[3] or ""
    return f"{scheme}://{'/' if scheme == 'file' else ''}{place}{options}"


def place_of(url: str) -> list[str]:
    """Scheme, bucket and folders of a URL, as names of folders.

    Raises:
        FplError: It names no folder, or is of a scheme under which a kill could leave half an object.
    """
    found = _URL.fullmatch(url)
    assert found is not None
    if found[1] in TORN:
        what = f"no store can be under {found[1]}: an object is not replaced in one piece there"
        raise FplError(what, where=url, hint="name a folder, or s3://BUCKET/PATH")
    parts = [part for part in found[2].split("/") if part]
    if not parts or any(part in (".", "..") for part in parts):
        raise FplError("names no folder", where=url, hint="write it as s3://BUCKET/PATH")
    return [found[1], *parts]


def open_storage(url: str) -> tuple[FileSystem, str]:
    """The file system of a URL, and the path in it.

    Raises:
        FplError: pyarrow cannot open it.
    """
    from pyarrow import fs

    found = _URL.fullmatch(url)
    assert found is not None
    try:
        if found[1] != "s3":
            if found[1] in ("gs", "gcs") and "retry_limit_seconds=" not in url:
                url = f"{url}{'&' if found[3] else '?'}retry_limit_seconds={GCS_SECONDS}"
            files, path = fs.FileSystem.from_uri(url)
            return files, path.rstrip("/")
        options: dict[str, Any] = dict(parse_qsl((found[3] or "?")[1:], strict_parsing=bool(found[3])))
        if foreign := [name for name in options if name not in _S3_OPTIONS]:
            raise ValueError(f"unknown option {foreign[0]!r}; there are {', '.join(_S3_OPTIONS)}")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if endpoint and "endpoint_override" not in options:
            scheme, _, server = endpoint.rstrip("/").rpartition("://")
            options = {"scheme": scheme or "https", **options, "endpoint_override": server}
        retry = fs.AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS)
        # Delayed: a small object is then sent by one request instead of three.
        return fs.S3FileSystem(retry_strategy=retry, allow_delayed_open=True, **options), found[2].rstrip("/")
    except (OSError, ValueError, ImportError, NotImplementedError) as error:
        raise FplError(f"cannot be opened: {first_line(error, LONGEST)}", where=url, hint=HINT) from None


def list_folder(files: FileSystem, name: str) -> list[FileInfo]:
    """What lies in a folder; nothing where there is none.

    Raises:
        FplError: There is no such bucket.
        OSError: The server cannot be asked, or answers something else: the library takes that for an empty folder.
    """
    from pyarrow.fs import FileSelector, FileType

    selector = FileSelector(name, allow_not_found=True)
    if found := files.get_file_info(selector):
        return list(found)
    bucket = name.partition("/")[0]
    kind = files.get_file_info(name).type
    if kind == FileType.NotFound and bucket and files.get_file_info(bucket).type == FileType.NotFound:
        raise FplError(f"there is no bucket {bucket}", where=name, hint=HINT)
    if kind == FileType.File:
        raise OSError(f"{name} is a file by one answer, and an empty folder by another: something else answers")
    # A folder that holds nothing may be one, or its list was none.
    return [] if kind == FileType.NotFound else list(files.get_file_info(selector))


def patiently(url: str, request: Callable[[], Result], name: str) -> Result:
    """The answer to a request, which is repeated where a server is busy or a connection breaks.

    Args:
        url: Of the storage that is asked.
        request: Asks, and raises an OSError if that fails.
        name: Of what is asked for, for the error.

    Raises:
        ShortageError: Nothing helps.
    """
    for pause in (*PAUSES, None):
        try:
            answer = request()
            has_answered(url)
            return answer
        except OSError as error:
            if pause is None or _is_vain(url, error):
                what = f"the server does not answer as it should: {first_line(error, LONGEST)}"
                raise ShortageError(what, where=f"{url} ({name})", hint=HINT) from error
            time.sleep(pause)
    raise AssertionError


def has_answered(url: str) -> None:
    """Let this process know that there is a server, so that a connection that breaks is made again."""
    _ANSWERED.add(url)


def _is_vain(url: str, error: OSError) -> bool:
    """Whether asking again would be of no use."""
    # Who never answered, not even that he is busy, will not do so in a moment: the name is wrong, or the way there.
    unknown = url not in _ANSWERED and not _BUSY.search(str(error))
    return unknown or isinstance(error, PermissionError | FileNotFoundError) or bool(_REFUSED.search(str(error)))
