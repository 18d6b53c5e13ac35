"""Tables as CSV in long form: one line per cell, everything a spreadsheet could want.

`arrow_ours` is the mean gain over the row's baseline, paired by seed; `arrow_low` and `arrow_high` are the ends of its
95 % interval (Student's t of `arrow_n` seeds), empty for one seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fpl.report.spreadsheet import csv_bytes
from fpl.report.statistics import mean_interval
from fpl.report.tables.entry import Entry, Grid


def longform(grids: Sequence[Grid]) -> str:
    """All cells of all tables; what is not there is empty.

    `run_ids` has a blank between two: `frame["run_ids"].str.split()` gives lists.
    """
    return csv_bytes(
        pd.DataFrame([_record(grid, entry) for grid in grids for entry in grid.entries]), digits=12
    ).decode()


def _record(grid: Grid, entry: Entry) -> dict[str, object]:
    cell, interval = entry.cell, mean_interval(entry.gains)
    return {
        "table": grid.name,
        "row": cell.row.key,
        "column": cell.column.key,
        "printed": _number(cell.printed),
        "ours": _number(entry.ours),
        "std": _number(entry.std),
        "n": len(entry.runs),
        "wanted": entry.wanted,
        "difference": _number(entry.difference),
        "arrow_printed": _number(cell.arrow),
        "arrow_ours": _number(entry.arrow),
        "arrow_low": _number(interval.low if interval is not None else None),
        "arrow_high": _number(interval.high if interval is not None else None),
        "arrow_n": len(entry.gains) or "",
        "verdict": str(entry.verdict),
        "reason": entry.reason,
        "run_ids": " ".join(entry.runs),
    }


def _number(value: float | None) -> float | None:
    # Six decimals are more than any of it means, and hide that floats were added; + 0.0 makes -0 a 0.
    return None if value is None else round(value, 6) + 0.0
