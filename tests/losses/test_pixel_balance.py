from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fpl.losses import FIDELITIES, WEIGHTS, PixelLoss, PixelTerm, fuzzy_positive_terms, kernels

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
    # Two factors, one for each pair, would have given other gradients.
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


@pytest.mark.parametrize("kernel", ["tensor", "cpu"])
@pytest.mark.parametrize("mapped", [False, True])
def test_groups_are_balanced_as_if_each_were_alone(kernel: str, mapped: bool) -> None:
    """Two directions of four images with a second teacher, enlarged; with a weight map some pixels do not count."""
    first, second = (2 * normal(4, 5, 3, 4, seed=seed).float() for seed in (0, 1))
    other, inside = normal(4, 5, 3, 4, seed=2).float(), normal(4, 6, 7, seed=3) > 0
    weight_map = (normal(4, 6, 7, seed=4) + 0.5).clamp(min=0).float() if mapped else None
    pixel = PixelLoss("fpl", fidelity="released", balance=True)
    pixel.collect = True

    def terms(one: Tensor, two: Tensor, part: slice, groups: int) -> list[PixelTerm]:
        keywords: dict[str, Any] = {"size": (6, 7), "second": other[part], "inside": inside[part], "groups": groups}
        keywords["weight_map"] = None if weight_map is None else weight_map[part]
        # The sum of the parts' values is that of the whole only if all divide by the same number.
        keywords["denominator"] = 100.0
        return [pixel(one, two.detach(), **keywords), pixel(two, one.detach(), **keywords)]

    with kernels.use(kernel if kernels.available("cpu") else "tensor"):
        leaves = [first.clone().requires_grad_(), second.clone().requires_grad_()]
        found = terms(leaves[0], leaves[1], slice(0, 4), 2)
        total = pixel.total(found)
        gradients = torch.autograd.grad(total, leaves)
        alone = [first.clone().requires_grad_(), second.clone().requires_grad_()]
        shares = [slice(0, 2), slice(2, 4)]
        apart = [terms(alone[0][share], alone[1][share], share, 1) for share in shares]
        expected = torch.stack([pixel.total(part) for part in apart]).sum()
        wanted = torch.autograd.grad(expected, alone)
        whole = terms(leaves[0], leaves[1], slice(0, 4), 1)
    torch.testing.assert_close(total, expected)
    for mine, theirs in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)
    # It matters; and what does not depend on groups is that of the whole.
    together = torch.autograd.grad(pixel.total(whole), leaves)
    assert (together[0] - gradients[0]).abs().max() > 1e-2 * gradients[0].abs().max()
    for one, two in zip(found, whole, strict=True):
        for name in ("value", "mean", "cross_entropy"):
            torch.testing.assert_close(getattr(one, name), getattr(two, name))
        assert set(one.statistics) == set(two.statistics) != set()
        for name, value in one.statistics.items():
            torch.testing.assert_close(value, two.statistics[name])


def test_groups_that_do_not_fit() -> None:
    student, teacher = pair(4, 5, 12)
    pixel = PixelLoss("fpl", balance=True)
    with pytest.raises(ValueError, match="groups is 3; allowed: a divisor of the batch size 4"):
        pixel(student, teacher, groups=3)
    with pytest.raises(ValueError, match=r"terms have \[1, 2\] groups; allowed: as many in each"):
        pixel.total([pixel(student, teacher), pixel(student, teacher, groups=2)])


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
