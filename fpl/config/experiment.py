"""Tables of the paper as data: rows, columns and printed values, read from `experiments/tables/`.

A file looks like its table; `fpl.config.cells` finds the run behind every cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from fpl.config.explain import Parts, check_names, validated
from fpl.config.layers import read_tables
from fpl.config.registry import method_names, options_class
from fpl.config.section import AboveZero, Part
from fpl.errors import FplError
from fpl.files import visible
from fpl.names import Name

# What a table's numbers are: mIoU in percent, seconds per epoch, or the T that a cell of another table uses.
Metric = Literal["miou", "seconds_per_epoch", "threshold"]
# A printed number, or none where the paper prints a dash.
Printed = float | Literal["-"]


class Column(Part):
    """One column.

    Attributes:
        key: Name within the table, for example `r50_1_16`.
        header: As printed.
        group: Header above a group of columns; empty for none.
        dataset: Chooses the recipe together with the row's; empty: the table's.
        labeled: Labeled images as printed, or None.
        settings: `set` in the file: what the column changes in the recipe.
        recipes: Recipe -> what it changes besides for the rows of that recipe alone, put over `set`: their length, say.
        multiply: As of a row: twice the length that the scale gives, say.
        over: Key of the column that the arrows of this one are over, in every row: for a table whose columns are
            variants of what its rows are.
    """

    key: Name
    header: str
    group: str = ""
    dataset: str = ""
    labeled: int | None = None
    settings: dict[str, Any] = Field(default_factory=dict, alias="set")
    recipes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    multiply: dict[str, float] = Field(default_factory=dict)
    over: str = ""

    @property
    def name(self) -> str:
        """Group and header in one line: `ResNet-50 1/16`."""
        return f"{self.group} {self.header}".strip()


class Row(Part):
    """One row.

    Attributes:
        key: Name within the table, for example `fpl_cps`.
        label: As printed.
        role: `cited` rows stand in the paper with others' numbers, and are run if they have a recipe; `baseline`,
            `proposed` and `ablation` rows are the paper's own; `control` rows are this suite's.
        recipe: Second half of the recipe's file name; unset: the table's, or none for a cited row.
        settings: `set` in the file: what the row changes in the recipe.
        threshold: T per column, or one for all.
        multiply: Dotted key -> factor, applied last: half the weight that the scale gives, say.
        matched_weight: Factor of `method.weight` in cells whose pixel loss is not the method's own (`native_kind`):
            what the weight of a squared difference has to be as one of cross-entropy.
        without: Column -> in a word or two, why the row has no cell there.
        values: Printed numbers, one per column, `"-"` for a dash; empty for a control.
        arrows: Printed improvements, one per column; empty where the table prints none.
        over: Key of the row that the arrows, printed and measured, are over.
        control_of: Of a control: keys of the proposed rows whose gain is held against it, in the same column. Empty for
            a variant of FPL itself.
        bold: Keys of the columns that are printed bold.
        of: For a table of T settings: `TABLE.ROW` whose cells use them.
        unprinted: Whether the row is run although the table has no numbers of it: a baseline that its arrows are over.
        pending: Why the row cannot be run yet; empty if it can.
        source: Where a cited row's numbers come from.
        note: A footnote.
    """

    key: Name
    label: str
    role: Literal["cited", "baseline", "proposed", "ablation", "control"]
    recipe: str = ""
    settings: dict[str, Any] = Field(default_factory=dict, alias="set")
    threshold: float | list[float] | None = None
    multiply: dict[str, float] = Field(default_factory=dict)
    matched_weight: AboveZero = 1.0
    without: dict[str, str] = Field(default_factory=dict)
    values: list[Printed] = Field(default_factory=list)
    arrows: list[Printed] = Field(default_factory=list)
    over: str = ""
    control_of: list[str] = Field(default_factory=list)
    bold: list[str] = Field(default_factory=list)
    of: str = ""
    unprinted: bool = False
    pending: str = ""
    source: str = ""
    note: str = ""

    @property
    def labeled_only(self) -> bool:
        """Whether its runs see no unlabeled image."""
        name = self.settings.get("method", {}).get("name")
        return name in method_names() and not options_class(name).unlabeled


class Head(Part):
    """The `[table]` of a file: `name` is what commands call it, `number` what the paper does.

    `printed = false` is a figure whose numbers stand nowhere in the paper's text: its cells are run all the same.
    `set` and `recipes` are as those of a column, which win over them. With `show_k` cells of FPL say which share of the
    pixels that taught had more than one fuzzy positive.
    """

    name: Name
    number: str
    caption: str
    metric: Metric = "miou"
    dataset: str = ""
    # Of the rows that name none.
    recipe: str = ""
    # Which weights the numbers are of: the published ones are the best of a range of checkpoints.
    selection: Literal["best", "last"] = "best"
    printed: bool = True
    settings: dict[str, Any] = Field(default_factory=dict, alias="set")
    recipes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    show_k: bool = False
    footnotes: list[str] = Field(default_factory=list)


class Experiment(Part):
    """One table of the paper."""

    table: Head
    columns: list[Column]
    rows: list[Row]
    about: dict[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """What commands call it, for example `table1`."""
        return self.table.name

    @property
    def ours(self) -> bool:
        """Whether it is a table of this suite: none of its rows is the paper's own."""
        return all(row.role in ("control", "cited") for row in self.rows)

    def row(self, key: str) -> Row:
        """The row called `key`; KeyError if there is none."""
        return {row.key: row for row in self.rows}[key]

    def controls(self, row: Row) -> list[Row]:
        """The controls that the gain of a row is held against."""
        return [other for other in self.rows if row.key in other.control_of]

    def column(self, key: str) -> Column:
        """The column called `key`; KeyError if there is none."""
        return {column.key: column for column in self.columns}[key]

    @model_validator(mode="before")
    @classmethod
    def _name_recipes(cls, parts: Any) -> Any:
        if isinstance(parts, dict) and isinstance(parts.get("table"), dict) and isinstance(parts.get("rows"), list):
            recipe = parts["table"].get("recipe", "")
            rows = [
                {"recipe": recipe, **row} if isinstance(row, dict) and row.get("role") != "cited" else row
                for row in parts["rows"]
            ]
            return {**parts, "rows": rows}
        return parts

    @model_validator(mode="after")
    def _check(self) -> Experiment:
        if not isinstance(self.about.get("order", 0), int | float):
            raise ValueError(f"about.order = {self.about['order']!r} is no number")
        for parts in (self.columns, self.rows):
            keys = [part.key for part in parts]
            if twice := {key for key in keys if keys.count(key) > 1}:
                raise ValueError(f"key {sorted(twice)[0]} is used twice")
        known = sorted({row.recipe for row in self.rows} - {""})
        for name, recipes in (("table", self.table.recipes), *((f"column {c.key}", c.recipes) for c in self.columns)):
            if unknown := sorted(set(recipes) - set(known)):
                raise ValueError(
                    f"{name}: recipes.{unknown[0]}, but no row has this recipe; there are: {', '.join(known)}"
                )
        columns = {column.key for column in self.columns}
        for column in self.columns:
            if column.over and column.over not in columns:
                raise ValueError(f"column {column.key} is over {column.over}, which is no column")
        for row in self.rows:
            self._check_row(row)
        return self

    def _check_row(self, row: Row) -> None:
        if not row.recipe and row.role != "cited" and not row.of:
            raise ValueError(f"row {row.key} has no recipe: set it there, or for all rows in [table]")
        ours = row.unprinted or row.role == "control" or (row.role != "cited" and not self.table.printed)
        for name, listed in (("values", row.values), ("arrows", row.arrows)):
            if listed and ours:
                raise ValueError(f"row {row.key} has {name}, but the paper prints no numbers for it")
            if listed and len(listed) != len(self.columns):
                raise ValueError(f"row {row.key}: {len(listed)} {name} for {len(self.columns)} columns")
        if not row.values and not ours:
            raise ValueError(f"row {row.key} has no printed values")
        if isinstance(row.threshold, list) and len(row.threshold) != len(self.columns):
            raise ValueError(f"row {row.key}: {len(row.threshold)} thresholds for {len(self.columns)} columns")
        if row.over and row.over not in {other.key for other in self.rows}:
            raise ValueError(f"row {row.key} is over {row.over}, which is no row")
        if row.control_of and row.role != "control":
            raise ValueError(f"row {row.key} has control_of, but is no control")
        if unknown := set(row.control_of) - {other.key for other in self.rows if other.role == "proposed"}:
            raise ValueError(f"row {row.key} is control_of {sorted(unknown)[0]}, which is no proposed row")
        if row.arrows and not row.over:
            raise ValueError(f"row {row.key} has arrows, but not what they are over")
        if (self.table.metric == "threshold") != bool(row.of):
            raise ValueError(f"row {row.key}: `of` belongs to every row of a table of T settings, and to no other")
        for name, keys in (("bold", set(row.bold)), ("without", set(row.without))):
            if unknown := keys - {column.key for column in self.columns}:
                raise ValueError(f"row {row.key}: {name} names no column {sorted(unknown)[0]}")


_PARTS: Parts = {"table": (Head, "", ""), "columns": (Column, "column", "key"), "rows": (Row, "row", "key")}


def load_experiment(path: Path) -> Experiment:
    """Read one table file.

    Raises:
        FplError: A missing or malformed file, or one whose lists do not fit its columns.
    """
    return validated(Experiment, read_tables(path), str(path), _PARTS)


def load_experiments(folder: Path) -> list[Experiment]:
    """Read the table files of a folder in the paper's order (`order` in their `[about]`).

    Args:
        folder: `experiments/tables`.

    Raises:
        FplError: No such folder, a broken file, or two tables of one name.
    """
    files = visible(folder, "*.toml")
    found = [load_experiment(path) for path in files]
    check_names("table", [experiment.name for experiment in found], files)
    if not found:
        raise FplError("no table files here", where=str(folder), hint="run in a checkout, or give --experiments")
    return sorted(found, key=lambda experiment: experiment.about.get("order", math.inf))


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
