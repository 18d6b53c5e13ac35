"""What is differentiable once says so when it is differentiated twice, also where no incoming gradient has one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fpl
from fpl.losses import fuzzy_positive_loss

Loss = Callable[[Tensor, Tensor], Tensor]


def one_by_one(student: Tensor, teacher: Tensor) -> Tensor:
    return fuzzy_positive_loss(student, teacher, reduction="none").mean()


def cross_entropy(student: Tensor, teacher: Tensor) -> Tensor:
    return F.cross_entropy(student, teacher.argmax(1))


def penalised(loss: Loss, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient with respect to a weight behind which other layers lie, that weight, and another one."""
    generator = torch.Generator().manual_seed(0)
    image, teacher = (torch.randn(2, 7, 5, 6, generator=generator, dtype=dtype) for _ in range(2))
    first, second = (torch.tensor(0.7, dtype=dtype, requires_grad=True) for _ in range(2))
    (gradient,) = torch.autograd.grad(loss(torch.tanh(image * first) * second, 3 * teacher), first, create_graph=True)
    return gradient, first, second


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("loss", [fuzzy_positive_loss, one_by_one])
def test_second_derivatives_are_refused(loss: Loss, dtype: torch.dtype) -> None:
    gradient, *weights = penalised(loss, dtype)
    with pytest.raises(RuntimeError, match="are differentiable once"):
        torch.autograd.grad(gradient**2, weights)
    # Which torch computes for a loss of its own, in the same way.
    gradient, *weights = penalised(cross_entropy, dtype)
    assert all(torch.autograd.grad(gradient**2, weights))


@pytest.mark.parametrize("loss", [fuzzy_positive_loss, one_by_one])
def test_first_derivatives_are_the_same_where_second_ones_may_follow(loss: Loss) -> None:
    student, teacher = torch.randn(2, 1, 5, 8, 8).unbind()
    student.requires_grad_()
    (wanted,) = torch.autograd.grad(loss(student, teacher), student)
    (found,) = torch.autograd.grad(loss(student, teacher), student, create_graph=True)
    assert torch.equal(found.detach(), wanted) and found.requires_grad


def test_nobody_takes_torchs_own_mark() -> None:
    folder = Path(fpl.__file__).parent
    assert not [path for path in folder.rglob("*.py") if "@once_differentiable" in path.read_text()]
