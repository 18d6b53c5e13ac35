"""Mean teacher against a transcription of its published steps, in float64."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.config.compose import load_config
from fpl.data.batches import Batch
from fpl.errors import FplError
from fpl.methods.base import Clock
from fpl.methods.mean_teacher.method import MeanTeacher
from tests.methods.support import batch_for, build

SMALL = ["method.name=mean_teacher", "loss.kind=mse", "optim.momentum=0.9", "optim.weight_decay=0", "data.groups=1"]
TOTAL = 5


def made(run_file: Path, *overrides: str) -> tuple[MeanTeacher, Batch]:
    config = load_config(run_file, overrides=[*SMALL, *overrides])
    method, batch = build(config).double(), batch_for(config, 1)
    assert isinstance(method, MeanTeacher)
    batch.image = batch.image.double()
    batch.unlabeled[0].image = batch.unlabeled[0].image.double()
    return method.train(), batch


def squares(student: Tensor, teacher: Tensor) -> Tensor:
    return (student.softmax(1) - teacher.softmax(1)).square()


def averaged(teacher: nn.Module, student: nn.Module, decay: float) -> None:
    with torch.no_grad():
        for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
            mine.copy_(decay * mine + (1 - decay) * theirs)


def torchsemiseg(student: nn.Module, teacher: nn.Module, batch: Batch, momenta: dict[str, Tensor], step: int) -> Tensor:
    """One step of its VOC script: the loss, and both networks changed in place."""
    on_labeled = student(batch.image)
    with torch.no_grad():
        taught_labeled = teacher(batch.image)
        averaged(teacher, student, 0.99)
    on_unlabeled = student(batch.unlabeled[0].image)
    with torch.no_grad():
        taught_unlabeled = teacher(batch.unlabeled[0].image)
    both = torch.cat([on_labeled, on_unlabeled]), torch.cat([taught_labeled, taught_unlabeled])
    loss = F.cross_entropy(on_labeled, batch.label, ignore_index=255) + 100 * squares(*both).mean()
    names = dict(student.named_parameters())
    for (name, parameter), gradient in zip(names.items(), torch.autograd.grad(loss, list(names.values())), strict=True):
        momenta[name] = 0.9 * momenta[name] + gradient if name in momenta else gradient
        parameter.data -= 0.1 * (1 - step / TOTAL) ** 0.9 * momenta[name]
    return loss.detach()


def test_steps_are_those_of_torchsemiseg(run_file: Path) -> None:
    method, batch = made(run_file, "optim.lr=0.1", "optim.poly_power=0.9", "loss.stride=1")
    student, teacher = copy.deepcopy(method.network), copy.deepcopy(method.network).requires_grad_(False)
    momenta: dict[str, Tensor] = {}
    optimizer = method.optimizers()["main"]
    for step in range(TOTAL - 1):
        expected = torchsemiseg(student, teacher, batch, momenta, step)
        optimizer.set_rate(step, TOTAL)
        optimizer.zero_grad()
        losses = method.losses(batch, Clock(step, TOTAL))
        torch.autograd.backward(losses.objectives["main"])
        optimizer.step()
        with torch.no_grad():
            method.after_step(Clock(step, TOTAL))
        torch.testing.assert_close(losses.objectives["main"].detach(), expected, rtol=1e-9, atol=1e-9)
    for own, published in ((method.network, student), (method.teacher, teacher)):
        # Running statistics too: the teacher gathers its own.
        for name, tensor in published.state_dict().items():
            torch.testing.assert_close(own.state_dict()[name], tensor, rtol=1e-7, atol=1e-9, msg=name)
    assert not torch.equal(next(iter(method.teacher.buffers())), next(iter(method.network.buffers()))), (
        "the teacher has statistics of its own"
    )


def test_unlabeled_images_alone_and_a_ramp(run_file: Path) -> None:
    method, batch = made(run_file, "method.on_labeled=false", "method.ramp=0.5", "method.weight=7", "loss.stride=1")
    with torch.no_grad():
        for parameter in method.teacher.parameters():
            parameter.mul_(1.1)
    kept = copy.deepcopy(method)
    losses = method.losses(batch, Clock(1, 4))
    averaged(kept.teacher, kept.network, 0.99)
    image = batch.unlabeled[0].image
    distance = squares(kept.network(image), kept.teacher(image)).mean()
    torch.testing.assert_close(losses.terms["consistency"], distance)
    torch.testing.assert_close(losses.unsupervised, 7 * math.exp(-5 * 0.25) * distance)
    assert list(losses.pixel_terms) == ["unlabeled"]


def test_as_published_the_teacher_follows_after_the_step(run_file: Path) -> None:
    options = ["method.ema_moment=after_step", "method.ema_warm_up=true", "method.evaluated=teacher"]
    method, batch = made(run_file, *options, "loss.stride=1")
    with torch.no_grad():
        for parameter in method.network.parameters():
            parameter.add_(0.01)
    before = [parameter.clone() for parameter in method.teacher.parameters()]
    method.losses(batch, Clock(3, TOTAL))
    assert all(torch.equal(one, two) for one, two in zip(before, method.teacher.parameters(), strict=True))
    with torch.no_grad():
        method.after_step(Clock(3, TOTAL))
    # 1 - 1 / (3 + 1) of the old one.
    for old, new, current in zip(before, method.teacher.parameters(), method.network.parameters(), strict=True):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * current)
    method.eval()
    image = batch.image[:, :, :33, :33]
    assert torch.equal(method.predict(image), method.teacher(image))
    student, teacher = method.teaching_logits(image)
    assert torch.equal(student, method.network(image)) and torch.equal(teacher, method.teacher(image))


def test_no_gradient_by_way_of_the_teacher(run_file: Path) -> None:
    method, batch = made(run_file)
    torch.autograd.backward(method.losses(batch, Clock(0, TOTAL)).objectives["main"])
    assert all(parameter.grad is None for parameter in method.teacher.parameters())
    assert all(parameter.grad is not None for parameter in method.network.parameters())


def test_a_teacher_in_eval_mode_needs_statistics(run_file: Path) -> None:
    with pytest.raises(FplError, match="set ema_buffers = true"):
        load_config(run_file, overrides=[*SMALL, "method.teacher_mode=eval"])
    method, _ = made(run_file, "method.teacher_mode=eval", "method.ema_buffers=true")
    assert method.network.training and not method.teacher.training


def test_a_weight_for_squares_is_no_weight_for_fuzzy_positives(run_file: Path) -> None:
    config = load_config(run_file, overrides=[*SMALL, "loss.kind=fpl"])
    assert any("another scale" in warning for warning in config.method.warnings(config))
