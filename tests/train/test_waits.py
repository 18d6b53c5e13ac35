"""A step that is not logged never waits for the device: nothing in it reads a number or a size back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fpl.config.compose import load_config
from fpl.data.batches import Batch
from fpl.losses.kernels import use
from fpl.losses.shortcut import decide_sorted
from fpl.sweep.places import Places
from fpl.train.loop import Run
from tests.train.runs import OPTIONS, run

# What a GPU has to be waited for: values, and results whose size depends on values.
READS = {"_local_scalar_dense", "equal", "is_nonzero", "item", "masked_select", "nonzero", "nonzero_static", "unique"}
# What `torch.tensor(...)` ends with: a number from the host, which would be copied to the device at every step.
CONSTANT = "lift_fresh"


class Watch(TorchDispatchMode):
    """Notes every operation that makes the host wait."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.seen = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        self.seen += 1
        indices = tree_leaves(args[1]) if name.startswith(("index", "_index")) and len(args) > 1 else []
        by_mask = any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in indices)
        # Bool are the masks of CutMix, which go to the device with the images.
        constant = name == CONSTANT and result.dtype != torch.bool
        if name in READS or constant or name.startswith(("_unique", "unique_")) or by_mask:
            self.found.append(name)
        return result


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (lambda x: x.sum().item(), "_local_scalar_dense"),
        (lambda x: bool(x.any()), "_local_scalar_dense"),
        (lambda x: x[x > 0], "index"),
        (lambda x: (x > 0).nonzero(), "nonzero"),
        (lambda x: x + torch.tensor([1.0]), "lift_fresh"),
    ],
)
def test_the_watch_sees_what_waits(code: Any, name: str) -> None:
    with Watch() as watch:
        code(torch.ones(3))
    assert name in watch.found


@pytest.mark.parametrize("keys", [[], ["train.concatenate=true"], ["loss.fidelity=released"], ["loss.kind=ce"]])
def test_unlogged_step_never_waits(
    run_file: Path, places: Places, monkeypatch: pytest.MonkeyPatch, keys: list[str]
) -> None:
    config = load_config(run_file, overrides=["method.cutmix=true", "train.steps=4", "train.evaluate_every=4", *keys])
    original, watches = Run._step, []

    def step(self: Run, batch: Batch) -> None:
        if self.memory.step + 1 in (1, 4):  # the logged ones; the first also fills caches
            return original(self, batch)
        with Watch() as watch:
            original(self, batch)
        watches.append(watch)
        return None

    monkeypatch.setattr(Run, "_step", step)
    # What a GPU computes: the short cut of the CPU looks for pixels with more than one positive.
    monkeypatch.setattr("fpl.losses.fuzzy.decide", decide_sorted)
    with use("tensor"):
        run(config, places, dataclasses.replace(OPTIONS, log_every=100, checkpoint_every=100))
    assert len(watches) == 2 and all(watch.seen > 500 for watch in watches)
    assert [watch.found for watch in watches] == [[], []]
