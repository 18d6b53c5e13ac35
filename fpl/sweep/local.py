"""One run in this process: from a configuration and places on disk to a row in the store.

Under `torchrun` (or any launcher that sets RANK and WORLD_SIZE) the same function runs in every worker.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import torch
import torch.distributed as dist

from fpl.config.checks import worker_problem
from fpl.config.schema import RunConfig
from fpl.data.cache import open_cache
from fpl.data.validation import ValidationSet, validated_on
from fpl.errors import FplError, shortage
from fpl.mirrors import refresh
from fpl.store.done import is_done, put_aside
from fpl.store.lease import TakenError, alone, nobody_else
from fpl.store.remote import refresh_run
from fpl.store.write import run_path
from fpl.sweep.device import check_loss, check_memory, peak_bytes
from fpl.sweep.event_log import event_log
from fpl.sweep.outcome import write_outcome
from fpl.sweep.places import Places
from fpl.sweep.plan.costs import Costs, silent
from fpl.sweep.prepare import Prepared, fits_in_memory, prepare
from fpl.text import answer
from fpl.train.checkpoint import CheckpointFolder
from fpl.train.loop import OnMetrics, Run, RunData
from fpl.train.meeting import worker_group
from fpl.train.options import LoopOptions
from fpl.train.owner import check_own
from fpl.train.progress import Progress
from fpl.train.runtime import State, Verdict, Workers, check_precision, select_device
from fpl.train.state import Outcome

DEFAULTS = LoopOptions()
Report = Callable[[int, dict[str, float]], Verdict]


class StoppedError(FplError):
    """Whoever launched the run told it to stop at a report; its checkpoint is kept."""


class LocalContext:
    """The loop's context: checkpoints in the run's own folder, reports to whoever launched the run.

    Args:
        workers: This process among those that share the run.
        device: Where it computes.
        folder: The run's checkpoints.
        on_report: Takes (step, metrics) on rank 0 and decides for all ranks; None always goes on.
        check: Called on rank 0 before anything is written; raises a `TakenError` if the run is another's by now.
    """

    def __init__(
        self,
        workers: Workers,
        device: torch.device,
        folder: CheckpointFolder,
        on_report: Report | None = None,
        check: Callable[[], None] = nobody_else,
    ) -> None:
        self.rank, self.world_size, self.device = workers.rank, workers.world_size, device
        self.folder, self.on_report, self.check = folder, on_report, check

    def latest(self, check: Callable[[State], None]) -> State | None:
        """The newest checkpoint that can be trusted, read by every rank."""
        refresh(self.folder.folder)
        return self.folder.latest(check)

    def report(self, step: int, metrics: dict[str, float], state: State | None) -> Verdict:
        """Rank 0 writes the checkpoint; nobody goes on before it is safe.

        Raises:
            TakenError: Another machine has taken the run over; on every rank.
        """
        decided = [self._decide(step, metrics, state) if self.rank == 0 else Verdict.GO]
        if self.world_size > 1:
            # Also the barrier that keeps everybody here until the checkpoint is safe.
            dist.broadcast_object_list(decided, src=0)
        if isinstance(decided[0], TakenError):
            raise decided[0]
        return decided[0]

    def _decide(self, step: int, metrics: dict[str, float], state: State | None) -> Verdict | TakenError:
        try:
            self.check()
        except TakenError as error:
            return error
        if state is not None:
            self.folder.save_step(step, state)
        return Verdict.GO if self.on_report is None else self.on_report(step, metrics)


def run_local(
    config: RunConfig,
    places: Places,
    *,
    device: str = "auto",
    options: LoopOptions = DEFAULTS,
    say: Callable[[str], None] = answer,
    stream: TextIO | None = None,
    on_report: Report | None = None,
    expected: str = "",
    lock_patience: float = 0.0,
) -> Path:
    """Train one run, or find it done, and return the file of its row in the store.

    The same call after a kill continues from the newest checkpoint.

    Args:
        config: The run; the digests of its split may still be unset.
        places: Folders.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        options: How the loop is carried out.
        say: Takes lines for the user, on rank 0.
        stream: Where the progress goes; None is stderr.
        on_report: Takes (step, metrics) on rank 0 at every validation and checkpoint, and decides how it goes on.
        expected: The run's id as it was planned; empty if it was not.
        lock_patience: Seconds to wait for another process that trains this run, or has not quite died yet.

    Raises:
        FplError: Data, split, weights, workers or FPL_LOSS do not allow the run.
        ShortageError: Its id is not the planned one here.
        StoppedError: `on_report` told it to stop.
        TakenError: Another process is training it.
        LostWorkerError: Another worker is gone, or never came.
    """
    prepared = prepare(config, places, expected)
    done = run_path(places.out, prepared.run_id)
    where = select_device(device)
    check_loss(where)
    check_precision(prepared.config.train, where)
    with worker_group(where, say) as workers:
        if workers.rank > 0:
            say = silent
        if problem := worker_problem(prepared.config, workers.world_size):
            raise FplError(problem, where=f"{workers.world_size} workers")
        check_memory(prepared.config, workers, where, Costs(places.out, say))
        folder = CheckpointFolder(places.checkpoints(prepared.run_id), say)
        with _lock(folder, workers, lock_patience) as check:
            # Only now: another process may have finished it while this one waited.
            refresh_run(places.out, prepared.run_id)
            if all(workers.gather(is_done(places.out, prepared.run_id))):
                check_own([*folder.steps(), *folder.bests()], prepared.run_id, "be removed, as that run is done")
                say(f"{prepared.run_id} is done: {done}")
            else:
                if workers.rank == 0:
                    for text in put_aside(places.out, prepared.run_id):
                        say(f"warning: {text}")
                for warning in prepared.warnings:
                    say(f"warning: {warning}")
                say(f"{prepared.run_id}: {_headline(prepared, workers, where)}")
                with event_log(places.events / prepared.run_id, options.tensorboard and workers.rank == 0) as log:
                    context = LocalContext(workers, where, folder, on_report, check)
                    outcome = _with_memory(
                        lambda: _train(prepared, context, options, places.weights_dir, stream or sys.stderr, log)
                    )
                say(f"peak memory of this process: {peak_bytes(where) / 1e9:.2f} GB")
                if workers.rank == 0:
                    check()
                _finish(places.out, prepared, outcome, workers, where, options)
            if workers.rank == 0:
                folder.finish()
        return done


def _with_memory(train: Callable[[], Outcome]) -> Outcome:
    """Train; where memory does not suffice, say what to change."""
    try:
        return train()
    except (MemoryError, RuntimeError) as error:
        if (lack := shortage(error)) is None:
            raise
        raise lack from error


def _finish(
    out: Path, prepared: Prepared, outcome: Outcome, workers: Workers, device: torch.device, options: LoopOptions
) -> None:
    if not outcome.finished:
        raise StoppedError(
            f"stopped at step {outcome.step} of {prepared.config.train.steps}",
            where=prepared.run_id,
            hint="the same command continues",
        )
    if workers.rank == 0:
        write_outcome(out, prepared, outcome, workers, device, options)


def _train(
    prepared: Prepared,
    context: LocalContext,
    options: LoopOptions,
    weights_dir: Path | None,
    stream: TextIO,
    log: OnMetrics,
) -> Outcome:
    config, spec, root = prepared.config, prepared.spec, prepared.root
    part, ids = validated_on(prepared.split, spec, root, config.eval.subsample)
    cache = open_cache(spec, root, part, config.data.downscale)
    validation = ValidationSet(
        spec,
        root,
        config.data.downscale,
        part=part,
        ids=ids,
        rank=context.rank,
        world_size=context.world_size,
        keep=cache is None and fits_in_memory(spec, root, config, part, ids),
        cache=cache,
    )
    data = RunData(prepared.split, prepared.images, validation, weights_dir)
    progress = Progress(config.train.steps, quiet=context.rank > 0, stream=stream)
    if prepared.split.held_out:
        progress.note(f"validating on {len(ids)} held-out labeled images, which are not trained on")
    return Run(config, data, context, options, context.folder, progress, log).train()


@contextlib.contextmanager
def _lock(folder: CheckpointFolder, workers: Workers, patience: float) -> Iterator[Callable[[], None]]:
    """Keep a second process off the same run, on all ranks. The lock ends with the process, however it ends.

    Returns:
        What raises a `TakenError` if another machine has taken the run over since; on rank 0 alone.

    Raises:
        TakenError: Another process has it. This and any other reason is raised on every rank, for rank 0 goes its way
            then and would be waited for.
    """
    check: Callable[[], None] = nobody_else
    problem: FplError | OSError | None = None
    with contextlib.ExitStack() as held:
        if workers.rank == 0:
            place, doing = folder.folder, "is training this run"
            try:
                check = held.enter_context(alone(place / ".lock", place.name, doing, folder.say, patience))
                folder.sweep()
            except (FplError, OSError) as error:
                problem = error
        if (problem := workers.gather(problem)[0]) is not None:
            raise problem
        yield check


def _headline(prepared: Prepared, workers: Workers, device: torch.device) -> str:
    split, config = prepared.split, prepared.config
    shared = f" on {workers.world_size} workers" if workers.world_size > 1 else ""
    data, steps = config.data, config.train.steps
    passes = f"{epochs(steps, data.labeled_batch, len(split.labeled)):.1f} passes over the labeled"
    if data.unlabeled_batch:
        passes += f", {epochs(steps, data.unlabeled_batch, len(split.unlabeled)):.1f} over the unlabeled"
    return (
        f"{len(split.labeled)} labeled + {len(split.unlabeled)} unlabeled images of {prepared.spec.name} "
        f"({split.family} {split.fraction}, {data.split.labeled}/{data.split.unlabeled}), "
        f"{steps} steps ({passes} images) on {device}{shared}"
        + (f", decoded images from {cache.folder}" if (cache := prepared.images.cache) else "")
    )


def epochs(steps: int, batch: int, images: int) -> float:
    """Passes over a list of `images` that `steps` of `batch` images make. The published CPS schedules count them so."""
    return steps * batch / images
