"""The runs behind a figure: found through the cells of the tables, by recipe digest, finished runs only."""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from fpl.config.campaign import Campaign
from fpl.config.cells import Cell
from fpl.config.experiment import Experiment
from fpl.config.figure import Figure, Series
from fpl.errors import FplError
from fpl.report.tables.entry import Entry
from fpl.report.tables.grid import build_grid
from fpl.store.lookup import Lookup, Record
from fpl.store.read import Results


@dataclass(frozen=True)
class Found:
    """One series of a figure.

    Attributes:
        label: As in the legend.
        cell: The cell whose runs it shows.
        records: Its finished runs (rows of `Results.runs`), by seed.
        reason: Why runs are missing; empty if none is.
    """

    label: str
    cell: Cell
    records: tuple[Record, ...]
    reason: str = ""


@dataclass(frozen=True)
class Source:
    """What the numbers of a figure are made of.

    Attributes:
        found: Its series, in the order of its file.
        campaign: The tables at one scale.
        lookup: Runs by recipe.
        results: The store; None where nothing has been run.
    """

    found: tuple[Found, ...]
    campaign: Campaign
    lookup: Lookup
    results: Results | None

    @property
    def drawn(self) -> tuple[Found, ...]:
        """Series with a finished run."""
        return tuple(item for item in self.found if item.records)

    @cached_property
    def records(self) -> list[Record]:
        """All finished runs behind the figure, each once."""
        return list({str(record["run_id"]): record for item in self.found for record in item.records}.values())

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Name -> entry of every cell of the tables that the series are of."""
        tables = dict.fromkeys(item.cell.experiment.name for item in self.found)
        grids = (build_grid(self.campaign, table, self.lookup) for table in tables)
        return {name: entry for grid in grids for name, entry in grid.every.items()}

    def fuzziness(self, record: Record) -> pd.DataFrame:
        """Rows of `Results.fuzziness` of one run."""
        if self.results is None:
            return pd.DataFrame()
        frame = self.results.fuzziness
        rows: pd.DataFrame = frame[frame["run_id"] == record["run_id"]]
        return rows


def make_source(figure: Figure, campaign: Campaign, results: Results | None, lookup: Lookup) -> Source:
    """Find the runs of a figure.

    Raises:
        FplError: A series that names no cell of any table.
    """
    return Source(tuple(find_series(figure, campaign, lookup)), campaign, lookup, results)


def find_series(figure: Figure, campaign: Campaign, lookup: Lookup) -> list[Found]:
    """The series of a figure; one per cell that its wildcards name, those that are never run left out.

    Raises:
        FplError: A series that names no cell of any table.
    """
    found = []
    for series in figure.series:
        check_cells(figure, series, campaign.every)
        cells = [
            cell
            for cells in campaign.tables.values()
            for cell in cells
            if cell.configs and fnmatch.fnmatchcase(cell.name, series.cells)
        ]
        found += [_found(_label(series, cell, cells), cell, lookup) for cell in cells]
    return found


def check_cells(figure: Figure, series: Series, experiments: Sequence[Experiment]) -> None:
    """Refuse a series that names no cell of any table, whether its runs are part of the campaign or not.

    Raises:
        FplError: No table, row or column of these names.
    """
    names = [
        f"{item.name}.{row.key}.{column.key}" for item in experiments for row in item.rows for column in item.columns
    ]
    if not fnmatch.filter(names, series.cells):
        raise FplError(
            f"{series.cells!r} names no cell",
            where=f"figure {figure.name}",
            hint="TABLE.ROW.COLUMN with wildcards, for example table4.fpl_cps.*; `fpl tables TABLE` shows the rows",
        )


def missing(figure: Figure, source: Source) -> str:
    """`not run: ` and the command that makes the runs that a figure lacks, and which failed; empty if it lacks none."""
    gaps = {item.cell.name: item.reason for item in source.found if item.reason}
    if not gaps:
        return ""
    failed = [f"{name} {reason}" for name, reason in gaps.items() if reason.startswith("failed")]
    return "; ".join([f"not run: {command(figure, source, list(gaps))}", *failed])


def command(figure: Figure, source: Source, names: Sequence[str]) -> str:
    """What makes the runs of some cells of a figure: by the names that its file gives them."""
    given = [series.cells for series in figure.series if any(fnmatch.fnmatchcase(name, series.cells) for name in names)]
    listed = " ".join(shlex.quote(name) for name in dict.fromkeys(given))
    return f"fpl reproduce {listed} --scale {source.campaign.scale_name}"


def _label(series: Series, cell: Cell, cells: Sequence[Cell]) -> str:
    words = {"row": cell.row.label, "column": cell.column.header}
    if series.label:
        return series.label.replace("{row}", words["row"]).replace("{column}", words["column"])
    keys = [("row", {item.row.key for item in cells}), ("column", {item.column.key for item in cells})]
    telling = [words[name] for name, found in keys if len(found) > 1]
    return ", ".join(telling) or words["row"]


def _found(label: str, cell: Cell, lookup: Lookup) -> Found:
    records = tuple(lookup.runs[recipe] for recipe in cell.recipes if recipe in lookup.runs)
    gaps = [str(lookup.failures.get(recipe, "not run")) for recipe in cell.recipes if recipe not in lookup.runs]
    reason = "; ".join(dict.fromkeys(gaps))
    return Found(label, cell, records, reason)
