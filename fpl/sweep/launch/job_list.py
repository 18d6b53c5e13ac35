"""What Ray Tune asks for trials; of a list of jobs each trial brings its own job along, and nothing of the others."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from fpl.sweep.job import Job


class Proposer(Searcher):  # type: ignore[misc]
    """Proposes trials to Tune, and has no memory to lose: what there is to know stands in the store.

    Attributes:
        left_out: Ids of nodes on which no further trial is to be placed.
        halted: Whether there are to be no further trials.
    """

    def __init__(self) -> None:
        super().__init__(metric="miou", mode="max")
        self.left_out: tuple[str, ...] = ()
        self.halted = False

    def suggest(self, trial_id: str) -> Any:
        """Configuration of a trial, with the nodes that it is kept from; None while it has to wait, or FINISHED."""
        found = Searcher.FINISHED if self.halted else self.propose(trial_id)
        return {**found, "left_out": self.left_out} if isinstance(found, dict) and self.left_out else found

    @abstractmethod
    def propose(self, trial_id: str) -> Any:
        """Configuration of a trial, None or FINISHED, as `suggest`."""

    @abstractmethod
    def give_back(self, config: dict[str, Any]) -> None:
        """Put a trial in line again: it is for another node, or another process."""

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
        self._under_way = 0

    def propose(self, trial_id: str) -> Any:
        """Configuration of a trial: its jobs, name and perhaps settings; FINISHED where none can come any more."""
        if not self._ahead:
            return None if self._under_way else Searcher.FINISHED
        self._under_way += 1
        job = self._ahead.popleft()
        settings = {"settings": job.config} if self._with_settings else {}
        return {"jobs": [job], "name": job.run_id, **settings}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """One less may come back; what became of a job `TrialEvents` knows."""
        self._under_way -= 1

    def give_back(self, config: dict[str, Any]) -> None:
        """Put the job of a trial in line again."""
        self._ahead.extend(config["jobs"])
