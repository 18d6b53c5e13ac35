"""What the tests of methods share: building one, and a random batch for it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fpl.config.registry import method_class
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, Draw
from fpl.methods.base import Clock, Method
from fpl.models import SegmentationNetwork, build_network
from fpl.train.runtime import Workers

CLOCK = Clock(step=3, total=6)


def build(config: RunConfig) -> Method:
    torch.manual_seed(0)

    def network() -> SegmentationNetwork:
        return build_network(config.model, config.data.num_classes)

    return method_class(config.method)(config, network, Workers())


def disturb(teacher: nn.Module) -> torch.Generator:
    """Make a teacher no copy of its student any more; returns the generator that drew, for more."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return generator


def assert_all_learn(method: nn.Module) -> None:
    """Every parameter that is trained has a gradient, finite and not 0 everywhere."""
    for name, parameter in method.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert bool(parameter.grad.isfinite().all()) and bool(parameter.grad.any()), name


def batch_for(config: RunConfig, draws: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    count, (height, width) = config.data.labeled_batch, config.data.crop

    def image() -> Tensor:
        return torch.randn(count, 3, height, width, generator=generator)

    valid = torch.ones(count, height, width, dtype=torch.bool)
    label = torch.randint(0, config.data.num_classes, (count, height, width), generator=generator)
    label[:, :3] = 255
    positions = [torch.arange(count) + 8 * draw for draw in range(draws)]
    unlabeled = [Draw(image(), valid, position, position) for position in positions]
    return Batch(image(), label, valid, unlabeled, CLOCK.step)
