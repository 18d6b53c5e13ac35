"""A group of Ray Train workers that takes job after job from a mailbox."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import gc
import os
import pickle
import secrets
import threading
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
import torch.distributed as dist
from ray.util.placement_group import PlacementGroup, remove_placement_group

from fpl.errors import ShortageError, shortage
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, JobResult, lacking, reason_of, run_job
from fpl.sweep.launch.rendezvous import OwnAddressConfig
from fpl.sweep.launch.trial import own_node
from fpl.sweep.nodes import Sight
from fpl.text import first_line
from fpl.train.meeting import LostWorkerError
from fpl.train.runtime import Verdict

# Seconds a call to the mailbox waits before it is made again.
PATIENCE = 10.0
# Seconds without an answer after which the other side is taken for lost; the calls themselves wait for `PATIENCE`.
LIMIT = 300.0
# Workers without a job sit in a collective operation; that must not end by itself.
IDLE_LIMIT = datetime.timedelta(days=30)
# Rounds of a minute for which Ray Train waits for room before the trial looks itself.
ROOM_ROUNDS = 5


class Group:
    """Workers held together by one `TorchTrainer` run in a thread of this process.

    Args:
        mailbox: Actor of `Mailbox`.
        execution: Number of workers and what each gets, and how often those that died are replaced.
        folder: For Ray Train's own files; nothing of a run is kept there.
        sight: What the driver sees, where the workers are to be asked whether they do.
    """

    def __init__(self, mailbox: Any, execution: Execution, folder: Path, sight: Sight | None = None) -> None:
        self.error: BaseException | None = None
        self._trainer = _Trainer(
            work,
            train_loop_config={"mailbox": mailbox, "gpus": execution.gpus_per_worker, "sight": sight},
            scaling_config=ray.train.ScalingConfig(
                num_workers=execution.workers,
                use_gpu=execution.gpus_per_worker > 0,
                resources_per_worker=execution.held,
                label_selector=execution.nodes or None,
            ),
            torch_config=OwnAddressConfig(backend="nccl" if execution.gpus_per_worker else "gloo"),
            run_config=ray.train.RunConfig(
                # Never an old name: Ray Train would take up what it finds under it.
                name=f"group-{secrets.token_hex(6)}",
                storage_path=str(folder),
                failure_config=ray.train.FailureConfig(
                    max_failures=execution.attempts, controller_failure_limit=ROOM_ROUNDS
                ),
            ),
        )
        self._thread = threading.Thread(target=self._hold, name="group", daemon=True)
        self._thread.start()

    def _hold(self) -> None:
        try:
            self._trainer.fit()
        except BaseException as error:  # whatever it is, the trial's own thread must hear of it
            self.error = error

    @property
    def alive(self) -> bool:
        """Whether Ray Train still holds workers, or tries to."""
        return self._thread.is_alive()

    def join(self) -> None:
        """Wait until the workers have left and their resources are free; those that do not leave are left behind."""
        self._thread.join(LIMIT)


# Each of them starts an actor for every group. One gives resources back after the controller's death: without Ray's
# dashboard it cannot, and asks once a second for ever; the trial and the driver do it here. The other hands out data
# of Ray's own kind, of which there is none, and takes two seconds to come up.
NOT_NEEDED = {"PlacementGroupCleanerCallback", "DatasetsCallback"}


class _Trainer(ray.train.torch.TorchTrainer):  # type: ignore[misc]
    def _create_default_callbacks(self) -> list[Any]:
        return [each for each in super()._create_default_callbacks() if type(each).__name__ not in NOT_NEEDED]


def ask(answer: Any) -> Any:
    """What the trial's mailbox answers to a worker.

    Raises:
        LostWorkerError: It is gone, or does not answer: no failure of the run.
    """
    try:
        return ray.get(answer, timeout=LIMIT)
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
        raise LostWorkerError(
            f"lost the process that hands out runs: {first_line(error)}",
            hint="whoever waits for the run hands it out again, or the same command continues from the last checkpoint",
        ) from None


def release(placement_group: str) -> None:
    """Free what a group left behind whose controller died; nothing if it is free already."""
    remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(placement_group)))


def work(settings: dict[str, Any]) -> None:
    """What every worker does until the mailbox sends it home: fetch a job, carry it out with the others."""
    mailbox, rank = settings["mailbox"], ray.train.get_context().get_world_rank()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    control: Any = dist.new_group(backend="gloo", timeout=IDLE_LIMIT)

    def shared(value: Any) -> Any:
        held = [value]
        dist.broadcast_object_list(held, src=0, group=control)
        return held[0]

    current = ray.util.get_current_placement_group()
    group = shared(ask(mailbox.enter.remote(current.id.hex())) if rank == 0 else None)
    problems = settings["sight"].problems() if settings["sight"] is not None else []
    while True:
        order = shared(_wait_for_order(mailbox, group) if rank == 0 else None)
        if order == "leave":
            return
        _carry_out(_on_own_device(pickle.loads(order), settings["gpus"]), mailbox, group, rank, problems)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _wait_for_order(mailbox: Any, group: int) -> bytes | str:
    order: bytes | str = "wait"
    while order == "wait":
        order = ask(mailbox.fetch.remote(group, PATIENCE))
    return order


def _on_own_device(job: Job, gpus: float) -> Job:
    if gpus and job.device in ("auto", "cuda"):
        return dataclasses.replace(job, device=str(ray.train.torch.get_device()))
    return job


def _carry_out(job: Job, mailbox: Any, group: int, rank: int, problems: list[str]) -> None:
    def report(step: int, metrics: dict[str, float]) -> Verdict:
        mailbox.report.remote(group, step, metrics)
        verdict = None
        while verdict is None:
            verdict = ask(mailbox.verdict.remote(group, PATIENCE))
        return Verdict(verdict)

    if problems:
        ask(mailbox.end.remote(group, lacking(job.run_id, "; ".join(problems), own_node()).plain()))
        raise ShortageError("; ".join(problems))  # as below: its peers are waiting
    try:
        result = run_job(job, report if rank == 0 else None)
        if result.lacked:
            result = lacking(job.run_id, result.reason, own_node())
    except LostWorkerError as error:
        with contextlib.suppress(LostWorkerError):  # the trial may be what died
            ask(mailbox.lost.remote(group, reason_of(error)))
        raise
    except Exception as error:
        # What the machine lacks is no failure of the run, and is not recorded as one.
        lack = shortage(error)
        result = (
            lacking(job.run_id, reason_of(lack), own_node())
            if lack
            else JobResult(job.run_id, "failed", reason_of(error))
        )
        ask(mailbox.end.remote(group, result.plain()))
        raise
    if rank == 0:
        ask(mailbox.end.remote(group, result.plain()))
