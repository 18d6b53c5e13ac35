"""A study: one search, put into the runs of one cell at one scale. What a trial's parameters mean as runs."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fpl.config.campaign import Campaign, load_campaign
from fpl.config.cells import Cell
from fpl.config.compose import validate
from fpl.config.identity import canonical, recipe_digest
from fpl.config.layers import flatten, merge, nested, parse_override
from fpl.config.schema import RunConfig
from fpl.config.search import Head, Search, Value, load_search, with_changes
from fpl.errors import FplError
from fpl.text import meant

if TYPE_CHECKING:
    import optuna

# Combinations of choices and ends of ranges that are tried out before a search starts: a few milliseconds.
TRIED_ENDS = 100


@dataclass(frozen=True)
class Point:
    """One setting of the paper.

    Attributes:
        params: Its parameters.
        cell: The first cell that has it.
        own: Whether the study's run with these parameters is that cell's run, to the last setting.
    """

    params: dict[str, Value]
    cell: str
    own: bool


@dataclass(frozen=True)
class Study:
    """One search in the runs of one cell.

    Attributes:
        search: The search, with what the command line changed in its `[search]`.
        cell: Name of the cell that is varied.
        base: Its run, seed 0.
        scale: Name of the scale.
        points: The paper's settings, those of this very cell's table first.
        seed: Of the sampler.
    """

    search: Search
    cell: str
    base: RunConfig
    scale: str
    points: tuple[Point, ...] = ()
    seed: int = 0

    @property
    def head(self) -> Head:
        """Its `[search]`."""
        return self.search.search

    @property
    def tried_points(self) -> tuple[Point, ...]:
        """The points that are tried: a grid has none that its own cell's table does not."""
        return tuple(point for point in self.points if point.own or self.head.sampler != "grid")

    @property
    def runs_per_trial(self) -> int:
        """Runs whose mean is a trial's score."""
        return self.head.seeds * self.head.splits

    @property
    def steps(self) -> int:
        """Training steps of a whole trial, all runs together."""
        return self.base.train.steps * self.runs_per_trial

    @property
    def metric(self) -> str:
        """Column of the store that is compared, for example `miou_whole_best`."""
        return f"miou_{self.base.eval.protocol}_{self.head.selection}"

    @property
    def final_metric(self) -> str:
        """What the final run of a holdout search is scored by: its last weights, for the best are chosen by `val`."""
        return f"miou_{self.base.eval.protocol}_last"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The varied run by dotted key."""
        return flatten(self.base.model_dump(mode="json"))

    @cached_property
    def identity(self) -> str:
        """`joint-3fa91c02`: a digest of all settings that its trials share; the data at hand are no part of it."""
        # How long it goes on and what it is called is no part of it.
        unused = {"name", "caption", "on", "points", "trials"} | ({"holdout"} if self.head.protocol == "val" else set())
        held = {
            "base": json.loads(canonical(self.base)),
            "space": [parameter.model_dump(mode="json") for parameter in self.search.space],
            "seed": self.seed,
            **self.head.model_dump(mode="json", exclude=unused),
        }
        digest = hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()
        return f"{self.search.name}-{digest[:8]}"

    def suggest(self, trial: optuna.Trial) -> dict[str, Value]:
        """Ask for the parameters of a trial."""
        return self.search.suggest(trial, self.settings)

    def config(self, params: Mapping[str, Value], seed: int = 0, split: int = 0) -> RunConfig:
        """The run of some parameters, without pins.

        Raises:
            FplError: They make no valid configuration, or one that does not depend on all of them.
        """
        tree = self.base.model_dump(mode="json")
        for key, value in params.items():
            merge(tree, nested(key, value))
        tree["seed"] = seed
        tree["data"]["split"]["index"] = split
        if self.head.protocol == "holdout":
            tree["data"]["split"]["holdout"] = self.head.holdout
        where = f"search {self.search.name}"
        config = validate(tree, default_origin=where)
        made = flatten(config.model_dump(mode="json"))
        for key, value in params.items():
            if made.get(key) != value:
                raise FplError(
                    f"{key} = {value!r} has no effect beside {_words(params, key)}; the run has {made.get(key)!r}",
                    where=where,
                    hint=f"give {key} a `when` that says beside which settings it means something",
                )
        return config

    def configs(self, params: Mapping[str, Value]) -> list[RunConfig]:
        """The runs of a trial, without pins, in the order in which they are carried out."""
        first = self.config(params)
        if self.runs_per_trial == 1:
            return [first]
        return [
            self.config(params, seed, split) for split in range(self.head.splits) for seed in range(self.head.seeds)
        ]

    def final_config(self, params: Mapping[str, Value], seed: int = 0) -> RunConfig:
        """The run of some parameters as a table would have it: all labels, scored on the validation part."""
        config = self.config(params, seed)
        split = config.data.split.model_copy(update={"holdout": None})
        return config.model_copy(update={"data": config.data.model_copy(update={"split": split})})


def load_studies(
    folder: Path, name: str, scale: str, *, seed: int = 0, overrides: Sequence[str] = (), **changes: Any
) -> list[Study]:
    """Read a search, and make a study of each cell it is about.

    Args:
        folder: `experiments/`.
        name: Name of the search, or the path of its file.
        scale: Name of a scale, or its path.
        seed: Of the sampler.
        overrides: `section.key=value`, put over the varied runs.
        changes: What replaces keys of its `[search]`, those that are not None.

    Raises:
        FplError: A broken file, an unknown cell, a parameter that the runs do not know, or that a study cannot vary.
    """
    search = load_search(folder, name)
    given = {key: value for key, value in changes.items() if value is not None}
    if given:
        search = with_changes(search, given)
    _check_overrides(search, overrides)
    campaign = load_campaign(folder, scale, search.search.on, 1, "all", overrides)
    # Without the overrides: the points are the paper's.
    points = load_campaign(folder, scale, search.search.points, 1, "all").all_cells if search.search.points else []
    studies: dict[str, Study] = {}
    for cell in _cells(campaign, search.search.on):
        study = Study(search, cell.name, cell.configs[0], campaign.scale_name, seed=seed)
        _check_keys(study)
        _check_ends(study)
        # Cells that differ at the paper's scale may be the same runs at a small one: those are one study.
        studies.setdefault(study.identity, replace(study, points=_points(study, points)))
    return list(studies.values())


def _check_overrides(search: Search, overrides: Sequence[str]) -> None:
    for key in (parse_override(text)[0] for text in overrides):
        if key in search.keys:
            raise FplError(
                f"{key} is searched: an override of it would mean nothing",
                where=f"override {key}",
                hint="narrow its [[space]] in a copy of the search file, and give that file's path",
            )


def _cells(campaign: Campaign, names: Sequence[str]) -> list[Cell]:
    """The cells to vary, in the order named."""
    found = {cell.name: cell for cell in campaign.all_cells}
    for name in names:
        if name not in found or not found[name].configs:
            raise FplError(f"{name!r} is no cell that is run", where="[search] on", hint="TABLE.ROW.COLUMN")
    return [found[name] for name in names]


def _check_keys(study: Study) -> None:
    """Refuse keys that the varied runs do not have, before anything is asked for."""
    for parameter in study.search.space:
        for key in (parameter.key, *parameter.when):
            if key not in study.settings:
                guess = meant(key, study.settings)
                section = key.partition(".")[0] + "."
                known = [name for name in study.settings if name.startswith(section)] or sorted(
                    {name.partition(".")[0] + ".…" for name in study.settings if "." in name}
                )
                raise FplError(
                    f"the runs of {study.cell} have no setting {key}",
                    where=f"search {study.search.name}",
                    hint=f"{guess}they have: {', '.join(known)}",
                )
        for key, values in parameter.when.items():
            if key not in study.search.keys and study.settings[key] not in values:
                raise FplError(
                    f"{parameter.key} would never be varied: the runs of {study.cell} have {key} = "
                    f"{study.settings[key]!r}, its condition is {values}",
                    where=f"search {study.search.name}",
                    hint="mend its `when`, or leave it out",
                )


def _check_ends(study: Study) -> None:
    """Refuse choices and ends of ranges that make no run, or none that depends on them, before a trial does."""
    draw = random.Random(0)
    for _ in range(TRIED_ENDS):
        params: dict[str, Value] = {}
        for parameter in study.search.space:
            if parameter.applies({**study.settings, **params}):
                params[parameter.key] = draw.choice(parameter.ends)
        study.config(params)


def _points(study: Study, cells: Sequence[Cell]) -> tuple[Point, ...]:
    """Distinct settings of the paper's cells, the study's own cells first.

    Raises:
        FplError: A cell lies outside the search.
    """
    found: dict[str, Point] = {}
    for cell in cells:
        if not cell.configs:
            continue
        config = cell.configs[0]
        params = study.search.read(flatten(config.model_dump(mode="json")))
        if params is None:
            raise FplError(
                f"{cell.name}, one of its points, lies outside what is searched",
                where=f"search {study.search.name}",
                hint="name other cells in `points`, or widen the [[space]]",
            )
        own = recipe_digest(study.final_config(params).model_dump(mode="json")) == cell.recipes[0]
        key = json.dumps(params, sort_keys=True)
        if key not in found or (own and not found[key].own):
            found[key] = Point(params, cell.name, own)
    return tuple(sorted(found.values(), key=lambda point: not point.own))


def _words(params: Mapping[str, Value], without: str) -> str:
    return ", ".join(f"{key} = {value!r}" for key, value in params.items() if key != without) or "these settings"
