"""The EMA teacher against closed forms in float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fpl.methods.teacher import Ema


def module(value: float) -> nn.Module:
    """One parameter of three numbers and the four kinds of state of a norm layer."""
    layer = nn.Sequential(nn.Conv2d(1, 3, 1, bias=False), nn.BatchNorm2d(3)).double()
    with torch.no_grad():
        for tensor in layer.state_dict().values():
            tensor.fill_(value)
    return layer


def parameters(layer: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in layer.parameters()])


def test_first_step_makes_the_parameters_equal_and_leaves_buffers_alone():
    torch.manual_seed(0)
    teacher, student = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
    for layer in (teacher, student):
        layer(torch.randn(5, 4, 3, 3))
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
    before = {name: value.clone() for name, value in teacher.named_buffers()}
    Ema(0.99, warm_up=True).update(teacher, student, 0)
    assert torch.equal(parameters(teacher), parameters(student))
    assert all(torch.equal(value, before[name]) for name, value in teacher.named_buffers())
    assert not torch.equal(teacher.running_mean, student.running_mean)


def test_until_the_maximum_the_teacher_is_the_mean_of_all_students():
    torch.manual_seed(0)
    teacher = module(123.0)
    values = torch.randn(100, dtype=torch.float64).tolist()
    for step, value in enumerate(values):
        Ema(0.99, warm_up=True).update(teacher, module(value), step)
        mean = sum(values[: step + 1]) / (step + 1)
        assert parameters(teacher)[0].item() == pytest.approx(mean, rel=1e-12, abs=1e-14)


def test_from_step_99_on_the_decay_is_the_maximum():
    for step, decay in ((98, 98 / 99), (99, 0.99), (100, 0.99), (10_000, 0.99)):
        teacher = module(1.0)
        Ema(0.99, warm_up=True).update(teacher, module(0.0), step)
        assert parameters(teacher)[0].item() == pytest.approx(decay, rel=1e-14)


def test_constant_decay_is_a_geometric_sum():
    teacher, decay, first, steps = module(7.0), 0.9, 50, 20
    for step in range(first, first + steps):
        Ema(decay, warm_up=True).update(teacher, module(float(step)), step)
    students = [(1 - decay) * decay ** (first + steps - 1 - step) * step for step in range(first, first + steps)]
    expected = decay**steps * 7.0 + sum(students)
    torch.testing.assert_close(parameters(teacher), torch.full((9,), expected, dtype=torch.float64), rtol=1e-12, atol=0)


def test_buffers_are_averaged_if_asked_and_counters_copied():
    teacher, student = module(2.0), module(6.0)
    Ema(0.99, warm_up=True, buffers=True).update(teacher, student, 3)
    norm = teacher[1]
    assert norm.running_mean.tolist() == norm.running_var.tolist() == [3.0] * 3
    assert norm.num_batches_tracked.item() == 6
    assert norm.num_batches_tracked.dtype == torch.int64


def test_nothing_is_recorded_for_a_gradient():
    teacher, student = module(1.0), module(0.0)
    Ema(0.99, warm_up=True, buffers=True).update(teacher, student, 5)
    assert all(parameter.grad_fn is None and parameter.is_leaf for parameter in teacher.parameters())
    assert parameters(student).eq(0).all()
