"""Writing files so that a kill at any moment leaves the old content or the new, never half of it."""

from __future__ import annotations

import hashlib
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


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the renames inside a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
