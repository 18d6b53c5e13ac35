"""Between Ray Tune and the book of a study: Tune asks for trials, and says when they have no process any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.tune.search import Searcher

from fpl.store.trials import TrialRow
from fpl.sweep.launch.job_list import Proposer
from fpl.sweep.search.trials import Book


class StudySearch(Proposer):
    """Hands Tune what the book says is next.

    Args:
        book: Of the study.
        on_end: Told each trial's row when it is over.
    """

    def __init__(self, book: Book, on_end: Callable[[TrialRow], None]) -> None:
        super().__init__()
        self.book, self.on_end = book, on_end
        self._numbers: dict[str, int] = {}

    def propose(self, trial_id: str) -> Any:
        """Configuration of a trial: number, jobs, name, parameters; None while it has to wait, FINISHED without one."""
        try:
            proposal = self.book.next()
        except StopIteration:
            return Searcher.FINISHED
        if proposal is None:
            return None
        self._numbers[trial_id] = proposal.row.number
        row = proposal.row
        # The last two are for callbacks of others.
        return {
            "trial": row.number,
            "jobs": proposal.jobs,
            "name": f"{row.study}-{row.number}",
            "settings": row.params,
        }

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """The trial has no process any more; what it reported `EarlyStopping` has taken into the book."""
        self.on_end(self.book.end(self._numbers.pop(trial_id)))

    def give_back(self, config: dict[str, Any]) -> None:
        """Put a trial in line again."""
        self.book.again += [row for row in self.book.rows if row.number == config["trial"]]
