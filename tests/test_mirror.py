"""A folder kept equal to one on object storage: what is there is the truth, and nothing half-written is seen."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fpl import copies, files, mirrors, storage
from fpl.errors import FplError, ShortageError
from fpl.files import keep, keep_lines, move, remove, write_atomic
from fpl.mirror import Mirror
from fpl.mirrors import attach, came_damaged, folder_names, mirror_of, name_of, refresh
from fpl.storage import url_of
from fpl.store.read import load_results
from fpl.store.remote import open_store
from fpl.sweep.places import Places
from tests.s3_server import ENVIRONMENT, INTERNAL, SLOW_DOWN, Server, s3_server
from tests.signals import interruptible


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server without memory of other tests, and no pauses of ours."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(storage, "PAUSES", (0.01, 0.01))
    monkeypatch.setattr(storage, "S3_ATTEMPTS", 1)
    running.answer = lambda request: None
    running.requests.clear()
    return running


@pytest.fixture(autouse=True)
def nothing_attached() -> Iterator[None]:
    yield
    mirrors._MIRRORS.clear()


@pytest.fixture
def twin(tmp_path: Path) -> Mirror:
    """The mirror of a plain folder: what lies there can be looked at."""
    return attach(f"file://{tmp_path}/there", tmp_path / "here")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        (Path("s3://bucket/a"), "s3://bucket/a"),
        (Path("s3://bucket/a/?region=x&scheme=http"), "s3://bucket/a?region=x&scheme=http"),
        ("file:///tmp/x", "file:///tmp/x"),
        (Path("file:///tmp/x"), "file:///tmp/x"),
        ("gs://b/c/", "gs://b/c"),
        ("runs/mini", None),
        ("/s3/bucket", None),
        ("s3", None),
        ("S3://bucket/a", "s3://bucket/a"),
        ("a:/b", None),
        ("./s3:bucket", None),
    ],
)
def test_what_is_a_url(given: str | Path, url: str | None) -> None:
    assert url_of(given) == url


@pytest.mark.parametrize(
    "given",
    [
        *("s3a://bucket/x", "az://container/x", "https://bucket.s3.amazonaws.com/x", "r2://b/x", " s3://bucket/x"),
        *("s3:bucket/x", "http://host/x", Path("s3a://bucket/x")),
    ],
)
def test_what_is_meant_as_a_url_is_never_a_folder(given: str | Path) -> None:
    with pytest.raises(FplError, match="is no URL of a place where results can be") as caught:
        open_store(given)
    assert caught.value.where == str(given) and "s3://BUCKET/PATH" in caught.value.hint


def test_a_server_of_google_that_is_not_there_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(
        "pyarrow.fs.FileSystem", SimpleNamespace(from_uri=lambda url: (opened.append(url), (None, ""))[1])
    )
    for url in ("gs://b/x", "gs://b/x?scheme=http", "gs://b/x?retry_limit_seconds=3"):
        storage.open_storage(url)
    seconds = f"retry_limit_seconds={storage.GCS_SECONDS}"
    assert opened == [f"gs://b/x?{seconds}", f"gs://b/x?scheme=http&{seconds}", "gs://b/x?retry_limit_seconds=3"]


def test_a_mirror_is_no_store_of_its_own(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FPL_SCRATCH", str(tmp_path))
    url = server.url("bucket/marked")
    place = open_store(url)
    assert open_store(place) == place and name_of(place) == "s3://bucket/marked"
    with pytest.raises(FplError, match="no results here") as caught:
        load_results(url)
    assert caught.value.where == "s3://bucket/marked" and str(tmp_path) not in caught.value.hint
    mirrors._MIRRORS.clear()
    # What another process puts there would be removed by the next one that opens the store.
    with pytest.raises(FplError, match="copy of a store on object storage") as caught:
        open_store(place)
    assert url in caught.value.hint


@pytest.mark.parametrize("times", [1, 100])
def test_another_answer_than_a_list_is_no_empty_folder(server: Server, tmp_path: Path, times: int) -> None:
    """Such as the page by which a network asks for a password."""
    twin = attach(server.url("bucket/portal"), tmp_path / "here")
    write_atomic(twin.folder / "runs" / "a", b"1")
    server.failing(times, "200 OK", b"<html>please log in</html>", "" if times > 1 else "GET")
    if times == 1:
        refresh(twin.folder / "runs")
    else:
        with pytest.raises(ShortageError, match="something else answers"):
            refresh(twin.folder / "runs")
    assert content(twin.folder) == {"runs/a": b"1"}


def test_a_bucket_that_is_not_there_is_said_by_who_reads(server: Server, tmp_path: Path) -> None:
    with pytest.raises(FplError, match="there is no bucket nobucket"):
        load_results(server.url("nobucket/x"))


def test_a_file_is_there_before_it_is_here(twin: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = twin.folder / "runs" / "a.parquet"

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write_atomic(path, b"row")
    assert content(tmp_path / "there") == {"runs/a.parquet": b"row"} and content(twin.folder) == {}
    refresh(path.parent)
    assert content(twin.folder) == {"runs/a.parquet": b"row"}


def test_both_hold_the_same_after_any_change(twin: Mirror, tmp_path: Path) -> None:
    runs = twin.folder / "runs"
    write_atomic(runs / "a", b"one")
    write_atomic(runs / "b", lambda file: file.write(b"two"))
    write_atomic(runs / "a", b"three")
    move(runs / "b", runs / "c")
    (runs / "log").write_text("said")
    keep(runs / "log")
    write_atomic(runs / "d", b"four")
    remove(runs / "d")
    expected = {"runs/a": b"three", "runs/c": b"two", "runs/log": b"said"}
    assert content(tmp_path / "there") == content(twin.folder) == expected


def test_a_log_that_machines_write_in_turn_has_the_lines_of_all(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/there"
    logs = {name: attach(url, tmp_path / name).folder / "logs" / "a.log" for name in ("one", "two")}

    def say(name: str, *lines: str) -> None:
        with logs[name].open("a") as log:
            log.writelines(f"{line}\n" for line in lines)

    def kept() -> list[str]:
        return (tmp_path / "there" / "logs" / "a.log").read_text().splitlines()

    for log in logs.values():
        log.parent.mkdir(parents=True)
    keep_lines(logs["one"])
    say("one", "begins at 0", "goes on")
    keep_lines(logs["one"])
    keep_lines(logs["two"])
    with logs["two"].open("a") as open_elsewhere:
        say("two", "begins at 7")
        say("one", "begins at 5")  # it was killed before it sent this
        keep_lines(logs["two"])
        open_elsewhere.write("late\n")
    keep_lines(logs["two"])
    assert kept() == ["begins at 0", "goes on", "begins at 7", "late"]
    keep_lines(logs["one"])
    assert kept() == ["begins at 0", "goes on", "begins at 5", "begins at 7", "late"]
    keep_lines(logs["one"])
    assert len(kept()) == 5


def test_pulling_brings_what_changed_and_takes_what_is_gone(twin: Mirror, tmp_path: Path) -> None:
    there, here = tmp_path / "there" / "runs", twin.folder / "runs"
    there.mkdir(parents=True)
    for name in ("same", "other", "gone"):
        write_atomic(here / name, name.encode())
    before = (here / "same").stat().st_ino
    (there / "gone").unlink()
    (there / "new").write_bytes(b"new")
    (there / "other").write_bytes(b"longer than before")
    (here / ".lock").touch()
    refresh(here)
    assert content(here) == {"same": b"same", "other": b"longer than before", "new": b"new", ".lock": b""}
    assert (here / "same").stat().st_ino == before  # was not brought again


def test_what_killed_fetches_left_is_removed_when_nobody_can_be_at_it(
    twin: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_over = twin.folder / "runs" / ".0123456789abcdef.tmp"
    left_over.parent.mkdir(parents=True)
    left_over.write_bytes(b"half")
    os.utime(left_over, (0, 0))  # as of an old object: it is fetched just now
    refresh(left_over.parent)
    assert left_over.exists()
    monkeypatch.setattr(copies, "LONG_AGO", -60.0)
    refresh(left_over.parent)
    assert not left_over.exists()


def test_hidden_folders_and_other_folders_are_not_mirrored(twin: Mirror, tmp_path: Path) -> None:
    write_atomic(twin.folder / "figures" / ".drawn" / "x.png", b"cache")
    write_atomic(tmp_path / "elsewhere" / "x", b"no")
    assert content(tmp_path / "there") == {}
    assert mirror_of(tmp_path / "elsewhere") is None and mirror_of(twin.folder / "a") is twin
    assert (name_of(twin.folder / "a" / "b"), name_of(Path("a"))) == (f"file://{tmp_path}/there/a/b", "a")


def test_a_table_costs_one_put_and_a_folder_one_listing(server: Server, tmp_path: Path) -> None:
    twin = attach(server.url("bucket/counted"), tmp_path / "here")
    write_atomic(twin.folder / "runs" / "a.parquet", b"x" * 20_000)
    assert server.requests == ["PUT /bucket/counted/runs/a.parquet", "HEAD /bucket/counted/runs/a.parquet"]
    for number in range(5):
        write_atomic(twin.folder / "runs" / f"{number}.parquet", b"y")
    server.requests.clear()
    refresh(twin.folder / "runs")
    assert server.requests == ["GET /bucket counted/runs/"]
    assert folder_names(twin.folder) == ["runs"]
    other = attach(server.url("bucket/counted"), tmp_path / "another machine")
    other.pull(other.folder / "runs")
    assert content(other.folder) == content(twin.folder)


@pytest.mark.parametrize(("status", "body"), [("503 Slow Down", SLOW_DOWN), ("500 Internal Server Error", INTERNAL)])
def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path, status: str, body: bytes) -> None:
    twin = attach(server.url(f"bucket/busy{status[:3]}"), tmp_path / "here")
    twin.check()
    server.failing(2, status, body)
    write_atomic(twin.folder / "a", b"1")
    server.failing(2, status, body, "GET")
    refresh(twin.folder)
    assert twin.read(twin.folder / "a") == b"1"


def answer_in_half(server: Server, times: int, content: bytes) -> None:
    """As a gateway under load does: an answer that is whole by what it says of itself. The rest pyarrow makes up."""
    half = content[: len(content) // 2]
    server.failing(times, "206 Partial Content", half, "GET /bucket/")


def test_an_answer_that_is_too_short_is_not_taken_for_the_object(server: Server, tmp_path: Path) -> None:
    twin, whole = attach(server.url("bucket/short"), tmp_path / "here"), os.urandom(20_000)
    write_atomic(twin.folder / "runs" / "a", whole)
    other = attach(server.url("bucket/short"), tmp_path / "another machine")
    path = other.folder / "runs" / "a"
    for bring in (lambda: other.pull(path.parent), lambda: other.fetch(path)):
        path.unlink(missing_ok=True)
        answer_in_half(server, 1, whole)
        bring()
        assert path.read_bytes() == whole
    answer_in_half(server, 1, whole)
    assert other.read(path) == whole
    path.unlink()
    answer_in_half(server, 100, whole)
    # What the library makes of it may be the same twice: then it is what came.
    with contextlib.suppress(ShortageError):
        other.fetch(path)
    assert set(content(other.folder)) <= {"runs/a"}


def test_a_server_whose_etags_are_no_checksums_is_asked_twice_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are those of objects that are encrypted by a key of the bucket's owner."""
    twin = attach(server.url("bucket/encrypted"), tmp_path / "here")
    for name in "abc":
        write_atomic(twin.folder / name, name.encode())
    other = attach(server.url("bucket/encrypted"), tmp_path / "another machine")
    real = copies.md5
    monkeypatch.setattr(copies, "md5", lambda content=b"": real(b"of something else" + content))
    server.requests.clear()
    assert [other.read(other.folder / name) for name in "abc"] == [b"a", b"b", b"c"]
    assert [request for request in server.requests if request.startswith("GET")] == [
        f"GET /bucket/encrypted/{name}" for name in "aabc"
    ]
    copies._OTHER_ETAGS.clear()


