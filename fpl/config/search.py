"""A search as data: which settings are varied, within what, and which runs they are put into.

A file of `experiments/search/` becomes a `Search`; `fpl.config.study` makes runs of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import Field, model_validator

from fpl.config.defaults import MOST_RUNS, MOST_STEPS, Images, Sampler, Stop
from fpl.config.explain import Parts, validated
from fpl.config.layers import flatten, read_tables
from fpl.config.section import Part
from fpl.errors import FplError
from fpl.files import visible
from fpl.names import Name, is_name
from fpl.text import meant

if TYPE_CHECKING:
    import optuna

Value = str | int | float | bool
Objective = Literal["miou", "cost"]
# Whether larger is better.
DIRECTIONS: dict[str, Literal["maximize", "minimize"]] = {"miou": "maximize", "cost": "minimize"}
SEARCHES = "search"


class Parameter(Part):
    """One setting that is varied.

    Attributes:
        key: Dotted key of the run's configuration.
        low: Smallest value of a number; whole numbers only if both ends are written without a point.
        high: Largest value.
        log: Whether the logarithm is searched evenly.
        choices: The values of a setting that is no number.
        when: Dotted key -> values: the setting is varied only where the others have one of these; elsewhere it means
            nothing.
    """

    key: str
    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    choices: list[Value] = Field(default_factory=list)
    when: dict[str, list[Value]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _flat_conditions(cls, tree: Any) -> Any:
        if isinstance(tree, dict) and isinstance(tree.get("when"), dict):
            conditions = flatten(tree["when"])
            listed = {key: value if isinstance(value, list) else [value] for key, value in conditions.items()}
            return {**tree, "when": listed}
        return tree

    @model_validator(mode="after")
    def _check(self) -> Parameter:
        if not all(map(is_name, self.key.split("."))):
            raise ValueError(f"{self.key!r} is no key of a configuration")
        ends = (self.low, self.high)
        if bool(self.choices) == any(end is not None for end in ends):
            raise ValueError("give either choices, or low and high")
        if self.choices:
            if len(set(self.choices)) < len(self.choices) or self.log:
                raise ValueError("choices must differ and have no log")
        elif self.low is None or self.high is None or not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"low = {self.low} must be below high = {self.high}, both finite")
        elif self.log and self.low <= 0:
            raise ValueError("log needs low > 0")
        return self

    @property
    def ends(self) -> list[Value]:
        """All choices, or the smallest and the largest number."""
        return self.choices or [end for end in (self.low, self.high) if end is not None]

    @property
    def whole(self) -> bool:
        """Whether it is a whole number."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def applies(self, settings: Mapping[str, Any]) -> bool:
        """Whether it means something beside other settings, given by dotted key."""
        return all(settings.get(key) in values for key, values in self.when.items())

    def allows(self, value: Any) -> bool:
        """Whether a value lies within the search."""
        if self.choices:
            return value in self.choices
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high and not (self.whole and value != int(value))

    def suggest(self, trial: optuna.Trial) -> Value:
        """Ask for a value."""
        if self.choices:
            return cast("Value", trial.suggest_categorical(self.key, self.choices))
        assert self.low is not None and self.high is not None
        if self.whole:
            return trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.key, float(self.low), float(self.high), log=self.log)


class Head(Part):
    """The `[search]` of a file.

    Attributes:
        name: What commands call it.
        caption: What it asks.
        on: Cells (`TABLE.ROW.COLUMN`) whose runs are varied; each is a study of its own.
        points: Cells, with wildcards, whose settings are tried first: the paper's.
        trials: Trials per study where no `--budget` says otherwise.
        seeds: Runs per trial and split, with seeds 0, 1, ...
        splits: Splits of the same fraction per trial, numbers 0, 1, ...
        objectives: What is searched for: `miou` alone, or beside it `cost` (device-hours of training).
        selection: Whether a run counts with its best or its last weights.
        sampler: How trials are proposed.
        stop: What ends hopeless trials early.
        protocol: What trials are compared on: `val`, or `holdout`.
        holdout: With `holdout`: every so-manieth labeled image is kept from training.
    """

    name: Name
    caption: str
    on: list[str] = Field(min_length=1)
    points: list[str] = Field(default_factory=list)
    trials: int = Field(default=24, ge=1, le=100_000)
    seeds: int = Field(default=1, ge=1, le=MOST_RUNS)
    splits: int = Field(default=1, ge=1, le=MOST_RUNS)
    objectives: tuple[Objective, ...] = ("miou",)
    selection: Literal["best", "last"] = "best"
    sampler: Sampler = "tpe"
    stop: Stop = "asha"
    protocol: Images = "val"
    holdout: int = Field(default=4, ge=2, le=MOST_STEPS)

    @model_validator(mode="after")
    def _check(self) -> Head:
        if self.objectives[:1] != ("miou",) or len(set(self.objectives)) < len(self.objectives):
            raise ValueError("objectives begin with miou and name nothing twice")
        if self.seeds * self.splits > MOST_RUNS:
            raise ValueError(f"{self.seeds} seeds of {self.splits} splits: at most {MOST_RUNS} runs make a trial")
        return self


