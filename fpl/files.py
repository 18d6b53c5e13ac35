"""Writing files so that a kill at any moment leaves the old content or the new, never half of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomic(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Write `path` by way of a hidden temporary file in the same folder: written, synced, renamed, folder synced.

    Args:
        path: Final name; missing parent folders are made.
        content: The bytes, or a function that writes them to the open file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The leading dot hides a left-over from readers of the folder; the process id keeps two writers apart.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_changed(path: Path, content: bytes) -> bool:
    """`write_atomic`, unless the file holds just that; whether it was written."""
    if path.is_file() and path.read_bytes() == content:
        return False
    write_atomic(path, content)
    return True


def sync_folder(folder: Path) -> None:
    """Make the renames inside a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
