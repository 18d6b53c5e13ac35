"""What Ray Tune asks for trials; of a list of jobs each trial brings its own job along, and nothing of the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from fpl.sweep.job import Job


class Proposer(Searcher):  # type: ignore[misc]
    """Proposes trials to Tune, and has no memory to lose: what there is to know stands in the store."""

    def __init__(self) -> None:
        super().__init__(metric="miou", mode="max")

    def save(self, checkpoint_path: str) -> None:
        """Tune asks for a file."""
        Path(checkpoint_path).touch()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles it into a file that nobody reads


class JobList(Proposer):
    """Hands Tune one job a trial, in their order.

    A grid would do the same, but Tune copies all of its values for each trial, and reads the class of the trials again
    for each process: with the list in either, a run of a thousand costs the driver more than one of a hundred.

    Args:
        jobs: The jobs.
        with_settings: Whether a trial's configuration holds those of its run, for callbacks of others.
    """

    def __init__(self, jobs: Iterable[Job], with_settings: bool = False) -> None:
        super().__init__()
        self._ahead, self._with_settings = deque(jobs), with_settings

    def suggest(self, trial_id: str) -> Any:
        """Configuration of a trial: its jobs, name and perhaps settings; FINISHED where none is left."""
        if not self._ahead:
            return Searcher.FINISHED
        job = self._ahead.popleft()
        settings = {"settings": job.config} if self._with_settings else {}
        return {"jobs": [job], "name": job.run_id, **settings}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Nothing: what became of a job `TrialEvents` knows."""
