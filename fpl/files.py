"""Writing files so that a kill at any moment leaves the old content or the new, never half of it.

What lies in the mirror of a folder on object storage (`fpl.mirror`) is written, moved and removed there first.
Every error of the file system that is met here becomes an `FplError` with the file and a remedy.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import itertools
import operator
import os
import secrets
import shutil
import stat
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import filelock

from fpl.errors import FplError, ShortageError, check_name, file_error
from fpl.mirrors import mirror_of
from fpl.text import size_text

# What file systems without such a call (CIFS, shared folders of virtual machines, some FUSE) answer to it.
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


def visible(folder: Path, pattern: str) -> list[Path]:
    """Files below a folder that fit a pattern (`*.toml`, `**/*.py`), sorted; none where there is no such folder.

    Hidden ones are left out, and what lies in hidden folders; links count as files, even those to nothing.
    """
    found = sorted(path for path in folder.glob(pattern) if not path.is_dir())
    return [path for path in found if not any(map(is_hidden, path.relative_to(folder).parts))]


def is_hidden(name: str) -> bool:
    """Whether a file or folder is none of ours whatever its ending: macOS's `._a.png`, caches, half-written files."""
    return name.startswith(".")


def check_regular(path: Path, where: str = "") -> None:
    """Refuse what cannot be read as a file, before it is opened: a pipe is waited for without end, a device never ends.

    A folder, and what is not there, are left to who opens it.

    Raises:
        FplError: It is a pipe, a device or a socket, or a link to one; or no file can have such a name.
    """
    check_name(path, where)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"
        raise FplError(
            f"is a {kind}, no regular file",
            where=where or str(path),
            hint="name a regular file: write what it gives to one first",
        )


def damaged_member(path: Path) -> str | None:
    """The first member of a zip archive, as torch saves, that is not what its checksum is of; None for none.

    torch does not look at the checksums.

    Raises:
        Exception: It is no such archive, or cannot be read: zip, zlib and the system's errors.
    """
    with zipfile.ZipFile(path) as archive:
        return archive.testzip()


def check_folder(path: Path, where: str, hint: str) -> None:
    """Refuse a file where a folder is needed; what is not there is left to who opens or makes it.

    Raises:
        FplError: It is there, and no folder, or a link to none; or no folder can have such a name.
    """
    check_name(path, where)
    if path.exists() and not path.is_dir():
        raise FplError("is a file, and a folder is needed", where=where, hint=hint)
    if path.is_symlink() and not path.exists():
        raise FplError("is a link to nothing, and a folder is needed", where=where, hint=hint)


def check_output(path: Path, where: str = "") -> None:
    """Refuse the name of a file that could not be written, before the work whose result it would hold.

    Raises:
        FplError: It names a folder, lies below a file, or is a pipe or a device, which a file would take the place of;
            or no file can have such a name.
    """
    where = where or str(path)
    check_name(path, where)
    if not path.name or path.is_dir():
        raise FplError("is a folder, and a file is to be written", where=where, hint="name a file in it")
    check_regular(path, where)
    if {Path("/dev"), Path("/proc")} & {*path.absolute().parents}:
        # What they name is another's: a file would take the place of the name.
        raise FplError(
            "is no place for a file", where=where, hint="leave the option out for the terminal, or name a file"
        )
    if (parent := next((each for each in path.parents if each.exists()), None)) and not parent.is_dir():
        raise FplError(f"{parent} is a file, and a folder is needed", where=where, hint="name another folder")


