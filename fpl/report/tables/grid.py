"""Filling a table from the results: the paper's numbers beside ours, and why some are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fpl.config.campaign import Campaign
from fpl.config.cells import Cell
from fpl.config.experiment import Experiment, thresholds
from fpl.config.identity import recipes_by_seed
from fpl.config.scale import ScaleFile
from fpl.errors import FplError
from fpl.report.statistics import Spread, margin, paired, repetition, spread_within
from fpl.report.tables import verdict
from fpl.report.tables.entry import Entry, Grid, Line, State
from fpl.report.tables.verdict import Verdict
from fpl.store.cells import measure, metric_column
from fpl.store.lookup import Lookup, look_up
from fpl.store.read import Results


def build_grids(campaign: Campaign, results: Results | None) -> list[Grid]:
    """The tables of a campaign, filled from the results.

    Args:
        campaign: The tables asked for; where only rows or columns were, the others still serve as baselines.
        results: The store, or None where nothing has been run.

    Raises:
        FplError: A row of T settings that is `of` no row with T.
    """
    return [build_grid(campaign, item.name, look_up(results)) for item in campaign.experiments]


def build_grid(campaign: Campaign, table: str, lookup: Lookup) -> Grid:
    """One table of a campaign, filled from the runs of a store: a pure function of its arguments.

    Whether its metric's column exists in the store does not matter: what is not there is missing.

    Raises:
        FplError: A row of T settings that is `of` no row with T.
    """
    cells, scale = campaign.tables[table], campaign.scale
    experiment = cells[0].experiment
    repeated = _repeated(cells, lookup)
    settings = _settings(cells, campaign) if experiment.table.metric == "threshold" else {}
    entries = {cell.name: _entry(cell, lookup, settings.get(cell.name)) for cell in cells}
    entries = {name: _compare(entry, entries, scale, repeated) for name, entry in entries.items()}
    shown = {cell.name for cell in campaign.cells.get(table, [])}
    rows = {cell.row.key: cell.row for cell in cells if cell.name in shown}
    columns = {cell.column.key: cell.column for cell in cells if cell.name in shown}
    lines = tuple(
        Line(row, tuple(entries[f"{experiment.name}.{row.key}.{key}"] for key in columns)) for row in rows.values()
    )
    seeds = tuple(sorted({config.seed for cell in cells for config in cell.configs}))
    spread = _over_seeds(cells, lookup)
    return Grid(experiment, scale, tuple(columns.values()), lines, seeds, repeated, spread, lookup, entries)


def _entry(cell: Cell, lookup: Lookup, setting: float | None) -> Entry:
    """A cell with its own numbers, not yet compared with anything."""
    if setting is not None:
        return Entry(cell, "setting", {0: setting})
    if not cell.configs:
        return _unrun(cell)
    values: dict[int, float] = {}
    records, gaps = [], []
    for config, recipe in zip(cell.configs, cell.recipes, strict=True):
        record = lookup.runs.get(recipe)
        value = measure(cell, record) if record else None
        if record and value is not None:
            values[config.seed] = value
            records.append(record)
        elif record:
            gaps.append(f"run {record['run_id']} has no such number")
        else:
            gaps.append(str(lookup.failures.get(recipe, "not yet run")))
    failed = any(gap.startswith("failed") for gap in gaps)
    state: State = "partial" if gaps and values else "measured" if values else "failed" if failed else "missing"
    reason = "; ".join(dict.fromkeys(gaps))
    if state == "partial":
        reason = f"{len(values)} of {len(cell.configs)} seeds, the rest {reason}"
    runs = tuple(str(record["run_id"]) for record in records)
    shares = [lookup.fuzzy_shares[run] for run in runs if run in lookup.fuzzy_shares] if _shows_k(cell) else []
    # A seed in which no pixel taught says nothing beside one in which some did.
    share = float(np.mean([each for each in shares if each == each] or shares)) if shares else None
    return Entry(cell, state, values, runs, reason=reason, records=tuple(records), fuzzy_share=share)


def _shows_k(cell: Cell) -> bool:
    """Whether a cell says how often K is above 1: of FPL whose K is not fixed, where the table asks."""
    loss = cell.configs[0].loss
    return cell.experiment.table.show_k and loss.kind == "fpl" and loss.strategy != "fixed"


def _unrun(cell: Cell) -> Entry:
    """A cell that is not to be run."""
    if cell.row.role == "cited":
        source = f", source: {cell.row.source}" if cell.row.source else ""
        return Entry(cell, "cited" if cell.printed is not None else "dash", reason=f"{cell.why_not}{source}")
    if cell.row.pending:
        return Entry(cell, "pending", reason=f"pending: {cell.row.pending}")
    return Entry(cell, "dash", reason=cell.why_not)


def _compare(entry: Entry, entries: Mapping[str, Entry], scale: ScaleFile, repeated: Spread | None) -> Entry:
    """The entry with its arrow and verdict."""
    cell = entry.cell
    row, column = cell.row.over or cell.row.key, cell.column.over or cell.column.key
    below = f"{cell.experiment.name}.{row}.{column}"
    baseline = entries.get(below) if below != cell.name else None
    # Of the same runs in another column there is no gain to tell.
    if baseline is not None and cell.column.over and baseline.cell.recipes == cell.recipes:
        baseline = None
    if baseline is not None and entry.records and baseline.records:
        gains = tuple(paired(entry.values, baseline.values))
        entry = replace(entry, gains=gains, printed_gain=_gain(cell, baseline.cell))
    return replace(entry, verdict=_judge(entry, scale, repeated))


def _gain(cell: Cell, baseline: Cell) -> float | None:
    return None if cell.printed is None or baseline.printed is None else cell.printed - baseline.printed


def _judge(entry: Entry, scale: ScaleFile, repeated: Spread | None) -> Verdict:
    cell, ours, difference = entry.cell, entry.ours, entry.difference
    if ours is None:
        return verdict.not_run(entry.reason)
    if entry.state == "setting":
        return verdict.of_threshold(ours, cell.printed) if cell.printed is not None else Verdict()
    # Seconds were measured on other hardware: only the direction of a difference can be the paper's.
    if scale.comparable and cell.experiment.table.metric == "miou":
        if difference is None:
            return Verdict()
        known = margin(list(entry.values.values()), repeated.std if repeated is not None else None)
        return verdict.against_paper(difference, known, entry.measured)
    return verdict.of_arrow(entry.arrow, cell.arrow)


def _repeated(cells: Sequence[Cell], lookup: Lookup) -> Spread | None:
    """Spread of one run repeated with the same seed; of the widest where the table's columns have several protocols."""
    if cells[0].experiment.table.metric != "miou":
        return None
    columns = dict.fromkeys(metric_column(cell) for cell in cells if cell.configs)
    found = [spread for name in columns if (spread := repetition(lookup.noise, name)) is not None]
    return max(found, key=lambda spread: spread.std, default=None)


