"""Runs of one store beside those of another that are of the same recipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from fpl.store.columns import COLUMNS, Meaning
from fpl.store.frames import described, latest
from fpl.store.schema import METRICS, RUNS

OTHER, DIFFERENCE = "_other", "_difference"


@dataclass(frozen=True)
class Difference:
    """Runs beside published ones of the same recipe.

    Attributes:
        both: How many there are.
        differ: Those with another metric: the columns of both, `_ours` and `_theirs`.
        points: The largest difference of an mIoU.
        run_id: Whose it is.
    """

    both: int
    differ: pd.DataFrame
    points: float = 0.0
    run_id: str = ""


def difference(ours: pd.DataFrame, theirs: pd.DataFrame) -> Difference:
    """Compare two frames of runs (`Results.runs`) to the last bit, recipe by recipe."""
    both = _latest(ours).merge(_latest(theirs), on="recipe", suffixes=("_ours", "_theirs"))
    if both.empty:
        return Difference(0, both)
    first, second = (_metrics(both, end) for end in ("_ours", "_theirs"))
    equal = ((first == second) | (first.isna() & second.isna())).all(axis=1)
    differ = both[~equal]
    if differ.empty:
        return Difference(len(both), differ)
    points = (first - second)[[name for name in METRICS if name.startswith("miou")]].abs().max(axis=1).fillna(0.0)
    worst = int(points.where(~equal, -1.0).to_numpy().argmax())
    return Difference(len(both), differ, float(points.iloc[worst]), str(both["run_id_ours"].iloc[worst]))


def compared(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Two frames of runs (`Results.runs`) side by side: one row a recipe that either has.

    Returns:
        `recipe`, `run_id`, `run_id_other`, and for each metric that a run has its value (%), `METRIC_other` (%) and
        `METRIC_difference` (ours - other, in points), missing where one of them has no run.
    """
    both = _latest(ours).merge(_latest(theirs), on="recipe", how="outer", suffixes=("", OTHER))
    columns: dict[str, pd.Series] = {name: both[name] for name in ("recipe", "run_id", f"run_id{OTHER}")}
    known = dict(COLUMNS[RUNS])
    for name, values in _metrics(both, "").items():
        others = both[f"{name}{OTHER}"].astype("float64")
        if values.notna().any() or others.notna().any():
            columns |= {str(name): values, f"{name}{OTHER}": others, f"{name}{DIFFERENCE}": values - others}
            known |= {f"{name}{OTHER}": Meaning("%", "the same of the other store")}
            known |= {f"{name}{DIFFERENCE}": Meaning("points", "ours - the other's")}
    return described(pd.DataFrame(columns), known)


def _latest(frame: pd.DataFrame) -> pd.DataFrame:
    """The run of each recipe that finished last: the one that tables show."""
    return latest(frame).drop_duplicates("recipe", keep="last")


def _metrics(both: pd.DataFrame, end: str) -> pd.DataFrame:
    return pd.DataFrame({name: both[f"{name}{end}"] for name in METRICS}, index=both.index).astype("float64")


def values(frame: pd.DataFrame, name: str) -> Sequence[str]:
    """What stands in a column, each once, as text."""
    return sorted(set(frame[name].dropna().astype(str))) if name in frame else []
