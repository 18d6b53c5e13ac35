"""What a claim is decided by: means over a part of training, of all runs of a series, with what they are means of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from fpl.report.figures.quantities import QUANTITIES
from fpl.report.figures.series import Found, Source
from fpl.text import plural

State = Literal["holds", "does not hold", "not run"]
Window = Literal["first quarter", "last quarter", "all"]


@dataclass(frozen=True)
class Outcome:
    """What a check found.

    Attributes:
        state: Whether the claim holds.
        numbers: What was measured, of how many runs, pixels and steps: one line of text.
    """

    state: State
    numbers: str


@dataclass(frozen=True)
class Mean:
    """A mean over pixels, directions of the loss, logged steps and seeds alike: each pixel counts once.

    Attributes:
        value: The mean.
        steps: Steps it is over.
        runs: Ids of the runs it is over.
    """

    value: float
    steps: frozenset[int]
    runs: frozenset[str]


@dataclass(frozen=True)
class Part:
    """What one series says about a claim.

    Attributes:
        holds: Whether it holds there.
        text: The numbers.
        means: What they were measured on.
    """

    holds: bool
    text: str
    means: tuple[Mean, ...]


def each(source: Source, windows: Sequence[Window], judge: Callable[[Found], Part | None], what: str = "") -> Outcome:
    """Judge every series of a figure by itself; the claim holds if it holds in all that have what it needs.

    Args:
        source: The figure's runs.
        windows: The parts of training that are looked at.
        judge: What one series says; None if its runs did not log what this needs.
        what: What the numbers are, if they do not say so.
    """
    parts = [(item, part) for item in source.drawn if (part := judge(item)) is not None]
    if not parts:
        return no_values(source)
    texts = [f"{item.label}: {part.text}" if len(parts) > 1 else part.text for item, part in parts]
    listed = "; ".join([*texts, amount([mean for _, part in parts for mean in part.means], *windows)])
    return decided(all(part.holds for _, part in parts), f"{what}: {listed}" if what else listed)


def decided(holds: bool, numbers: str) -> Outcome:
    """The outcome of a check that had what it needs."""
    return Outcome("holds" if holds else "does not hold", numbers)


def not_run(reason: str) -> Outcome:
    """The outcome of a check that had not."""
    return Outcome("not run", reason)


def no_values(source: Source) -> Outcome:
    """There is no number: because nothing was run, or because the runs did not log it."""
    if source.drawn or not source.found:
        return not_run("the runs did not log what this needs")
    return not_run(f"no finished run of {', '.join(item.cell.name for item in source.found)}")


SHARES = ("share_", "case_1_share", "impurity", "cosine_fuzzy_positive")
NAMES = {
    "case_1_share_k1": "share of K = 1 in case 1",
    "cosine_fuzzy": "cos(Gᶠ, Gⁱᵈᵉ)",
    "cosine_vanilla": "cos(Gᵛ, Gⁱᵈᵉ)",
    "cosine_fuzzy_positive": "share of cos(Gᶠ, Gⁱᵈᵉ) > 0",
    "norm_fuzzy": "|Gᶠ| in case 2",
    "norm_ideal": "|Gⁱᵈᵉ| in case 2",
    "norm_fuzzy_all": "|Gᶠ|",
    "norm_ideal_all": "|Gⁱᵈᵉ|",
    "gradient_sum_n": "gradient sum with K = n",
    "gradient_sum_n_minus_1": "gradient sum with K = n - 1",
}


def mean_of(source: Source, item: Found, name: str, window: Window) -> Mean | None:
    """Mean of a quantity over a part of training; None where no run of the series logged it in that part."""
    rows = batches(source, item, [name], window)
    return mean_in(rows, name) if len(rows) else None


def means_of(source: Source, item: Found, names: Sequence[str], window: Window) -> dict[str, Mean]:
    """Means of those of some quantities that a run of the series logged there."""
    return {name: mean for name in names if (mean := mean_of(source, item, name, window)) is not None}


def mean_in(rows: pd.DataFrame, name: str) -> Mean:
    """Mean of a quantity over rows of `batches`, weighted by the pixels behind each."""
    value = float(np.average(rows[name], weights=rows[f"{name} pixels"]))
    return Mean(value, frozenset(rows["step"]), frozenset(rows["run_id"]))


def batches(source: Source, item: Found, names: Sequence[str], window: Window) -> pd.DataFrame:
    """Quantities of each logged mini-batch: one row per run, step and direction of the loss that has all of them.

    Returns:
        `run_id`, `step`, `direction`, and per quantity its mean (`NAME`) and the pixels behind it (`NAME pixels`).
    """
    parts = []
    for record in item.records:
        rows = source.fuzziness(record)
        if len(rows):
            parts.append(_values(rows[_inside(rows["step"] / float(record["train.steps"]), window)], names))
    columns = ["run_id", "step", "direction", *(column for name in names for column in (name, f"{name} pixels"))]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _inside(share: pd.Series, window: Window) -> pd.Series:
    """Which steps are in a part of training, from the share of it that is over."""
    return {"first quarter": share <= 0.25, "last quarter": share > 0.75, "all": share >= 0}[window]


def _values(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    found = rows[["run_id", "step", "direction"]].copy()
    known = np.ones(len(rows), dtype=bool)
    for name in names:
        quantity = QUANTITIES[name]
        value, pixels = quantity.value(rows), quantity.pixels(rows)
        known &= ~np.isnan(value) & (pixels > 0)
        found[name], found[f"{name} pixels"] = value, pixels
    return found[known]


def threshold_of(item: Found) -> float:
    """T of a series."""
    return float(item.cell.configs[0].loss.threshold)


def amount(means: Iterable[Mean], *windows: Window) -> str:
    """Of how much the numbers are: `3 runs, 12 logged steps of the last quarter of training`."""
    found = list(means)
    runs = frozenset[str]().union(*(mean.runs for mean in found))
    steps = frozenset[int]().union(*(mean.steps for mean in found))
    parts = " and ".join(window if window == "all" else f"the {window}" for window in windows)
    return f"{plural(len(runs), 'run')}, {plural(len(steps), 'logged step')} of {parts} of training"


def listed(means: Mapping[str, Mean]) -> str:
    """`|Gᶠ| in case 2 0.594, |Gⁱᵈᵉ| in case 2 1.024`."""
    return ", ".join(f"{name_of(name)} {text_of(name, mean.value)}" for name, mean in means.items())


def name_of(quantity: str) -> str:
    """A quantity in a line of numbers."""
    label = NAMES.get(quantity, QUANTITIES[quantity].label)
    if quantity.startswith("share_"):
        return f"share of {label}"
    if quantity.startswith("entropy_"):
        return f"entropy at {label}"
    return f"{label} in case {quantity[-1]}" if "_score_" in quantity else label


def text_of(quantity: str, value: float) -> str:
    """A value of a quantity: percent for shares."""
    return f"{value:.2f} %" if quantity.startswith(SHARES) else f"{value:.3f}"
