"""What the tests of whole runs share: training one, naming its command, comparing two."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import fpl
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.sweep.local import run_local
from fpl.sweep.places import Places
from fpl.train import loop
from fpl.train.checkpoint import CheckpointFolder, load, save
from fpl.train.options import LoopOptions
from fpl.train.runtime import State

Change = Callable[[State], object]

OPTIONS = LoopOptions(checkpoint_every=2, log_every=1, threads=1)
# The run of `run_file` as FPL+AEL, dropout, sampling and banks included.
AEL = ["method.name=ael", "data.groups=2", "model.network=ael"]
# Columns that say when and where a run took place, not what it found.
CIRCUMSTANCES = ["train_seconds", "finished_at", "workers"]


def run(config: RunConfig, places: Places, options: LoopOptions = OPTIONS, **more: Any) -> Path:
    return run_local(config, places, device="cpu", options=options, **more)


def weights(places: Places, name: str = "last.pt") -> dict[str, torch.Tensor]:
    (path,) = (places.out / "checkpoints").glob(f"*/{name}")
    state: dict[str, torch.Tensor] = load(path)["method"]
    return state


def assert_equal_results(one: Places, other: Places) -> None:
    first, second = weights(one), weights(other)
    assert list(first) == list(second)
    for name in first:
        assert torch.equal(first[name], second[name]), name
    stores = [fpl.load_results(places.out) for places in (one, other)]
    for frame in ("history", "classes", "fuzziness", "examples"):
        pd.testing.assert_frame_equal(*(getattr(store, frame) for store in stores))
    pd.testing.assert_frame_equal(*(store.runs.drop(columns=CIRCUMSTANCES) for store in stores))


def elsewhere(places: Places, name: str) -> Places:
    return dataclasses.replace(places, out=places.out.with_name(name))


def command(run_file: Path, places: Places, *more: str) -> list[str]:
    """What follows `python` where the run is trained by hand."""
    return [
        *("-m", "fpl", "train", str(run_file), *more),
        *("--out", str(places.out), "--data-root", str(places.data_root), "--splits", str(places.splits_root)),
        *("--threads", "1", "--log-every", "1", "--device", "cpu"),
    ]


class KilledError(Exception):
    pass


def killed(
    config: RunConfig, places: Places, options: LoopOptions = OPTIONS, *, before: int = 0, after: int = 0
) -> CheckpointFolder:
    """The folder of a run that died before or after writing the checkpoint of a step."""
    original = CheckpointFolder.save_step

    def save_step(self: CheckpointFolder, step: int, state: State) -> Path:
        if step == before:
            raise KilledError
        path = original(self, step, state)
        if step == after:
            raise KilledError
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointFolder, "save_step", save_step)
        with pytest.raises(KilledError):
            run(config, places, options)
    (folder,) = (places.out / "checkpoints").iterdir()
    return CheckpointFolder(folder)


def resumed_at(config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Where the same command would go on, and what it says; no step is taken."""
    monkeypatch.setattr(loop, "make_loader", lambda *arguments, **named: [])
    said: list[str] = []
    with pytest.raises(FplError) as caught:
        run(config, places, say=said.append)
    return caught.value.message, "\n".join(said)


def rewritten(path: Path, change: Change, *, listed: bool) -> None:
    """Change a state; with `listed` the list of its parts as well, as if it had been written so."""
    state = torch.load(path, weights_only=True)
    if listed:
        del state["parts"]
    change(state)
    (save if listed else lambda path, state: torch.save(state, path))(path, state)
