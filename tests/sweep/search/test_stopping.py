"""What is stopped early, beside what Optuna's pruners say."""

from __future__ import annotations

import math
import random
from pathlib import Path

import optuna
import pytest

from fpl.store.trials import TrialRow
from fpl.sweep.search.stopping import MEDIAN_OF, REDUCTION, first_rung, is_hopeless
from tests.sweep.search_world import tiny_study


@pytest.mark.parametrize("stop", ["asha", "median"])
def test_rules_decide_what_optunas_pruners_do(tmp_path: Path, stop: str) -> None:
    # Eight runs of four steps: rungs at 4, 8 and 16 of 32.
    study = tiny_study(tmp_path, stop=stop, seeds=8)
    first, draw = first_rung(study), random.Random(1)
    pruner: optuna.pruners.BasePruner = optuna.pruners.MedianPruner(MEDIAN_OF, first)
    if stop == "asha":
        pruner = optuna.pruners.SuccessiveHalvingPruner(first, REDUCTION)
    theirs = optuna.create_study(direction="maximize", pruner=pruner)
    rows: list[TrialRow] = []
    stopped = []
    for number in range(40):
        row = TrialRow(study.identity, number, {}, "tpe", [])
        rows.append(row)
        trial = theirs.ask()
        for step in range(2, 34, 2):
            value = float(draw.randint(10, 30) + step)  # ties are as good as what they tie with
            row.report(step, value)
            trial.report(value, step)
            hopeless = is_hopeless(study, rows, row)
            # A trial that comes to its end is stopped by nobody here.
            assert hopeless == (step < study.steps and trial.should_prune()), (number, step)
            if hopeless:
                row.state = "pruned"
                theirs.tell(trial, state=optuna.trial.TrialState.PRUNED)
                stopped.append(step)
                break
        else:
            row.state, row.run_scores = "complete", [value]
            theirs.tell(trial, value)
    assert len(set(stopped)) > 1 and len(stopped) < 40


def test_a_report_that_is_no_number_brings_a_trial_to_several_rungs_at_once(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, stop="asha", seeds=8)
    rows = [TrialRow(study.identity, number, {}, "tpe", []) for number in range(4)]
    for row, values in zip(rows, ([10, 10], [20, 20], [30, 12], [math.nan, 15]), strict=True):
        for step, value in zip((4, 8), values, strict=True):
            row.report(step, value)
    # At the first rung 15 is the third of four, and is compared at no other.
    assert is_hopeless(study, rows, rows[3])
    rows[3].values[-1] = 25
    # The second there, and the best at the second rung.
    assert not is_hopeless(study, rows, rows[3])
