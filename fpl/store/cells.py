"""The cells of the paper's tables as one pandas frame: the paper's number, and the runs of a store that measure it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fpl.config.campaign import BASE, TABLES
from fpl.config.cells import Cell, Resolver
from fpl.config.experiment import Experiment, load_experiments
from fpl.config.scale import read_scale
from fpl.errors import FplError
from fpl.files import visible
from fpl.store.columns import CELLS
from fpl.store.frames import described, in_order
from fpl.store.lookup import Lookup, Record, number

# Whose values are in the paper's order, so that groups and pivots are.
ORDERED = ("table", "row", "column")


def metric_column(cell: Cell) -> str:
    """Column of `Results.runs` that a cell with configurations shows."""
    selection = cell.experiment.table.selection
    return f"miou_{cell.configs[0].eval.protocol}_{selection}"


def measure(cell: Cell, record: Record) -> float | None:
    """The cell's metric of one run; None where the run does not have it.

    Seconds per epoch are the seconds of the training steps, validation left out, per pass over the unlabeled list. What
    counts as a pass is what the released code of the method calls an epoch (`epoch_images`).
    """
    if cell.experiment.table.metric == "miou":
        return number(record, metric_column(cell))
    seconds, images = number(record, "train_seconds"), number(record, "unlabeled_images")
    config = cell.configs[0]
    seen = config.train.steps * config.data.unlabeled_batch * config.method.epoch_images
    return seconds * images / seen if seconds is not None and images and seen else None


def cells_frame(lookup: Lookup, experiments: Path, where: str = "") -> pd.DataFrame:
    """One row per scale, table, row, column and seed, in the paper's order.

    A cell that is not run (cited, a dash in the paper, a setting) has one row without a seed; one whose run is missing
    has one without `run_id`, and `reason`. Of the scales those are there that the store has a run of.

    Args:
        lookup: The runs.
        experiments: `experiments/`, with `tables/`, `base/` and `scale/`.
        where: The store, for errors.

    Returns:
        Columns as `fpl.store.columns.CELLS` describes them; `table`, `row` and `column` are ordered categoricals.

    Raises:
        FplError: No run is of a cell, or a file of `experiments` is broken.
    """
    tables = load_experiments(experiments / TABLES)
    scales = visible(experiments / "scale", "*.toml")
    rows = [row for path in scales for row in _of_scale(path, tables, lookup.seeds, lookup)]
    if not rows:
        hint = "`runs` has them all; runs with overrides, and those of `fpl train`, are of no table"
        raise FplError(
            f"none of {len(lookup.runs)} runs is of a cell of {experiments / TABLES}", where=where, hint=hint
        )
    frame = pd.DataFrame(rows, columns=list(CELLS)).astype({"seed": "Int64"})
    names = {
        "table": [table.name for table in tables],
        "row": in_order([[row.key for row in table.rows] for table in tables]),
        "column": in_order([[column.key for column in table.columns] for table in tables]),
    }
    for name in ORDERED:
        frame[name] = pd.Categorical(frame[name], names[name], ordered=True)
    for name in ("printed", "arrow_printed", "ours"):
        frame[name] = frame[name].astype("float64")
    return described(frame, CELLS)


def gains_frame(cells: pd.DataFrame, table: str, row: str, over: str, where: str = "") -> pd.DataFrame:
    """Two rows of a table, column by column and seed by seed, each pair of runs once.

    At a small scale several columns show the same runs: counted as often as they are shown, they would make an interval
    too narrow. The interval that tables print is `fpl.report.statistics.mean_interval` of `gain`; of each seed's mean
    where there are several seeds, for the columns of a seed share its draws.

    Args:
        cells: `Results.cells`.
        table: Name of the table, `table1`.
        row: Key of the row.
        over: Key of the row that it is held against.
        where: The store, for errors.

    Returns:
        `scale`, `column`, `seed`, `ours`, `ours_over`, `gain` (their difference, in the table's unit), `run_id`,
        `run_id_over`.

    Raises:
        FplError: There is no such table or row, or none of its runs.
    """
    tables = ", ".join(dict.fromkeys(map(str, cells.loc[cells["ours"].notna(), "table"])))
    if table not in tables.split(", "):
        raise FplError(f"no table {table!r} has runs here", where=where, hint=f"tables with runs: {tables}")

    def measured(key: str) -> pd.DataFrame:
        of_table = cells[(cells["table"] == table) & cells["ours"].notna()]
        found = of_table[of_table["row"] == key]
        if found.empty:
            there = ", ".join(dict.fromkeys(map(str, of_table["row"])))
            raise FplError(f"no run of {table}.{key} is in the store", where=where, hint=f"rows with runs: {there}")
        return found

    pairs = measured(row).merge(measured(over), on=["scale", "column", "seed"], suffixes=("", "_over"))
    pairs = pairs[pairs["run_id"] != pairs["run_id_over"]].drop_duplicates(["run_id", "run_id_over"])
    pairs["gain"] = pairs["ours"] - pairs["ours_over"]
    names = ["scale", "column", "seed", "ours", "ours_over", "gain", "run_id", "run_id_over"]
    return pd.DataFrame(pairs[names]).reset_index(drop=True)


def _of_scale(path: Path, tables: Sequence[Experiment], seeds: Sequence[int], lookup: Lookup) -> list[dict[str, Any]]:
    """The rows of one scale; none if the store has no run of it."""
    scale = read_scale(path)
    own = range(scale.seeds)
    resolver = Resolver(path.parent.parent / BASE, scale, sorted({*own, *seeds}))
    rows = [
        {"scale": scale.name, **row}
        for table in tables
        for cell in resolver.cells(table)
        for row in _of_cell(cell, lookup, own)
    ]
    return rows if any("run_id" in row for row in rows) else []


def _of_cell(cell: Cell, lookup: Lookup, wanted: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    about = {
        "table": cell.experiment.name,
        "row": cell.row.key,
        "column": cell.column.key,
        "role": cell.row.role,
        "label": cell.row.label,
        "header": cell.column.name,
        "metric": cell.experiment.table.metric,
        "printed": cell.printed,
        "arrow_printed": cell.arrow,
    }
    if not cell.configs:
        yield {**about, "reason": cell.why_not}
    for config, recipe in zip(cell.configs, cell.recipes, strict=True):
        record = lookup.runs.get(recipe)
        if record is not None:
            run = {"ours": measure(cell, record), "run_id": record["run_id"]}
            yield {**about, "seed": config.seed, "recipe": recipe, **run}
        elif config.seed in wanted:
            reason = str(lookup.failures.get(recipe, "not yet run"))
            yield {**about, "seed": config.seed, "recipe": recipe, "reason": reason}
