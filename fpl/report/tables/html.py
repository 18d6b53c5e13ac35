"""One table as HTML: a section with a heading, the table in a box that scrolls by itself, and its notes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from fpl.report.elements import bullets, scroll
from fpl.report.tables.entry import Entry, Grid, Line
from fpl.report.tables.numbers import show
from fpl.report.tables.remarks import gaps, head, notes, title, warnings


def section(grid: Grid) -> str:
    """A `<section>` whose id is the table's name."""
    texts, marks = notes(grid)
    heading = escape(title(grid))
    rows = [_row(line, marks.get(line.row.key, [])) for line in grid.lines]
    parts = [
        f'<section id="{grid.name}">',
        f'<h2><a href="#{grid.name}">{heading}</a></h2>',
        f'<p class="head">{escape("; ".join(head(grid)))}</p>',
        scroll(title(grid), "\n".join(["<table>", *_header(grid), "<tbody>", *rows, "</tbody>", "</table>"])),
        *([f'<ol class="notes">{"".join(f"<li>{escape(note)}</li>" for note in texts)}</ol>'] if texts else []),
        *bullets("gaps", gaps(grid)),
        *bullets("warnings", [f"warning: {warning}" for warning in warnings(grid)]),
        "</section>",
    ]
    return "\n".join(parts)


def _header(grid: Grid) -> list[str]:
    grouped = any(column.group for column in grid.columns)
    corner = f'<td{" rowspan=2" if grouped else ""} class="label"></td>'
    names = "".join(f'<th scope="col">{escape(column.header)}</th>' for column in grid.columns)
    if not grouped:
        return [f"<thead><tr>{corner}{names}</tr></thead>"]
    groups = "".join(
        f'<th scope="colgroup" colspan="{len(list(columns))}">{escape(group)}</th>'
        for group, columns in groupby(grid.columns, key=lambda column: column.group)
    )
    return [f"<thead><tr>{corner}{groups}</tr>", f"<tr>{names}</tr></thead>"]


def _row(line: Line, marks: Sequence[int]) -> str:
    numbers = f"<sup>{', '.join(map(str, marks))}</sup>" if marks else ""
    cells = "".join(f'<td class="{entry.state}">{_cell(entry)}</td>' for entry in line.entries)
    return (
        f'<tr class="{line.row.role}"><th scope="row" class="label">{escape(line.row.label)}{numbers}</th>{cells}</tr>'
    )


def _cell(entry: Entry) -> str:
    shown = show(entry)
    lines = []
    if shown.ours:
        direction = "up" if shown.arrow.startswith("↑") else "down"
        parts = [f'<span class="ours">{escape(shown.ours)}</span>']
        if shown.spread:
            parts.append(f'<span class="spread">{escape(shown.spread)}</span>')
        if shown.arrow:
            parts.append(f'<span class="{direction}">{escape(shown.arrow)}</span>')
        if shown.mark:
            parts.append(f'<abbr title="{escape(str(entry.verdict))}">{escape(shown.mark)}</abbr>')
        lines.append(f"<div>{' '.join(parts)}</div>")
    if shown.word:
        lines.append(f'<div class="word" title="{escape(entry.reason)}">{escape(shown.word)}</div>')
    if shown.paper:
        number = f"<b>{escape(shown.paper)}</b>" if shown.bold else escape(shown.paper)
        arrow = f" {escape(shown.paper_arrow)}" if shown.paper_arrow else ""
        lines.append(f'<div class="paper">{"cited" if shown.cited else "paper"} {number}{arrow}</div>')
    return "".join(lines) or "–"
