"""One table as HTML: a section with a heading, the table in a box that scrolls by itself, and its notes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from markupsafe import Markup

from fpl.report.tables.entry import Grid
from fpl.report.tables.numbers import show
from fpl.report.tables.remarks import gaps, head, notes, title, warnings
from fpl.report.template import render


def section(grid: Grid) -> Markup:
    """A `<section>` whose id is the table's name."""
    texts, marks = notes(grid)
    return render(
        "section.html",
        name=grid.name,
        title=title(grid),
        head=head(grid),
        table=table(grid, marks=marks),
        notes=texts,
        gaps=gaps(grid),
        warnings=[f"warning: {warning}" for warning in warnings(grid)],
    )


def table(grid: Grid, roles: Collection[str] = (), marks: Mapping[str, Sequence[int]] | None = None) -> Markup:
    """The `<table>` alone.

    Args:
        grid: The table.
        roles: Of the rows that are shown (`Row.role`); empty for all.
        marks: Key of a row -> numbers of its notes.
    """
    groups = [(name, len(list(columns))) for name, columns in groupby(grid.columns, key=lambda column: column.group)]
    lines = [line for line in grid.lines if not roles or line.row.role in roles]
    grouped = groups if any(name for name, _ in groups) else []
    return render("table.html", grid=grid, lines=lines, groups=grouped, marks=marks or {}, show=show)