def test_a_file_that_is_damaged_on_this_machine_alone_is_brought_again(server: Server, tmp_path: Path) -> None:
    twin = attach(server.url("bucket/rotten"), tmp_path / "here")
    path = twin.folder / "a"
    write_atomic(path, b"right")
    before = path.stat()
    path.write_bytes(b"wrong")
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert twin.fetch(path) and path.read_bytes() == b"wrong"  # nobody can know
    assert came_damaged(path) and path.read_bytes() == b"right"
    assert not came_damaged(path) and not came_damaged(tmp_path / "elsewhere")
    twin.delete(path)
    assert not came_damaged(path)


def test_a_new_process_is_as_patient_with_a_busy_server(server: Server, tmp_path: Path) -> None:
    twin = attach(server.url("bucket/first"), tmp_path / "here")
    server.failing(len(storage.PAUSES), "503 Slow Down", SLOW_DOWN)
    assert twin.read(twin.folder / "a") is None


def test_only_who_knows_that_a_server_answers_tries_to_reach_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"s3://bucket/x?endpoint_override=127.0.0.1:{nobody.getsockname()[1]}&scheme=http"
        asked: list[float] = []
        monkeypatch.setattr(storage, "time", SimpleNamespace(sleep=asked.append))
        monkeypatch.setattr(storage, "S3_ATTEMPTS", 1)
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        for known in (False, True):
            if known:
                Places(tmp_path, tmp_path, tmp_path, url=url).attach()
            with pytest.raises(ShortageError):
                attach(url, tmp_path).read(tmp_path / "a")
            assert asked == [*storage.PAUSES] * known


