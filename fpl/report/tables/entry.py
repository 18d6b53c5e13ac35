"""One table as numbers: what a cell, a row and a grid hold. All renderers start from here."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fpl.config.cells import Cell
from fpl.config.experiment import Column, Experiment, Row
from fpl.config.scale import ScaleFile
from fpl.report.statistics import Interval, Spread, mean_interval, sample_std
from fpl.report.tables.verdict import Verdict
from fpl.store.lookup import Lookup, Record

# What stands in a cell: ours (of all or some seeds), only the paper's number, or nothing.
State = Literal["measured", "partial", "setting", "cited", "pending", "failed", "missing", "dash"]


@dataclass(frozen=True)
class Entry:
    """One cell of a grid.

    Attributes:
        cell: The cell it shows.
        state: What there is to show.
        values: Seed -> our value: mIoU in percent, seconds per epoch, or T.
        runs: Ids of the runs behind `values`.
        gains: Ours - the run that the row or the column is `over`, of each seed that both have.
        printed_gain: What the paper's numbers give for it, which is not always the arrow that it prints.
        verdict: What it says about the paper.
        reason: Why values are missing; empty if none is.
        records: Rows of `Results.runs` behind `values`.
        fuzzy_share: Share of the pixels that taught that had K > 1, mean over runs: NaN where none taught, None where
            the table does not ask.
    """

    cell: Cell
    state: State
    values: Mapping[int, float] = field(default_factory=dict)
    runs: tuple[str, ...] = ()
    gains: tuple[float, ...] = ()
    printed_gain: float | None = None
    verdict: Verdict = field(default_factory=Verdict)
    reason: str = ""
    records: tuple[Record, ...] = ()
    fuzzy_share: float | None = None

    @property
    def ours(self) -> float | None:
        """Our mean over the measured seeds, or None."""
        return float(np.mean(list(self.values.values()))) if self.values else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds; None for fewer than two."""
        return sample_std(list(self.values.values()))

    @property
    def arrow(self) -> float | None:
        """Mean of the gains; None where either side is missing."""
        return float(np.mean(self.gains)) if self.gains else None

    @property
    def interval(self) -> Interval | None:
        """Of the gain over another column, by seeds; None for fewer than two, or where no column is named."""
        return mean_interval(self.gains) if self.cell.column.over else None

    @functools.cached_property
    def recipe_of(self) -> dict[int, str]:
        """Recipe digest of each seed that the cell asks for."""
        return {config.seed: recipe for config, recipe in zip(self.cell.configs, self.cell.recipes, strict=True)}

    @property
    def difference(self) -> float | None:
        """Ours - printed, or None where either is missing."""
        ours, printed = self.ours, self.cell.printed
        return None if ours is None or printed is None else ours - printed

    @property
    def measured(self) -> int:
        """Seeds with a value."""
        return len(self.values)

    @property
    def wanted(self) -> int:
        """Seeds that the cell asks for."""
        return len(self.cell.configs)

    @property
    def bold(self) -> bool:
        """Whether the paper prints its number bold."""
        return self.cell.column.key in self.cell.row.bold


@dataclass(frozen=True)
class Line:
    """One row of a grid: its entries, one per column."""

    row: Row
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Grid:
    """One table.

    Attributes:
        experiment: The table as data.
        scale: The scale of its runs.
        columns: Columns that are shown.
        lines: Rows that are shown.
        seeds: Seeds of every cell.
        repeated: Spread of one run repeated with the same seed, in points of the metric, or None if not measured.
        over_seeds: Spread over the seeds of one setting, or None where each setting was run with one seed.
        lookup: Where the runs came from.
        every: Cell name -> entry, of rows and columns too that are not shown.
    """

    experiment: Experiment
    scale: ScaleFile
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    seeds: tuple[int, ...]
    repeated: Spread | None
    over_seeds: Spread | None
    lookup: Lookup
    every: Mapping[str, Entry]

    @property
    def name(self) -> str:
        """What commands call the table."""
        return self.experiment.name

    @property
    def entries(self) -> list[Entry]:
        """All entries, row by row."""
        return [entry for line in self.lines for entry in line.entries]
