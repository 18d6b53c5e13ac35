"""What a row of FPL gains over the rows that it is held against, over columns and seeds, and what follows by a rule.

`head_to_head` counts wins over all tables; here each row of one table is judged by itself, by an interval over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fpl.config.experiment import Row
from fpl.report.statistics import CONFIDENCE, Interval, mean_interval
from fpl.report.tables.entry import Grid
from fpl.text import plural

RULE = (
    "A difference is that of two runs of one column and one seed, each pair once. Runs of one seed draw the same "
    "batches and may see the same images, so those of all columns give one number a seed, their mean, and the "
    f"{100 * CONFIDENCE:.0f} % interval is Student's t over seeds. FPL helps a row if the interval lies above 0 "
    "against its baseline and against each control that trains on the unlabeled images; if against the baseline only, "
    "the gain is not FPL's own; a control whose interval lies below 0 is named. Seeds draw other batches and heads, "
    "not other images."
)
HELPS, NOT_ITS_OWN, HURTS, NOTHING = "FPL helps", "the gain is not FPL's own", "FPL hurts", "nothing is shown"


@dataclass(frozen=True)
class Gain:
    """One row over another.

    Attributes:
        ours: Label of the row.
        other: Label of what it is held against.
        values: Differences in points, that over all columns of each seed; with one seed, that of each column.
    """

    ours: str
    other: str
    values: tuple[float, ...]

    @property
    def interval(self) -> Interval | None:
        """Of the mean; None for fewer than two differences."""
        return mean_interval(self.values)

    @property
    def sign(self) -> int:
        """1 or -1 where the interval lies on one side of 0, else 0."""
        found = self.interval
        return 0 if found is None else int(found.low > 0) - int(found.high < 0)

    @property
    def text(self) -> str:
        """`+0.42 (-0.31 to +1.15, n = 9)`: mean and interval in points."""
        found = self.interval
        if found is None:
            return f"{self.values[0]:+.2f} (n = 1)" if self.values else "not run"
        return f"{np.mean(self.values):+.2f} ({found.low:+.2f} to {found.high:+.2f}, n = {len(self.values)})"

    def __str__(self) -> str:
        return f"{self.other}: {self.text}"


@dataclass(frozen=True)
class RowGains:
    """A row of FPL against all that its table holds against it.

    Attributes:
        table: Number of the table.
        baseline: Against the row that it replaces one loss of.
        controls: Against the controls that train on unlabeled images.
        labeled: Of the row, and of its baseline, against labeled images alone.
    """

    table: str
    baseline: Gain
    controls: tuple[Gain, ...]
    labeled: tuple[Gain, ...]

    @property
    def verdict(self) -> str:
        """By `RULE`, in words."""
        below = ", ".join(gain.other for gain in self.controls if gain.sign < 0)
        return self._against_baseline + (f"; less than {below}" if below else "")

    @property
    def _against_baseline(self) -> str:
        if self.baseline.sign <= 0:
            return HURTS if self.baseline.sign else NOTHING
        if not all(gain.values for gain in self.controls):
            return "more than its baseline; a control is not run"
        if any(gain.interval is None for gain in self.controls):
            return "more than its baseline; of a control there is one difference, which has no interval"
        return HELPS if all(gain.sign > 0 for gain in self.controls) else NOT_ITS_OWN

    @property
    def line(self) -> str:
        """All of it in one sentence."""
        listed = [str(gain) for gain in (self.baseline, *self.controls)]
        text = f"{self.baseline.ours} ({self.table}) in points against {'; '.join(listed)}: {self.verdict}"
        said = {1: "more than", -1: "less than", 0: "not told apart from"}
        parts = [f"{gain.ours} is {said[gain.sign]} {gain}" for gain in self.labeled if gain.interval is not None]
        return ". ".join([text, *parts])


def row_gains(grids: Sequence[Grid], *, single: bool = False) -> tuple[RowGains, ...]:
    """The rows of FPL in tables of mIoU with more than one seed a cell; empty where every cell has one.

    Args:
        grids: Tables of one scale.
        single: Also of tables where every cell has one seed: the interval is then over columns.
    """
    found = []
    for grid in grids:
        several = single or any(entry.measured > 1 for entry in grid.every.values())
        for row in grid.experiment.rows if several and grid.experiment.table.metric == "miou" else ():
            if row.role != "proposed" or not row.over:
                continue
            if (baseline := _gain(grid, row, grid.experiment.row(row.over))).values:
                found.append(_against_all(grid, row, baseline))
    return tuple(found)


def column_gains(grid: Grid) -> tuple[Gain, ...]:
    """What columns gain over others (`Column.over`): of each seed the mean over the rows that have both, as two runs.

    One number a seed, so that an interval is over seeds: rows of one seed see the same images.
    """
    found = []
    for number, column in enumerate(grid.columns):
        ours = [line.entries[number] for line in grid.lines if column.over and line.entries[number].gains]
        pairs = [(each, grid.every[f"{grid.name}.{each.cell.row.key}.{column.over}"]) for each in ours]
        if pairs:
            seeds = set.intersection(*({*one.values} & {*other.values} for one, other in pairs))
            values = (np.mean([one.values[s] - other.values[s] for one, other in pairs]) for s in sorted(seeds))
            below = grid.experiment.column(column.over)
            label = f"{column.name} ({plural(len(pairs), 'row')})"
            found.append(Gain(label, below.name, tuple(map(float, values))))
    return tuple(found)


def _against_all(grid: Grid, row: Row, baseline: Gain) -> RowGains:
    controls = grid.experiment.controls(row)
    below = grid.experiment.row(row.over)
    return RowGains(
        grid.experiment.table.number,
        baseline,
        tuple(_gain(grid, row, other) for other in controls if not other.labeled_only),
        tuple(_gain(grid, ours, other) for other in controls if other.labeled_only for ours in (row, below)),
    )


def _gain(grid: Grid, row: Row, other: Row) -> Gain:
    """Differences of two rows, each pair of runs once: columns of a small scale may show the same runs."""
    found: dict[int, dict[tuple[str, str], float]] = {}
    for column in grid.experiment.columns:
        ours, theirs = (grid.every.get(f"{grid.name}.{each.key}.{column.key}") for each in (row, other))
        if ours is not None and theirs is not None:
            for seed in sorted(ours.values.keys() & theirs.values.keys()):
                pair = ours.recipe_of[seed], theirs.recipe_of[seed]
                found.setdefault(seed, {})[pair] = ours.values[seed] - theirs.values[seed]
    # A seed that lacks a column waits: its mean would be of other columns.
    most = max(map(len, found.values()), default=0)
    seeds = [list(pairs.values()) for _, pairs in sorted(found.items()) if len(pairs) == most]
    values = [float(np.mean(each)) for each in seeds] if len(seeds) > 1 else [value for each in seeds for value in each]
    return Gain(row.label, other.label, tuple(values))