def test_a_server_that_takes_nothing_is_a_shortage_and_leaves_nothing_here(server: Server, tmp_path: Path) -> None:
    twin = attach(server.url("bucket/full"), tmp_path / "here")
    twin.check()
    server.answer = lambda request: ("503 Slow Down", SLOW_DOWN) if request.startswith("PUT") else None
    with pytest.raises(ShortageError, match=r"does not answer as it should"):
        write_atomic(twin.folder / "runs" / "a", b"1")
    server.answer = lambda request: None
    assert content(twin.folder) == {} and twin.read(twin.folder / "runs" / "a") is None


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("nobody/x", r"cannot be written: .*NO_SUCH_BUCKET"),
        ("bucket/../y", "names no folder"),
    ],
)
def test_what_cannot_be_is_refused_at_once(server: Server, tmp_path: Path, place: str, words: str) -> None:
    with pytest.raises(FplError, match=words):
        attach(server.url(place)).check()


@pytest.mark.parametrize("scheme", ["hdfs", "viewfs", "abfs", "abfss"])
def test_where_an_object_could_be_left_in_half_no_store_is_opened(scheme: str, tmp_path: Path) -> None:
    for given in (f"{scheme}://host/x", Path(f"{scheme}://host/x")):
        with pytest.raises(FplError, match=f"no store can be under {scheme}: an object is not replaced in one piece"):
            open_store(given)
    with pytest.raises(FplError, match="no store can be"):
        attach(f"{scheme}://host/x", tmp_path)


