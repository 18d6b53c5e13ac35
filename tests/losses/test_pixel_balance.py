from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fpl.losses import FIDELITIES, WEIGHTS, PixelLoss, fuzzy_positive_terms

from .reference import normal, pair, pixel_map


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_balanced_value_is_cross_entropy_and_one_factor_serves_both(weight: str, fidelity: str) -> None:
    first, second = normal(2, 5, 12).requires_grad_(), normal(2, 5, 12, seed=1).requires_grad_()
    pixel = PixelLoss("fpl", weight=weight, fidelity=fidelity, balance=True)
    terms = [pixel(first, second), pixel(second, first)]
    total = pixel.total(terms)
    plain = PixelLoss("ce")
    expected = plain.total([plain(first, second), plain(second, first)])
    torch.testing.assert_close(total, expected)
    gradients = torch.autograd.grad(total, (first, second), retain_graph=True)
    unbalanced = PixelLoss("fpl", weight=weight, fidelity=fidelity)
    values = unbalanced.total([unbalanced(first, second), unbalanced(second, first)])
    factor = (expected / values).item()
    assert abs(factor - 1) > 0.01
    for mine, other in zip(gradients, torch.autograd.grad(values, (first, second)), strict=True):
        torch.testing.assert_close(mine, other * factor)
    # Two factors, one for each direction, would have given other gradients.
    ratios = [(term.cross_entropy / term.mean).item() for term in terms]
    assert abs(ratios[0] - ratios[1]) > 1e-3


def test_balance_ignores_the_weight_map_in_its_factor() -> None:
    student, teacher = pair(1, 5, 12)
    pixel = PixelLoss("fpl", balance=True)
    weight_map = torch.linspace(0.1, 2, 12).double().view(1, 12)
    terms = fuzzy_positive_terms(student, teacher)
    cross_entropy = pixel_map("ce", student, teacher).mean()
    factor = (cross_entropy / (terms.loss * terms.weight).mean()).item()
    term = pixel(student, teacher, weight_map)
    assert pixel.total([term]).item() == pytest.approx(term.value.item() * factor)


def test_average_makes_the_factor_independent_of_the_worker_count() -> None:
    student, teacher = pair(4, 5, 12)
    pixel = PixelLoss("fpl", balance=True)
    whole = pixel.total([pixel(student, teacher)])
    (expected,) = torch.autograd.grad(whole, student)
    parts = [pixel(student[i : i + 2], teacher[i : i + 2]) for i in (0, 2)]
    sums = [torch.stack([part.cross_entropy for part in parts]), torch.stack([part.mean for part in parts])]
    calls: list[Tensor] = []

    def average(value: Tensor) -> Tensor:
        calls.append(value)
        return sums[(len(calls) - 1) % 2].mean()

    losses = [pixel.total([part], average=average) for part in parts]
    torch.testing.assert_close(torch.stack(losses).mean(), whole)
    (measured,) = torch.autograd.grad(torch.stack(losses).mean(), student)
    torch.testing.assert_close(measured, expected)
    assert [call.ndim for call in calls] == [0] * 4


def test_balance_with_no_loss_at_all_multiplies_by_one() -> None:
    """A uniform teacher has no weight, hence no loss; cross-entropy over nothing is not infinite."""
    pixel = PixelLoss("fpl", balance=True, strategy="n", weight="none")
    student = normal(1, 5, 6).requires_grad_()
    term = pixel(student, torch.zeros(1, 5, 6, dtype=torch.float64))
    assert term.cross_entropy is not None
    assert term.cross_entropy.item() > 0
    total = pixel.total([term])
    assert total.item() == 0
    total.backward()
    assert student.grad is not None
    assert torch.equal(student.grad, torch.zeros_like(student))
