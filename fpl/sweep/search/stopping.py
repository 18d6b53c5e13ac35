"""Stopping trials early: by the rule of the search, at a trial's mean over its runs, and for the budget.

Nothing is remembered beside the rows: the same reports in the store make the same decision, killed in between or not.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from typing import Any

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

    Both rules decide what Optuna's pruners do, which would be asked again about every report of all other trials.

    `asha` (`SuccessiveHalvingPruner`): it has come to a rung, which is the first report at or after `first_rung`,
    twice, four times ... as many steps, and is not among the best half of all that have come there.
    `median` (`MedianPruner`): its best report so far is below the median of what complete trials reported at this
    step.

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
        if (own := _rungs(own, first))[-1][0] != row.step:
            return False
        halving = Halving(first)
        for other in others:
            halving.falls_behind(_rungs(_finite(other), first))
        return halving.falls_behind(own)
    complete = [_finite(other) for other in others if other.state == "complete"]
    there = [value for reports in complete for step, value in reports if step == row.step]
    return len(complete) >= MEDIAN_OF and bool(there) and max(value for _, value in own) < statistics.median(there)


class Halving:
    """Successive halving: what came to each rung, trial after trial.

    Args:
        first: Step of the first rung; each further one is at `REDUCTION` times as many.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        # Of each rung the values that came to it, in their order.
        self.rungs: list[list[float]] = []

    def falls_behind(self, reports: Reports) -> bool:
        """Take a trial's reports; whether at the last of them it is behind the best part of those that came before."""
        rung, behind = 0, False
        for step, value in reports:
            behind = False
            while not behind and step >= self.first * REDUCTION**rung:
                if rung == len(self.rungs):
                    self.rungs.append([])
                there = self.rungs[rung]
                bisect.insort(there, value)
                behind = value < there[-max(1, len(there) // REDUCTION)]
                rung += 1
        return behind


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
