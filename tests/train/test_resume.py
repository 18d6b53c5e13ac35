"""A run that was stopped, killed or repeated ends with the same bits."""

from __future__ import annotations

import dataclasses
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch
from fpl.errors import FplError
from fpl.methods.base import Clock, Losses
from fpl.methods.cps.method import Cps
from fpl.sweep import local
from fpl.sweep.places import Places
from fpl.sweep.prepare import prepare
from fpl.train.checkpoint import CheckpointFolder
from fpl.train.options import LoopOptions
from fpl.train.runtime import State, Verdict
from tests import warm
from tests.train.runs import AEL, OPTIONS, assert_equal_results, command, elsewhere, killed, run


def test_two_runs_of_one_configuration_are_bit_equal(config: RunConfig, places: Places) -> None:
    other = elsewhere(places, "other")
    run(config, places)
    run(config, other, dataclasses.replace(OPTIONS, checkpoint_every=5, loader_workers=2))
    assert_equal_results(places, other)


@pytest.fixture(scope="module")
def uninterrupted(
    request: pytest.FixtureRequest, run_file: Path, data_places: Places, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunConfig, LoopOptions, Places]:
    """A run of a method that nothing stopped, and what it was given."""
    config = load_config(run_file, overrides=AEL if request.param == "ael" else [])
    # A checkpoint then falls between two rows of the history.
    options = dataclasses.replace(OPTIONS, log_every=5, diagnose_every=5, examples=1)
    places = dataclasses.replace(data_places, out=tmp_path_factory.mktemp("uninterrupted") / "out")
    run(config, places, options)
    return config, options, places


@pytest.mark.parametrize(
    ("stop_after", "uninterrupted"),
    [(2, "cps"), (4, "cps"), (6, "cps"), (2, "ael"), (4, "ael")],
    indirect=["uninterrupted"],
)
def test_resuming_from_every_checkpoint_is_exact(
    uninterrupted: tuple[RunConfig, LoopOptions, Places],
    places: Places,
    stop_after: int,
) -> None:
    config, options, whole = uninterrupted
    killed(config, places, options, after=stop_after)
    torch.manual_seed(123)  # whatever the process did in between
    run(config, places, options)
    assert_equal_results(places, whole)


def last_checkpoint(places: Places) -> int:
    """Its step, or 0."""
    found = places.out.glob("checkpoints/*/step_*.pt")
    return max((int(path.stem.removeprefix("step_")) for path in found), default=0)


@pytest.mark.parametrize("method", ["cps", "ael"])
def test_kill_at_any_moment_then_the_same_command(run_file: Path, places: Places, method: str) -> None:
    steps = ("train.steps=30", "train.evaluate_every=10", *(AEL if method == "ael" else []))
    line = [*command(run_file, places, *steps), "--checkpoint-every", "3"]
    process = warm.Child(line)
    # Somewhere behind it: whichever step is at work then, with a third of them to come at least.
    drawn = random.Random(method).randrange(3, 19, 3)
    while last_checkpoint(places) < drawn and process.code is None:
        time.sleep(0.01)
    process.kill()
    assert process.code == -signal.SIGKILL, "the run ended before it could be killed"
    assert not list(places.out.glob("runs/*.parquet"))
    code, _, said = warm.run(line)
    assert code == 0 and "continuing at step" in said, said
    uninterrupted = elsewhere(places, "uninterrupted")
    run(load_config(run_file, overrides=steps), uninterrupted, LoopOptions(log_every=1, threads=1))
    assert_equal_results(places, uninterrupted)


def test_a_checkpoint_of_another_configuration_is_refused(config: RunConfig, places: Places) -> None:
    identity = prepare(config, places).run_id
    CheckpointFolder(places.checkpoints(identity)).save_step(2, {"canonical": "{}"})
    with pytest.raises(FplError, match="another configuration"):
        run(config, places)


def test_left_overs_of_killed_processes_are_swept(config: RunConfig, places: Places) -> None:
    path = run(config, places)
    folder = places.checkpoints(path.stem)
    (folder / ".step_00000004.pt.123.tmp").write_bytes(b"half")
    CheckpointFolder(folder).save_step(4, {})
    run(config, places)  # done: nothing to train, but the killed process had not tidied up
    assert {file.name for file in folder.iterdir()} == {".lock", "best.pt", "last.pt"}


def test_a_method_that_draws_resumes_exactly(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_losses = Cps.losses

    def drawing(self: Cps, batch: Batch, clock: Clock) -> Losses:
        batch.image = batch.image * torch.rand(1)  # as dropout would, from torch's own generator
        return original_losses(self, batch, clock)

    monkeypatch.setattr(Cps, "losses", drawing)
    uninterrupted = elsewhere(places, "uninterrupted")
    run(config, uninterrupted)
    killed(config, places, after=2)
    run(config, places)
    assert_equal_results(places, uninterrupted)


def test_two_processes_cannot_train_one_run(config: RunConfig, places: Places) -> None:
    import filelock

    folder = places.checkpoints(prepare(config, places).run_id)
    folder.mkdir(parents=True)
    with filelock.FileLock(folder / ".lock"), pytest.raises(FplError, match="another process is training this run"):
        run(config, places)


def test_stop_is_obeyed_and_continues_later(config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    original = local.LocalContext.report

    def stop(self: Any, step: int, metrics: dict[str, float], state: State | None) -> Verdict:
        original(self, step, metrics, state)
        return Verdict.STOP

    monkeypatch.setattr(local.LocalContext, "report", stop)
    with pytest.raises(FplError, match="stopped at step 2 of 6"):
        run(config, places)
    assert not list(places.out.glob("runs/*.parquet"))
    monkeypatch.setattr(local.LocalContext, "report", original)
    run(config, places)
    other = elsewhere(places, "other")
    run(config, other)
    assert_equal_results(places, other)
