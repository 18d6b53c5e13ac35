"""Files of this machine that stand for objects on object storage (`fpl.mirror`): written, compared and removed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fpl.errors import file_error

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileInfo

# Seconds after which nobody is still writing a temporary file.
LONG_AGO = 86400.0
# URLs of storages whose ETags are not the MD5 of what objects hold.
_OTHER_ETAGS: set[str] = set()


@contextlib.contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Tell errors of the disk as those of a file: they are none of the server, which asking again could mend."""
    try:
        yield
    except OSError as error:
        raise file_error(error, path) from error


def receive(opened: Callable[[], NativeFile], take: Callable[[NativeFile], str], url: str) -> bool:
    """Take what an object holds; whether there is one.

    Args:
        opened: Opens the object.
        take: Reads all of it and gives the MD5 of the bytes; called again where these are not what the server has.
        url: Of the storage.

    Raises:
        OSError: They are not, however often: the library takes an answer that is too short for a whole one.
    """
    came = ""
    while True:
        try:
            with opened() as stream:
                before, came = came, take(stream)
                promised = (stream.metadata() or {}).get("ETag", b"").decode().strip('"')
        except FileNotFoundError:
            return False
        # That of an object that was sent in parts is another text.
        if url in _OTHER_ETAGS or len(promised) != len(came) or came == promised:
            return True
        if came == before:
            # Where objects are encrypted by a key of the bucket's owner, all have another text.
            _OTHER_ETAGS.add(url)
            return True
        if before:
            raise OSError(f"what came has the MD5 {came}, and what is there {promised}")


def md5(content: bytes = b"") -> hashlib._Hash:
    """As servers compute it; it guards nothing."""
    return hashlib.md5(content, usedforsecurity=False)


def save(stream: NativeFile, temporary: Path, path: Path) -> str:
    """Write what a server sends into a temporary file beside `path`, which errors of the disk name; the bytes' MD5."""
    digest = md5()
    with on_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = temporary.open("wb")
    try:
        while block := stream.read(2**22):
            digest.update(block)
            with on_disk(path):
                file.write(block)
    finally:
        with on_disk(path):
            file.close()
    return digest.hexdigest()


def visible_files(folder: Path) -> Iterable[Path]:
    """Files in a folder (not in those in it) that are not hidden; none where there is no such folder."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if not path.name.startswith(".") and not path.is_dir()]


def remove_left_overs(folder: Path) -> None:
    """Remove the temporary files of processes that were killed while they fetched or wrote."""
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            # Not by the time of its content, which may be that of an object there.
            if time.time() - path.stat().st_ctime > LONG_AGO:
                path.unlink()


def changed(path: Path) -> int | None:
    """When a file was written or dated last; None if there is none."""
    try:
        return path.stat().st_ctime_ns
    except FileNotFoundError:
        return None


def remove_unless_changed(path: Path, before: int | None) -> None:
    """Remove a file, but not one that was written since `changed` said `before`."""
    if before is not None and changed(path) == before:
        path.unlink(missing_ok=True)


def is_same(path: Path, info: FileInfo) -> bool:
    """Whether a file here is what is there. Servers tell time in whole seconds at one request, not at another."""
    try:
        here = path.stat()
    except FileNotFoundError:
        return False
    return (here.st_size, here.st_mtime_ns // 10**9 * 10**9) == version(info)


def version(info: FileInfo) -> tuple[int, int]:
    """Size and time of a file that is there; the same as of it here, by whatever request they are known."""
    return info.size, info.mtime_ns // 10**9 * 10**9


def date(path: Path, info: FileInfo) -> None:
    """Give a file here the time of what is there."""
    _, time_there = version(info)
    os.utime(path, ns=(time_there, time_there))
