"""Optimizers of every kind against their closed forms in float64, their rates, and their resuming."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fpl.config.compose import load_config
from fpl.config.sections import OptimConfig
from fpl.methods.optimizers import OptimizerSpec, Scheduled, make_optimizer, sgd
from fpl.models import SegmentationNetwork, build_network

TOTAL = 10


def head() -> nn.Sequential:
    """A critic or a projector: no network, so a head all over."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 1, 1))


def gradients_of(modules: list[nn.Module], step: int) -> list[Tensor | None]:
    """One parameter gets its first gradient later than the others, and none after it."""
    generator = torch.Generator().manual_seed(step)
    found: list[Tensor | None] = []
    for index, parameter in enumerate(parameter for module in modules for parameter in module.parameters()):
        gradient = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        found.append(None if index == 1 and step != 1 else gradient)
    return found


def step_with(optimizer: Scheduled, modules: list[nn.Module], step: int) -> float:
    own = [parameter for module in modules for parameter in module.parameters()]
    for parameter, gradient in zip(own, gradients_of(modules, step), strict=True):
        parameter.grad = None if gradient is None else torch.empty_like(parameter).copy_(gradient)
    rate = optimizer.set_rate(step, TOTAL)
    optimizer.step()
    return rate


def adam_by_hand(
    value: Tensor, gradients: list[Tensor | None], rates: list[float], decay: float, adamw: bool
) -> Tensor:
    """Kingma and Ba, algorithm 1, with betas 0.9 and 0.99; the decay by Loshchilov and Hutter for AdamW."""
    mean, square, count = torch.zeros_like(value), torch.zeros_like(value), 0
    for gradient, rate in zip(gradients, rates, strict=True):
        if gradient is None:
            continue
        count += 1
        if adamw:
            value = value - rate * decay * value
        else:
            gradient = gradient + decay * value
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        value = value - rate * (mean / (1 - 0.9**count)) / ((square / (1 - 0.99**count)).sqrt() + 1e-8)
    return value


@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_four_steps_of_adam_are_the_closed_form(kind: str, dtype: torch.dtype) -> None:
    modules: list[nn.Module] = [head().to(dtype), head().to(dtype).to(memory_format=torch.channels_last)]
    spec = OptimizerSpec(0.01, kind=kind, betas=(0.9, 0.99), weight_decay=0.1, head_lr_multiplier=2.0)  # type: ignore[arg-type]
    optimizer = make_optimizer(spec, modules)
    assert all(group["fused"] for group in optimizer.param_groups)
    start = [parameter.detach().double().clone() for module in modules for parameter in module.parameters()]
    rates = [2 * step_with(optimizer, modules, step) for step in range(4)]
    every = list(zip(*(gradients_of(modules, step) for step in range(4)), strict=True))
    tolerance = 1e-5 if dtype is torch.float32 else 1e-12
    own = [parameter for module in modules for parameter in module.parameters()]
    for parameter, value, gradients in zip(own, start, every, strict=True):
        expected = adam_by_hand(value, list(gradients), rates, 0.1 if parameter.ndim > 1 else 0.0, kind == "adamw")
        torch.testing.assert_close(parameter.detach().double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_resumed_optimizer_takes_the_same_steps_to_the_bit(kind: str) -> None:
    spec = OptimizerSpec(0.01, kind=kind, weight_decay=0.1)  # type: ignore[arg-type]
    straight = head()
    optimizer = make_optimizer(spec, [straight])
    fresh = optimizer.state_dict()["state"]
    assert len(fresh) == len(list(straight.parameters()))
    for step in range(2):
        step_with(optimizer, [straight], step)
    saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(straight.state_dict())
    # What a fresh optimizer has is what a checkpoint has, so that one which lacks a part is told.
    assert {number: set(state) for number, state in saved["state"].items()} == {
        number: set(state) for number, state in fresh.items()
    }
    resumed = head()
    resumed.load_state_dict(weights)
    again = make_optimizer(spec, [resumed])
    again.load_state_dict(saved)
    for step in range(2, 5):
        assert step_with(optimizer, [straight], step) == step_with(again, [resumed], step)
    for one, other in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_fresh_state_is_what_adam_itself_begins_with() -> None:
    ours, theirs = head(), head()
    spec = OptimizerSpec(0.01, kind="adam")
    optimizer = make_optimizer(spec, [ours])
    plain = torch.optim.Adam(theirs.parameters(), lr=0.01, fused=True)
    step_with(optimizer, [ours], 0)
    for parameter, gradient in zip(theirs.parameters(), gradients_of([theirs], 0), strict=True):
        parameter.grad = None if gradient is None else torch.empty_like(parameter).copy_(gradient)
    plain.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)
    for parameter, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        for name, value in plain.state[other].items():
            assert torch.equal(optimizer.state[parameter][name], value)
            assert optimizer.state[parameter][name].dtype == value.dtype


def test_rates_of_the_schedules() -> None:
    poly = OptimizerSpec(0.5, power=2.0)
    assert [poly.rate(step, 4) for step in range(4)] == [0.5, 0.5 * 0.75**2, 0.5 * 0.5**2, 0.5 * 0.25**2]
    constant = OptimizerSpec(3e-6, kind="adam", schedule="constant")
    assert {constant.rate(step, 4) for step in range(4)} == {3e-6}


def test_groups_know_backbone_from_head_and_what_decays(run_file: Path) -> None:
    network: SegmentationNetwork = build_network(load_config(run_file).model, 5)
    optim = OptimConfig(lr=0.1, momentum=0.8, weight_decay=0.01, head_lr_multiplier=10.0, poly_power=0.7)
    extra = head()
    optimizer = make_optimizer(OptimizerSpec.of(optim), [network, extra])
    assert optimizer.set_rate(5, TOTAL) == 0.1 * 0.5**0.7
    seen = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    backbone = {id(parameter) for parameter in network.backbone.parameters()}
    for parameter in [*network.parameters(), *extra.parameters()]:
        group = seen.pop(id(parameter))
        assert group["weight_decay"] == (0.01 if parameter.ndim > 1 else 0.0)
        factor = 1.0 if id(parameter) in backbone else 10.0
        assert math.isclose(group["lr"], factor * 0.1 * 0.5**0.7) and group["momentum"] == 0.8
    assert not seen
    one, other = (sgd([network], optim).state_dict(), make_optimizer(OptimizerSpec.of(optim), [network]).state_dict())
    assert one["param_groups"] == other["param_groups"]
    assert set(one["param_groups"][0]) == set(torch.optim.SGD([nn.Parameter(torch.zeros(1))]).param_groups[0]) | {
        "lr_multiplier"
    }


def test_frozen_parameters_are_left_out() -> None:
    module = head()
    module[0].requires_grad_(False)
    optimizer = make_optimizer(OptimizerSpec(0.1), [module])
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 4
