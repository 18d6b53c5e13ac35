"""What a search found, as pandas frames: everything that its page shows and its CSV files hold."""

from __future__ import annotations

import math
from itertools import combinations

import pandas as pd

from fpl.report.search.studies import StudyView
from fpl.store.search_frame import records, whole_steps

# Rows of the table of best settings.
BEST = 5


def best(study: StudyView, rows: int = BEST) -> pd.DataFrame:
    """The best complete trials beside the paper's best setting.

    Returns:
        `rank`, `number`, `origin`, `setting`, the parameters, `score`, `score_std`, `runs_scored`, `cost`,
        `difference` (points of mIoU to the best trial that is a setting of the paper, NaN if there is none) and
        `margin` (points by which that difference may be chance, see `margin_between`; NaN if unknown).
    """
    found = study.complete.head(rows)
    paper = study.paper
    frame = found[["number", "origin", *study.keys, "score", "score_std", "runs_scored", "cost"]].copy()
    frame.insert(0, "rank", range(1, len(found) + 1))
    frame.insert(3, "setting", [study.setting(row) for _, row in found.iterrows()])
    if paper.empty:
        return frame.assign(difference=math.nan, margin=math.nan)
    base = paper.iloc[0]
    margins = [margin_between(row, base, study.repeated) for _, row in found.iterrows()]
    return frame.assign(
        difference=found["score"] - base["score"],
        margin=pd.Series([math.nan if margin is None else margin for margin in margins], index=frame.index),
    )


def margin_between(one: pd.Series, other: pd.Series, repeated: float | None) -> float | None:
    """Twice the standard error of the difference of two trials' means (normal approximation).

    Args:
        one: A trial: `score_std`, `runs_scored`.
        other: Another.
        repeated: Standard deviation of one run repeated with the same seed, which stands in where a trial has one run.

    Returns:
        Points of mIoU; None where nothing is known about the spread of one of them.
    """
    variance = 0.0
    for trial in (one, other):
        if trial["runs_scored"] >= 2 and not pd.isna(trial["score_std"]):
            variance += float(trial["score_std"]) ** 2 / int(trial["runs_scored"])
        elif repeated:
            variance += repeated**2
        else:
            # Repeats that are equal to the last bit say nothing about the spread.
            return None
    return 2 * math.sqrt(variance)


def pareto(study: StudyView) -> pd.DataFrame:
    """Complete trials that no other beats in one objective without losing in the other, cheapest first.

    Returns:
        `number`, `origin`, `setting`, `score`, `cost`; no rows where mIoU alone is searched for.
    """
    columns = ["number", "origin", "setting", "score", "cost"]
    if "cost" not in study.objectives:
        return pd.DataFrame(columns=columns)
    done = study.complete.sort_values(["cost", "score", "number"], ascending=[True, False, True])
    # Among trials of rising cost only a score above all cheaper ones is worth its price.
    before = done["score"].cummax().shift(fill_value=-math.inf)
    front = done[done["score"] > before].reset_index(drop=True)
    front["setting"] = [study.setting(row) for _, row in front.iterrows()]
    return front[columns]


def history(study: StudyView) -> pd.DataFrame:
    """What each trial reached, and the best so far.

    Returns:
        `number`, `state`, `origin`, `score` (of a pruned trial its last report), `best` (of complete trials up to
        this number, NaN before the first).
    """
    frame = study.of("complete", "pruned", "failed", "running")[["number", "state", "origin", "score"]].copy()
    frame["best"] = frame["score"].where(frame["state"] == "complete").cummax().ffill()
    return frame


def early_stopping(study: StudyView) -> pd.DataFrame:
    """One row: training steps of the trials that ended against what they would have been without stopping.

    Returns:
        `stop`, `complete`, `pruned`, `failed`, `running` (trials), `steps_spent`, `steps_whole`, `share_saved`
        (0 to 1; of complete and pruned trials alone), `device_hours` (all trials), `device_unit`.
    """
    ended = study.of("complete", "pruned")
    whole = sum(whole_steps(study.about, len(runs)) for runs in ended["run_ids"])
    spent = sum(whole_steps(study.about, len(row["run_ids"])) * float(row["share"]) for row in records(ended))
    states = study.trials["state"].value_counts()
    row = {
        "stop": study.about["stop"],
        **{state: int(states.get(state, 0)) for state in ("complete", "pruned", "failed", "running")},
        "steps_spent": round(spent),
        "steps_whole": round(whole),
        "share_saved": 1 - spent / whole if whole else 0.0,
        "device_hours": float(study.trials["device_hours"].sum()),
        "device_unit": study.about["device_unit"],
    }
    return pd.DataFrame([row])


def slices(study: StudyView) -> pd.DataFrame:
    """Score by parameter, one row per trial with a score and parameter that means something there.

    Returns:
        `parameter`, `value`, `score`, `score_std`, `number`, `state` (`complete`, `pruned`), `origin`.
    """
    scored = study.of("complete", "pruned").dropna(subset=["score"])
    # As objects: numbers of one parameter would become those of another's type.
    values = scored.astype(dict.fromkeys(study.keys, object))
    frame = values.melt(["score", "score_std", "number", "state", "origin"], study.keys, "parameter", "value")
    return frame.dropna(subset=["value"])[["parameter", "value", "score", "score_std", "number", "state", "origin"]]


def contours(study: StudyView) -> pd.DataFrame:
    """Score over pairs of parameters, one row per complete trial where both mean something.

    Returns:
        `x`, `y` (parameters), `x_value`, `y_value`, `score`, `number`.
    """
    rows = [
        {"x": x, "y": y, "x_value": row[x], "y_value": row[y], "score": row["score"], "number": row["number"]}
        for x, y in combinations(study.keys, 2)
        for row in records(study.complete.sort_values("number"))
        if not pd.isna(row[x]) and not pd.isna(row[y])
    ]
    return pd.DataFrame(rows, columns=["x", "y", "x_value", "y_value", "score", "number"])


def parallel(study: StudyView) -> pd.DataFrame:
    """Complete trials with all parameters (missing where they mean nothing) and the score, worst first."""
    return study.complete.iloc[::-1][["number", *study.keys, "score"]].reset_index(drop=True)


def failures(study: StudyView) -> pd.DataFrame:
    """Failed trials: `number`, `origin`, `setting`, `reason`."""
    frame = study.of("failed")
    frame["setting"] = [study.setting(row) for _, row in frame.iterrows()]
    return frame[["number", "origin", "setting", "reason"]]