def test_unknown_options_of_a_server_are_named() -> None:
    with pytest.raises(FplError, match="unknown option 'regoin'; there are region, scheme, endpoint_override"):
        attach("s3://bucket/x?regoin=here").check()


CLIENT = """
import sys
from pathlib import Path
from fpl.files import write_atomic
from fpl.mirrors import attach
twin = attach(sys.argv[1], Path(sys.argv[2]))
write_atomic(twin.folder / "last.pt", b"n" * 12_000_000)
"""


def test_a_client_that_is_killed_while_it_sends_leaves_the_old_object(server: Server, tmp_path: Path) -> None:
    twin = attach(server.url("bucket/killed"), tmp_path / "here")
    write_atomic(twin.folder / "last.pt", b"old")
    begun, go_on = threading.Event(), threading.Event()

    def hold(request: str) -> None:
        # The first part of the large object: it is on its way, and never whole.
        if request.startswith("PUT"):
            begun.set()
            go_on.wait(60)

    server.answer = hold
    other = str(tmp_path / "other machine")
    with subprocess.Popen([sys.executable, "-c", CLIENT, twin.url, other], env={**os.environ}) as client:
        assert begun.wait(60)
        client.send_signal(signal.SIGKILL)
    go_on.set()
    server.answer = lambda request: None
    assert twin.read(twin.folder / "last.pt") == b"old"
    assert [path for path in content(Path(other)) if not Path(path).name.startswith(".")] == []


@pytest.mark.parametrize("size", [1000, 30_000_000])
def test_an_interrupt_while_it_sends_leaves_a_whole_object(server: Server, tmp_path: Path, size: int) -> None:
    twin = attach(server.url(f"bucket/interrupted{size}"), tmp_path / "here")
    path = twin.folder / "last.pt"
    write_atomic(path, b"old")

    def interrupt(request: str) -> None:
        # At the first request, which the client waits for: a large object is sent in parts after it.
        server.answer = lambda request: None
        os.kill(os.getpid(), signal.SIGINT)

    server.answer = interrupt
    with interruptible(), pytest.raises(KeyboardInterrupt):
        write_atomic(path, b"n" * size)
    assert twin.read(path) in (b"old", b"n" * size)
    assert path.read_bytes() == b"old"


