"""No wait without an end: what a launcher does when the other side never answers. No Ray is started."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.store.read import Results
from fpl.sweep import inputs
from fpl.sweep.job import run_job
from fpl.sweep.launch import gang, group, inline
from fpl.sweep.launch.gang import GangTrial
from fpl.sweep.launch.inline import InlineTrial
from fpl.sweep.places import Places
from fpl.sweep.plan.needs import Needs
from fpl.train.meeting import LostWorkerError
from tests.sweep.ray_support import job_of

LOST = [
    ray.exceptions.RayActorError(error_msg="the actor is dead\nand more"),
    ray.exceptions.GetTimeoutError("no answer"),
]


def silent(error: BaseException) -> Any:
    def get(reference: object, timeout: float | None = None) -> None:
        assert timeout == group.LIMIT
        raise error

    return get


@pytest.mark.parametrize("error", LOST)
def test_a_worker_without_its_mailbox_records_no_failure(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    job = job_of(config, places)
    monkeypatch.setattr(ray, "get", silent(error))

    def report(step: int, metrics: dict[str, float]) -> Any:
        return group.ask("a reference")

    with pytest.raises(LostWorkerError, match=r"lost the process that hands out runs: (the actor is dead|no answer)"):
        run_job(job, report)
    assert Results(places.out).failures.empty and Results(places.out).runs.empty
    assert list(places.checkpoints(job.run_id).glob("step_*.pt"))  # what it had done is kept


@pytest.mark.parametrize("error", LOST)
def test_a_trial_without_its_mailbox_is_not_used_again(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    trial = GangTrial.__new__(GangTrial)
    trial._ready, trial._over = [], False
    trial._mailbox = SimpleNamespace(next_event=SimpleNamespace(remote=lambda patience: "a reference"))
    monkeypatch.setattr(gang.ray, "get", silent(error))
    with pytest.raises(type(error)):
        trial.next_event()
    assert trial._over


def test_a_thread_that_ends_without_a_word_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "LOOK", 0.01)
    trial = InlineTrial.__new__(InlineTrial)
    trial.execution = SimpleNamespace(gpus_per_worker=1)  # type: ignore[assignment]
    trial._over = False
    monkeypatch.setattr(InlineTrial, "_carry_out", lambda self, job: time.sleep(0.05))
    trial.begin(SimpleNamespace(device="cpu", run_id="a run"))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="the thread of the run ended without a word"):
        trial.next_event()
    assert trial._over


def _dies(arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_pretraining_process_that_is_killed_is_said(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_pretrain", _dies)
    trees = [config.model_dump(mode="json") for _ in range(2)]
    for depth, tree in enumerate(trees, start=1):
        tree["model"] |= {"pretrained": "imagenet", "tiny_depth": depth}
    configs = [RunConfig.model_validate(tree) for tree in trees]
    told: list[str] = []
    places = Places(tmp_path / "out", tmp_path / "data", tmp_path / "splits", tmp_path / "weights")
    needs = Needs(places)
    for each in configs:
        needs.lacking(each)
    with pytest.raises(FplError, match="worker processes was killed"):
        inputs._encoders(configs, needs, told.append)
    assert told == [f"pre-training 2 tiny encoders in {tmp_path / 'weights'}: about half a minute"]
