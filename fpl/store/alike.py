"""Runs that ended alike although they were configured differently: a setting may not have reached the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from fpl.store.schema import METRICS

# What decides about K, and about nothing where every pixel has one fuzzy positive.
OF_K = ("loss.strategy", "loss.fixed_k")


def alike_warnings(runs: pd.DataFrame, fuzzy_shares: Callable[[], Mapping[str, float]]) -> list[str]:
    """One line for each group of runs that should not be equal.

    Args:
        runs: `Results.runs`.
        fuzzy_shares: Gives `Lookup.fuzzy_shares`; asked only where runs are equal.
    """
    metrics = [name for name in METRICS if name in runs and runs[name].notna().any()]
    if not metrics or len(runs) < 2:
        return []
    # Few runs are equal to another; to look at each group of one takes seconds. No score at all is nothing in common.
    scored = runs.dropna(subset=metrics, how="all")
    alike = scored[scored.duplicated(metrics, keep=False)]
    return [
        f"equal to the last bit although configured differently: {', '.join(group['run_id'])}; "
        "a setting may not have reached the training"
        for _, group in alike.groupby(metrics, dropna=False)
        if group["digest"].nunique() > 1 and not _k_had_no_say(group, fuzzy_shares())
    ]


def _k_had_no_say(group: pd.DataFrame, fuzzy_shares: Mapping[str, float]) -> bool:
    """Whether runs differ in the rule for K alone, and none of their pixels that taught had several positives."""
    settings = [name for name in group if (name == "seed" or "." in str(name)) and name not in OF_K]
    # NaN, which is not above 0, where no pixel taught.
    alone = all(run in fuzzy_shares and not fuzzy_shares[run] > 0 for run in group["run_id"])
    return alone and bool((group[settings].nunique(dropna=False) == 1).all())