def test_of_a_file_that_cannot_be_read_nothing_is_sent(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = attach(server.url("bucket/unread"), tmp_path / "here")
    path = twin.folder / "last.pt"
    write_atomic(path, b"old")
    server.requests.clear()

    class Failing(io.FileIO):
        """A disk that gives the beginning of a file alone."""

        def read(self, size: int | None = -1) -> bytes:
            if self.tell() or size is None or size < 0:
                raise OSError(errno.EIO, "Input/output error")
            return super().read(1)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda path, *arguments, **named: Failing(path))
        with pytest.raises(ShortageError, match="input/output error"):
            twin.put(path, path)
    assert twin.read(path) == b"old"


def test_a_part_that_is_not_taken_leaves_the_old_object(server: Server, tmp_path: Path) -> None:
    twin = attach(server.url("bucket/parts"), tmp_path / "here")
    path = twin.folder / "last.pt"
    write_atomic(path, b"old")
    parts = iter(range(100))
    server.answer = lambda request: (
        ("500 Internal Server Error", INTERNAL) if request.startswith("PUT") and next(parts) % 2 else None
    )
    with pytest.raises(ShortageError):
        write_atomic(path, b"n" * 30_000_000)
    server.answer = lambda request: None
    assert twin.read(path) == b"old"


def listed_then(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object], *unseen: str) -> None:
    """Let something happen when a listing is on its way, which does not have some names."""
    real = Mirror._listed

    def listed(self: Mirror, folder: Path) -> dict[Path, Any]:
        found = {path: info for path, info in real(self, folder).items() if path.name not in unseen}
        change()
        return found

    monkeypatch.setattr(Mirror, "_listed", listed)


def test_what_is_written_here_after_the_listing_stays(twin: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = twin.folder / "runs"
    for name in ("gone", "again"):
        write_atomic(runs / name, b"old")
    twin.delete(runs / "gone")

    def write() -> None:
        for name in ("new", "again"):
            write_atomic(runs / name, b"new")

    listed_then(monkeypatch, write, "again")
    refresh(runs)
    assert content(runs) == {"new": b"new", "again": b"new"}


def test_what_is_written_here_while_it_is_brought_stays(
    twin: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = twin.folder / "runs" / "a", copies.save
    (tmp_path / "there" / "runs").mkdir(parents=True)
    for bring in (lambda: refresh(path.parent), lambda: twin.fetch(path)):
        (tmp_path / "there" / "runs" / "a").write_bytes(b"of another machine")

        def save(*arguments: Any) -> str:
            digest = real(*arguments)
            write_atomic(path, b"new")
            return digest

        monkeypatch.setattr(copies, "save", save)
        bring()
        monkeypatch.undo()
        assert content(path.parent) == {"a": b"new"}


def test_what_goes_between_two_requests_is_gone(twin: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = twin.folder / "failures"
    for name in "ab":
        write_atomic(failures / name, b"1")
    there = tmp_path / "there" / "failures" / "a"
    there.write_bytes(b"longer")
    with monkeypatch.context() as patched:
        listed_then(patched, there.unlink)
        refresh(failures)
    assert content(failures) == {"b": b"1"}
    # Between writing and asking for its time.
    real = Mirror._info
    with monkeypatch.context() as patched:
        patched.setattr(Mirror, "_info", lambda self, path: (there.unlink(), real(self, path))[1])
        write_atomic(failures / "a", b"2")
    assert (failures / "a").read_bytes() == b"2" and not twin.fetch(failures / "a")
    assert content(failures) == {"b": b"1"}


def test_errors_of_this_disk_are_told_as_such_at_once(
    twin: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(storage, "time", SimpleNamespace(sleep=asked.append))
    path = twin.folder / "runs" / "a"
    write_atomic(path, b"1")
    (tmp_path / "there" / "runs" / "a").write_bytes(b"longer")

    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for act in (lambda: refresh(path.parent), lambda: twin.fetch(path), lambda: twin.put(path, path)):
        with monkeypatch.context() as patched:
            patched.setattr(Path, "open", full)
            with pytest.raises(ShortageError) as caught:
                act()
        assert (caught.value.where, caught.value.what) == (str(path), f"no space is left in {path.parent}")
    assert asked == [] and content(path.parent) == {"a": b"1"}
