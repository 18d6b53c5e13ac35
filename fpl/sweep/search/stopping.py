"""Stopping trials early: by a pruner of Optuna, at a trial's mean over its runs, and for the budget.

Nothing is remembered beside the rows: the same reports in the store make the same decision, killed in between or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import optuna
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from fpl.config.study import Study
from fpl.store.trials import TrialRow, is_cell
from fpl.sweep.search.trials import Book

GO, STOP = str(TrialScheduler.CONTINUE), str(TrialScheduler.STOP)
# Of the trials that reach a rung, one in so many goes on.
REDUCTION = 2
# Trials that must be complete before the median rule judges.
MEDIAN_OF = 5

Reports = list[tuple[int, float]]


def first_rung(study: Study) -> int:
    """Step, over all runs of a trial, before which none is judged: an eighth, or the first validation if later."""
    return max(study.base.train.evaluate_every, study.steps // 8)


def is_hopeless(study: Study, rows: Sequence[TrialRow], row: TrialRow) -> bool:
    """Whether the study's rule gives a trial up at its last report.

    `asha` (Optuna's `SuccessiveHalvingPruner`): it has come to a rung, which is the first report at or after
    `first_rung`, twice, four times ... as many steps, and is not among the best half of all that have come there.
    `median` (`MedianPruner`): its best report so far is below the median of what complete trials reported at this step.

    Args:
        study: Says the rule.
        rows: All trials so far, in any order.
        row: The one of them that has just reported. What it reports without being a number gives it no chance and takes
            none.
    """
    first = first_rung(study)
    if study.head.stop == "none" or not first <= row.step < study.steps or not math.isfinite(row.values[-1]):
        return False
    others = [other for other in rows if other.number != row.number and other.state != "final"]
    own = _finite(row)
    if study.head.stop == "asha":
        pruner: optuna.pruners.BasePruner = optuna.pruners.SuccessiveHalvingPruner(first, REDUCTION)
        if (own := _rungs(own, first))[-1][0] != row.step:
            return False
        found = _study(pruner, [(other, _rungs(_finite(other), first)) for other in others])
    else:
        pruner = optuna.pruners.MedianPruner(MEDIAN_OF, first)
        complete = [other for other in others if other.state == "complete"]
        found = _study(pruner, [(other, [at for at in _finite(other) if at[0] == row.step]) for other in complete])
    return _report(found.ask(), own)


def _study(pruner: optuna.pruners.BasePruner, known: Iterable[tuple[TrialRow, Reports]]) -> optuna.Study:
    """A study that has heard some reports of other trials; pruners look at no parameters."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0), pruner=pruner)
    for row, reports in known:
        trial = study.ask()
        _report(trial, reports)
        if row.state == "complete":
            study.tell(trial, row.score)
    return study


def _report(trial: optuna.Trial, reports: Reports) -> bool:
    """Report, and what the pruner says at the last of it; with it, it notes which rungs the trial has come to."""
    verdict = False
    for step, value in reports:
        trial.report(value, step)
        verdict = trial.should_prune()
    return verdict


def _finite(row: TrialRow) -> Reports:
    return [(step, value) for step, value in zip(row.steps, row.values, strict=True) if math.isfinite(value)]


def _rungs(reports: Reports, first: int) -> Reports:
    """The reports that reach a rung: the only ones at which successive halving judges."""
    reached, due = [], first
    for step, value in reports:
        if step >= due:
            reached.append((step, value))
        while due <= step:
            due *= REDUCTION
    return reached


class EarlyStopping(FIFOScheduler):  # type: ignore[misc]
    """Takes every report into the book, and asks the study's rule about it.

    Args:
        book: Of the study that is carried out.
    """

    def __init__(self, book: Book) -> None:
        super().__init__()
        self.book = book

    def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """One step of a trial: only a report of a run is judged."""
        if "run_id" not in result:
            return GO
        number: int = trial.config["trial"]
        # Tune has made one level of keys out of two.
        metrics = {key.removeprefix("metrics/"): value for key, value in result.items() if key.startswith("metrics/")}
        reported = self.book.report(result["run_id"], result["step"], metrics)
        if self.book.over and result["step"] < self.book.study.base.train.steps:
            return STOP
        row = self.book.running[number].row
        # The paper's settings are what the others are held against: they go on to the end.
        if not reported or is_cell(row.origin) or not is_hopeless(self.book.study, self.book.rows, row):
            return GO
        self.book.prune(number)
        return STOP

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles it into a file that nobody reads
