"""The optimizer against its closed form, whichever kernel computes it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fpl.config.compose import load_config
from fpl.config.sections import OptimConfig
from fpl.methods.optimizers import sgd
from fpl.models import SegmentationNetwork, build_network

OPTIM = OptimConfig(lr=0.1, momentum=0.9, weight_decay=0.01, head_lr_multiplier=10.0)


@pytest.fixture
def network(run_file: Path) -> SegmentationNetwork:
    torch.manual_seed(0)
    return build_network(load_config(run_file).model, 5)


def step(network: SegmentationNetwork, optimizer: torch.optim.Optimizer, gradients: list[Tensor | None]) -> None:
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        # In memory as autograd lays it: like the parameter.
        parameter.grad = None if gradient is None else torch.empty_like(parameter).copy_(gradient)
    optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels_last", [False, True])
def test_three_steps_are_the_closed_form(network: SegmentationNetwork, dtype: torch.dtype, channels_last: bool) -> None:
    network = network.to(dtype)
    if channels_last:
        network = network.to(memory_format=torch.channels_last)
    optimizer = sgd([network], OPTIM)
    assert all(group["fused"] for group in optimizer.param_groups)
    backbone = {id(parameter) for parameter in network.backbone.parameters()}
    for group in optimizer.param_groups:  # as the training loop does at every step
        group["lr"] = 0.1 * group["lr_multiplier"]
    values = [parameter.detach().double().clone() for parameter in network.parameters()]
    momenta = [torch.zeros_like(value) for value in values]
    generator = torch.Generator().manual_seed(1)
    for number in range(3):
        gradients: list[Tensor | None] = []
        for index, parameter in enumerate(network.parameters()):
            gradient = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            # One parameter gets its first gradient later than the others, and then none: it does not move.
            gradients.append(None if index == 2 and number != 1 else gradient)
        step(network, optimizer, gradients)
        for index, (parameter, gradient) in enumerate(zip(network.parameters(), gradients, strict=True)):
            if gradient is None:
                continue
            decay = 0.01 if parameter.ndim > 1 else 0.0
            rate = 0.1 if id(parameter) in backbone else 1.0
            momenta[index] = 0.9 * momenta[index] + gradient + decay * values[index]
            values[index] = values[index] - rate * momenta[index]
    tolerance = 1e-5 if dtype is torch.float32 else 1e-12
    for (name, parameter), value in zip(network.named_parameters(), values, strict=True):
        torch.testing.assert_close(parameter.detach().double(), value, rtol=tolerance, atol=tolerance, msg=name)


def test_checkpoint_of_another_kernel_goes_on_in_this_one(network: SegmentationNetwork) -> None:
    """As written before: by torch's loop, `fused` unset, and no momentum where no step was taken."""
    generator = torch.Generator().manual_seed(2)
    gradients: list[Tensor | None] = [torch.randn(p.shape, generator=generator) for p in network.parameters()]
    start = [parameter.detach().clone() for parameter in network.parameters()]
    ours = sgd([network], OPTIM)
    groups: list[dict[str, Any]] = [
        {key: value for key, value in group.items() if key not in ("fused", "foreach")} for group in ours.param_groups
    ]
    before = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    step(network, before, gradients)
    saved, moved = (
        copy.deepcopy(before.state_dict()),
        [parameter.detach().clone() for parameter in network.parameters()],
    )
    assert not any(group["fused"] for group in saved["param_groups"])
    step(network, before, gradients)
    expected = [parameter.detach().clone() for parameter in network.parameters()]
    for parameter, value in zip(network.parameters(), moved, strict=True):
        parameter.data.copy_(value)
    ours.load_state_dict(saved)
    assert all(group["fused"] for group in ours.param_groups)
    step(network, ours, gradients)
    for parameter, value, first in zip(network.parameters(), expected, start, strict=True):
        assert not torch.equal(value, first)
        torch.testing.assert_close(parameter.detach(), value, rtol=1e-6, atol=1e-7)
    fresh = torch.optim.SGD(groups, lr=0.1, momentum=0.9).state_dict()
    assert not fresh["state"]
    ours.load_state_dict(fresh)
    step(network, ours, gradients)
