"""Figures as pictures, each drawn once: what is behind it, and what draws it, names the files that are kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fpl.files import write_atomic
from fpl.report.figures.export import Prepared, numbers_csv, save
from fpl.report.figures.kinds import Paint
from fpl.report.svg import draw
from fpl.source import source_digest

# Folder of what was drawn before, below that of the figures. Hidden, and no part of what is published.
CACHE = ".drawn"
# What a figure is kept as: the one of the page and the two files, by kind.
KINDS = ("svg", "png", "pdf")
Files = Mapping[str, bytes]
Task = tuple[str, str, Paint]
# Calls a function on each of some items: one after the other, or on several cores (`fpl.data.parallel.run_parallel`).
Map = Callable[[Callable[[Task], Files], Sequence[Task]], list[Files]]


def in_order(function: Callable[[Task], Files], tasks: Sequence[Task]) -> list[Files]:
    """One after the other."""
    return [function(task) for task in tasks]


def drawings(folder: Path | None, prepared: Sequence[Prepared], run: Map = in_order) -> dict[str, Files]:
    """The pictures of figures that can be drawn; those that were drawn before from the same runs are read again.

    Args:
        folder: Of the figures; what is drawn is kept below it. None keeps nothing.
        prepared: The figures.
        run: Draws those that are missing.

    Returns:
        Name of a figure -> `svg`, `png` and `pdf`.
    """
    wanted = [item for item in prepared if item.paint is not None]
    keys = {item.figure.name: _key(item) for item in wanted}
    found = {name: kept for name, key in keys.items() if folder and (kept := _read(folder / CACHE, key))}
    missing = [item for item in wanted if item.figure.name not in found]
    for item, drawn in zip(missing, run(_draw, [_task(item) for item in missing]), strict=True):
        found[item.figure.name] = drawn
        if folder:
            for kind, data in drawn.items():
                write_atomic(folder / CACHE / f"{keys[item.figure.name]}.{kind}", data)
    return found


def forget_others(folder: Path, prepared: Sequence[Prepared]) -> None:
    """Remove what was drawn from runs that none of the figures shows any more."""
    current = {_key(item) for item in prepared if item.paint is not None}
    for path in (folder / CACHE).glob("*"):
        if path.stem not in current:
            path.unlink(missing_ok=True)


def _task(item: Prepared) -> Task:
    assert item.paint is not None
    shown = item.figure.figure
    return item.figure.name.replace("_", "-"), f"{shown.number}: {shown.caption}", item.paint


def _draw(task: Task) -> Files:
    name, words, paint = task
    return {"svg": draw(name, words, paint).encode(), **save(paint)}


def _read(cache: Path, key: str) -> Files | None:
    try:
        return {kind: (cache / f"{key}.{kind}").read_bytes() for kind in KINDS}
    except FileNotFoundError:
        return None


def _key(item: Prepared) -> str:
    """A digest of all that decides how a figure looks.

    Numbers alone do not: maps are drawn from pictures that the runs keep. A run is written once, and so are they.
    """
    parts: dict[str, Any] = {
        "figure": item.figure.model_dump(mode="json"),
        "series": [
            [found.label, found.cell.name, [[record["run_id"], record["finished_at"]] for record in found.records]]
            for found in item.source.found
        ],
        "numbers": numbers_csv(item.frame).decode(),
        "code": source_digest("report", "store", "config", libraries=("matplotlib", "numpy", "pandas")),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]
