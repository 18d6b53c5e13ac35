"""From a table to its cells, and from a cell to the runs that measure it.

A cell's run is the recipe `base/{dataset}_{recipe}.toml`, then `set` of the table and of the column and what they have
for that recipe (`recipes`), the row's `set`, the cell's T, the scale, overrides of the command line, and the factors of
column and row.
"""

from __future__ import annotations

import copy
import difflib
import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fpl.config.compose import known_keys, validate
from fpl.config.defaults import CITED, CITED_HERE, Rows
from fpl.config.experiment import Column, Experiment, Printed, Row
from fpl.config.identity import recipes_by_seed
from fpl.config.layers import apply_overrides, flatten, merge, parse_override, read_base
from fpl.config.registry import method_names, options_class
from fpl.config.scale import ScaleFile, apply_scale
from fpl.config.schema import RunConfig
from fpl.config.sections import LossConfig
from fpl.errors import FplError


@dataclass(frozen=True)
class Cell:
    """One cell of a table, and the runs that measure it.

    Attributes:
        experiment: The table.
        row: Its row.
        column: Its column.
        printed: The paper's number, None for a dash or a row of ours.
        arrow: The paper's printed improvement, or None.
        configs: One configuration per seed, without pins and otherwise alike; empty if the cell is not run.
        why_not: Why it is not run: cited, a pending method, or a dash in the paper; empty if it is.
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
        if not self.configs:
            return ()
        recipe_of = recipes_by_seed(self.configs[0].model_dump(mode="json"))
        return tuple(recipe_of(config.seed) for config in self.configs)


def own_row(experiment: Experiment, row: Row) -> bool:
    """Whether a row is this suite's, beside those that the paper made: controls, systems it cites, tables of ours."""
    return experiment.ours or row.role == "control" or (row.role == "cited" and bool(row.recipe))


def asked_for(experiment: Experiment, row: Row, names: Sequence[str]) -> bool:
    """Whether one of the names asks for a row of ours: it fits the row, and no row of the paper's in that table."""
    for name in names:
        table, _, rest = name.partition(".")
        pattern = rest.partition(".")[0] or "*"
        if fnmatch.fnmatchcase(experiment.name, table) and fnmatch.fnmatchcase(row.key, pattern):
            papers = [each.key for each in experiment.rows if not own_row(experiment, each)]
            if not fnmatch.filter(papers, pattern):
                return True
    return False


def chosen(cell: Cell, names: Sequence[str]) -> bool:
    """Whether one of the names (`TABLE`, `TABLE.ROW`, `TABLE.ROW.COLUMN`, with wildcards) fits; no names fit all."""
    parts = cell.name.split(".")
    return not names or any(
        len(wanted := name.split(".")) <= len(parts)
        and all(fnmatch.fnmatchcase(part, pattern) for part, pattern in zip(parts, wanted, strict=False))
        for name in names
    )


