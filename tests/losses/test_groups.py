"""Means and factors per process of the originals, and K at T = 1, against loops in float64 (`reference_groups`)."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from fpl.losses import FIDELITIES, PixelLoss, assign, cross_entropy, fuzzy_positive_terms, kernels
from fpl.losses.diagnostics import diagnose
from fpl.losses.rules import Rules
from tests.losses.test_pixel_tensors import IMPLEMENTATIONS, need

from .reference import naive_losses, normal
from .reference_groups import balanced, exact_n, supervised

ONE = Fraction(1)
STRATEGIES = ("n-1", "n", "ratio", "soft")


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_cross_entropy_is_the_mean_of_the_processes_means(processes: int, seed: int) -> None:
    logits = 3 * normal(4, 5, 13, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(0, 5, (4, 13), generator=generator)
    # As crops of shrunk images are: a few labeled pixels in one, all in another, none in a third.
    shown = torch.tensor([0.2, 1.0, 0.0, 0.6]).view(4, 1)
    label[torch.rand(4, 13, generator=generator) >= shown] = 255
    leaf = logits.clone().requires_grad_()
    value, count = cross_entropy(leaf, label, groups=processes)
    value.backward()
    expected, gradient = supervised(logits, label, processes)
    assert value.item() == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(leaf.grad, gradient, rtol=1e-10, atol=1e-14)
    assert count.item() == int((label != 255).sum())


@IMPLEMENTATIONS
@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("shape", ["concave", "convex", "none"])
def test_the_released_balance_is_a_factor_per_process(name: str, processes: int, shape: str) -> None:
    need(name)
    pixel = PixelLoss("fpl", threshold=0.8, weight=shape, fidelity="released", balance=True)
    # Images of very different difficulty: one factor for all would be another loss.
    scale = torch.tensor([0.5, 1.0, 3.0, 6.0], dtype=torch.float64).view(4, 1, 1)
    logits = [(scale * normal(4, 6, 11, seed=seed)).float() for seed in (1, 2)]
    leaves = [each.clone().requires_grad_() for each in logits]
    with kernels.use(name):
        terms = [pixel(one, two.detach(), groups=processes) for one, two in (leaves, leaves[::-1])]
        total = pixel.total(terms)
        gradients = torch.autograd.grad(total, leaves)
    exact = [each.double().requires_grad_() for each in logits]
    directions = [(one, two.detach()) for one, two in (exact, exact[::-1])]
    expected = balanced(directions, processes, 0.8, shape)
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    for mine, theirs in zip(gradients, torch.autograd.grad(expected, exact), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-5 * theirs.abs().max().item())


def confident(classes: int, dtype: torch.dtype, pixels: int = 120) -> Tensor:
    """Teachers [1, C, N] from flat to sure: of many of them the rounded sum of a few probabilities reaches 1."""
    return (normal(1, classes, pixels, seed=classes) * torch.linspace(0.2, 12, pixels)).to(dtype)


def expected_k(scores: list[float], strategy: str, fidelity: str, ratio: float) -> int:
    n = exact_n(scores, ONE, fidelity)
    k = {"n-1": max(n - 1, 1), "n": n, "soft": n, "ratio": max(math.floor(ratio * n), 1)}[strategy]
    return min(k, 3, len(scores) - 1) if fidelity == "released" else k


@IMPLEMENTATIONS
@pytest.mark.parametrize("classes", [2, 5, 19])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_at_t_1_no_rounded_sum_decides(name: str, classes: int, strategy: str, fidelity: str) -> None:
    need(name)
    dtypes = [torch.float32, torch.bfloat16] + ([torch.float64] if name == "tensor" else [])
    keywords = {"threshold": 1.0, "strategy": strategy, "fidelity": fidelity, "ratio": 0.6}
    for dtype in dtypes:
        teacher = confident(classes, dtype)
        student = normal(1, classes, teacher.shape[2], seed=7).to(dtype).requires_grad_()
        probs = teacher.to(torch.float64 if dtype == torch.float64 else torch.float32).softmax(1)
        # The case that this is about: sums of all but one probability that are 1 or more once rounded.
        sums = probs.sort(1, descending=True).values.cumsum(1)
        assert dtype == torch.float64 or (sums[:, -2] >= 1).any()
        known = [expected_k(scores, strategy, fidelity, 0.6) for scores in teacher[0].double().T.tolist()]
        assert len(set(known)) == 1
        assert assign(probs, **keywords).unique().tolist() == known[:1]
        with kernels.use(name):
            terms = fuzzy_positive_terms(student, teacher, rules=Rules(**keywords))
            (gradient,) = torch.autograd.grad(terms.loss.sum(), student)
            pixel = PixelLoss("fpl", **keywords)
            pixel.collect = True
            summed = pixel(student, teacher)
            (summed_gradient,) = torch.autograd.grad(summed.value, student)
        assert terms.k[0].tolist() == known
        histogram = [0] * classes
        histogram[known[0] - 1] = len(known)
        assert summed.statistics["k_histogram"].tolist() == histogram
        assert diagnose(student, teacher, rules=Rules(**keywords))["k_histogram"].tolist() == histogram
        if known[0] == classes:
            assert terms.loss.eq(0).all() and gradient.eq(0).all() and summed_gradient.eq(0).all()
            continue
        exact = student.detach().double()[0].T.requires_grad_()
        losses = naive_losses(exact, teacher[0].double().T, torch.tensor(known))
        (wanted,) = torch.autograd.grad(losses.sum(), exact)
        tolerance = 1e-9 if dtype == torch.float64 else 1e-5
        torch.testing.assert_close(terms.loss[0].double(), losses.detach(), rtol=tolerance, atol=tolerance)
        rounding = 1e-2 if dtype == torch.bfloat16 else tolerance
        torch.testing.assert_close(gradient[0].T.double(), wanted, rtol=rounding, atol=tolerance)


@pytest.mark.parametrize("classes", [2, 19])
def test_diagnostics_at_t_1_are_those_of_all_classes_but_one(classes: int) -> None:
    teacher, student = confident(classes, torch.float32), normal(1, classes, 120, seed=7).float()
    for name in ("tensor", "cpu"):
        if name == "cpu" and not kernels.available("cpu"):
            continue
        with kernels.use(name):
            found = diagnose(student, teacher, rules=Rules(threshold=1.0, fidelity="released"))
        published = [0] * classes
        published[classes - 2] = 120
        assert found["k_histogram_uncapped"].tolist() == published
        # With n = C no class is negative.
        assert found["gradient_sum_n"].item() == 0 < found["gradient_sum_n_minus_1"].item()


@IMPLEMENTATIONS
def test_a_t_just_below_1_is_not_1(name: str) -> None:
    """As a float32 it is 1; a teacher that is sure of one class exceeds it all the same, and one that is not has C."""
    need(name)
    teacher = torch.zeros(1, 6, 2)
    teacher[0, 0, 0] = 200.0
    with kernels.use(name):
        k = fuzzy_positive_terms(torch.zeros(1, 6, 2), teacher, rules=Rules(threshold=1 - 1e-12)).k
    assert k[0, 0].item() == 1
