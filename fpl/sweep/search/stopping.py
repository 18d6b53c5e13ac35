"""Stopping trials early: Ray's ASHA and median rule, fed with a trial's mean over its runs, and the budget.

What the rules have seen is in the store, not in them: after a kill they are told again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, TrialScheduler

from fpl.config.search import Stop
from fpl.config.study import Study
from fpl.store.trials import TrialRow, is_cell
from fpl.sweep.search.trials import Book

GO, STOP = str(TrialScheduler.CONTINUE), str(TrialScheduler.STOP)
# Of the trials that reach a rung, one in so many goes on.
REDUCTION = 2
# Trials that must have come as far before the median rule judges.
MEDIAN_OF = 5


@dataclass(frozen=True)
class Known:
    """A trial, as far as the rules want to know it."""

    trial_id: str


def make_rule(stop: Stop, study: Study) -> TrialScheduler | None:
    """The rule by name; its clock counts training steps over all runs of a trial.

    ASHA's first rung is at an eighth of the whole, or at the first validation if that is later; `none` gives None.
    """
    names = {"time_attr": "step", "metric": "miou", "mode": "max"}
    first = max(study.base.train.evaluate_every, study.steps // 8)
    if stop == "none" or first >= study.steps:
        return None
    if stop == "asha":
        # A trial ends by itself: a last step within reach of the rule would make it end it.
        return ASHAScheduler(**names, grace_period=first, max_t=study.steps + 1, reduction_factor=REDUCTION)
    # It would have trials pause until it knows more; there is nothing to pause for.
    return MedianStoppingRule(**names, grace_period=first, min_samples_required=MEDIAN_OF, min_time_slice=math.inf)


class EarlyStopping(FIFOScheduler):  # type: ignore[misc]
    """Takes every report into the book, and asks the rule about it.

    Args:
        book: Of the study that is carried out.
        rule: From `make_rule`.
    """

    def __init__(self, book: Book, rule: TrialScheduler | None) -> None:
        super().__init__()
        self.book, self.rule = book, rule
        self._told: dict[int, int] = {}
        self._given_up: set[int] = set()
        for row in book.rows:
            if row.state in ("complete", "pruned"):
                self._tell(row)

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
        if reported is None:
            return GO
        row = self.book.running[number].row
        hopeless = self._tell(row)
        # The paper's settings are what the others are held against: they go on to the end.
        if not hopeless or is_cell(row.origin) or reported[0] >= self.book.study.steps:
            return GO
        self.book.prune(number)
        return STOP

    def on_trial_complete(self, controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """A trial is over; if the store answered it, the rule hears only now what it had reported."""
        if entry := self.book.running.get(trial.config["trial"]):
            self._tell(entry.row)

    def _tell(self, row: TrialRow) -> bool:
        """Tell the rule what a row holds and it has not heard; whether it gives up the trial at the last of it."""
        if self.rule is None:
            return False
        # Tune gives a trial that is taken up again another id; to the rule it is the same.
        trial = Known(f"trial {row.number}")
        if row.number not in self._told:
            self.rule.on_trial_add(None, trial)
        heard = self._told.get(row.number, 0)
        verdict = GO
        for step, value in list(zip(row.steps, row.values, strict=True))[heard:]:
            if row.number in self._given_up and isinstance(self.rule, MedianStoppingRule):
                break  # of a trial that it has given up, it takes no more
            if math.isfinite(value):
                verdict = self.rule.on_trial_result(None, trial, {"step": step, "miou": value})
                if verdict == STOP:
                    self._given_up.add(row.number)
        self._told[row.number] = len(row.steps)
        return bool(verdict == STOP)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles it into a file that nobody reads
