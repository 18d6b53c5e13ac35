"""Small pieces of text that several layers print."""

from __future__ import annotations

import datetime
import difflib
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

# What a terminal would obey, or would show in another order than it is written: control characters but for tabs and
# new lines, separators of lines and paragraphs, marks of direction; and halves of characters, which no file can hold.
_HIDDEN = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNPRINTABLE = re.compile(f"[{_HIDDEN}\ud800-\udfff]")
_NO_LINE = re.compile(f"[{_HIDDEN}\t\n\ud800-\udfff]")
# The same for a library whose texts are UTF-8, and cannot hold the halves.
UNPRINTABLE = "[" + re.sub(r"\\u(\w{4})", r"\\x{\1}", _HIDDEN) + "]"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Text without what a terminal would obey: a replacement character stands for each of these."""
    return _UNPRINTABLE.sub(REPLACEMENT, text)


def one_line(text: str) -> str:
    """The same of a name, which may also hold line ends and tabs and is to stay on its line."""
    return _NO_LINE.sub(REPLACEMENT, text)


def is_plain(text: str) -> bool:
    """Whether a text, and what it holds as JSON, surely has nothing that `printable` replaces; quickly told."""
    return "\\" not in text and text.isprintable()


def say(text: str) -> None:
    """Tell the user what happens, on standard error: standard output is for what was asked for."""
    print(printable(text), file=sys.stderr, flush=True)


def answer(text: str, *, end: str = "\n", flush: bool = False) -> None:
    """What was asked for, on standard output."""
    print(printable(text), end=end, flush=flush)


def printable_tree(value: Any) -> Any:
    """The same for all texts and keys of nested lists and mappings."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [printable_tree(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): printable_tree(item) for key, item in value.items()}
    return value


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name most like a word; empty if none is."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)), "")


def meant(word: str, known: Iterable[str]) -> str:
    """`did you mean NAME? `, the beginning of a hint, with the known name most like a word; empty if none is."""
    near = nearest(word, known)
    return f"did you mean {near}? " if near else ""


_TERMINAL_CODE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def duration(seconds: float) -> str:
    """`42 s`, `3:05`, `2:03:05`, `4 d 02:03`."""
    whole = max(0, round(seconds))
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24:02d}:{minute:02d}"
    if hours:
        return f"{hours}:{minute:02d}:{second:02d}"
    return f"{minute}:{second:02d}" if whole >= 60 else f"{whole} s"


def enumerate_briefly(items: Iterable[object], limit: int = 10) -> str:
    """The first `limit` items joined by commas, each on one line, and how many more there are."""
    names = [one_line(str(item)) for item in items]
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")


def shortened(text: str, width: int) -> str:
    """A text without its middle if it is wider: `synthetic_city-c…879315a6`. Of 12 characters something is left."""
    if len(text) <= width:
        return text
    room = max(width, 12) - 1
    return f"{text[: room - 8]}…{text[-8:]}"


def timestamp() -> str:
    """The time now, to the second, with its zone: `2026-01-31T12:00:00+00:00`."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def aligned(rows: Sequence[Sequence[str]], right: Collection[int]) -> list[str]:
    """One line per row, columns two blanks apart; the columns numbered in `right` end at the same place."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows with the same keys as text: a line of keys, a line per row; columns of numbers to the right.

    Returns an empty text for no rows.
    """
    if not rows:
        return ""
    cells = [list(rows[0]), *(list(row.values()) for row in rows)]
    numeric = {
        number
        for number, (_, *column) in enumerate(zip(*cells, strict=True))
        if all(cell.isdigit() or cell == "-" for cell in column) and set(column) != {"-"}
    }
    return "\n".join(aligned(cells, numeric))


def first_line(error: BaseException, limit: int = 200) -> str:
    """What an error says, cut to one line without terminal codes; the name of its class if it says nothing."""
    lines = _TERMINAL_CODE.sub("", str(error)).strip().splitlines()
    line = "".join(letter for letter in lines[0] if letter.isprintable()) if lines else ""
    return line[:limit] or type(error).__name__


def plural(count: float, word: str, several: str = "", spec: str = ",") -> str:
    """`1 run`, `2 runs`; `several` where that is no mere s, `spec` as numbers are written (`g`: `0.5 CPUs`)."""
    return f"{count:{spec}} {word if count == 1 else several or word + 's'}"


def size_text(count: float) -> str:
    """Bytes with as many digits as an estimate is worth: `36 kB`, `3.9 MB`, `28 GB`."""
    units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
    unit, each = next(((unit, each) for unit, each in units if count >= each), units[-1])
    return f"{count / each:,.{1 if count < 10 * each else 0}f} {unit}"
