"""Ray Tune schedules jobs, and the driver learns what happens to each.

Tune's own state is written for people who look for it and never read: what is done stands in the store, and whoever
calls again asks for what the store lacks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from fpl.errors import FplError
from fpl.sweep.cluster import Cluster, absolute
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, JobResult, Watcher, lacking
from fpl.sweep.launch.callbacks import heard_out, make_callbacks
from fpl.sweep.launch.gang import GangTrial
from fpl.sweep.launch.inline import InlineTrial
from fpl.sweep.launch.job_list import JobList, Proposer
from fpl.sweep.launch.train import TrainTrial
from fpl.sweep.launch.trial import JobTrial, held_by, with_execution
from fpl.sweep.launch.trial_events import TrialEvents
from fpl.sweep.nodes import shown
from fpl.sweep.places import Places
from fpl.sweep.session import environment

TRIALS: dict[str, type[JobTrial]] = {"inline": InlineTrial, "gang": GangTrial, "train": TrainTrial}
SETTINGS = {
    # Per-trial files of Tune repeat what the store holds.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # The store is what a campaign is continued from; Tune would write the state of all its trials every ten seconds.
    "TUNE_GLOBAL_CHECKPOINT_S": "inf",
    # Not every result of a trial brings a metric.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # Ctrl-C is for the caller, who says how to continue. Tune's own handler would wait for every run's next report.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Tune's older reporters obey verbose=0; the newer ones print a table all the same.
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
_BEGINNING = threading.Lock()
# Tune wants to know how many trials a searcher will propose; ours says itself when there are no more.
MANY = 10**6


def run_on_ray(
    jobs: list[Job],
    execution: Execution,
    cluster: Cluster,
    watcher: Watcher,
    *,
    scheduler: TrialScheduler | None = None,
    over: threading.Event | None = None,
) -> dict[str, JobResult]:
    """Carry jobs out on a cluster.

    Args:
        jobs: The jobs, in the order in which they are begun; no two of one run.
        execution: How each of them is carried out.
        cluster: Where.
        watcher: Told, in this process, what happens.
        scheduler: Decides at every report whether a job goes on; None lets all of them. Results hold `step` and, from
            the first validation on, `miou` in percent.
        over: Set by another thread: as if the user had stopped it.

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
    cluster.check(execution, places)
    events = TrialEvents(execution, cluster, watcher, places, over)
    with _session(events) as folder:
        # A trial whose process dies between two jobs is given up by Tune before the second has begun.
        while left := [job for job in jobs if job.run_id not in events.results]:
            known = events.progress
            _fit(events, folder, len(left), scheduler, JobList(left, with_settings=bool(execution.callbacks)))
            events.give_up()
            if events.halted:
                # It would meet them all. The watcher has been told of those that were begun.
                left = [job for job in left if job.run_id not in events.results]
                events.results |= {job.run_id: lacking(job.run_id, events.halted) for job in left}
            elif known == events.progress:
                raise FplError(f"Ray Tune ended without {len(left)} of {len(jobs)} runs", where=str(folder))
    _tidy(folder, events)
    return events.results


def search_on_ray(
    searcher: Searcher,
    scheduler: TrialScheduler,
    execution: Execution,
    cluster: Cluster,
    places: Places,
    watcher: Watcher,
    *,
    take_up: Callable[[], bool],
) -> None:
    """Carry out what a searcher proposes, until it has no more.

    Args:
        searcher: Gives the configuration of a trial: `jobs`, a list of `Job`.
        scheduler: Decides at every report whether a trial goes on; results hold `run_id`, `step` and `metrics`.
        execution: How each run is carried out.
        cluster: Where.
        places: Folders.
        watcher: Told, in this process, what happens to the runs.
        take_up: After Tune has ended: whether the searcher has trials left that lost their process.

    Raises:
        FplError: The cluster has no room for a single run, or its nodes do not see the folders.
    """
    places = absolute(places)
    cluster.check(execution, places)
    events = TrialEvents(execution, cluster, watcher, places)
    with _session(events) as folder:
        again = True
        while again:
            known = events.progress
            _fit(events, folder, MANY, scheduler, searcher)
            events.give_up()
            again = take_up() and events.progress > known
    _tidy(folder, events)


