"""Tables as GitHub-flavoured Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fpl.report.tables.entry import Entry, Grid
from fpl.report.tables.head_to_head import RULE
from fpl.report.tables.numbers import show
from fpl.report.tables.remarks import READING, gaps, head, legend, notes, scale_notes, title, warnings
from fpl.report.tables.summary import Summary


def markdown(grids: Sequence[Grid], summary: Summary | None = None) -> str:
    """The tables as one Markdown document."""
    parts = [f"# Tables at scale {escape(grids[0].scale.name)}", *map(escape, scale_notes(grids[0].scale))]
    if summary is not None:
        parts.append(_list(summary.lines))
        if summary.warnings:
            parts.append(_list([f"warning: {warning}" for warning in summary.warnings]))
    parts.append(READING)
    if summary is not None:
        parts.append(escape(RULE))
    if signs := legend(grids):
        parts.append(_list(signs))
    return "\n\n".join([*parts, *map(_section, grids)]) + "\n"


def _section(grid: Grid) -> str:
    texts, marks = notes(grid)
    parts = [
        f"## {escape(title(grid))}",
        f"`{grid.name}`: " + ". ".join(map(escape, head(grid))) + ".",
        _table(grid, marks),
    ]
    if texts:
        parts.append("\n".join(f"{number}. {escape(note)}" for number, note in enumerate(texts, start=1)))
    if missing := gaps(grid):
        parts.append(_list(missing))
    if found := warnings(grid):
        parts.append(_list([f"**warning**: {escape(warning)}" for warning in found], escaped=True))
    return "\n\n".join(parts)


def _table(grid: Grid, marks: dict[str, list[int]]) -> str:
    headers = [escape(column.name) for column in grid.columns]
    rows = [["", *headers], ["---"] * (len(headers) + 1)]
    for line in grid.lines:
        numbers = ", ".join(map(str, marks.get(line.row.key, [])))
        label = escape(line.row.label) + (f" <sup>{numbers}</sup>" if numbers else "")
        rows.append([f"*{label}*" if line.row.role == "cited" else label, *map(_cell, line.entries)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(entry: Entry) -> str:
    shown = show(entry)
    lines = [escape(line) for line in shown.lines]
    if shown.paper and shown.bold:
        lines[-1] = lines[-1].replace(shown.paper, f"**{shown.paper}**", 1)
    if shown.paper and shown.cited:
        lines[-1] = f"*{lines[-1]}*"
    return "<br>".join(lines)


def _list(lines: Sequence[str], *, escaped: bool = False) -> str:
    return "\n".join(f"- {line if escaped else escape(line)}" for line in lines)


def escape(text: str) -> str:
    """Text without meaning to Markdown, on one line."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
