"""A step of CPS, which hands small logits to the pixel loss, against one that enlarges and mixes everything first."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.config.compose import load_config
from fpl.data.augment import cutmix_masks
from fpl.data.batches import Batch
from fpl.losses import PixelLoss
from fpl.losses.kernels import use
from fpl.methods.base import Method
from tests.methods.support import CLOCK, batch_for, build

CUTMIX, PLAIN, ON_LABELED = (
    ["method.cutmix=true"],
    ["method.cutmix=false", "method.on_labeled=false"],
    ["method.cutmix=false", "method.on_labeled=true"],
)


def double(batch: Batch) -> Batch:
    batch.image = batch.image.double()
    for draw in batch.unlabeled:
        draw.image = draw.image.double()
    return batch


def reference(method: Method, batch: Batch, loss: PixelLoss, stride: int) -> Tensor:
    """The total of a step as the method's publication has it, in the order of the passes, all at the losses' size."""
    both, height = method.networks(), batch.image.shape[-1]
    size = -(-height // stride)
    kept = torch.linspace(0, height - 1, size).round().long()

    def logits(index: int, image: Tensor) -> Tensor:
        network = both[index]
        small = network.classifier(network.decode(network.encode(image)))
        return F.interpolate(small, size=(size, size), mode="bilinear", align_corners=True)

    def supervised(found: Tensor) -> Tensor:
        return F.cross_entropy(found, batch.label[:, kept][..., kept], ignore_index=255)

    first = batch.unlabeled[0]
    if len(batch.unlabeled) == 2:
        second = batch.unlabeled[1]
        mask = cutmix_masks(method.config.seed, first.position, (height, height))[:, None]
        with torch.no_grad():
            pairs = [(logits(index, first.image), logits(index, second.image)) for index in (0, 1)]
        teachers = [torch.where(mask[:, :, kept][..., kept], other, one) for one, other in pairs]
        students = [logits(index, torch.where(mask, second.image, first.image)) for index in (0, 1)]
        labeled = [logits(index, batch.image) for index in (0, 1)]
    else:
        labeled = [logits(index, batch.image) for index in (0, 1)]
        students = [logits(index, first.image) for index in (0, 1)]
        if method.config.method.on_labeled:
            students = [torch.cat(pair) for pair in zip(labeled, students, strict=True)]
        teachers = [student.detach() for student in students]
    # Each group of images for itself, as if it were a process's; the batch without CutMix is of two kinds of images.
    groups, kinds = method.config.data.groups, len(students[0]) // len(batch.image)
    assert groups == 4 and len(batch.image) == 4
    totals = []
    for group in range(groups):
        own = [group + 4 * kind for kind in range(kinds)]
        terms = [loss(students[0][own], teachers[1][own]), loss(students[1][own], teachers[0][own])]
        totals.append(loss.total(terms))
    return supervised(labeled[0]) + supervised(labeled[1]) + 1.5 * torch.stack(totals).mean()


@pytest.mark.parametrize("keys", [CUTMIX, PLAIN, ON_LABELED], ids=["cutmix", "plain", "on_labeled"])
@pytest.mark.parametrize(
    ("kind", "fidelity", "stride"),
    [("fpl", "paper", 1), ("fpl", "released", 2), ("fpl", "paper", 4), ("ce", "paper", 1), ("soft", "paper", 2)],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_losses_and_gradients_are_those_of_enlarged_logits(
    run_file: Path, keys: list[str], kind: str, fidelity: str, stride: int, dtype: torch.dtype
) -> None:
    more = [f"loss.kind={kind}", f"loss.stride={stride}", "method.weight=1.5"]
    more += ["loss.threshold=0.5", f"loss.fidelity={fidelity}"] if kind == "fpl" else []
    config = load_config(run_file, overrides=[*keys, *more])
    method = build(config).to(dtype)
    other = copy.deepcopy(method)
    batch = batch_for(config, method.request.draws)
    batch = double(batch) if dtype is torch.float64 else batch
    loss = copy.deepcopy(method.pixel_loss)
    found = method.losses(batch, CLOCK)
    found.objectives["main"].backward()
    with use("tensor"):
        expected = reference(other, batch, loss, stride)
        expected.backward()
    relative = 1e-9 if dtype is torch.float64 else 1e-4
    torch.testing.assert_close(found.objectives["main"], expected, rtol=relative, atol=0.0)
    for (name, ours), theirs in zip(method.named_parameters(), other.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        largest = float(theirs.grad.abs().max())
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=relative, atol=10 * relative * largest, msg=name)
    for (name, ours), theirs in zip(method.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=relative, atol=relative, msg=name)


def test_concatenated_step_is_the_same_up_to_rounding(run_file: Path) -> None:
    apart = load_config(run_file, overrides=["method.cutmix=true", "loss.threshold=0.5"])
    joined = load_config(run_file, overrides=["method.cutmix=true", "loss.threshold=0.5", "train.concatenate=true"])
    methods = [build(config).double() for config in (apart, joined)]
    for method in methods:
        method.losses(double(batch_for(apart, 2)), CLOCK).objectives["main"].backward()
    states = [method.state_dict() for method in methods]
    assert list(states[0]) == list(states[1])
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-9, atol=1e-11, msg=name)
    for (name, one), other in zip(methods[0].named_parameters(), methods[1].parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        largest = float(one.grad.abs().max())
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-7, atol=1e-9 * largest, msg=name)


def _note(calls: list[int], module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
    calls.append(len(inputs[0]))


def test_concatenated_step_asks_each_network_twice(run_file: Path) -> None:
    for value, passes in (("false", 4), ("true", 2)):
        method = build(load_config(run_file, overrides=["method.cutmix=true", f"train.concatenate={value}"]))
        calls: list[int] = []
        hook = partial(_note, calls)
        for network in method.networks():
            network.backbone.register_forward_hook(hook)
        method.losses(batch_for(method.config, 2), CLOCK)
        assert len(calls) == 2 * passes


@pytest.mark.parametrize("auxiliary", ["cps", "ael"])
def test_auxiliary_head_sees_labeled_images_alone(run_file: Path, auxiliary: str) -> None:
    keys = ["method.cutmix=true", f"model.network={auxiliary}", "train.concatenate=true"]
    method = build(load_config(run_file, overrides=keys))
    before = copy.deepcopy(method.state_dict())
    method.losses(batch_for(method.config, 2), CLOCK)
    for name, value in method.state_dict().items():
        if name.endswith("num_batches_tracked"):
            assert value - before[name] == (1 if ".auxiliary." in name else 4), name
