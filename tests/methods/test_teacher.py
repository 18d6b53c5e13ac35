"""EMA teachers against closed forms in float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fpl.methods.teacher import Ema, evaluating, teacher_of

STUDENTS = torch.linspace(-2, 3, 150, dtype=torch.float64).sin().tolist()


def module(value: float) -> nn.Sequential:
    layer = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), nn.BatchNorm2d(2)).double()
    with torch.no_grad():
        for tensor in layer.state_dict().values():
            tensor.fill_(value)
    return layer


def weight(layer: nn.Sequential) -> float:
    values = torch.cat([parameter.detach().flatten() for parameter in layer.parameters()]).unique()
    assert len(values) == 1
    return values.item()


def test_constant_decay_is_a_geometric_sum_from_the_copy_on() -> None:
    teacher = teacher_of(module(7.0))
    for step, value in enumerate(STUDENTS):
        Ema(0.99).update(teacher, module(value), step)
    count = len(STUDENTS)
    parts = [0.01 * 0.99 ** (count - 1 - step) * value for step, value in enumerate(STUDENTS)]
    assert weight(teacher) == pytest.approx(0.99**count * 7.0 + sum(parts), rel=1e-12)


def test_warm_up_is_the_mean_until_the_decay_is_reached() -> None:
    ema, teacher = Ema(0.9, warm_up=True), teacher_of(module(123.0))
    for step, value in enumerate(STUDENTS[:10]):
        ema.update(teacher, module(value), step)
        assert weight(teacher) == pytest.approx(sum(STUDENTS[: step + 1]) / (step + 1), rel=1e-12)
    before = weight(teacher)
    ema.update(teacher, module(5.0), 10)
    assert weight(teacher) == pytest.approx(0.9 * before + 0.1 * 5.0, rel=1e-12)
    assert [ema.decay_at(step) for step in (0, 1, 8, 9, 1000)] == [0.0, 0.5, 1 - 1 / 9, 0.9, 0.9]


def test_a_phase_of_copies_and_then_the_average() -> None:
    """As U2PL: overwritten at every step of a phase, whose steps count for the warm-up behind it."""
    ema, teacher = Ema(0.99, warm_up=True), teacher_of(module(7.0))
    for step in range(4):
        ema.update(teacher, module(STUDENTS[step]), step, overwrite=True)
        assert weight(teacher) == STUDENTS[step]
    ema.update(teacher, module(1.0), 4)
    assert weight(teacher) == pytest.approx(0.8 * STUDENTS[3] + 0.2, rel=1e-12)


@pytest.mark.parametrize("overwrite", [False, True])
def test_buffers_follow_only_if_asked(overwrite: bool) -> None:
    for buffers, mean, count in ((False, 2.0, 2), (True, 6.0 if overwrite else 3.0, 6)):
        teacher, student = teacher_of(module(2.0)), module(6.0)
        Ema(0.75, buffers=buffers).update(teacher, student, 50, overwrite=overwrite)
        assert teacher[1].running_var.tolist() == [mean] * 2
        assert teacher[1].num_batches_tracked.item() == count
        assert weight(teacher) == (6.0 if overwrite else 3.0)


def test_teacher_is_a_copy_without_gradient() -> None:
    student = module(1.0)
    state = torch.get_rng_state()
    teacher = teacher_of(student)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert all(parameter.requires_grad for parameter in student.parameters())
    Ema(0.5).update(teacher, module(3.0), 0)
    assert weight(student) == 1.0 and weight(teacher) == 2.0


def test_modes() -> None:
    teacher = module(1.0)
    for mode, training in (("train", True), ("eval", False)):
        teacher.train()
        Ema(0.9, mode=mode).set_mode(teacher, True)  # type: ignore[arg-type]
        assert teacher[1].training is training
        Ema(0.9, mode=mode).set_mode(teacher, False)  # type: ignore[arg-type]
        assert not teacher.training


def test_evaluating_gathers_no_statistics_and_gives_every_mode_back() -> None:
    layer = module(1.0)
    layer[0].eval()
    with pytest.raises(RuntimeError), evaluating(layer):
        assert not any(part.training for part in layer.modules())
        layer(torch.randn(3, 1, 4, 4, dtype=torch.float64))
        raise RuntimeError
    assert [part.training for part in layer.modules()] == [True, False, True]
    assert layer[1].num_batches_tracked.item() == 1 and layer[1].running_mean.tolist() == [1.0, 1.0]
