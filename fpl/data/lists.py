"""Small text files: lists of ids and JSON records, read with clear errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fpl.errors import NAME_HINT, FplError, name_problem
from fpl.files import check_regular
from fpl.text import enumerate_briefly, shortened


def duplicates(ids: Sequence[str]) -> list[str]:
    """Ids that stand more than once in `ids`, in order of their second appearance."""
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for image_id in ids:
        if image_id in seen:
            repeated[image_id] = None
        seen.add(image_id)
    return list(repeated)


def read_ids(path: Path, parse: Callable[[str], str]) -> list[str]:
    """The id of each entry of a list file, one per line.

    Windows line ends, a byte order mark, blank lines, lines starting with `#`, blanks around an entry and a missing
    final line end are all accepted: published lists have each of them.

    Args:
        path: The file.
        parse: Id of an entry; raises `FplError` for one that has none.

    Raises:
        FplError: The file cannot be read or is not UTF-8 text, or entries have no id, or one that no file can be named
            by: all are named with their lines.
    """
    return _parse(_text(path), parse, str(path))


def parse_ids(content: bytes, parse: Callable[[str], str], where: str) -> list[str]:
    """`read_ids` of the bytes of a list that is no file yet."""
    return _parse(_decoded(content, where), parse, where)


def lines_by_id(path: Path, parse: Callable[[str], str]) -> dict[str, list[int]]:
    """Id -> numbers of the lines where it stands, from 1; empty where the file cannot be read."""
    found: dict[str, list[int]] = {}
    try:
        for number, line in _numbered(_text(path)):
            found.setdefault(parse(line), []).append(number)
    except FplError:
        return {}
    return found


def repeated_ids(path: Path, ids: Sequence[str], parse: Callable[[str], str]) -> list[str]:
    """Ids that stand more than once in `ids`, with the lines of the file they were read from."""
    repeated = duplicates(ids)
    lines = lines_by_id(path, parse) if repeated else {}
    return [f"{each} (lines {', '.join(map(str, lines[each]))})" if each in lines else each for each in repeated]


def list_text(ids: Sequence[str], parse: Callable[[str], str], where: str) -> bytes:
    """A list file of the ids, one a line, from which the same ids are read.

    Raises:
        FplError: Ids that would be read as something else; all are named.
    """

    def survives(image_id: str) -> bool:
        try:
            return _parse(f"{image_id}\n".encode().decode(), parse, where) == [image_id]
        except (FplError, UnicodeEncodeError):
            return False

    if wrong := [repr(image_id) for image_id in ids if not survives(image_id)]:
        raise FplError(
            f"{len(wrong)} names cannot stand in a list: {enumerate_briefly(wrong)}",
            where=where,
            hint="rename these files: no blanks, tabs or line ends, no # in front, no folder or second ending",
        )
    return "".join(f"{image_id}\n" for image_id in ids).encode()


def _text(path: Path) -> str:
    check_regular(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FplError(f"the list cannot be read ({error.strerror})", where=str(path)) from error
    return _decoded(content, str(path))


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FplError("the list is not UTF-8 text", where=where, hint="save it as plain text") from error


def _numbered(text: str) -> list[tuple[int, str]]:
    # Only line ends separate entries; `splitlines` would also do so at rarer signs that a name may hold.
    lines = ((number, line.strip()) for number, line in enumerate(re.split(r"\r\n|\n|\r", text), start=1))
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


def _parse(text: str, parse: Callable[[str], str], where: str) -> list[str]:
    ids, wrong, hints = [], [], []
    for number, line in _numbered(text):
        try:
            image_id = parse(line)
            if problem := name_problem(image_id):
                raise FplError(f"{problem}: {shortened(repr(image_id), 80)}", hint=NAME_HINT)
            ids.append(image_id)
        except FplError as error:
            wrong.append(f"line {number}: {error.what}")
            hints.append(error.hint)
    if wrong:
        what = wrong[0] if len(wrong) == 1 else f"{len(wrong)} lines are no ids: {enumerate_briefly(wrong)}"
        raise FplError(what, where=where, hint="; ".join(dict.fromkeys(hints)))
    return ids


def read_record(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is no such file.

    Raises:
        FplError: The file holds something else.
    """
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FplError(f"not valid JSON ({error})", where=str(path)) from error
    if not isinstance(record, dict):
        raise FplError(f"a JSON object is expected, not {type(record).__name__}", where=str(path))
    return record
