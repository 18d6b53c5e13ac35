"""Names of files and images: which are seen, which can stand in a list, which may be written."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from fpl.errors import FplError
from fpl.text import enumerate_briefly, plural

LONGEST = 79
"""Bytes of the longest file name that we make of somebody else's."""

_DIGITS = 8


def normal(name: str) -> str:
    """The name in Unicode's composed form (NFC), by which images are known; disks may hold another."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def forms(name: str) -> tuple[str, ...]:
    """A name as a disk may hold it: as given, and decomposed (NFD), as macOS writes it."""
    return (name,) if name.isascii() else tuple(dict.fromkeys((name, unicodedata.normalize("NFD", name))))


def is_utf8(name: str) -> bool:
    """Whether a name as the system gives it is text; other bytes come as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def check_utf8(names: Iterable[str], where: Path) -> None:
    """Refuse file names that are no UTF-8.

    Raises:
        FplError: Shows the bytes of the names.
    """
    if wrong := [repr(os.fsencode(name))[1:] for name in names if not is_utf8(name)]:
        raise FplError(
            f"{plural(len(wrong), 'file name', spec='d')} not in UTF-8: {enumerate_briefly(sorted(wrong))}",
            where=repr(os.fsencode(where))[2:-1] if not is_utf8(str(where)) else str(where),
            hint="rename them (convmv does many at once): lists and results could not name them",
        )


def bounded(stem: str, ending: str = "") -> str:
    """`stem + ending`, the stem shortened to a beginning and 8 hex digits of its SHA-256 where it is too long.

    Returns:
        At most `LONGEST` bytes in UTF-8.
    """
    if len((stem + ending).encode()) <= LONGEST:
        return stem + ending
    digest = hashlib.sha256(stem.encode()).hexdigest()[:_DIGITS]
    room = LONGEST - len(ending.encode()) - _DIGITS - 1
    # Cut between characters.
    return f"{stem.encode()[:room].decode(errors='ignore')}-{digest}{ending}"
