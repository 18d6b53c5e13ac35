"""What Ray Tune tells its driver about trials, told on to a watcher, and the results of their jobs."""

from __future__ import annotations

import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray._private.state import state

from fpl.errors import FplError
from fpl.interrupt import check_interrupted
from fpl.store.done import is_done
from fpl.store.remote import refresh_run
from fpl.sweep.cluster import Cluster
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, JobResult, Watcher, fail, finished, lacking
from fpl.sweep.launch.group import release
from fpl.sweep.launch.job_list import JobList, Proposer
from fpl.sweep.launch.mailbox import times
from fpl.sweep.nodes import Sight
from fpl.sweep.places import Places
from fpl.text import duration

# Seconds without any news after which the user is told, and told again after twice as long: while no run has a process
# or workers, and while runs are at work, which may validate and save only now and then.
IDLE_SILENCE, BUSY_SILENCE = 120.0, 3600.0


class TrialEvents(tune.Callback):  # type: ignore[misc]
    """Tells the watcher what Tune tells, and keeps the results."""

    def __init__(
        self,
        execution: Execution,
        cluster: Cluster,
        watcher: Watcher,
        places: Places,
        over: threading.Event | None = None,
    ) -> None:
        self.execution, self.cluster, self.watcher = execution, cluster, watcher
        self.places, self.over = places, over
        # Called when Tune has begun.
        self.under_way: Callable[[], None] = lambda: None
        # Asked for trials by Tune; what the driver sees, where nodes may see something else.
        self.searcher: Proposer = JobList([])
        self.sight: Sight | None = None
        # Why no run is begun any more: there is no node left that could carry one out.
        self.halted = ""
        # Trials whose runs are another's now.
        self._given_back: set[str] = set()
        self.begun: dict[str, Job] = {}
        self.results: dict[str, JobResult] = {}
        # Deaths of processes per run since it got further, how far that was, and what is known about the last.
        self.losses: Counter[str] = Counter()
        self.furthest: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        # Runs whose process ended by an error in Python: what every other one would meet.
        self._by_itself: set[str] = set()
        self._deaths = 0
        self._groups: dict[str, str] = {}
        self._news, self._told = time.monotonic(), 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles it into a file that nobody reads

    @property
    def progress(self) -> int:
        """Grows as long as anything happens."""
        return len(self.results) + self._deaths

    def _job(self, trial: Any) -> Job:
        """The job of a trial that is under way, or was the last."""
        self._news, self._told = time.monotonic(), 0.0
        jobs: list[Job] = trial.config["jobs"]
        return next((job for job in jobs if job.run_id not in self.results), jobs[-1])

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial has a process, and goes through its jobs from the first."""
        for job in trial.config["jobs"]:
            self.begun[job.run_id] = job
            self.results.pop(job.run_id, None)
        self.watcher.started(self._job(trial).run_id)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """One step of a trial: a report, the end, or new workers."""
        job = self._job(trial)
        if "placement_group" in result:
            self._groups[trial.trial_id] = result["placement_group"]
            if result["again"]:
                self.watcher.note(f"{job.run_id}: its workers were lost; new ones continue from its checkpoint")
                self.watcher.started(job.run_id)
        elif "job" in result:
            ended = JobResult(**result["job"])
            if ended.node and self._has_another_node(ended):
                self._give_back(trial)
                return
            self._end(ended)
            if not result.get("done"):
                self.watcher.started(self._job(trial).run_id)
        else:
            if result["step"] > self.furthest[job.run_id]:
                self.furthest[job.run_id], self.losses[job.run_id] = result["step"], 0
            self.watcher.reported(job.run_id, result["step"], result["metrics"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial is over; without the end of its job, the scheduler stopped it."""
        job = self._job(trial)
        if job.run_id not in self.results and trial.trial_id not in self._given_back:
            self._end(JobResult(job.run_id, "stopped"))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial's process died and will be replaced."""
        job = self._lost(trial, trials)
        self.watcher.note(f"{job.run_id}: its process died ({self.reasons[job.run_id]}); another will continue it")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial's process died and Tune gave the trial up: it counts all deaths, also those before it got further."""
        job = self._lost(trial, trials)
        if self.losses[job.run_id] <= self.execution.max_failures:
            self._give_back(trial)

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Tune is about to look around."""
        self.under_way()

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Tune looked around; if there has been nothing to see for long, say so.

        Raises:
            KeyboardInterrupt: `over` is set, or a signal came that somebody swallowed.
        """
        check_interrupted()
        if self.over is not None and self.over.is_set():
            raise KeyboardInterrupt
        silent = time.monotonic() - self._news
        # Tune looks around ten times a second: nothing is counted that is not said.
        if silent < max(2 * self._told, min(BUSY_SILENCE, IDLE_SILENCE)):
            return
        inline = self.execution.launcher == "inline"
        at_work = sum(trial.status == "RUNNING" and (inline or trial.trial_id in self._groups) for trial in trials)
        if silent < max(2 * self._told, BUSY_SILENCE if at_work else IDLE_SILENCE):
            return
        self._told = silent
        free = ray.available_resources()
        self.watcher.note(
            f"no news for {duration(silent)}: {at_work} of {len(trials)} runs are at work; a run needs "
            f"{self.execution.words()}, free are {free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs of "
            f"{self.cluster.describe()}; logs of the runs are in {self.places.out / 'logs'}"
        )

    def _has_another_node(self, result: JobResult) -> bool:
        """Leave the node out on which a run lacked something; whether others are left. If not, no run is begun."""
        try:
            self.cluster.leave_out(result.node, result.reason, self.execution, self.watcher.note)
        except FplError:
            self.halted, self.searcher.halted = result.reason, True
            return False
        self.searcher.left_out = self.cluster.left_out
        return True

    def _give_back(self, trial: Any) -> None:
        self._given_back.add(trial.trial_id)
        self.searcher.give_back(trial.config)

    def _end(self, result: JobResult) -> None:
        refresh_run(self.places.out, result.run_id)
        self.results[result.run_id] = result
        self.watcher.ended(result)

    def _lost(self, trial: Any, trials: list[Any]) -> Job:
        job = self._job(trial)
        self._deaths += 1
        self.losses[job.run_id] += 1
        error = _error(trial)
        self.reasons[job.run_id] = _reason(error)
        if isinstance(error, ray.exceptions.RayTaskError):
            self._by_itself.add(job.run_id)
        if node := where_it_could_not_begin(error):
            reason = f"processes of the suite cannot begin there: {self.reasons[job.run_id]}"
            if self._has_another_node(lacking(job.run_id, reason, node)):
                self.losses[job.run_id] = 0  # they say nothing of the run
        # What the workers of a dead trial held would stay reserved until this process ends. A trial that was just
        # handed a process of an earlier one has not said yet what that holds: then whatever no running trial holds.
        running = {other.trial_id for other in trials if other.status == "RUNNING"}
        own = [key for key in self._groups if key == trial.trial_id]
        for key in own or [key for key in self._groups if key not in running]:
            release(self._groups.pop(key))
        return job

    def give_up(self) -> None:
        """After Tune: end jobs whose processes died too often; correct what a stop at the very end left open.

        Only an error of Python is a failure of the run: a process that was killed, or whose node is gone, says nothing.
        """
        for job in self.begun.values():
            result = self.results.get(job.run_id)
            if result is None and self.losses[job.run_id] > self.execution.max_failures:
                died = times("its process died", self.losses[job.run_id])
                reason = f"{died}: {self.reasons[job.run_id]}"
                failed = job.run_id in self._by_itself
                self._end(fail(job, reason) if failed else lacking(job.run_id, reason))
            elif result is not None and result.status == "stopped" and is_done(job.places.out, job.run_id):
                self.results[job.run_id] = finished(job)


def _error(trial: Any) -> BaseException | None:
    """The last error of a trial; Tune keeps it in a file only."""
    path = trial.pickled_error_file
    if path is None or not Path(path).exists():
        return None
    found: BaseException = pickle.loads(Path(path).read_bytes())
    return found


def where_it_could_not_begin(error: BaseException | None) -> str:
    """Id of the node on which a process of Ray ended with an error of Python before it was one; else empty.

    That is a node that lacks this package, or has another Ray or Python: one that came after all others were asked.
    """
    if not isinstance(error, ray.exceptions.RayActorError) or not error.actor_init_failed:
        return ""
    return str(state.actor_table(error.actor_id).get("Address", {}).get("NodeID", ""))


def _reason(error: BaseException | None) -> str:
    """What Ray knows about the death of a process, in one line."""
    text = str(error or "unknown")
    if "OutOfMemory" in type(error).__name__ or "memory monitor" in text.lower():
        return "the machine ran out of memory"
    if isinstance(error, ray.exceptions.NodeDiedError) or "node died" in text.lower():
        return "its node is gone"
    if isinstance(error, ray.exceptions.RayActorError) and "creation task" not in text:
        return "killed, or ended by an error outside of Python"
    return text.strip().splitlines()[-1]
