"""One run as a message between processes, and how any of them carries it out.

Every launcher, with Ray or without, ends in `run_job`: the same training, the same files, the same account of failures.
"""

from __future__ import annotations

import contextlib
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

import torch

from fpl.config.compose import validate
from fpl.config.identity import recipe_digest, run_id
from fpl.config.schema import RunConfig
from fpl.errors import FplError, ShortageError, shortage
from fpl.files import keep, keep_lines
from fpl.interrupt import check_interrupted
from fpl.store.done import read_run
from fpl.store.lease import TakenError
from fpl.store.write import run_path, write_failure
from fpl.sweep.execution import Execution
from fpl.sweep.local import Report, StoppedError, run_local
from fpl.sweep.places import Places
from fpl.sweep.prepare import pin
from fpl.text import printable, timestamp
from fpl.train.meeting import LostWorkerError
from fpl.train.runtime import Verdict

Status = Literal["done", "failed", "stopped"]

# Seconds: a process that was killed, or lost its driver, may hold its run's lock for a moment longer.
LOCK_PATIENCE = 30.0


@dataclass(frozen=True, repr=False)
class Job:
    """A run to be carried out somewhere. Picklable.

    Attributes:
        run_id: The run's identity as planned; whoever runs it must arrive at the same.
        config: The configuration with its pins, as nested tables.
        places: Folders, the same for every node.
        execution: How it is carried out.
        device: `auto`, `cpu` or `cuda`; with `auto`, a run to which no GPU was given is trained on the CPU.
    """

    run_id: str
    config: dict[str, Any]
    places: Places
    execution: Execution
    device: str = "auto"

    def __repr__(self) -> str:
        # Trackers show it beside a trial's parameters.
        return f"Job({self.run_id})"

    @classmethod
    def of(cls, config: RunConfig, places: Places, execution: Execution, device: str = "auto") -> Job:
        """A job from a configuration whose pins are filled in."""
        return cls(run_id(config), config.model_dump(mode="json"), places, execution, device)

    @classmethod
    def pinned(cls, config: RunConfig, places: Places, execution: Execution) -> Job:
        """A job from a configuration without pins.

        Raises:
            FplError: Data, split or weights are not there.
        """
        return cls.of(pin(config, places)[0], places, execution)

    @property
    def log(self) -> Path:
        """What the run says goes there, run after run."""
        return self.places.out / "logs" / f"{self.run_id}.log"


@dataclass(frozen=True)
class JobResult:
    """How a job ended.

    Attributes:
        run_id: Which.
        status: `done`: its row is in the store; `failed`: its reason is; `stopped`: it was told to, or another
            process has it.
        reason: Why it failed or was left to another process; empty otherwise.
        lacked: Whether it was stopped for want of something that is no matter of the run: room, memory, a process that
            lives.
        node: Id of the node that lacked it, where it was one of a cluster.
        metrics: Metrics of the finished run (mIoU in percent) and `train_seconds`.
        log: Where its log is, unless it is among those of the store.
    """

    run_id: str
    status: Status
    reason: str = ""
    metrics: dict[str, float] | None = None
    log: str = ""
    lacked: bool = False
    node: str = ""

    def plain(self) -> dict[str, Any]:
        """As a mapping of plain values."""
        return asdict(self)


def run_job(job: Job, on_report: Report | None = None) -> JobResult:
    """Carry a job out in this process (and its peers of a worker group), or find it done.

    A failure is written to the store with its reason, to the job's log with its traceback, and returned. What the
    machine lacks (room on a disk, memory, a right) is no failure of the run: it is left as it stands, `stopped` with
    the reason, for the same command to continue.

    Args:
        job: What to run.
        on_report: Takes (step, metrics) on rank 0, decides how it goes on.

    Raises:
        LostWorkerError: Another worker is gone; nothing is recorded.
        Exception: Any other failure, again, where workers share the run: they may be waiting for this one, and only
            the end of the worker group frees them.
    """
    if job.device == "auto" and not job.execution.on_gpu:
        job = replace(job, device="cpu")  # the GPUs of this machine were given to nobody
    try:
        job.places.attach()
        job.log.parent.mkdir(parents=True, exist_ok=True)
        _run_logged(job, on_report)
    except StoppedError:
        return JobResult(job.run_id, "stopped")
    except TakenError as error:
        return JobResult(job.run_id, "stopped", error.what)  # whoever trains it records how it ends
    except LostWorkerError:
        raise  # no failure of the run: whoever launched it decides whether it is continued
    except Exception as error:
        check_interrupted(error)
        lack = shortage(error)
        result = lacking(job.run_id, reason_of(lack)) if lack else fail(job, reason_of(error))
        if _shared():
            raise
        return result
    if _shared() and torch.distributed.get_rank() > 0:
        return JobResult(job.run_id, "done")  # rank 0 may still be writing the row
    return finished(job)


