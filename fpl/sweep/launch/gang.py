"""World size N, short runs: workers of Ray Train stay warm and take run after run.

A group takes ten seconds and some twenty of CPU time to come up, whatever it trains; a warm one takes the next run in a
fraction of a second. The group gives its resources back when Tune has no more runs for the trial.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from pathlib import Path
from typing import Any

import ray

from fpl.errors import FplError
from fpl.sweep.cluster import Cluster
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, fail, reason_of
from fpl.sweep.launch.group import LIMIT, PATIENCE, Group, release
from fpl.sweep.launch.mailbox import Ended, Entered, Event, Mailbox, Verdict, stopped, times
from fpl.sweep.launch.trial import JobTrial
from fpl.sweep.nodes import Sight

RAY_TRAIN = {
    # How soon Ray Train sees that a worker ended or died.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    # Two more processes for what the checkpoints of the runs already do.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


class GangTrial(JobTrial):
    """Carries jobs out on a group of workers. A job whose workers died is handed out again."""

    warm = True

    def setup(self, config: dict[str, Any], execution: Execution, folder: Path, sight: Sight | None) -> None:
        """Called by Tune in the trial's process; see `JobTrial`."""
        for name, value in RAY_TRAIN.items():
            os.environ.setdefault(name, value)
        self._group: Group | None = None
        self._placement_group = ""
        self._futile = 0
        super().setup(config, execution, folder, sight)
        threads = {"num_cpus": 0, "max_concurrency": 4 + 2 * execution.workers}
        self._mailbox = ray.remote(**threads)(Mailbox).remote(execution.attempts)

    def begin(self, job: Job) -> None:
        """Put the job into the mailbox, and see to it that there are workers."""
        self._futile = 0
        # The driver must know what to free should this process die.
        self._ready = [Entered(self._placement_group)] if self._placement_group else []
        self._mailbox.post.remote(job.run_id, pickle.dumps(job))
        if self._group is None or not self._group.alive:
            self._assemble()

    def next_event(self) -> Event:
        """Wait for what comes next.

        Raises:
            RayActorError: The mailbox is lost; the trial is not to be used again.
            GetTimeoutError: It does not answer; neither.
        """
        if self._ready:
            return self._ready.pop()
        event: Event | None = None
        while event is None:
            try:
                event = ray.get(self._mailbox.next_event.remote(PATIENCE / 10), timeout=LIMIT)
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
                self._over = True
                raise
            if event is None and self._group is not None and not self._group.alive:
                event = self._disbanded(self._group.error)
        if isinstance(event, Entered):
            self._placement_group, self._futile = event.placement_group, 0
        elif isinstance(event, Ended):
            if event.result["status"] == "failed":
                fail(self.job, event.result["reason"])  # several workers may have given reasons; this is the first
            if not self.warm:
                self._dismiss()
        return event

    def answer(self, verdict: Verdict) -> None:
        """Let the run go on from its report, or end there."""
        ray.get(self._mailbox.answer.remote(verdict), timeout=LIMIT)

    def withdraw(self) -> None:
        """End at the report where the run waits, or at the next one."""
        ray.get(self._mailbox.withdraw.remote(), timeout=LIMIT)

    def close(self) -> None:
        """Send the workers home and wait until their resources are free."""
        # Without a mailbox, the end of this process ends them.
        with contextlib.suppress(ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            self._dismiss()

    def _assemble(self) -> None:
        self._release()
        self._group = Group(self._mailbox, self.execution, self.folder, self.sight)

    def _dismiss(self) -> None:
        if self._group is not None:
            ray.get(self._mailbox.close.remote(), timeout=LIMIT)
            self._group.join()
            self._group = None
            self._release()

    def _release(self) -> None:
        if self._placement_group:
            release(self._placement_group)
        self._placement_group = ""

    def _disbanded(self, error: BaseException | None) -> Event | None:
        """Ray Train gave the group up while the job is not over: try again where there is hope, else its end."""
        self._futile += 1
        try:
            Cluster(shared=True, left_out=self.execution.left_out).concurrency(self.execution)
        except FplError as infeasible:
            return stopped(self.job.run_id, f"{infeasible.what} (after the loss of nodes)")
        if self._futile > self.execution.attempts and not _waits_for_room(error):
            words = "without a word" if error is None else reason_of(error)
            return stopped(self.job.run_id, f"{times('its workers did not start', self._futile)}: {words}")
        self._assemble()
        return None


def _waits_for_room(error: BaseException | None) -> bool:
    """Whether the workers only waited for others to free resources."""
    cause = getattr(error, "controller_failure", None)
    return type(cause).__name__ == "WorkerGroupStartupTimeoutError"
