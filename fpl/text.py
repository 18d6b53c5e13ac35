"""Small pieces of text that several layers print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


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


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows with the same keys as text: a line of keys, a line per row, columns two blanks apart; numbers to the right.

    Returns an empty text for no rows.
    """
    if not rows:
        return ""
    columns = {key: [key, *(row[key] for row in rows)] for key in rows[0]}
    widths = {key: max(len(cell) for cell in cells) for key, cells in columns.items()}
    numeric = {
        key
        for key, (_, *cells) in columns.items()
        if all(cell.isdigit() or cell == "-" for cell in cells) and set(cells) != {"-"}
    }
    lines = [
        "  ".join(
            cells[number].rjust(widths[key]) if key in numeric else cells[number].ljust(widths[key])
            for key, cells in columns.items()
        ).rstrip()
        for number in range(len(rows) + 1)
    ]
    return "\n".join(lines)
