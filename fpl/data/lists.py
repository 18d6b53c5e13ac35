"""Small text files: lists of ids and JSON records, read with clear errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fpl.errors import FplError


def enumerate_briefly(items: Iterable[object], limit: int = 10) -> str:
    """The first `limit` items joined by commas, and how many more there are."""
    names = [str(item) for item in items]
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")


def duplicates(ids: Sequence[str]) -> list[str]:
    """Ids that stand more than once in `ids`, in order of their second appearance."""
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for image_id in ids:
        if image_id in seen:
            repeated[image_id] = None
        seen.add(image_id)
    return list(repeated)


def read_lines(path: Path) -> list[str]:
    """Entries of a list file, one per line.

    Windows line ends, a byte order mark, blank lines, lines starting with `#`, blanks around an entry and a missing
    final line end are all accepted: published lists have each of them.

    Raises:
        FplError: The file cannot be read or is not UTF-8 text.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FplError("the list is not UTF-8 text", where=str(path), hint="save it as plain text") from error
    except OSError as error:
        raise FplError(f"the list cannot be read ({error.strerror})", where=str(path)) from error
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def read_record(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is no such file.

    Raises:
        FplError: The file holds something else.
    """
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FplError(f"not valid JSON ({error})", where=str(path)) from error
    if not isinstance(record, dict):
        raise FplError(f"a JSON object is expected, not {type(record).__name__}", where=str(path))
    return record
