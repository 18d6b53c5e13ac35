"""One cell in words: what it measures, the command that makes it, its runs, and where each setting comes from."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from fpl.config.cells import Cell
from fpl.config.identity import PINS
from fpl.config.layers import flatten
from fpl.report.tables.numbers import number_text
from fpl.store.cells import measure
from fpl.store.lookup import look_up
from fpl.store.read import Results

DEFAULT = "defaults"
# Keys that say what a run is, not how it trains: of the lines about runs.
UNSAID = {*PINS, "seed"}


def cell_lines(cell: Cell, origins: Mapping[str, str], results: Results | None, command: str) -> list[str]:
    """A cell as lines of text.

    Args:
        cell: The cell.
        origins: Where its settings were set, from `Resolver.origins`; others have their default.
        results: The store; None where nothing has been run.
        command: What makes its runs.
    """
    table, metric = cell.experiment.table, cell.experiment.table.metric
    printed = "prints no number" if cell.printed is None else f"prints {number_text(cell.printed, metric)}"
    arrow = "" if cell.arrow is None else f", {cell.arrow:+g} over {cell.row.over}"
    lines = [cell.name, f"{table.number}, {cell.row.label}, {cell.column.name}: the paper {printed}{arrow}"]
    if not cell.configs:
        return [*lines, f"not run: {cell.why_not}"]
    runs = f"runs in {results.folder}" if results else "runs: there is no store yet"
    lines += ["", "command", f"  {command}", "", runs]
    return [*lines, *_runs(cell, results), "", *_settings(cell, origins)]


def _runs(cell: Cell, results: Results | None) -> Iterator[str]:
    lookup = look_up(results)
    for config, recipe in zip(cell.configs, cell.recipes, strict=True):
        record = lookup.runs.get(recipe)
        if record is None:
            yield f"  seed {config.seed}: {lookup.failures.get(recipe, 'not yet run')}"
            continue
        value, metric = measure(cell, record), cell.experiment.table.metric
        yield f"  seed {config.seed}: {'no number' if value is None else number_text(value, metric)}"
        yield f"    {record['run_id']}"
        for older in lookup.replaced.get(recipe, []):
            yield f"    older, of other data or weights: {older}"
        assert results is not None
        log = results.folder / "logs" / f"{record['run_id']}.log"
        if log.is_file():
            yield f"    log: {log}"


def _settings(cell: Cell, origins: Mapping[str, str]) -> Iterator[str]:
    """Settings by where they were set, as an experiment file would have them."""
    groups: dict[str, list[str]] = defaultdict(list)
    for key, value in flatten(cell.configs[0].model_dump(mode="json")).items():
        if key in UNSAID or value is None:
            continue
        # A file with its line, or words.
        origin = origins.get(key, DEFAULT).removeprefix(f"{Path.cwd()}/")
        place, _, line = origin.rpartition(":")
        groups[place if line.isdigit() else origin].append(
            f"  {key} = {json.dumps(value)}" + (f"  (line {line})" if line.isdigit() else "")
        )
    for place in sorted(groups, key=lambda name: name == DEFAULT):
        yield f"settings: {place}"
        yield from groups[place]