def _over_seeds(cells: Sequence[Cell], lookup: Lookup) -> Spread | None:
    """Spread over the seeds of one setting, of all seeds that the store has of it, asked for or not."""
    if cells[0].experiment.table.metric != "miou":
        return None
    groups: dict[str, list[float]] = {}
    for cell in cells:
        if cell.configs and len(lookup.seeds) > 1:
            recipe_of = recipes_by_seed(cell.configs[0].model_dump(mode="json"))
            recipes = [recipe_of(seed) for seed in lookup.seeds]
            values = [measure(cell, lookup.runs[recipe]) for recipe in recipes if recipe in lookup.runs]
            groups[recipes[0]] = [value for value in values if value is not None]
    return spread_within(groups.values())


def _settings(cells: Sequence[Cell], campaign: Campaign) -> dict[str, float]:
    """T behind each cell of a table of T settings: of the configuration that is run, else of the other table's file."""
    configs = {cell.name: cell.configs[0] for cells in campaign.tables.values() for cell in cells if cell.configs}
    found: dict[str, float] = {}
    for cell in cells:
        if not cell.row.of or cell.row.role == "cited":
            continue
        table, _, row = cell.row.of.partition(".")
        listed = thresholds(campaign.every, cell.row)
        other = next(item for item in campaign.every if item.name == table)
        number = _counterpart(cell, other)
        config = configs.get(f"{table}.{row}.{other.columns[number].key}")
        found[cell.name] = config.loss.threshold if config and config.loss.kind == "fpl" else listed[number]
    return found


def _counterpart(cell: Cell, other: Experiment) -> int:
    """Number of the other table's column: the same place where both have as many columns, else the same key."""
    own, theirs = ([column.key for column in item.columns] for item in (cell.experiment, other))
    if len(own) == len(theirs):
        return own.index(cell.column.key)
    if cell.column.key not in theirs:
        raise FplError(
            f"{cell.name} is of {cell.row.of}, whose table has no column {cell.column.key}",
            hint=f"its columns: {', '.join(theirs)}",
        )
    return theirs.index(cell.column.key)
