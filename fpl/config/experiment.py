"""Tables of the paper as data: rows, columns, printed values, and the run behind every cell.

A file of `experiments/tables/` looks like its table. A cell's run is the recipe `base/{dataset}_{recipe}.toml`, then
the column's `set`, the row's `set`, the cell's T, the scale, the row's `multiply`, and overrides of the command line.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fpl.config.compose import (
    ScaleFile,
    apply_overrides,
    apply_scale,
    merge,
    read_base,
    read_tables,
    recipe_digest,
    validate,
)
from fpl.config.schema import RunConfig
from fpl.errors import FplError

# What a table's numbers are: mIoU in percent, seconds per epoch, or the T that a cell of another table uses.
Metric = Literal["miou", "seconds_per_epoch", "threshold"]
# A printed number, or none where the paper prints a dash.
Printed = float | Literal["-"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(_Part):
    """One column.

    Attributes:
        key: Name within the table, for example `r50_1_16`.
        header: As printed.
        group: Header above a group of columns; empty for none.
        dataset: Chooses the recipe together with the row's; empty: the table's.
        labeled: Labeled images as printed, or None.
        settings: `set` in the file: what the column changes in the recipe.
    """

    key: str
    header: str
    group: str = ""
    dataset: str = ""
    labeled: int | None = None
    settings: dict[str, Any] = Field(default_factory=dict, alias="set")


class Row(_Part):
    """One row.

    Attributes:
        key: Name within the table, for example `fpl_cps`.
        label: As printed.
        role: `cited` rows stand in the paper with others' numbers and are never run; `baseline`, `proposed` and
            `ablation` rows are the paper's own; `control` rows are this suite's.
        recipe: Second half of the recipe's file name.
        settings: `set` in the file: what the row changes in the recipe.
        threshold: T per column, or one for all.
        multiply: Dotted key -> factor, applied last: half the weight that the scale gives, say.
        values: Printed numbers, one per column, `"-"` for a dash; empty for a control.
        arrows: Printed improvements, one per column; empty where the table prints none.
        over: Key of the row that the arrows, printed and measured, are over.
        bold: Keys of the columns that are printed bold.
        of: For a table of T settings: `TABLE.ROW` whose cells use them.
        pending: Why the row cannot be run yet; empty if it can.
        source: Where a cited row's numbers come from.
        note: A footnote.
    """

    key: str
    label: str
    role: Literal["cited", "baseline", "proposed", "ablation", "control"]
    recipe: str = "cps"
    settings: dict[str, Any] = Field(default_factory=dict, alias="set")
    threshold: float | list[float] | None = None
    multiply: dict[str, float] = Field(default_factory=dict)
    values: list[Printed] = Field(default_factory=list)
    arrows: list[Printed] = Field(default_factory=list)
    over: str = ""
    bold: list[str] = Field(default_factory=list)
    of: str = ""
    pending: str = ""
    source: str = ""
    note: str = ""


class Head(_Part):
    """The `[table]` of a file: `name` is what commands call it, `number` what the paper does."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    number: str
    caption: str
    metric: Metric = "miou"
    dataset: str = ""
    # Which weights the numbers are of: the published ones are the best of a range of checkpoints.
    selection: Literal["best", "last"] = "best"
    footnotes: list[str] = Field(default_factory=list)


