"""The rows of a study as Optuna's: for proposals, importances and plots. Imports neither torch nor Ray."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from fpl.config.search import DIRECTIONS, Parameter
from fpl.store.rows import moment
from fpl.store.trials import TrialRow

STATES = {
    "running": TrialState.RUNNING,
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


def as_optuna(
    space: Sequence[Parameter],
    rows: Sequence[TrialRow],
    objectives: Sequence[str] = ("miou",),
) -> optuna.Study:
    """An in-memory study that holds what the rows say, trial by trial.

    Args:
        space: The search's parameters.
        rows: Its trials; those of state `final` are left out.
        objectives: Of the study: `miou`, `cost`.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions = [DIRECTIONS[name] for name in objectives]
    study = optuna.create_study(directions=directions, sampler=optuna.samplers.RandomSampler(seed=0))
    distributions = {parameter.key: distribution(parameter) for parameter in space}
    for row in rows:
        if row.state in STATES:
            study.add_trial(frozen(row, objectives, distributions))
    return study


def frozen(row: TrialRow, objectives: Sequence[str], distributions: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """One row as Optuna's record of it, with its number, origin, runs and reason, and its times in UTC.

    A stopped trial is PRUNED, never COMPLETE with the value of half a run.
    """
    single = len(objectives) == 1
    reports = {
        step: value for step, value in zip(row.steps, row.values, strict=True) if single and math.isfinite(value)
    }
    held: dict[str, Any] = {}
    if row.state == "complete":
        held["values"] = [row.score if name == "miou" else row.cost for name in objectives]
    elif row.state == "pruned" and reports:
        held["values"] = [reports[max(reports)]]
    trial = optuna.trial.create_trial(
        state=STATES[row.state],
        params=row.params,
        distributions={key: distributions[key] for key in row.params},
        intermediate_values=reports,
        user_attrs={"number": row.number, "origin": row.origin, "run_ids": list(row.run_ids), "reason": row.reason},
        **held,
    )
    trial.datetime_start = _moment(row.started_at)
    if trial.state.is_finished():
        trial.datetime_complete = _moment(row.updated_at or row.started_at)
    return trial


def _moment(written: str | None) -> datetime.datetime:
    """A time of a row as Optuna has it, without a zone: that of UTC; the beginning of 1970 where the row has none."""
    found = moment(written) if written else datetime.datetime.fromtimestamp(0, datetime.UTC)
    return found.replace(tzinfo=None)


def distribution(parameter: Parameter) -> BaseDistribution:
    """The values of a parameter, as `Parameter.suggest` asks for them."""
    if parameter.choices:
        return CategoricalDistribution(parameter.choices)
    assert parameter.low is not None and parameter.high is not None
    if parameter.whole:
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return FloatDistribution(float(parameter.low), float(parameter.high), log=parameter.log)
