"""What a file of `torch.save` holds beside tensors, found without running any of it."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

# Larger lists of contents than any network's are not looked at.
_MOST_BYTES = 64 * 2**20
# The first that torch before 1.6 wrote.
_MARK = 0x1950A86A20F9469CFC6C
# What tensors and their containers are made of.
_HARMLESS = ("torch", "torch._utils", "torch.storage", "torch._tensor", "torch.nn.parameter", "collections")


class _Inert:
    """Stands for every object of the file: takes whatever is done to it and does nothing."""

    def __new__(cls, *_: Any, **__: Any) -> _Inert:
        self = super().__new__(cls)
        self.keys = []
        return self

    def __init__(self, *_: Any, **__: Any) -> None:
        self.keys: list[Any]

    def __call__(self, *_: Any, **__: Any) -> _Inert:
        return self

    def __setstate__(self, state: Any) -> None:
        """Nothing is kept."""

    def __setitem__(self, key: Any, value: Any) -> None:
        self.keys.append(key)

    def append(self, value: Any) -> None:
        """Nothing is kept."""

    def extend(self, values: Any) -> None:
        """Nothing is kept."""


class _Looker(pickle.Unpickler):
    """Reads the structure alone: no class of the file is ever imported, none of its functions called."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.classes: list[str] = []

    def find_class(self, module: str, name: str) -> Any:
        """An inert class in place of the one that is named."""
        if module not in _HARMLESS and f"{module}.{name}" not in self.classes:
            self.classes.append(f"{module}.{name}")
        return _Inert

    def persistent_load(self, pid: Any) -> Any:
        """Storages are left where they are."""
        return None


def inside(path: Path) -> tuple[list[str], list[str]]:
    """Keys of the table that a file of `torch.save` holds, and the classes in it that are no tensors.

    Both are empty for a file that is none, or is damaged.
    """
    try:
        content, classes = _in_archive(path) if zipfile.is_zipfile(path) else _in_pickles(path)
    except Exception:  # a damaged file can raise anything; that it cannot be read is said by who asked
        return [], []
    keys = content.keys() if isinstance(content, dict) else content.keys if isinstance(content, _Inert) else ()
    return [str(key) for key in keys], classes


def _in_archive(path: Path) -> tuple[Any, list[str]]:
    with zipfile.ZipFile(path) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith("/data.pkl")]
        if archive.getinfo(name).file_size > _MOST_BYTES:
            return None, []
        looker = _Looker(io.BytesIO(archive.read(name)))
    return looker.load(), looker.classes


def _in_pickles(path: Path) -> tuple[Any, list[str]]:
    """The same of torch before 1.6, which wrote a mark and two lists of its own first, or of Python's `pickle`."""
    with path.open("rb") as file:
        looker = _Looker(file)
        content = looker.load()
        for _ in range(3 if content == _MARK else 0):
            looker = _Looker(file)
            content = looker.load()
    return content, looker.classes
