"""What the figures plot of the K statistics: each a mean over pixels, from columns of `Results.fuzziness`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

Column = Callable[[pd.DataFrame], np.ndarray]

# Values of K from here on are one group.
MANY = 4
# Lists of the store are by case: the true class is the teacher's first choice, another fuzzy positive, none.
CASES = {1: "case 1", 2: "case 2", 3: "case 3"}


@dataclass(frozen=True)
class Quantity:
    """A mean over some of the pixels of a step.

    Attributes:
        label: As in a legend.
        value: The mean, per row of `Results.fuzziness`; NaN where it was not logged.
        pixels: Over how many pixels it is.
    """

    label: str
    value: Column
    pixels: Column


def numbers(values: Iterable[Any]) -> np.ndarray:
    """A column as floats, NaN for null."""
    return pd.to_numeric(pd.Series(list(values), dtype=object), errors="coerce").to_numpy(dtype=float)


def lists(frame: pd.DataFrame, name: str) -> np.ndarray:
    """A column of lists as [rows, longest list], NaN where there is nothing."""
    # A null within a list becomes NaN, too.
    return pd.DataFrame([[] if np.ndim(item) == 0 else list(item) for item in frame[name]], dtype=float).to_numpy()


def _plain(name: str, factor: float = 1.0) -> Column:
    return lambda frame: factor * numbers(frame[name])


def _item(name: str, case: int) -> Column:
    def read(frame: pd.DataFrame) -> np.ndarray:
        found = lists(frame, name)
        return found[:, case - 1] if found.shape[1] >= case else np.full(len(frame), np.nan)

    return read


def _percent(part: Column, whole: Column) -> Column:
    def read(frame: pd.DataFrame) -> np.ndarray:
        of = whole(frame)
        return np.asarray(100.0 * part(frame) / np.where(of > 0, of, np.nan))

    return read


def _of_k(first: int, last: int | None) -> Column:
    """Pixels with K from `first` to `last`; None is no end."""

    def read(frame: pd.DataFrame) -> np.ndarray:
        histogram = lists(frame, "k_histogram")
        total = np.where(np.isnan(histogram).all(axis=1), np.nan, 0.0)
        return np.asarray(total + np.nansum(histogram[:, first - 1 : last], axis=1))

    return read


def _entropy(label: str, first: int, last: int | None) -> Quantity:
    """Mean entropy of the pixels with K from `first` to `last`, each K weighted by its pixels."""

    def pixels(frame: pd.DataFrame) -> np.ndarray:
        entropy, histogram = lists(frame, "entropy_by_k"), lists(frame, "k_histogram")
        width = min(entropy.shape[1], histogram.shape[1])
        known = np.where(np.isnan(entropy[:, :width]), 0.0, histogram[:, :width])
        return known[:, first - 1 : last]

    def value(frame: pd.DataFrame) -> np.ndarray:
        weights = pixels(frame)
        entropy = np.nan_to_num(lists(frame, "entropy_by_k"))[:, first - 1 :][:, : weights.shape[1]]
        count = weights.sum(axis=1)
        return np.asarray((entropy * weights).sum(axis=1) / np.where(count > 0, count, np.nan))

    return Quantity(label, value, lambda frame: pixels(frame).sum(axis=1))


def _k_label(first: int, last: int | None) -> str:
    return f"K ≥ {first}" if last is None else f"K = {first}"


ALL, KNOWN = _plain("pixels"), _plain("labeled_pixels")
CASE = {case: _item("case_pixels", case) for case in CASES}
GROUPS = [*((k, k) for k in range(1, MANY)), (MANY, None)]
R_FUZZY, R_VANILLA = "Rᶠ (FPL)", "Rᵛ (cross-entropy)"
G_FUZZY, G_VANILLA, G_IDEAL = "Gᶠ (FPL)", "Gᵛ (cross-entropy)", "Gⁱᵈᵉ (true label)"

QUANTITIES: dict[str, Quantity] = {
    "mean_k": Quantity("mean K", _plain("mean_k"), ALL),
    "impurity": Quantity("impurity", _plain("impurity", 100.0), KNOWN),
    "mean_weight": Quantity("mean weight", _plain("mean_weight"), ALL),
    **{
        f"share_k{first}": Quantity(_k_label(first, last), _percent(_of_k(first, last), _of_k(1, None)), ALL)
        for first, last in GROUPS
    },
    "case_1_share_k1": Quantity("K = 1 in case 1", _percent(_plain("case_1_k1_pixels"), CASE[1]), CASE[1]),
    **{
        f"{score}_{case}": Quantity(label, _item(score, case), CASE[case])
        for score, label in (("vanilla_score", R_VANILLA), ("fuzzy_score", R_FUZZY))
        for case in CASES
    },
    "cosine_fuzzy": Quantity(G_FUZZY, _plain("cosine_fuzzy"), CASE[2]),
    "cosine_vanilla": Quantity(G_VANILLA, _plain("cosine_vanilla"), CASE[2]),
    "cosine_fuzzy_positive": Quantity(G_FUZZY, _plain("cosine_fuzzy_positive", 100.0), CASE[2]),
    "norm_fuzzy": Quantity(G_FUZZY, _plain("norm_fuzzy"), CASE[2]),
    "norm_ideal": Quantity(G_IDEAL, _plain("norm_ideal"), CASE[2]),
    "norm_fuzzy_all": Quantity(G_FUZZY, _plain("norm_fuzzy_all"), KNOWN),
    "norm_ideal_all": Quantity(G_IDEAL, _plain("norm_ideal_all"), KNOWN),
    "gradient_sum_n_minus_1": Quantity("K = n − 1", _plain("gradient_sum_n_minus_1"), ALL),
    "gradient_sum_n": Quantity("K = n", _plain("gradient_sum_n"), ALL),
    "entropy": _entropy("mean entropy", 1, None),
    **{f"entropy_k{first}": _entropy(_k_label(first, last), first, last) for first, last in GROUPS},
}


def pooled(frame: pd.DataFrame, quantity: Quantity, by: Sequence[str] = ("step",)) -> pd.DataFrame:
    """Mean of a quantity over the pixels of rows that belong together: the two directions of a step, say.

    Args:
        frame: Rows of `Results.fuzziness`.
        quantity: What to read.
        by: Columns that say which rows belong together.

    Returns:
        One row per group that has a value: the columns `by`, `value` and `pixels`.
    """
    keys = list(by)
    value, pixels = quantity.value(frame), quantity.pixels(frame)
    known = ~np.isnan(value) & (pixels > 0)
    table = frame[keys][known].assign(total=(value * pixels)[known], pixels=pixels[known])
    sums = table.groupby(keys, sort=True)[["total", "pixels"]].sum().reset_index()
    return sums.assign(value=sums["total"] / sums["pixels"])[[*keys, "value", "pixels"]]
