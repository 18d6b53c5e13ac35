"""Tables as CSV in long form: one line per cell, everything a spreadsheet could want."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from fpl.report.entry import Entry, Grid
from fpl.report.spreadsheet import harmless

FIELDS = (
    "table",
    "row",
    "column",
    "printed",
    "ours",
    "std",
    "n",
    "wanted",
    "difference",
    "arrow_printed",
    "arrow_ours",
    "verdict",
    "reason",
    "run_ids",
)


def longform(grids: Sequence[Grid]) -> str:
    """All cells of all tables under the header `FIELDS`; what is not there is empty.

    `run_ids` has a blank between two: `frame["run_ids"].str.split()` gives lists.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(FIELDS)
    for grid in grids:
        for entry in grid.entries:
            writer.writerow(_record(grid, entry))
    return stream.getvalue()


def _record(grid: Grid, entry: Entry) -> list[object]:
    cell = entry.cell
    return [
        grid.name,
        cell.row.key,
        cell.column.key,
        _number(cell.printed),
        _number(entry.ours),
        _number(entry.std),
        len(entry.runs),
        entry.wanted,
        _number(entry.difference),
        _number(cell.arrow),
        _number(entry.arrow),
        str(entry.verdict),
        harmless(entry.reason),
        " ".join(entry.runs),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    # Six decimals are more than any of it means, and hide that floats were added; + 0.0 makes -0 a 0.
    return f"{round(value, 6) + 0.0:.6f}".rstrip("0").rstrip(".")
