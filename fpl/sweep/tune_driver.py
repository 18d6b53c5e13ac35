"""Ray Tune schedules jobs, and the driver learns what happens to each.

Tune's own state is written for people who look for it and never read: what is done stands in the store, and whoever
calls again asks for what the store lacks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import os
import pickle
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from fpl.errors import FplError
from fpl.store.write import run_path
from fpl.sweep.cluster import Cluster, Slots, absolute, environment
from fpl.sweep.job import Job, JobResult, Watcher, fail, finished
from fpl.sweep.launch.gang import GangTrial
from fpl.sweep.launch.group import release
from fpl.sweep.launch.inline import InlineTrial
from fpl.sweep.launch.mailbox import times
from fpl.sweep.launch.train import TrainTrial
from fpl.sweep.launch.trial import JobTrial
from fpl.text import duration

TRIALS: dict[str, type[JobTrial]] = {"inline": InlineTrial, "gang": GangTrial, "train": TrainTrial}
SETTINGS = {
    # Per-trial files of Tune repeat what the store holds.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Not every result of a trial brings a metric.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # Ctrl-C is for the caller, who says how to continue. Tune's own handler would wait for every run's next report.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Tune's older reporters obey verbose=0; the newer ones print a table all the same.
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
# Seconds without any news after which the user is told, and told again after twice as long: while no run has a process
# or workers, and while runs are at work, which may validate and save only now and then.
IDLE_SILENCE, BUSY_SILENCE = 120.0, 3600.0


def run_on_ray(
    jobs: list[Job],
    slots: Slots,
    cluster: Cluster,
    watcher: Watcher,
    *,
    max_failures: int = 2,
    concurrency: int | None = None,
    scheduler: TrialScheduler | None = None,
) -> dict[str, JobResult]:
    """Carry jobs out on a cluster.

    Args:
        jobs: The jobs, in the order in which they are begun; no two of one run.
        slots: What each of them gets.
        cluster: Where.
        watcher: Told, in this process, what happens.
        max_failures: How often a job is continued whose processes died before it is recorded as failed.
        concurrency: Jobs at once; None: as many as fit.
        scheduler: Decides at every report whether a job goes on; None lets all of them. Results hold `step` and, from
            the first validation on, `miou` in percent.

    Returns:
        The result of every job, by run id.

    Raises:
        FplError: The cluster has no room for a single job, or its nodes do not see the folders.
        KeyboardInterrupt: The user stopped it. Every run has its last checkpoint; leaving the session ends them.
    """
    if not jobs:
        return {}
    places = absolute(jobs[0].places)
    jobs = [dataclasses.replace(job, places=absolute(job.places)) for job in jobs]
    cluster.check(slots, places)
    folder = places.out / "ray" / f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    relay = _Relay(jobs, slots, cluster, watcher, max_failures)
    with environment(SETTINGS), _only_what_matters():
        # A trial whose process dies between two jobs is given up by Tune before the second has begun.
        while left := [job for job in jobs if job.run_id not in relay.results]:
            known = len(relay.results) + relay.losses.total()
            _fit(left, slots, cluster, relay, max_failures, concurrency, scheduler, folder)
            relay.give_up()
            if known == len(relay.results) + relay.losses.total():
                raise FplError(f"Ray Tune ended without {len(left)} of {len(jobs)} runs", where=str(folder))
    if all(result.status == "done" for result in relay.results.values()):
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # what earlier calls left there stays
            folder.parent.rmdir()
    return relay.results


def _fit(
    jobs: list[Job],
    slots: Slots,
    cluster: Cluster,
    relay: _Relay,
    max_failures: int,
    concurrency: int | None,
    scheduler: TrialScheduler | None,
    folder: Path,
) -> None:
    relay.jobs = jobs
    at_once = min(cluster.concurrency(slots), len(jobs), concurrency or len(jobs))
    trial = tune.with_parameters(
        TRIALS[slots.launcher], jobs=jobs, slots=slots, attempts=max_failures + 1, folder=folder / "groups"
    )
    if slots.launcher == "inline":
        bundle: dict[str, float] = {"CPU": slots.cpus_per_worker, "GPU": slots.gpus_per_worker}
    else:
        # The workers hold the CPUs; a trial that held even a part of one could keep them from starting. It has to hold
        # something: a byte of memory.
        bundle = {"memory": 1}
    held = tune.PlacementGroupFactory([{name: number for name, number in bundle.items() if number}])
    tuner = tune.Tuner(
        tune.with_resources(trial, held),
        param_space={"index": tune.grid_search(list(range(len(jobs))))},
        tune_config=tune.TuneConfig(
            scheduler=scheduler or FIFOScheduler(),
            max_concurrent_trials=at_once,
            # A process that has used a GPU is not handed on: an error there may have broken it for good.
            reuse_actors=slots.launcher != "inline" or not slots.gpus_per_worker,
            trial_name_creator=lambda trial: f"run_{trial.trial_id}",
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(
            name=f"tune-{time.time_ns()}",
            storage_path=str(folder),
            callbacks=[relay],
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=max_failures),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
        ),
    )
    tuner.fit()


class _Relay(tune.Callback):  # type: ignore[misc]
    """Tells the watcher what Tune tells, and keeps the results."""

    def __init__(self, jobs: list[Job], slots: Slots, cluster: Cluster, watcher: Watcher, max_failures: int) -> None:
        self.jobs, self.slots, self.cluster = jobs, slots, cluster
        self.watcher, self.max_failures = watcher, max_failures
        self.results: dict[str, JobResult] = {}
        # Deaths of processes per run, and what is known about the last.
        self.losses: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        self._groups: dict[str, str] = {}
        self._news, self._told = time.monotonic(), 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles it into a file that nobody reads

    def _job(self, trial: Any) -> Job:
        self._news, self._told = time.monotonic(), 0.0
        index: int = trial.config["index"]
        return self.jobs[index]

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial has a process."""
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
            self._end(JobResult(**result["job"]))
        else:
            self.watcher.reported(job.run_id, result["step"], result["metrics"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial is over; without the end of its job, the scheduler stopped it."""
        job = self._job(trial)
        if job.run_id not in self.results:
            self._end(JobResult(job.run_id, "stopped"))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial's process died and will be replaced."""
        job = self._lost(trial, trials)
        self.watcher.note(f"{job.run_id}: its process died ({self.reasons[job.run_id]}); another will continue it")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial's process died and Tune gave the trial up."""
        self._lost(trial, trials)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Tune looked around; if there has been nothing to see for long, say so."""
        silent = time.monotonic() - self._news
        inline = self.slots.launcher == "inline"
        at_work = sum(trial.status == "RUNNING" and (inline or trial.trial_id in self._groups) for trial in trials)
        if silent < max(2 * self._told, BUSY_SILENCE if at_work else IDLE_SILENCE):
            return
        self._told = silent
        free = ray.available_resources()
        self.watcher.note(
            f"no news for {duration(silent)}: {at_work} of {len(self.jobs)} runs are at work; a run needs "
            f"{self.slots.words()}, free are {free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs of "
            f"{self.cluster.describe()}; logs of the runs are in {self.jobs[0].log.parent}"
        )

    def _end(self, result: JobResult) -> None:
        self.results[result.run_id] = result
        self.watcher.ended(result)

    def _lost(self, trial: Any, trials: list[Any]) -> Job:
        job = self._job(trial)
        self.losses[job.run_id] += 1
        self.reasons[job.run_id] = _reason(_error(trial))
        # What the workers of a dead trial held would stay reserved until this process ends. A trial that was just
        # handed a process of an earlier one has not said yet what that holds: then whatever no running trial holds.
        running = {other.trial_id for other in trials if other.status == "RUNNING"}
        own = [key for key in self._groups if key == trial.trial_id]
        for key in own or [key for key in self._groups if key not in running]:
            release(self._groups.pop(key))
        return job

    def give_up(self) -> None:
        """After Tune: record jobs whose processes died too often; correct what a stop at the very end left open."""
        for job in self.jobs:
            result = self.results.get(job.run_id)
            if result is None and self.losses[job.run_id] > self.max_failures:
                died = times("its process died", self.losses[job.run_id])
                self._end(fail(job, f"{died}: {self.reasons[job.run_id]}"))
            elif result is not None and result.status == "stopped" and run_path(job.places.out, job.run_id).exists():
                self.results[job.run_id] = finished(job)


def _error(trial: Any) -> BaseException | None:
    """The last error of a trial; Tune keeps it in a file only."""
    path = trial.pickled_error_file
    if path is None or not Path(path).exists():
        return None
    found: BaseException = pickle.loads(Path(path).read_bytes())
    return found


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


@contextlib.contextmanager
def _only_what_matters() -> Iterator[None]:
    """Silence Tune where it says what is known or told better elsewhere."""
    levels: Mapping[str, int] = {
        # Complains about the missing per-trial files.
        "ray.tune.analysis.experiment_analysis": logging.ERROR,
        # The relay tells how jobs fail, with their logs; and when there is no room.
        "ray.tune.execution.tune_controller": logging.CRITICAL,
        "ray.tune.tune": logging.CRITICAL,
        "ray.tune.execution.insufficient_resources_manager": logging.ERROR,
        # How fast or how often Tune writes its own state, which nobody reads.
        "ray.tune.execution.experiment_state": logging.ERROR,
        "ray.tune.utils.util": logging.ERROR,
    }
    before = {name: logging.getLogger(name).level for name in levels}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
