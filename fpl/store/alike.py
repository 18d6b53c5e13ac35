"""Runs that ended alike although they were configured differently: a setting may not have reached the training."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from fpl.store.schema import METRICS

# What decides about K, and about nothing where every pixel has one fuzzy positive.
OF_K = ("loss.strategy", "loss.fixed_k")


def alike_warnings(runs: pd.DataFrame, fuzziness: Callable[[], pd.DataFrame]) -> list[str]:
    """One line for each group of runs that should not be equal.

    Args:
        runs: `Results.runs`.
        fuzziness: Gives `Results.fuzziness`, which is read only where runs are equal.
    """
    metrics = [name for name in METRICS if name in runs and runs[name].notna().any()]
    if not metrics or len(runs) < 2:
        return []
    # Few runs are equal to another; to look at each group of one takes seconds.
    alike = runs[runs.duplicated(metrics, keep=False)]
    return [
        f"equal to the last bit although configured differently: {', '.join(group['run_id'])}; "
        "a setting may not have reached the training"
        for _, group in alike.groupby(metrics, dropna=False)
        if group["digest"].nunique() > 1 and not _k_had_no_say(group, fuzziness())
    ]


def _k_had_no_say(group: pd.DataFrame, fuzziness: pd.DataFrame) -> bool:
    """Whether runs differ in the rule for K alone, and none of their pixels that taught had several positives."""
    if fuzziness.empty:
        return False
    settings = [name for name in group if (name == "seed" or "." in str(name)) and name not in OF_K]
    logged = fuzziness[fuzziness["run_id"].isin(group["run_id"])]
    return (
        set(logged["run_id"]) == set(group["run_id"])
        and bool((logged["share_k1"].fillna(1.0) == 1.0).all())
        and bool((group[settings].nunique(dropna=False) == 1).all())
    )