def _shared() -> bool:
    """Whether other workers carry the job out too."""
    return torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1


def finished(job: Job) -> JobResult:
    """The result of a job whose row is in the store."""
    return JobResult(job.run_id, "done", metrics=read_run(run_path(job.places.out, job.run_id)))


def lacking(identity: str, reason: str, node: str = "") -> JobResult:
    """The result of a job for which something was not there that is no matter of the run; nothing is recorded."""
    return JobResult(identity, "stopped", reason, lacked=True, node=node)


def fail(job: Job, reason: str) -> JobResult:
    """Record that a job failed."""
    now = timestamp()
    row = {
        "run_id": job.run_id,
        "recipe": recipe_digest(job.config),
        "seed": job.config["seed"],
        "reason": reason,
        "log": str(job.log),
        "failed_at": now,
    }
    write_failure(job.places.out, row)
    return JobResult(job.run_id, "failed", reason)


def reason_of(error: BaseException) -> str:
    """Why a run failed, in one line."""
    if isinstance(error, ShortageError):
        return f"{error.where}: {error.what} ({error.hint})" if error.where else f"{error.what} ({error.hint})"
    if isinstance(error, FplError):
        return f"{error.where}: {error.what}" if error.where else error.what
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return f"out of memory: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _run_logged(job: Job, on_report: Report | None) -> None:
    """Carry it out with its log, which has one file however often, and on whatever machine, it is continued.

    On object storage that is the first worker's; what another fails with is there under a name of its own.
    """
    rank = torch.distributed.get_rank() if _shared() else 0
    if rank == 0:
        keep_lines(job.log)
    try:
        with job.log.open("a", encoding="utf-8", buffering=1) as stream:
            try:
                _run(job, on_report, stream)
            except (StoppedError, TakenError):
                raise
            except Exception:
                stream.write(printable(traceback.format_exc()))
                raise
    except BaseException as error:
        # What stopped it is what is told.
        with contextlib.suppress(FplError, OSError):
            if rank == 0:
                keep_lines(job.log)
            elif not isinstance(error, StoppedError | TakenError):
                keep(job.log, job.log.with_suffix(f".rank{rank}.log"))
        raise
    if rank == 0:
        keep_lines(job.log)


def _run(job: Job, on_report: Report | None, stream: TextIO) -> None:
    def say(text: str) -> None:
        stream.write(printable(text) + "\n")

    run_local(
        validate(job.config),
        job.places,
        device=job.device,
        options=job.execution,
        say=say,
        stream=stream,
        on_report=on_report,
        expected=job.run_id,
        lock_patience=LOCK_PATIENCE,
    )


class Watcher(Protocol):
    """Told in the driver what happens to the jobs."""

    def started(self, run_id: str) -> None:
        """A job begins, or begins again after its process was lost."""

    def reported(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        """It validated or saved; `miou` in percent is among the metrics after a validation."""

    def ended(self, result: JobResult) -> None:
        """It is over."""

    def note(self, text: str) -> None:
        """Something the user should know while jobs are carried out, in one line."""


def run_serially(jobs: list[Job], watcher: Watcher) -> dict[str, JobResult]:
    """Carry jobs out one after the other in this process (`--local`); the results by run id.

    What one of them lacked the next would lack too, after as much work: they are not begun.
    """
    results: dict[str, JobResult] = {}
    for number, job in enumerate(jobs):
        watcher.started(job.run_id)

        def report(step: int, metrics: dict[str, float], run_id: str = job.run_id) -> Verdict:
            watcher.reported(run_id, step, metrics)
            check_interrupted()
            return Verdict.GO

        results[job.run_id] = run_job(job, report)
        check_interrupted()
        watcher.ended(results[job.run_id])
        if results[job.run_id].lacked:
            reason = results[job.run_id].reason
            return results | {left.run_id: lacking(left.run_id, reason) for left in jobs[number + 1 :]}
    return results
