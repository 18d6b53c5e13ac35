"""A campaign: the cells of some tables at one scale. What `fpl plan`, `reproduce` and `tables` have in common."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fpl.config.cells import Cell, Resolver, chosen
from fpl.config.defaults import MOST_RUNS, Rows
from fpl.config.experiment import Experiment, load_experiments
from fpl.config.figure import load_figures
from fpl.config.scale import ScaleFile, read_scale, scale_path
from fpl.errors import FplError
from fpl.text import meant, nearest

# Folders of `experiments/`.
TABLES, BASE = "tables", "base"


@dataclass(frozen=True)
class Campaign:
    """Tables at one scale, as cells.

    Attributes:
        experiments: The tables asked for, in the paper's order.
        every: All tables of the folder: a table of T settings names rows of others.
        scale: The scale.
        tables: Table name -> all its cells, row by row.
        cells: Table name -> those asked for.
        seeds: Seeds of every cell.
        pictured: Patterns of the cells of whose runs a figure shows single images.
    """

    experiments: list[Experiment]
    every: list[Experiment]
    scale: ScaleFile
    tables: dict[str, list[Cell]]
    cells: dict[str, list[Cell]]
    seeds: tuple[int, ...]
    pictured: tuple[str, ...] = ()

    @property
    def scale_name(self) -> str:
        """What heads of tables call the scale, for example `mini`."""
        return self.scale.name

    @property
    def all_cells(self) -> list[Cell]:
        """The cells asked for, table by table."""
        return [cell for cells in self.cells.values() for cell in cells]


def load_campaign(
    folder: Path,
    scale: str,
    names: Sequence[str] = (),
    seeds: int | None = None,
    rows: Rows = "paper",
    overrides: Sequence[str] = (),
) -> Campaign:
    """Read tables and a scale, and make the cells.

    Args:
        folder: `experiments/`, with `tables/`, `base/` and `scale/`.
        scale: Name of a file in `scale/`, or a path.
        names: `TABLE`, `TABLE.ROW` or `TABLE.ROW.COLUMN`, each part with wildcards; empty for all.
        seeds: Runs per cell; None: what the scale says.
        rows: `paper`: the rows that the paper measured, and others that `names` ask for; `all`: every row.
        overrides: `section.key=value`, put over every cell asked for, not over the others that arrows are over.

    Raises:
        FplError: A missing or broken file, a name that fits nothing, a cell that makes no valid configuration.
    """
    every = load_experiments(folder / TABLES)
    loaded = scale_file(folder, scale)
    count = loaded.seeds if seeds is None else seeds
    if not 1 <= count <= MOST_RUNS:
        where = f"[scale] of {loaded.path}" if seeds is None else "--seeds"
        raise FplError(f"{count} seeds per cell", where=where, hint=f"between 1 and {MOST_RUNS}")
    resolver = Resolver(folder / BASE, loaded, range(count), rows, overrides, names)
    experiments = [item for item in every if not names or any(_names_table(name, item.name) for name in names)]
    tables = {item.name: resolver.cells(item) for item in experiments}
    cells = {table: [cell for cell in found if chosen(cell, names)] for table, found in tables.items()}
    for name in names:
        if not any(chosen(cell, [name]) for found in cells.values() for cell in found):
            raise _unknown(name, every)
    return Campaign(
        [item for item in experiments if cells[item.name]],
        every,
        loaded,
        tables,
        {table: found for table, found in cells.items() if found},
        tuple(range(count)),
        tuple(item.cells for figure in load_figures(folder) if figure.figure.examples for item in figure.series),
    )


def scale_file(folder: Path, scale: str) -> ScaleFile:
    """A scale of `experiments/`, by its name or path."""
    return read_scale(scale_path(folder / TABLES / "any.toml", scale))


def scale_name(folder: Path, scale: str) -> str:
    """What heads of tables and folders of results call a scale of `experiments/`."""
    return scale_file(folder, scale).name


def _names_table(name: str, table: str) -> bool:
    return fnmatch.fnmatchcase(table, name.split(".")[0])


def _unknown(name: str, every: Sequence[Experiment]) -> FplError:
    """The error about a name that fits no cell, with what there is."""
    table, _, rest = name.partition(".")
    known = [item.name for item in every]
    fitting = [item for item in every if _names_table(name, item.name)]
    if not fitting:
        guess = meant(table, known)
        return FplError(f"no table {table!r}", hint=f"{guess}there are: {', '.join(known)}")
    known_parts = [[row.key for row in fitting[0].rows], [column.key for column in fitting[0].columns]]
    rows, columns = (", ".join(keys) for keys in known_parts)
    return FplError(
        f"{rest!r} fits no cell of {fitting[0].name}",
        hint=f"{_meant_cell(rest.split('.'), known_parts)}names are TABLE.ROW.COLUMN; rows: {rows}; columns: {columns}",
    )


def _meant_cell(parts: Sequence[str], known: Sequence[Sequence[str]]) -> str:
    """The row and column nearest to those named; empty where one is like none or has wildcards."""
    near = [nearest(part, keys) for part, keys in zip(parts, known, strict=False)]
    return f"did you mean {'.'.join(near)}? " if near and all(near) else ""