@dataclass
class Resolver:
    """Turns tables into cells at one scale.

    Args:
        base: Folder of the recipes.
        scale: Put over every recipe; None is the paper's scale.
        seeds: Seeds of every cell.
        rows: `paper`: the rows that the paper measured, and others that `names` ask for; `all`: every row.
        overrides: `section.key=value`, put over the cells of `names`; `method.` keys over those that know them.
        names: `TABLE`, `TABLE.ROW` or `TABLE.ROW.COLUMN` with wildcards: where overrides go; empty for all cells.
    """

    base: Path
    scale: ScaleFile | None = None
    seeds: Sequence[int] = (0,)
    rows: Rows = "all"
    overrides: Sequence[str] = ()
    names: Sequence[str] = ()
    _bases: dict[Path, tuple[dict[str, Any], dict[str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if any(parse_override(text)[0] == "seed" for text in self.overrides):
            raise FplError("the seeds of a table are no override", where="seed", hint="--seeds N runs seeds 0 to N - 1")

    def cells(self, experiment: Experiment) -> list[Cell]:
        """All cells of a table, row by row.

        Raises:
            FplError: A cell that makes no valid configuration, named.
        """
        return [
            self._cell(experiment, row, column, number)
            for row in experiment.rows
            if not (experiment.ours or row.role == "control") or self._wanted(experiment, row)
            for number, column in enumerate(experiment.columns)
        ]

    def origins(self, cell: Cell) -> dict[str, str]:
        """Where each setting of a cell's runs was set, by dotted key: file and line, or part of the table.

        A setting that is not among them has its default, and so has one that its run cannot use.
        """
        overrides = self.overrides if chosen(cell, self.names) else ()
        number = [column.key for column in cell.experiment.columns].index(cell.column.key)
        tree, origins = self._tree(cell.experiment, cell.row, cell.column, number, overrides)
        given, used = flatten(tree), flatten(cell.configs[0].model_dump(mode="json"))
        return {
            key: origin for key, origin in origins.items() if key in given and str(used.get(key)) == str(given[key])
        }

    def _wanted(self, experiment: Experiment, row: Row) -> bool:
        return self.rows == "all" or not own_row(experiment, row) or asked_for(experiment, row, self.names)

    def _cell(self, experiment: Experiment, row: Row, column: Column, number: int) -> Cell:
        printed = _number(row.values, number)
        cell = Cell(experiment, row, column, printed, _number(row.arrows, number))
        reason = ""
        if row.role == "cited" and not row.recipe:
            reason = CITED
        elif column.key in row.without:
            reason = row.without[column.key]
        elif row.pending:
            reason = row.pending
        elif printed is None and row.role != "control" and experiment.table.printed and not row.unprinted:
            reason = "not in the paper"
        elif not self._wanted(experiment, row):
            reason = CITED_HERE
        elif experiment.table.metric == "threshold":
            reason = "a setting"
        if reason:
            return replace(cell, why_not=reason)
        try:
            overrides = self.overrides if chosen(cell, self.names) else ()
            tree, origins = self._tree(experiment, row, column, number, overrides)
            if missing := self._missing_method(cell, tree, overrides):
                return replace(cell, why_not=missing)
            first = validate(tree, origins)
        except FplError as error:
            where = f"{cell.name}, {error.where}" if error.where else cell.name
            raise FplError(error.what, where=where, hint=error.hint) from None
        # A frozen value with another seed needs no second validation.
        return replace(cell, configs=tuple(first.model_copy(update={"seed": seed}) for seed in self.seeds))

    def _missing_method(self, cell: Cell, tree: dict[str, Any], overrides: Sequence[str]) -> str:
        """Why a cell has no run here: tables may name methods of packages that not every machine has.

        Empty where there is no such reason, and where cell or method were asked for: then it is an error.
        """
        section = tree.get("method", {})
        # A section that is no table is told when the cell is made.
        method = section.get("name") if isinstance(section, dict) else None
        if not isinstance(method, str) or method in method_names() or (self.names and chosen(cell, self.names)):
            return ""
        given = any(parse_override(text)[0] == "method.name" for text in overrides)
        # One that is nearly the name of another is a slip.
        given = given or bool(difflib.get_close_matches(method, method_names(), cutoff=0.75))
        return "" if given else f"method {method} is not installed here"

    def _tree(
        self, experiment: Experiment, row: Row, column: Column, number: int, overrides: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        dataset = column.dataset or experiment.table.dataset
        path = self.base / f"{dataset}_{row.recipe}.toml"
        if path not in self._bases:
            origins: dict[str, str] = {}
            self._bases[path] = (read_base(path, origins), origins)
        tree, origins = copy.deepcopy(self._bases[path])
        table = experiment.table
        layers = [
            ("`set` of the table", table.settings),
            (f"`recipes.{row.recipe}` of the table", table.recipes.get(row.recipe, {})),
            (f"`set` of column {column.key}", column.settings),
            (f"`recipes.{row.recipe}` of column {column.key}", column.recipes.get(row.recipe, {})),
            (f"`set` of row {row.key}", row.settings),
        ]
        if row.threshold is not None:
            value = row.threshold[number] if isinstance(row.threshold, list) else row.threshold
            layers.append((f"`threshold` of row {row.key}", {"loss": {"threshold": value}}))
        for origin, settings in layers:
            # A copy: later layers change the tree in place, and the table must stay as it was read.
            origins |= dict.fromkeys(flatten(settings), origin)
            merge(tree, copy.deepcopy(settings), origins)
        if self.scale is not None:
            apply_scale(tree, self.scale, origins)
        for override in overrides:
            if _concerns(tree, override):
                apply_overrides(tree, [override], origins)
        # Last: half of the weight stays half of it where the weight is overridden.
        for name, key, factor in _factors(tree, row, column):
            multiply(tree, key, factor)
            origins[key] = f"{origins.get(key, 'default')}, times {factor:g} by {name}"
        return tree, origins


def _concerns(tree: dict[str, Any], override: str) -> bool:
    """Whether a recipe has a use for an override: a key of another method says nothing about this one's rows."""
    section, key, *_ = [*parse_override(override)[0].split("."), ""]
    name = tree.get("method", {}).get("name")
    return section != "method" or key in _keys_of(name) or key not in known_keys([section])


def _factors(tree: dict[str, Any], row: Row, column: Column) -> list[tuple[str, str, float]]:
    """Whose factor it is, of which dotted key, and how much."""
    parts: tuple[tuple[str, Column | Row], ...] = ((f"column {column.key}", column), (f"row {row.key}", row))
    found = [(f"`multiply` of {name}", key, by) for name, part in parts for key, by in part.multiply.items()]
    if row.matched_weight != 1.0:
        native = options_class(tree["method"]["name"]).native_kind
        if tree.get("loss", {}).get("kind", LossConfig.model_fields["kind"].default) != native:
            found.append((f"`matched_weight` of row {row.key}", "method.weight", row.matched_weight))
    return found


def _keys_of(method: Any) -> frozenset[str]:
    """The keys that a method's table knows; none where there is no such method."""
    return frozenset(options_class(method).model_fields) if method in method_names() else frozenset()


def multiply(tree: dict[str, Any], key: str, factor: float) -> None:
    """Multiply the number at a dotted key, in place.

    Raises:
        FplError: There is no number.
    """
    *sections, leaf = key.split(".")
    table: Any = tree
    for section in sections:
        table = table.get(section) if isinstance(table, dict) else None
    value = table.get(leaf) if isinstance(table, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FplError(f"multiply names {key}, which the recipe does not set to a number", where=key)
    table[leaf] = value * factor


def _number(listed: Sequence[Printed], number: int) -> float | None:
    value = listed[number] if listed else None
    return None if value is None or isinstance(value, str) else float(value)
