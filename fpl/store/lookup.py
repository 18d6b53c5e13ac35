"""Finding the run behind a cell: the newest of each recipe, and why there is none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from fpl.store.frames import latest
from fpl.store.search_frame import records

if TYPE_CHECKING:
    from fpl.store.read import Results

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Failure:
    """Why a run ended without a result: the first line of the error, and the log file."""

    reason: str
    log: str

    def __str__(self) -> str:
        return f"failed: {self.reason}" + (f" ({self.log})" if self.log else "")


@dataclass(frozen=True)
class Lookup:
    """Runs and failures by recipe digest.

    Attributes:
        runs: Recipe -> the row of `Results.runs` that finished last.
        replaced: Recipe -> ids of older runs of it, on other data or from other weights.
        failures: Recipe -> why its run failed, for recipes without a finished run.
        noise: `Results.noise`.
        fuzziness: Gives `Results.fuzziness`, which few look at.
    """

    runs: dict[str, Record] = field(default_factory=dict)
    replaced: dict[str, list[str]] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    noise: pd.DataFrame = field(default_factory=pd.DataFrame)
    fuzziness: Callable[[], pd.DataFrame] = pd.DataFrame

    @functools.cached_property
    def fuzzy_shares(self) -> dict[str, float]:
        """Run -> share of the pixels that taught that had K > 1, over all logged steps; NaN where no pixel taught."""
        frame = self.fuzziness()
        if frame.empty:
            return {}
        several = frame["pixels"] * (1.0 - frame["share_k1"].fillna(1.0))
        sums = frame.assign(several=several).groupby("run_id")[["several", "pixels"]].sum()
        return {str(run): float(share) for run, share in (sums["several"] / sums["pixels"]).items()}

    @functools.cached_property
    def seeds(self) -> list[int]:
        """Seeds of the runs, smallest first; those of runs that an older version wrote may be missing."""
        return sorted({int(seed) for record in self.runs.values() if (seed := number(record, "seed")) is not None})


class _Row(Mapping[str, Any]):
    """One row of a frame, whose values are made when they are asked for.

    Of ten thousand runs with ninety columns a table shows a few columns.
    """

    def __init__(self, columns: _Columns, number: int) -> None:
        self._columns = columns
        self._number = number

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._number]

    def __iter__(self) -> Iterator[str]:
        return map(str, self._columns.frame)

    def __len__(self) -> int:
        return self._columns.frame.shape[1]


class _Columns(dict[str, list[Any]]):
    """The columns of a frame as lists, each made once."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def __missing__(self, name: str) -> list[Any]:
        values: list[Any] = self.frame[name].to_numpy(dtype=object).tolist()
        self[name] = values
        return values


def look_up(results: Results | None) -> Lookup:
    """Index results by recipe, once for the same object; None is a store without anything."""
    return Lookup() if results is None else _look_up(results)


# Two: a store and what it is compared with.
@functools.lru_cache(maxsize=2)
def _look_up(results: Results) -> Lookup:
    found = Lookup(noise=results.noise, fuzziness=lambda: results.fuzziness)
    columns = _Columns(latest(results.runs))
    for number, recipe in enumerate(columns["recipe"]):
        if recipe in found.runs:
            found.replaced.setdefault(recipe, []).append(found.runs[recipe]["run_id"])
        found.runs[recipe] = _Row(columns, number)
    for row in records(results.failures):
        if row["recipe"] not in found.runs:
            first = next(iter(text(row, "reason").strip().splitlines()), "no reason recorded")
            found.failures[row["recipe"]] = Failure(first, text(row, "log"))
    return found


def text(record: Record, name: str) -> str:
    """A column of a run as text; empty where the run has none."""
    value = record.get(name)
    return "" if value is None or value is pd.NA or value != value else str(value)


def number(record: Record, name: str) -> float | None:
    """A column of a run as a number; None where the run has none."""
    value = record.get(name)
    return None if value is None or pd.isna(value) else float(value)