def write_atomic(path: Path, content: bytes | Callable[[BinaryIO], object], sync: bool = True) -> None:
    """Write `path` by way of a hidden temporary file in the same folder: written, synced, renamed, folder synced.

    Args:
        path: Final name; missing parent folders are made.
        content: The bytes, or a function that writes them to the open file.
        sync: False leaves it to the system when the disk has it, for thousands of files that can be made again: a
            kill loses nothing, a power cut may damage the last ones. End with `os.sync()`.

    Raises:
        FplError: It cannot be written; nothing half-written stays. A `ShortageError` where that is the machine's fault.
    """
    if not path.name or _is_device(path):
        check_output(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The leading dot hides a left-over from readers of the folder. Nobody can have put a file or a link there.
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            _write(temporary, content, sync)
            if (mirror := mirror_of(path)) is not None:
                mirror.put(temporary, path)
            os.replace(temporary, path)  # noqa: PTH105 - what may fail goes through one module
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                temporary.unlink(missing_ok=True)
            raise
        if sync:
            sync_folder(path.parent)
    except OSError as error:
        raise file_error(error, path) from error


def _is_device(path: Path) -> bool:
    """Whether a device has this name, for everybody: a file would take its place, where rights allow it."""
    try:
        mode = path.lstat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def remove(path: Path) -> None:
    """Remove a file if it is there."""
    if (mirror := mirror_of(path)) is not None:
        mirror.delete(path)
    path.unlink(missing_ok=True)


def move(path: Path, target: Path) -> None:
    """Give a file another name in the same folder; a file of that name is replaced."""
    if (mirror := mirror_of(path)) is not None:
        mirror.put(path, target)
    path.replace(target)
    if mirror is not None:
        mirror.delete(path)


def keep(path: Path, name: Path | None = None) -> None:
    """Of a file that was not written by `write_atomic`: send what it holds where its mirror has it, or has `name`."""
    if (mirror := mirror_of(path)) is not None and path.is_file():
        mirror.put(path, name or path)


def keep_lines(path: Path) -> None:
    """As `keep`, of a log that is continued on other machines: it then has their lines, too, here and there."""
    if (mirror := mirror_of(path)) is None:
        return
    there = io.BytesIO(mirror.read(path) or b"").readlines()
    # Other processes of this machine may have it open: nothing that is in it moves.
    with path.open("ab+") as log:
        log.seek(0)
        here = log.readlines()
        same = sum(1 for _ in itertools.takewhile(bool, map(operator.eq, here, there)))
        log.writelines(there[same:])
    if here[same:]:
        mirror.put(path, path)


def remove_left_overs(folder: Path, idle: float = 0.0) -> None:
    """Remove the temporary files of killed writers.

    Args:
        folder: Where they lie; it need not exist.
        idle: Only those that nobody has written to for so many seconds. 0, all of them, is for who holds the lock on
            all writing to the folder.
    """
    # In a folder that is not ours alone those of `write_atomic`: other programs hide files too.
    for path in folder.glob(f".{'[0-9a-f]' * 16}.tmp" if idle else ".*.tmp"):
        with contextlib.suppress(FileNotFoundError):  # its writer has finished it
            if not idle or time.time() - path.stat().st_mtime > idle:
                path.unlink()


class _Raw(io.FileIO):
    """An open file that remembers why a write failed: torch's writer only says that one did."""

    failed: OSError | None = None

    def write(self, data: Any) -> int:
        """Write some of the bytes; how many."""
        try:
            return super().write(data)
        except OSError as error:
            self.failed = error
            raise


def _write(temporary: Path, content: bytes | Callable[[BinaryIO], object], sync: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    raw = _Raw(os.open(temporary, flags, 0o666), "wb")
    try:
        with io.BufferedWriter(raw) as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
    except Exception as error:
        raise raw.failed or error from error
    finally:
        raw.close()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    check_regular(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_changed(path: Path, content: bytes, sync: bool = True) -> bool:
    """`write_atomic`, unless the file holds just that; whether it was written."""
    if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return False
    write_atomic(path, content, sync)
    return True


def check_room(folder: Path, needed: int, hint: str) -> None:
    """Refuse to begin what the disk has no room for.

    Args:
        folder: Where it goes; it need not exist.
        needed: Bytes.
        hint: What to do beside making room.

    Raises:
        ShortageError: Says how much is needed and how much is free.
    """
    there = next(each for each in (folder, *folder.resolve().parents) if each.is_dir())
    free = shutil.disk_usage(there).free
    if needed > free:
        what = f"not enough room: {size_text(needed)} are needed, {size_text(free)} are free; nothing was written"
        raise ShortageError(what, where=str(there), hint=f"make room, {hint}")


def sync_folder(folder: Path) -> None:
    """Make the renames inside a folder survive a power cut, where its file system can do that."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold a lock file, which ends with the process however it ends.

    Args:
        path: The lock file; missing parent folders are made.
        patience: Seconds to wait for another process.

    Raises:
        filelock.Timeout: Another process holds it.
        FplError: The file system does not allow it.
    """
    lock = filelock.FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=patience)
    except filelock.Timeout:
        raise
    except OSError as error:
        raise file_error(error, path) from error
    try:
        yield
    finally:
        lock.release()
