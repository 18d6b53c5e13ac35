"""One folder on object storage and the folder of this machine that all work is done in, kept equal to it.

The object storage is the truth. A file is sent there, in one piece, before it gets its name here; what is not there is
not here either. So a kill at any moment leaves whole objects, and any number of machines can share a store without a
rename or a lock.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from fpl import copies
from fpl.errors import FplError, ShortageError
from fpl.storage import HINT, list_folder, open_storage, patiently

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileInfo, FileSystem

SCRATCH_VARIABLE = "FPL_SCRATCH"
# Small objects are many: what takes time is to ask for each.
AT_ONCE = 16


@dataclass(frozen=True)
class Mirror:
    """One folder on object storage and the one of this machine that stands for it.

    Attributes:
        url: `s3://BUCKET/PATH`, or of another scheme, perhaps with options of the server behind a `?`.
        folder: Where its files are here, an absolute path.
    """

    url: str
    folder: Path

    def put(self, content: Path, path: Path) -> None:
        """Send the bytes of the file `content` as the object that stands for `path`.

        Raises:
            ShortageError: The server does not take them.
            FplError: The file cannot be read.
        """
        with copies.on_disk(path):
            data = content.read_bytes()  # all of it, before anything is asked for: it cannot fail half-way

        def send() -> None:
            # What ends a stream completes what it was given. No signal can: those come to the main thread alone.
            with ThreadPoolExecutor(1) as apart:
                apart.submit(self._write, self._name(path), data).result()

        patiently(self.url, send, path.name)
        # What is here carries the server's time: so it is known to be what is there.
        if (info := self._info(path)).is_file:
            with copies.on_disk(path):
                copies.date(content, info)

    def _write(self, name: str, data: bytes) -> None:
        """Write an object: of anybody who looks, each finds the old one or this one."""
        if self._files.type_name != "local":
            with self._files.open_output_stream(name) as stream:
                stream.write(data)
            return
        folder, _, _ = name.rpartition("/")
        temporary = f"{folder}/.{secrets.token_hex(8)}.tmp"
        self._files.create_dir(folder, recursive=True)
        try:
            with self._files.open_output_stream(temporary) as stream:
                stream.write(data)
            self._files.move(temporary, name)
        except OSError:
            with contextlib.suppress(OSError):
                self._files.delete_file(temporary)
            raise

    def delete(self, path: Path) -> None:
        """Remove the object that stands for `path`, if there is one."""

        def delete() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._files.delete_file(self._name(path))

        patiently(self.url, delete, path.name)

    def fetch(self, path: Path) -> bool:
        """Bring one file here unless it is here as it is there; whether there is one. If not, none is left here."""
        before = copies.changed(path)
        info = self._info(path)
        if info.is_file and (copies.is_same(path, info) or self._bring(path, info, before)):
            return True
        copies.remove_unless_changed(path, before)
        return False

    def fetch_again(self, path: Path) -> bool:
        """Bring a file that is here and seems damaged once more; whether it is another one now."""
        before = copies.changed(path)
        info = self._info(path)
        if before is None or not info.is_file:
            return False
        content = None
        with contextlib.suppress(OSError):  # it may not even be readable
            content = path.read_bytes()
        return self._bring(path, info, before) and path.read_bytes() != content

    def pull(
        self,
        folder: Path,
        say: Callable[[str], None] = lambda text: None,
        spared: Mapping[str, tuple[int, int]] | None = None,
    ) -> dict[str, tuple[int, int]]:
        """Make a folder (not those in it) here what it is there; hidden files are left alone.

        Args:
            folder: One below `self.folder`, or that itself.
            say: Takes a line for the user where much is to be brought.
            spared: Name -> size and time (ns) of files that need not be brought where they are still just so.

        Returns:
            Those of them that were not brought, and are not here.
        """
        # First: what a process of this machine writes from here on is newer than the listing.
        here = {path: copies.changed(path) for path in copies.visible_files(folder)}
        there = {path: info for path, info in self._listed(folder).items() if info.is_file}
        wanted = [(path, info) for path, info in there.items() if not copies.is_same(path, info)]
        known = spared or {}
        left = {path.name: known[path.name] for path, info in wanted if known.get(path.name) == copies.version(info)}
        wanted = [each for each in wanted if each[0].name not in left]
        if len(wanted) > 10 * AT_ONCE:
            say(f"fetching {len(wanted)} files of {self.url}/{folder.relative_to(self.folder)} into {folder}")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            brought = [*pool.map(lambda each: self._bring(each[0], each[1], here.get(each[0])), wanted)]
        gone = {path for (path, _), found in zip(wanted, brought, strict=True) if not found}
        for path, before in here.items():
            if path not in there or path in gone or path.name in left:
                copies.remove_unless_changed(path, before)
        copies.remove_left_overs(folder)
        return left

    def folders(self, folder: Path) -> list[str]:
        """Names of the folders in one."""
        return sorted(path.name for path, info in self._listed(folder).items() if not info.is_file)

    def time_of(self, path: Path) -> float | None:
        """When an object was written by the clock of the server, in seconds; None if there is none."""
        info = self._info(path)
        return info.mtime_ns / 1e9 if info.is_file else None

    def read(self, path: Path) -> bytes | None:
        """The bytes of an object; None if there is none."""

        content = b""

        def take(stream: NativeFile) -> str:
            nonlocal content
            content = bytes(stream.read())
            return copies.md5(content).hexdigest()

        return content if self._receive(self._name(path), take) else None

    def check(self) -> None:
        """Write an object and remove it.

        Raises:
            FplError: That is not possible.
        """
        name = f".fpl-check-{secrets.token_hex(8)}"
        probe = self.folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"may this be written?")
            self.put(probe, probe)
            self.delete(probe)
        except ShortageError as error:
            raise FplError(f"cannot be written: {error.what}", where=self.url, hint=HINT) from None
        except OSError as error:
            hint = f"name a folder of this machine by --scratch or {SCRATCH_VARIABLE}"
            raise FplError(f"cannot be written: {error.strerror}", where=str(self.folder), hint=hint) from None
        finally:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)

    @cached_property
    def _opened(self) -> tuple[FileSystem, str]:
        return open_storage(self.url)

    @property
    def _files(self) -> FileSystem:
        return self._opened[0]

    def _name(self, path: Path) -> str:
        inside = path.relative_to(self.folder).as_posix()
        return self._opened[1] if inside == "." else f"{self._opened[1]}/{inside}"

    def _info(self, path: Path) -> FileInfo:
        found: FileInfo = patiently(self.url, lambda: self._files.get_file_info(self._name(path)), path.name)
        return found

    def _listed(self, folder: Path) -> dict[Path, FileInfo]:
        """What lies in a folder there: one request for a thousand objects.

        Raises:
            FplError: There is no such bucket.
        """
        name = self._name(folder)
        found: list[FileInfo] = patiently(self.url, lambda: list_folder(self._files, name), folder.name)
        return {folder / info.base_name: info for info in found if not info.base_name.startswith(".")}

    def _receive(self, name: str, take: Callable[[NativeFile], str]) -> bool:
        opened = partial(self._files.open_input_stream, name)
        return patiently(self.url, lambda: copies.receive(opened, take, self.url), name.rpartition("/")[2])

    def _bring(self, path: Path, info: FileInfo, before: int | None) -> bool:
        """Write a file here that is there, unless one has been written here since `before`; whether it is still there.

        Raises:
            ShortageError: The server does not give it.
            FplError: It cannot be written.
        """
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")

        try:
            if not self._receive(info.path, lambda stream: copies.save(stream, temporary, path)):
                return False
            with copies.on_disk(path):
                copies.date(temporary, info)
                # Else a process of this machine has written it meanwhile: no less new.
                if copies.changed(path) == before:
                    temporary.replace(path)
            return True
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
