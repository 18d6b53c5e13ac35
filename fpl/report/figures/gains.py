"""What cells gain on other cells of their table, over seeds: numbers and drawing of the figures of kind `gains`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fpl.config.cells import Cell
from fpl.config.figure import Figure
from fpl.errors import FplError
from fpl.report.figures.quantities import numbers
from fpl.report.figures.series import Found, Source
from fpl.report.statistics import mean_interval
from fpl.report.svg import COLORS, INK, MARKERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# As a key of `over`: the row or column that the table itself holds a cell against.
OWN = ""
GAINS = ["series", "cell", "over", "gain", "low", "high", "seeds"]


def gains(figure: Figure, source: Source) -> pd.DataFrame:
    """What each series gains on each of the rows or columns that `options.over` names, paired by seed.

    Args:
        figure: Its option `over` has keys of columns (of the same row) or of rows (of the same column); without it,
            each cell is held against what its table holds it against.
        source: Its runs.

    Returns:
        One row per cell and other cell that share a seed: `over` (header or label of the other), `gain` (mean over
        seeds in points), `low` and `high` (95 % interval by Student's t; NaN for one seed), `seeds`.
    """
    rows = []
    for key in figure.figure.options.get("over", [OWN]):
        for item, over, by_seed in differences(source, key):
            if not (values := list(by_seed.values())):
                continue
            interval = mean_interval(values)
            ends = (interval.low, interval.high) if interval else (None, None)
            rows.append([item.label, item.cell.name, over, float(np.mean(values)), *ends, len(values)])
    frame = pd.DataFrame(rows, columns=GAINS)
    for name in ("gain", "low", "high"):
        frame[name] = numbers(frame[name])
    return frame.astype({"seeds": int})


def differences(source: Source, over: str = OWN) -> list[tuple[Found, str, dict[int, float]]]:
    """Differences of the series that have another cell to be held against, in points of mIoU.

    Args:
        source: The runs.
        over: Key of the other column or row.

    Returns:
        The series, the name of the other column or row, and seed -> difference; empty where no seed has both runs.

    Raises:
        FplError: A key that is no row or column of the table.
    """
    entries = source.entries
    found = []
    for item in source.found:
        name, other = _other(item.cell, over)
        if other in entries:
            ours, theirs = entries[item.cell.name].values, entries[other].values
            shared = sorted(ours.keys() & theirs.keys())
            found.append((item, name, {seed: ours[seed] - theirs[seed] for seed in shared}))
    return found


def paint(figure: Canvas, frame: pd.DataFrame, options: Mapping[str, Any]) -> None:
    """A line per series: the mean and its interval over seeds, a color and sign for each of what it is held against."""
    names, others = list(dict.fromkeys(frame["series"])), list(dict.fromkeys(frame["over"]))
    figure.set_size_inches(figure.get_figwidth(), 0.8 + 0.13 * (len(frame) + len(names)) + 0.18 * len(others))
    chart = figure.subplots()
    chart.patch.set_visible(False)
    chart.grid(True, axis="x")
    chart.axvline(0.0, color=INK, linewidth=0.8)
    # The lines of a series lie around its tick.
    among = frame.groupby("series").cumcount() - (frame.groupby("series")["over"].transform("size") - 1) / 2
    heights = frame["series"].map(names.index) + among / (1 + len(frame) / len(names))
    for place, other in enumerate(others):
        group = frame[frame["over"] == other]
        middle = group["gain"].to_numpy()
        spread = np.abs(group[["low", "high"]].to_numpy() - middle[:, None]).T
        # One seed has no interval: then neither have the signs of the legend.
        whiskers = None if np.isnan(spread).all() else np.nan_to_num(spread)
        look: dict[str, Any] = {"color": COLORS[place % len(COLORS)], "fmt": MARKERS[place % len(MARKERS)]}
        look |= {"label": f"over {other}", "elinewidth": 1.0, "capsize": 2, "markersize": 4}
        chart.errorbar(middle, heights[group.index], xerr=whiskers, **look)
    chart.set_yticks(range(len(names)), names)
    chart.set_ylim(len(names) - 0.5, -0.5)
    chart.set_xlabel("gain in points of mIoU")
    figure.legend(loc="outside upper left", ncols=1, handlelength=1.8, borderaxespad=0.1)


def _other(cell: Cell, key: str) -> tuple[str, str]:
    """What a cell is held against: a name for a reader and that of its cell; both empty for nothing, or itself."""
    table = cell.experiment
    key = key or cell.column.over or cell.row.over
    columns = {column.key: column for column in table.columns}
    rows = {row.key: row for row in table.rows}
    if key in columns:
        return (columns[key].name, f"{table.name}.{cell.row.key}.{key}") if key != cell.column.key else (OWN, OWN)
    if key in rows:
        return (rows[key].label, f"{table.name}.{key}.{cell.column.key}") if key != cell.row.key else (OWN, OWN)
    if key:
        hint = f"columns: {', '.join(columns)}; rows: {', '.join(rows)}"
        raise FplError(f"{key!r} is no column or row to be over", where=f"table {table.name}", hint=hint)
    return OWN, OWN
