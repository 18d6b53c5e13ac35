"""The trials of one search as one pandas frame, whatever its studies have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fpl.config.layers import flatten
from fpl.config.search import Parameter
from fpl.errors import FplError
from fpl.store.frames import TIME, fractions
from fpl.store.rows import FRACTION, read_object, read_space

# What a trial takes over from its study.
OF_STUDY = ("cell", "scale", "labeled_images", "protocol", "sampler", "sampler_seed", "stop", "metric", "device_unit")
# What stands after the parameters.
MEASURED = (
    *("score", "score_std", "runs_scored", "cost", "step", "share", "run_ids"),
    *("device_hours", "device_unit", "reason", "started_at"),
)


def search_frame(studies: pd.DataFrame, trials: pd.DataFrame, name: str) -> pd.DataFrame:
    """One row a trial of a search, sorted by study and number.

    Args:
        studies: The table `studies`.
        trials: The table `trials`.
        name: Of the search.

    Returns:
        What the trial's study says (`study`, `cell`, `scale`, `data.split.fraction`, `labeled_images`, `protocol`,
        `sampler`, `sampler_seed`, `stop`, `metric`, `objectives`), `number`, `state`, `origin`, the parameters as
        dotted columns (missing where they mean nothing; whole numbers as Int64), the objectives `score` (mIoU in
        percent) and `cost` (device-hours), `score_std` (over the runs, n - 1), `runs_scored`, `step` and `share` (of
        the steps of a whole trial, 0 to 1), `run_ids`, `device_hours`, `device_unit`, `reason`, `started_at`.

    Raises:
        FplError: There is no such search here.
    """
    known = sorted(set(studies["search"]))
    if name not in known:
        raise FplError(f"no search {name!r} in these results", hint=f"there are: {', '.join(known) or 'none'}")
    chosen = {str(row["study"]): row for row in records(studies) if row["search"] == name}
    space: dict[str, list[Parameter]] = {}
    for study in chosen.values():
        for parameter in read_space(study["space"]):
            space.setdefault(parameter.key, []).append(parameter)
    rows = [_record(row, chosen[row["study"]]) for row in records(trials) if row["study"] in chosen]
    front = ["study", "cell", "scale", *([] if FRACTION in space else [FRACTION]), *OF_STUDY[2:8], "objectives"]
    columns = [*front, "number", "state", "origin", *space, *MEASURED]
    frame = pd.DataFrame({column: _column(column, rows, space.get(column)) for column in columns})
    return frame.sort_values(["study", "number"], ignore_index=True)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame, column by name."""
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def whole_steps(study: Mapping[str, Any], runs: int) -> float:
    """Steps of a trial of so many runs that nothing stops."""
    return float(study["steps"]) / (int(study["seeds"]) * int(study["splits"])) * runs


def final_metric(metric: str) -> str:
    """What the final runs of a study are scored by, which compares its trials by `metric`: their last weights."""
    return metric.rpartition("_")[0] + "_last"


def _record(row: Mapping[str, Any], study: Mapping[str, Any]) -> dict[str, Any]:
    params = read_object(row["params"])
    whole = whole_steps(study, len(row["run_ids"]))
    # A run that the store had already was not trained again: what is complete has used all its steps.
    done = row["state"] in ("complete", "final")
    about = {key: study[key] for key in OF_STUDY}
    if row["state"] == "final":
        # Scored where and by what the search looked at nothing.
        about |= {"protocol": "val", "metric": final_metric(study["metric"])}
    return {
        **about,
        FRACTION: flatten(read_object(study["base"])).get(FRACTION),
        "objectives": ", ".join(study["objectives"]),
        **row,
        # What was stopped has trained runs to no end.
        "cost": row["cost"] if done else None,
        "run_ids": tuple(row["run_ids"]),
        "share": 1.0 if done else row["step"] / whole if whole else 0.0,
        **params,
    }


def _column(name: str, rows: Sequence[Mapping[str, Any]], parameters: list[Parameter] | None) -> pd.Series:
    values = [row.get(name) for row in rows]
    if parameters is None:
        if name == FRACTION:
            return fractions(pd.Series(values))
        kinds = {
            "score": "float64",
            "cost": "float64",
            "score_std": "float64",
            "labeled_images": "Int64",
            "started_at": TIME,
        }
        return pd.Series(values, dtype=kinds.get(name))
    return pd.Series(values, dtype=_dtype(parameters))


def _dtype(parameters: Iterable[Parameter]) -> str:
    """By what may stand there, not by what happens to: the same search always gives the same columns."""
    kinds: set[type] = set()
    for parameter in parameters:
        kinds |= {type(value) for value in parameter.choices} or {int if parameter.whole else float}
    if kinds <= {int}:
        return "Int64"
    if kinds <= {bool}:
        return "boolean"
    if kinds <= {int, float}:
        return "float64"
    return "str" if kinds <= {str} else "object"
