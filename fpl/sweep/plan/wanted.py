"""Which runs the tables need: every run once, however many cells ask for it. Imports neither torch nor Ray."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fpl.config.cells import Cell
from fpl.config.schema import RunConfig


@dataclass
class Wanted:
    """One run that at least one cell asks for.

    Attributes:
        recipe: Its recipe digest, seed included: what the store is asked for before the run's data are known.
        config: The configuration, without pins.
        cells: Names of the cells, `table1.fpl_cps.r50_1_16`.
        gang: Whether the scale wants it on a group of Ray Train workers.
        pictured: Whether a figure shows single images of it.
    """

    recipe: str
    config: RunConfig
    cells: list[str] = field(default_factory=list)
    gang: bool = False
    pictured: bool = False


def distinct_runs(
    cells: Iterable[Cell], launch: dict[str, Any] | None = None, pictured: Sequence[str] = ()
) -> list[Wanted]:
    """Runs behind the cells, each once, in the order of the first cell that asks.

    Args:
        cells: Cells of any number of tables.
        launch: The scale's `[launch]`; its `gang` lists patterns of cell names (`table3.fpl_cps_cutmix.*`).
        pictured: Patterns of the cells whose runs figures show single images of.
    """
    gangs, shown = _patterns((launch or {}).get("gang", [])), _patterns(pictured)
    found: dict[str, Wanted] = {}
    for cell in cells:
        gang, picture = (any(fnmatch.fnmatch(cell.name, each) for each in patterns) for patterns in (gangs, shown))
        for recipe, config in zip(cell.recipes, cell.configs, strict=True):
            wanted = found.setdefault(recipe, Wanted(recipe, config))
            wanted.cells.append(cell.name)
            wanted.gang |= gang
            wanted.pictured |= picture
    return list(found.values())


def _patterns(names: Sequence[str]) -> list[str]:
    return [name if name.count(".") > 1 else f"{name}.*" for name in names]