@contextlib.contextmanager
def _session(events: TrialEvents) -> Iterator[Path]:
    """Settings of Tune, a folder for its own files, and what the driver sees for the nodes to hold theirs against."""
    name = f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}-{secrets.token_hex(2)}"
    folder = events.places.out / "ray" / name
    with contextlib.ExitStack() as held:
        held.enter_context(environment(SETTINGS))
        held.enter_context(only_what_matters())
        events.sight = held.enter_context(shown(events.places)) if events.cluster.asked else None
        yield folder


def _tidy(folder: Path, events: TrialEvents) -> None:
    """Remove Tune's files, unless something failed that they may explain."""
    if all(result.status != "failed" for result in events.results.values()):
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # what earlier calls left there stays
            folder.parent.rmdir()


def _fit(
    events: TrialEvents,
    folder: Path,
    count: int,
    scheduler: TrialScheduler | None,
    searcher: Searcher,
) -> None:
    """Let Tune go through what a searcher proposes, a list of jobs or a search."""
    execution = events.execution
    trial = with_execution(TRIALS[execution.launcher], execution, folder / "groups", events.sight)
    if isinstance(searcher, Proposer):
        events.searcher, searcher.left_out = searcher, events.cluster.left_out
    room = events.cluster.concurrency(execution)
    if execution.launcher == "inline":
        bundle: dict[str, float] = {"CPU": execution.cpus_per_worker, "GPU": execution.gpus_per_worker}
    else:
        # The workers hold the CPUs; a trial that held even a part of one could keep them from starting. It has to hold
        # something: a byte of memory.
        bundle = {"memory": 1}
    # Tune looks a class up by its name for every process; of two batches side by side each has its own.
    name = f"{trial.__name__}-{secrets.token_hex(4)}"
    tune_config = tune.TuneConfig(
        search_alg=searcher,
        num_samples=MANY,
        scheduler=scheduler or FIFOScheduler(),
        max_concurrent_trials=min(room, count, execution.concurrency or room),
        # A process that has used a GPU is not handed on: an error there may have broken it for good.
        reuse_actors=execution.launcher != "inline" or not execution.gpus_per_worker,
        # What others call a trial.
        trial_name_creator=lambda trial: str(trial.config["name"]),
        trial_dirname_creator=lambda trial: str(trial.trial_id),
    )
    run_config = tune.RunConfig(
        name=f"tune-{time.time_ns()}",
        storage_path=str(folder),
        callbacks=[events, *make_callbacks(execution.callbacks)],
        verbose=0,
        failure_config=tune.FailureConfig(max_failures=execution.max_failures),
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
    )
    with _alone_at_first(events), heard_out(execution.callbacks):
        tune.register_trainable(name, tune.with_resources(trial, functools.partial(held_by, bundle)))
        tune.Tuner(name, tune_config=tune_config, run_config=run_config).fit()


@contextlib.contextmanager
def _alone_at_first(events: TrialEvents) -> Iterator[None]:
    """Until Tune is under way no other thread may begin with it: its registry of trainables bears one at a time."""
    with contextlib.ExitStack() as held:
        held.enter_context(_BEGINNING)
        events.under_way = held.close
        yield


@contextlib.contextmanager
def only_what_matters() -> Iterator[None]:
    """Silence Tune where it says what is known or told better elsewhere."""
    levels: Mapping[str, int] = {
        # Complains about the missing per-trial files.
        "ray.tune.analysis.experiment_analysis": logging.ERROR,
        # `TrialEvents` tells how jobs fail, with their logs; and when there is no room.
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
