"""Archives as users get them: zip, tar with any compression, or the folder somebody unpacked; told by their bytes."""

from __future__ import annotations

import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from fpl.errors import FplError, file_error
from fpl.files import check_regular, is_hidden
from fpl.text import first_line

Report = Callable[[int, int], None]
"""Called with the bytes of an archive that are read and with all its bytes."""

LARGEST = 2**28
"""Bytes of the largest file that is taken out, as it is held in memory: no image of a data set comes near."""

_AGAIN = "download the archive again; what is written already stays, and the same command then continues"
# What the readers raise when bytes are not what they should be; ValueError: also names that are no text.
_DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, struct.error, ValueError,
    NotImplementedError,
)  # fmt: skip
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
# What macOS adds to zip archives.
_COMPANIONS = "__MACOSX"


@dataclass(frozen=True)
class Member:
    """A file of an archive.

    Attributes:
        name: Its path inside, folders separated by `/`.
        size: Bytes, unpacked.
        handle: By what its archive knows it.
        checksum: CRC-32 of its bytes, where the archive has one.
        obstacle: Why it cannot be read; empty if it can.
    """

    name: str
    size: int
    handle: Any = field(repr=False)
    checksum: int | None = None
    obstacle: str = ""


class _OutsideError(Exception):
    """A member would lie outside the folder that an archive is unpacked in."""


class _Format(Protocol):
    def members(self) -> Iterator[Member]: ...

    def read(self, handle: Any) -> bytes: ...


class Archive:
    """An open archive; its members in the order in which they lie there, without hidden files.

    Raises:
        FplError: It is cut off or damaged, or a member would lie or point outside the folder it is unpacked in.
    """

    def __init__(self, path: Path, opened: _Format) -> None:
        self.path = path
        self._format = opened
        with self._damage_told():
            self.members = [member for member in opened.members() if not _is_companion(member.name)]

    def read(self, member: Member) -> bytes:
        """The bytes of a member.

        Raises:
            FplError: It is damaged, encrypted, a link, or larger than `LARGEST`; names archive and member.
        """
        where = f"{self.path}, {member.name}"
        if member.obstacle:
            raise FplError(f"the file {member.obstacle}", where=where, hint=_AGAIN)
        if member.size > LARGEST:
            what = f"the file has {member.size:,} bytes, more than the limit of {LARGEST:,}"
            raise FplError(what, where=where, hint="no image or label is so large: is this the right archive?")
        with self._damage_told(member.name):
            content = self._format.read(member.handle)
            if len(content) != member.size:
                raise EOFError(f"{len(content)} of {member.size} bytes")
            return content

    @contextmanager
    def _damage_told(self, name: str = "") -> Iterator[None]:
        where = f"{self.path}, {name}" if name else str(self.path)
        try:
            yield
        except (tarfile.FilterError, _OutsideError) as error:
            hint = "nothing of this archive is taken: get it from where the data set is published"
            raise FplError(f"a hostile archive: {error}", where=where, hint=hint) from error
        except (*_DAMAGE, OSError) as error:
            # The gzip reader's complaints are errors of the system without a number.
            if isinstance(error, OSError) and error.errno is not None:
                raise file_error(error, self.path) from error
            raise FplError(f"the archive is cut off or damaged ({error})", where=where, hint=_AGAIN) from error


@contextmanager
def open_archives(paths: list[Path], report: Report) -> Iterator[list[Archive]]:
    """Open archives and folders and list their members; one that is given twice is opened once.

    Args:
        paths: Files or folders.
        report: Called while a tar archive is read through, which has no list of its members.

    Raises:
        FplError: There is no such file, or it is no archive, or as `Archive`.
    """
    distinct = list({path.resolve(): path for path in paths}.values())
    for path in distinct:
        # Reading through the first of them may take a while.
        if not path.exists():
            raise FplError("no such file", where=str(path), hint="give the archives as they were downloaded")
    with ExitStack() as stack:
        yield [_open(path, stack, report) for path in distinct]


def open_tree(root: Path, tops: Iterable[str]) -> Archive:
    """What is at `root` already, as an archive: files called `tops` and those below folders called so."""
    return Archive(root, _Folder(root, "", sorted(tops)))


def _open(path: Path, stack: ExitStack, report: Report) -> Archive:
    if path.is_dir():
        # Its own name counts as a part of the paths: it may be the innermost folder. Hidden, it hides nothing.
        return Archive(path, _Folder(path, path.resolve().name.lstrip(".")))
    check_regular(path)
    try:
        file = stack.enter_context(path.open("rb"))
        beginning = file.read(512)
        file.seek(0)
    except OSError as error:
        raise file_error(error, path) from error
    try:
        if beginning.startswith(_ZIP):
            return Archive(path, _Zip(stack.enter_context(zipfile.ZipFile(file))))
        return Archive(path, _Tar(stack.enter_context(tarfile.open(fileobj=file)), file, report))
    except (*_DAMAGE, OSError) as error:
        raise _no_archive(path, beginning, error) from error