class Search(Part):
    """One file of `experiments/search/`."""

    search: Head
    space: list[Parameter] = Field(min_length=1)
    about: dict[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """What commands call it."""
        return self.search.name

    @property
    def keys(self) -> list[str]:
        """Dotted keys of all parameters."""
        return [parameter.key for parameter in self.space]

    @model_validator(mode="after")
    def _check(self) -> Search:
        for number, key in enumerate(self.keys):
            if key in self.keys[:number]:
                raise ValueError(f"{key} is varied twice")
            if key in ("seed", "data.split.index", "data.split.holdout"):
                raise ValueError(f"{key} is no setting to search: it is what a score is the mean over")
            if key.startswith(("train.", "eval.")):
                raise ValueError(f"{key} is no setting to search: trials are compared at equal steps and protocols")
        for number, parameter in enumerate(self.space):
            if late := set(parameter.when) & set(self.keys[number:]):
                raise ValueError(f"{parameter.key}: its condition on {sorted(late)[0]} must come after that parameter")
            for other in self.space[:number]:
                if never := [value for value in parameter.when.get(other.key, []) if not other.allows(value)]:
                    raise ValueError(f"{parameter.key}: its condition {other.key} = {never[0]!r} is never met here")
        return self

    def suggest(self, trial: optuna.Trial, settings: Mapping[str, Any]) -> dict[str, Value]:
        """Ask for the parameters of one trial, those alone that mean something beside the others (define-by-run).

        Args:
            trial: Asked for each.
            settings: The run that is varied, by dotted key.
        """
        found: dict[str, Value] = {}
        for parameter in self.space:
            if parameter.applies({**settings, **found}):
                found[parameter.key] = parameter.suggest(trial)
        return found

    def read(self, settings: Mapping[str, Any]) -> dict[str, Value] | None:
        """The parameters of a run, given by dotted key; None if it lies outside the search."""
        found: dict[str, Value] = {}
        for parameter in self.space:
            if parameter.applies(settings):
                if parameter.key not in settings or not parameter.allows(settings[parameter.key]):
                    return None
                found[parameter.key] = settings[parameter.key]
        return found


_PARTS: Parts = {"search": (Head, "", ""), "space": (Parameter, "space", "key")}


def load_search(folder: Path, name: str) -> Search:
    """Read a search.

    Args:
        folder: `experiments/`.
        name: Name of a file in its `search/`, or a path ending in `.toml`.

    Raises:
        FplError: A missing or malformed file.
    """
    path = Path(name) if name.endswith(".toml") else folder / SEARCHES / f"{name}.toml"
    if not path.is_file():
        known = search_names(folder)
        guess = meant(path.stem, known)
        raise FplError(f"no search {name!r}", where=str(path), hint=f"{guess}there are: {', '.join(known) or 'none'}")
    return validated(Search, read_tables(path), str(path), _PARTS)


def with_changes(search: Search, changes: Mapping[str, Any]) -> Search:
    """A search with other values of keys of its `[search]`.

    Raises:
        FplError: An unknown key, or a value that is not allowed.
    """
    tree = search.model_dump()
    tree["search"] |= changes
    return validated(Search, tree, f"changes to search {search.name}", _PARTS)


def search_names(folder: Path) -> list[str]:
    """Names of the searches in `experiments/`."""
    return [path.stem for path in visible(folder / SEARCHES, "*.toml")]
