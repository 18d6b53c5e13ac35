"""Between Ray Tune and Optuna: Ray's own searcher, asked for each trial anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import optuna
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from fpl.config.search import Value
from fpl.store.trials import TrialRow
from fpl.sweep.search.sampling import study_before
from fpl.sweep.search.trials import Book


class StudySearch(OptunaSearch):  # type: ignore[misc]
    """Ray's Optuna searcher, asked anew for each trial from what the book says: it has no memory to lose.

    Args:
        book: Of the study.
        on_end: Told each trial's row when it is over.
    """

    def __init__(self, book: Book, on_end: Callable[[TrialRow], None]) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        super().__init__(book.study.suggest, metric="miou", mode="max", study_name=book.study.identity)
        self.book, self.on_end = book, on_end
        self._numbers: dict[str, int] = {}

    def suggest(self, trial_id: str) -> Any:
        """Configuration of a trial: its number and jobs; None while it has to wait, FINISHED if there is none."""
        try:
            proposal = self.book.next(self._ask)
        except StopIteration:
            return Searcher.FINISHED
        if proposal is None:
            return None
        self._numbers[trial_id] = proposal.row.number
        return {"trial": proposal.row.number, "jobs": proposal.jobs}

    def _ask(
        self, rows: list[TrialRow], number: int, wanted: Mapping[str, Value] | None, attempt: int
    ) -> dict[str, Value]:
        self._ot_study = study_before(self.book.study, rows, number, wanted, attempt)
        found: dict[str, Value] = super().suggest(f"trial {number}, attempt {attempt}, after {len(rows)}")
        return found

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Nothing: `EarlyStopping` has taken it into the book."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """The trial has no process any more."""
        self.on_end(self.book.end(self._numbers.pop(trial_id)))

    def save(self, checkpoint_path: str) -> None:
        """Tune asks for a file; what there is to know stands in the store."""
        Path(checkpoint_path).touch()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles it into a file that nobody reads