def _no_archive(path: Path, beginning: bytes, error: Exception) -> FplError:
    if beginning.startswith(_ZIP):
        what = f"the archive is cut off or damaged: no list of members at its end ({first_line(error)})"
        return FplError(what, where=str(path), hint=_AGAIN)
    if beginning.startswith(_COMPRESSED):
        return FplError("the archive is cut off or damaged at its beginning", where=str(path), hint=_AGAIN)
    if beginning.lstrip().startswith(b"<"):
        hint = "log in at the site and download the archive itself"
        return FplError("this is a web page and no archive", where=str(path), hint=hint)
    what = "neither a zip nor a tar archive" if beginning else "the file is empty"
    return FplError(what, where=str(path), hint="give the archives as they were downloaded, or the unpacked folders")


class _Zip:
    def __init__(self, opened: zipfile.ZipFile) -> None:
        self._zip = opened

    def members(self) -> Iterator[Member]:
        for info in self._zip.infolist():
            if not info.is_dir():
                yield Member(_inside(info.filename), info.file_size, info, info.CRC, self._obstacle(info))

    def read(self, handle: zipfile.ZipInfo) -> bytes:
        return self._zip.read(handle)

    @staticmethod
    def _obstacle(info: zipfile.ZipInfo) -> str:
        if stat.S_ISLNK(info.external_attr >> 16):
            return "is a link"
        if info.flag_bits & 1:
            return "is encrypted"
        known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
        return "" if info.compress_type in known else f"has the unknown compression {info.compress_type}"


class _Tar:
    def __init__(self, opened: tarfile.TarFile, file: BinaryIO, report: Report) -> None:
        self._tar, self._file, self._report = opened, file, report

    def members(self) -> Iterator[Member]:
        size = os.fstat(self._file.fileno()).st_size
        for info in self._tar:
            self._report(self._file.tell(), size)
            # The filter refuses what lies or points outside; links are never made, wherever they point.
            safe = tarfile.data_filter(info, "/fpl")
            if not info.isdir():
                yield Member(_inside(safe.name), info.size, info, obstacle="" if info.isreg() else "is a link")
        self._check_end()

    def read(self, handle: tarfile.TarInfo) -> bytes:
        content = self._tar.extractfile(handle)
        assert content is not None, "a regular file"
        return content.read()

    def _check_end(self) -> None:
        """Where a header is damaged or the file ends early, tarfile just stops; only zeros mark the end."""
        stream = self._tar.fileobj
        assert stream is not None
        stream.seek(self._tar.offset)
        if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("there is no end mark behind the last file that can be read")
        # To its last byte: a compressed file has its checksum there.
        while stream.read(2**20):
            pass


class _Folder:
    """An unpacked archive: links are followed, as data sets are often spread over disks."""

    def __init__(self, path: Path, prefix: str, tops: Sequence[str] = (".",)) -> None:
        self._path, self._prefix, self._tops = path, prefix, tops

    def members(self) -> Iterator[Member]:
        for path in (path for top in self._tops for path in self._files(self._path / top)):
            inside = _inside(f"{self._prefix}/{path.relative_to(self._path).as_posix()}")
            yield Member(inside, path.stat().st_size, path)

    def read(self, handle: Path) -> bytes:
        return handle.read_bytes()

    @staticmethod
    def _files(top: Path) -> Iterator[Path]:
        if top.is_file():
            yield top
        seen: set[str] = set()
        for folder, folders, names in os.walk(top, followlinks=True):
            seen.add(os.path.realpath(folder))
            visible = (name for name in folders if not is_hidden(name))
            # A link may lead back to where it stands.
            folders[:] = sorted(name for name in visible if os.path.realpath(f"{folder}/{name}") not in seen)
            yield from (path for path in (Path(folder, name) for name in sorted(names)) if path.is_file())


def _inside(name: str) -> str:
    """The path of a member with `/` between its parts, as Windows' programs do not always write it."""
    parts = name.replace("\\", "/").split("/")
    if ".." in parts:
        raise _OutsideError(f"{name!r} would lie outside the folder it is unpacked in")
    return "/".join(part for part in parts if part not in ("", "."))


def _is_companion(name: str) -> bool:
    return any(is_hidden(part) or part == _COMPANIONS for part in name.split("/"))
