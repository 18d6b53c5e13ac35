"""What the benchmarks time as the authors' algorithm computes the same as ours with ``fidelity="released"``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from benchmarks.released import released_loss, released_terms
from fpl.losses import PixelLoss, fuzzy_positive_terms
from fpl.losses.rules import Rules

from .reference import normal
from .test_worked_examples import OTHER_STUDENT, PIXELS, RELEASED, logits_of, safe_threshold, student

SHAPES = ("concave", "linear", "convex", "none")


def both(name: str) -> tuple[Tensor, float]:
    return logits_of(name, torch.float32), safe_threshold(name, "released")


@pytest.mark.parametrize("name", [name for name in PIXELS if name != "F"])
def test_worked_examples(name: str) -> None:
    logits, threshold = both(name)
    _, expected, concave, linear, convex, _, weighted = RELEASED[name]
    for shape, number in zip(SHAPES, (concave, linear, convex, 1.0), strict=True):
        loss, weight = released_terms(logits, logits, threshold=threshold, weight=shape)
        assert loss.item() == pytest.approx(expected, abs=2e-6)
        assert weight.item() == pytest.approx(number, abs=2e-6)
        terms = fuzzy_positive_terms(
            logits, logits, rules=Rules(threshold=threshold, weight=shape, fidelity="released")
        )
        assert terms.loss.item() == pytest.approx(loss.item(), abs=1e-6)
        assert terms.weight.item() == pytest.approx(weight.item(), abs=1e-6)
    loss, weight = released_terms(logits, logits, threshold=threshold)
    assert (loss * weight).item() == pytest.approx(weighted, abs=2e-6)
    loss, _ = released_terms(student(torch.float32), logits, threshold=threshold)
    assert loss.item() == pytest.approx(OTHER_STUDENT[name][1], abs=2e-6)


def test_equal_probabilities_have_no_weight() -> None:
    # Which three of the six are positive is up to the sort, but they weigh nothing.
    logits, threshold = both("F")
    loss, weight = released_terms(logits, logits, threshold=threshold)
    assert loss.item() == pytest.approx(RELEASED["F"][1], abs=2e-6)
    assert weight.item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("threshold", [0.5, 0.9])
def test_a_step_of_two_directions(threshold: float) -> None:
    pairs = [
        (normal(2, 19, 9, 11, seed=seed).float() * 2, normal(2, 19, 9, 11, seed=seed + 1).float() * scale)
        for seed, scale in ((0, 3.0), (2, 6.0))
    ]
    pixel_loss = PixelLoss("fpl", threshold=threshold, fidelity="released", balance=True)
    gradients = []
    for ours in (False, True):
        students = [student.clone().requires_grad_() for student, _ in pairs]
        directions = [(student, teacher) for student, (_, teacher) in zip(students, pairs, strict=True)]
        if ours:
            value = pixel_loss.total([pixel_loss(*pair) for pair in directions])
        else:
            value = released_loss(directions, threshold=threshold)
        value.backward()
        gradients.append([student.grad for student in students])
        plain = sum(PixelLoss("ce")(*pair).value.item() for pair in directions)
        assert value.item() == pytest.approx(plain, rel=1e-5)
    for theirs, mine in zip(*gradients, strict=True):
        assert theirs is not None
        assert mine is not None
        torch.testing.assert_close(mine, theirs, rtol=0, atol=2e-6 * theirs.abs().max().item())
