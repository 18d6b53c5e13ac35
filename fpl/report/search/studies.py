"""A search and its studies as they stand in the store, and how they are named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from fpl.config.layers import flatten
from fpl.config.search import DIRECTIONS, Parameter
from fpl.report.statistics import repetition
from fpl.store.lookup import text
from fpl.store.read import Results
from fpl.store.rows import FRACTION, read_object, read_space
from fpl.store.search_frame import records
from fpl.store.trials import TrialRow, is_cell, read_trials

if TYPE_CHECKING:
    from optuna import Study

# What tells studies of one search apart, where the label of their data does not.
APART = ("cell", "scale", "protocol", "sampler", "sampler_seed", "stop", "seeds", "splits", "objectives", "metric")


@dataclass(frozen=True)
class StudyView:
    """One study with its trials.

    Attributes:
        about: Its row of the table `studies`.
        trials: Its rows of `Results.search`, by number.
        rows: The same trials as they were recorded.
        repeated: Standard deviation of one run repeated with the same seed in these results (points of mIoU), None if
            not measured.
        title: What a reader tells it apart by.
    """

    about: Mapping[str, Any]
    trials: pd.DataFrame
    rows: list[TrialRow]
    repeated: float | None
    title: str

    @cached_property
    def space(self) -> list[Parameter]:
        """What was varied."""
        return read_space(self.about["space"])

    @property
    def keys(self) -> list[str]:
        """Dotted keys of what was varied."""
        return [parameter.key for parameter in self.space]

    @property
    def objectives(self) -> list[str]:
        """`miou`, and `cost` where it is searched for too."""
        return list(self.about["objectives"])

    @cached_property
    def complete(self) -> pd.DataFrame:
        """The trials that ran to their end, best first; equal ones by number."""
        return self.of("complete").sort_values(["score", "number"], ascending=[False, True], ignore_index=True)

    @cached_property
    def paper(self) -> pd.DataFrame:
        """Those of `complete` that are settings of the paper."""
        done = self.complete
        # A list of no flags would choose columns, and leave none.
        cells = pd.Series([is_cell(origin) for origin in done["origin"]], done.index, dtype=bool)
        return done[cells].reset_index(drop=True)

    @property
    def final(self) -> pd.Series | None:
        """The best setting with all labels, after a holdout search; None if it has not been run."""
        rows = self.of("final")
        return rows.iloc[-1] if len(rows) else None

    def of(self, *states: str) -> pd.DataFrame:
        """The trials in one of some states, by number."""
        return self.trials[self.trials["state"].isin(states)].reset_index(drop=True)

    def rebuilt(self, objectives: Sequence[str] = ("miou",)) -> Study:
        """The trials as Optuna holds them, for its charts and importances."""
        # Imported here: the tables do without Optuna.
        from fpl.store.as_optuna import as_optuna

        return as_optuna(self.space, self.rows, objectives)

    def setting(self, row: Mapping[str, Any] | pd.Series) -> str:
        """The parameters of a trial in words: `threshold 0.85, strategy n-1`."""
        held = [(key, row[key]) for key in self.keys if not pd.isna(row[key])]
        return ", ".join(f"{short(key, self.keys)} {value_text(value)}" for key, value in held)


@dataclass(frozen=True)
class SearchView:
    """All studies of one search.

    Attributes:
        name: What commands call it.
        caption: What it asks.
        studies: Fewest labels first.
    """

    name: str
    caption: str
    studies: list[StudyView]


def read_search(results: Results, name: str) -> SearchView:
    """All there is about a search.

    Raises:
        FplError: There is no such search in these results.
    """
    frame = results.search(name)
    about = [row for row in records(results.studies) if row["search"] == name]
    about.sort(key=_order)
    titles = _titles(about)
    studies = [
        StudyView(
            row,
            frame[frame["study"] == row["study"]].reset_index(drop=True),
            read_trials(results.folder, row["study"]),
            repeated.std if (repeated := repetition(results.noise, row["metric"])) is not None else None,
            title,
        )
        for row, title in zip(about, titles, strict=True)
    ]
    # The newest wording of the question.
    of_search = results.studies[results.studies["search"] == name]
    caption = text(records(of_search.sort_values("updated_at", na_position="first"))[-1], "caption")
    return SearchView(name, caption, studies)


def direction_words(objective: str) -> str:
    """`mIoU in %, larger is better`."""
    name = "mIoU in %" if objective == "miou" else "cost in device-hours"
    return f"{name}, {'larger' if DIRECTIONS[objective] == 'maximize' else 'smaller'} is better"


def _order(about: Mapping[str, Any]) -> tuple[Any, ...]:
    labels = count(about["labeled_images"])
    return (about["scale"], labels, about["sampler"], count(about["sampler_seed"]), about["study"])


def short(key: str, keys: Sequence[str]) -> str:
    """The last part of a dotted key, where no other key ends in it."""
    last = key.rpartition(".")[2]
    return key if any(other != key and other.rpartition(".")[2] == last for other in keys) else last


def value_text(value: Any) -> str:
    """A parameter's value: four significant digits, words as they are."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def count(value: Any) -> int:
    """A number of images that an older row may lack."""
    return 0 if value is None or pd.isna(value) else int(value)


def fraction_of(about: Mapping[str, Any]) -> str:
    """Labeled fraction of a study's runs, for example `1/8`."""
    return str(flatten(read_object(about["base"]))[FRACTION])


def _titles(about: Sequence[Mapping[str, Any]]) -> list[str]:
    """`1/8 labeled (46 images)`, and what else tells studies apart."""

    def said(row: Mapping[str, Any], key: str) -> str:
        return " and ".join(row[key]) if key == "objectives" else str(row[key])

    titles = []
    for row in about:
        images = f" ({count(row['labeled_images'])} images)" if count(row["labeled_images"]) else ""
        titles.append(f"{fraction_of(row)} labeled{images}")
    for key in APART:
        if len(set(titles)) == len(titles):
            return titles
        if len({said(row, key) for row in about}) > 1:
            name = "" if key in ("cell", "scale", "metric") else f"{key.replace('_', ' ')} "
            titles = [f"{title}, {name}{said(row, key)}" for title, row in zip(titles, about, strict=True)]
    if len(set(titles)) == len(titles):
        return titles
    return [f"{title}, {row['study']}" for title, row in zip(titles, about, strict=True)]
