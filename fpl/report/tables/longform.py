"""Tables as CSV in long form: one line per cell, everything a spreadsheet could want.

`arrow_ours` is the mean gain over the row's baseline, paired by seed; `arrow_low` and `arrow_high` are the ends of its
95 % interval (Student's t of `arrow_n` seeds), empty for one seed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from fpl.report.spreadsheet import harmless
from fpl.report.statistics import mean_interval
from fpl.report.tables.entry import Entry, Grid

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
    "arrow_low",
    "arrow_high",
    "arrow_n",
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
    cell, interval = entry.cell, mean_interval(entry.gains)
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
        _number(interval.low if interval is not None else None),
        _number(interval.high if interval is not None else None),
        len(entry.gains) or "",
        str(entry.verdict),
        harmless(entry.reason),
        " ".join(entry.runs),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    # Six decimals are more than any of it means, and hide that floats were added; + 0.0 makes -0 a 0.
    return f"{round(value, 6) + 0.0:.6f}".rstrip("0").rstrip(".")
