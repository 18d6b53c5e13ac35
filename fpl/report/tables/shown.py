"""What a report is about: the rows that were asked for, and others that the store has results of."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fpl.config.campaign import Campaign, load_campaign, scale_file
from fpl.config.cells import Cell, asked_for, own_row
from fpl.config.defaults import CITED_HERE, Rows
from fpl.report.tables.entry import Grid
from fpl.report.tables.grid import build_grids
from fpl.report.tables.summary import Summary, summarize
from fpl.store.lookup import look_up
from fpl.store.read import Results
from fpl.text import plural


@dataclass(frozen=True)
class Shown:
    """Tables filled from a store.

    Attributes:
        campaign: Their cells.
        results: The store; None where nothing has been run.
        grids: The tables.
        summary: What stands above or below them.
    """

    campaign: Campaign
    results: Results | None
    grids: list[Grid]
    summary: Summary


def load_shown(
    experiments: Path,
    scale: str,
    results: Results | None,
    names: Sequence[str] = (),
    seeds: int | None = None,
    rows: Rows | None = None,
    overrides: Sequence[str] = (),
) -> Shown:
    """Read tables and fill them from a store; arguments as for `load_campaign`.

    Args:
        experiments: `experiments/`.
        scale: Name of a scale, or its path.
        results: The store, or None where nothing has been run.
        names: Cells; empty for all.
        seeds: Runs per cell; None: as many as the store holds, at least what the scale says.
        rows: None: the paper's rows, and others that `names` ask for or the store has a run of, finished or failed.
        overrides: `section.key=value`.

    Raises:
        FplError: As `load_campaign` and `build_grids`.
    """
    if seeds is None and results is not None:
        # What was trained with --seeds 3 is shown without saying it again.
        seeds = seeds_of(results, scale_file(experiments, scale).seeds)
    campaign = load_campaign(experiments, scale, names, seeds, rows or "all", overrides)
    note = ""
    if rows is None:
        campaign, note = _without_empty_rows(campaign, results, names)
    grids = build_grids(campaign, results)
    summary = summarize(grids, results)
    return Shown(campaign, results, grids, replace(summary, notes=(note,) if note else ()))


def seeds_of(results: Results, least: int) -> int:
    """How many seeds from 0 on the store holds runs of; `least` if fewer."""
    held = set(results.runs.get("seed", ()))
    return next(number for number in itertools.count(least) if number not in held)


def _without_empty_rows(campaign: Campaign, results: Results | None, names: Sequence[str]) -> tuple[Campaign, str]:
    """The campaign without runs of ours that nothing is known of, and a line that says how many rows those are."""
    lookup = look_up(results)
    known = lookup.runs.keys() | lookup.failures.keys()
    rows: dict[tuple[str, str], set[str]] = {}
    for cell in (cell for cells in campaign.tables.values() for cell in cells if own_row(cell.experiment, cell.row)):
        if cell.row.recipe and not asked_for(cell.experiment, cell.row, names):
            rows.setdefault((cell.experiment.name, cell.row.key), set()).update(cell.recipes)
    empty = {row: recipes for row, recipes in rows.items() if not recipes & known}
    shown = {table for table, cells in campaign.cells.items() if cells}

    def rest(cells: list[Cell]) -> list[Cell]:
        # Of a system that the paper cites, its number remains.
        kept = (cell for cell in cells if (cell.experiment.name, cell.row.key) not in empty or cell.row.role == "cited")
        return [
            replace(cell, configs=(), why_not=CITED_HERE) if (cell.experiment.name, cell.row.key) in empty else cell
            for cell in kept
        ]

    left = {row: recipes for row, recipes in empty.items() if row[0] in shown}
    if not left:
        return campaign, ""
    runs = len(set().union(*left.values()))
    note = (
        f"{plural(len(left), 'row')} of this suite without results left out: "
        f"`fpl reproduce --rows all --scale {campaign.scale_name}` trains their {runs} runs"
    )
    tables = {table: rest(cells) for table, cells in campaign.tables.items()}
    cells = {table: rest(cells) for table, cells in campaign.cells.items()}
    # A table whose every row is ours may have none left, or numbers of others alone.
    cells = {
        table: kept for table, kept in cells.items() if any(cell.configs or not cell.experiment.ours for cell in kept)
    }
    experiments = [item for item in campaign.experiments if item.name in cells]
    return replace(campaign, experiments=experiments, tables=tables, cells=cells), note