class Experiment(_Part):
    """One table of the paper."""

    table: Head
    columns: list[Column]
    rows: list[Row]
    about: dict[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """What commands call it, for example `table1`."""
        return self.table.name

    def row(self, key: str) -> Row:
        """The row called `key`; KeyError if there is none."""
        return {row.key: row for row in self.rows}[key]

    def column(self, key: str) -> Column:
        """The column called `key`; KeyError if there is none."""
        return {column.key: column for column in self.columns}[key]

    @model_validator(mode="after")
    def _check(self) -> Experiment:
        for parts in (self.columns, self.rows):
            keys = [part.key for part in parts]
            if twice := {key for key in keys if keys.count(key) > 1}:
                raise ValueError(f"key {sorted(twice)[0]} is used twice")
        rows = {row.key for row in self.rows}
        for row in self.rows:
            for name, listed in (("values", row.values), ("arrows", row.arrows)):
                if listed and len(listed) != len(self.columns):
                    raise ValueError(f"row {row.key}: {len(listed)} {name} for {len(self.columns)} columns")
            if isinstance(row.threshold, list) and len(row.threshold) != len(self.columns):
                raise ValueError(f"row {row.key}: {len(row.threshold)} thresholds for {len(self.columns)} columns")
            if row.over and row.over not in rows:
                raise ValueError(f"row {row.key} is over {row.over}, which is no row")
            if not row.values and row.role != "control":
                raise ValueError(f"row {row.key} has no printed values")
            if unknown := set(row.bold) - {column.key for column in self.columns}:
                raise ValueError(f"row {row.key}: bold names no column {sorted(unknown)[0]}")
        return self


@dataclass(frozen=True)
class Cell:
    """One cell of a table, and the runs that measure it.

    Attributes:
        experiment: The table.
        row: Its row.
        column: Its column.
        printed: The paper's number, None for a dash or a row of ours.
        arrow: The paper's printed improvement, or None.
        configs: One configuration per seed, without pins; empty if the cell is not run.
        why_not: Why it is not run: `cited`, a pending method, or a dash in the paper; empty if it is.
    """

    experiment: Experiment
    row: Row
    column: Column
    printed: float | None
    arrow: float | None
    configs: tuple[RunConfig, ...] = ()
    why_not: str = ""

    @property
    def name(self) -> str:
        """`table1.fpl_cps.r50_1_16`."""
        return f"{self.experiment.name}.{self.row.key}.{self.column.key}"

    @cached_property
    def recipes(self) -> tuple[str, ...]:
        """Recipe digest of each configuration."""
        return tuple(recipe_digest(config.model_dump(mode="json")) for config in self.configs)


@dataclass
class Resolver:
    """Turns tables into cells at one scale.

    Args:
        base: Folder of the recipes.
        scale: Put over every recipe; None is the paper's scale.
        seeds: Seeds of every cell.
        controls: Whether the suite's own control rows are part of the tables.
        overrides: `section.key=value`, put over every cell.
    """

    base: Path
    scale: ScaleFile | None = None
    seeds: Sequence[int] = (0,)
    controls: bool = True
    overrides: Sequence[str] = ()
    _bases: dict[Path, tuple[dict[str, Any], dict[str, str]]] = field(default_factory=dict)

    def cells(self, experiment: Experiment) -> list[Cell]:
        """All cells of a table, row by row.

        Raises:
            FplError: A cell that makes no valid configuration, named.
        """
        return [
            self._cell(experiment, row, column, number)
            for row in experiment.rows
            if self.controls or row.role != "control"
            for number, column in enumerate(experiment.columns)
        ]

    def _cell(self, experiment: Experiment, row: Row, column: Column, number: int) -> Cell:
        printed = _number(row.values, number)
        cell = Cell(experiment, row, column, printed, _number(row.arrows, number))
        reason = ""
        if row.role == "cited":
            reason = "cited"
        elif row.pending:
            reason = row.pending
        elif printed is None and row.role != "control":
            reason = "not in the paper"
        elif experiment.table.metric == "threshold":
            reason = "a setting"
        if reason:
            return replace(cell, why_not=reason)
        tree, origins = self._tree(experiment, row, column, number)
        place = f"{experiment.name}.{row.key}.{column.key}"
        try:
            first = validate(tree, origins, default_origin=place)
        except FplError as error:
            raise FplError(error.what, where=f"{place}, {error.where}", hint=error.hint) from None
        # A frozen value with another seed needs no second validation.
        return replace(cell, configs=tuple(first.model_copy(update={"seed": seed}) for seed in self.seeds))

    def _tree(
        self, experiment: Experiment, row: Row, column: Column, number: int
    ) -> tuple[dict[str, Any], dict[str, str]]:
        dataset = column.dataset or experiment.table.dataset
        path = self.base / f"{dataset}_{row.recipe}.toml"
        if path not in self._bases:
            origins: dict[str, str] = {}
            self._bases[path] = (read_base(path, origins), origins)
        tree, origins = copy.deepcopy(self._bases[path])
        for settings in (column.settings, row.settings):
            merge(tree, settings)
        if row.threshold is not None:
            value = row.threshold[number] if isinstance(row.threshold, list) else row.threshold
            merge(tree, {"loss": {"threshold": value}})
        if self.scale is not None:
            apply_scale(tree, self.scale, origins)
        for key, factor in row.multiply.items():
            multiply(tree, key, factor)
        apply_overrides(tree, self.overrides, origins)
        return tree, origins


def multiply(tree: dict[str, Any], key: str, factor: float) -> None:
    """Multiply the number at a dotted key, in place.

    Raises:
        FplError: There is no number.
    """
    *sections, leaf = key.split(".")
    table: Any = tree
    for section in sections:
        table = table.get(section, {})
    if not isinstance(table.get(leaf), int | float):
        raise FplError(f"multiply names {key}, which the recipe does not set to a number", where=key)
    table[leaf] *= factor


def load_experiment(path: Path) -> Experiment:
    """Read one table file.

    Raises:
        FplError: A missing or malformed file, or one whose lists do not fit its columns.
    """
    tree = read_tables(path)
    try:
        return Experiment.model_validate(tree)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise FplError(f"{place}: {problem['msg']}" if place else problem["msg"], where=str(path)) from None


def load_experiments(folder: Path, names: Sequence[str] = ()) -> list[Experiment]:
    """Read the table files of a folder in the paper's order (`order` in their `[about]`).

    Args:
        folder: `experiments/tables`.
        names: Those wanted; empty for all.

    Raises:
        FplError: No such folder, a broken file, or an unknown name.
    """
    found = [load_experiment(path) for path in sorted(folder.glob("*.toml"))]
    if not found:
        raise FplError("no table files here", where=str(folder), hint="run in a checkout, or give --experiments")
    found.sort(key=lambda experiment: experiment.about.get("order", math.inf))
    known = [experiment.name for experiment in found]
    if unknown := [name for name in names if name not in known]:
        raise FplError(f"no table {unknown[0]!r}", hint=f"there are: {', '.join(known)}")
    return [experiment for experiment in found if not names or experiment.name in names]


def thresholds(experiments: Sequence[Experiment], row: Row) -> list[float]:
    """T per column of the row that a row of T settings is `of`.

    Raises:
        FplError: There is no such table or row, or it has no T.
    """
    table, _, key = row.of.partition(".")
    for experiment in experiments:
        if experiment.name == table and key in {other.key for other in experiment.rows}:
            value = experiment.row(key).threshold
            if value is not None:
                return value if isinstance(value, list) else [value] * len(experiment.columns)
    raise FplError(f"row {row.key} is of {row.of!r}, which has no T", hint="of = TABLE.ROW")


def _number(listed: Sequence[Printed], number: int) -> float | None:
    value = listed[number] if listed else None
    return None if value is None or isinstance(value, str) else float(value)
