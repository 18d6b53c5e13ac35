"""The mean over the pixels that count, and pixels without a picture: logits [N, C]."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fpl.losses import FuzzyPositiveLoss, fuzzy_positive_loss, fuzzy_positive_terms, kernels
from tests.losses.kernels.cases import needs_cpu_kernel

from .reference import normal

IMPLEMENTATIONS = ["tensor", pytest.param("cpu", marks=needs_cpu_kernel)]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(4, 5), (2, 5, 6), (2, 5, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_valid_is_the_mean_of_cross_entropy_with_an_ignore_index(
    implementation: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    student, teacher = (3 * normal(*shape, seed=seed).to(dtype) for seed in (0, 1))
    label = teacher.argmax(1)
    label.flatten()[::3] = 255
    exact = student.double().clone().requires_grad_()
    expected = F.cross_entropy(exact, label, ignore_index=255)
    (gradient,) = torch.autograd.grad(expected, exact)
    keywords: dict[str, Any] = {"strategy": "fixed", "fixed_k": 1, "weight": "none", "reduction": "valid"}
    # What does not count may hold anything.
    student.movedim(1, -1)[label == 255] = torch.nan
    rtol = {torch.float64: 1e-13, torch.float32: 1e-6, torch.float16: 1e-6}[dtype]
    for weight_map in (label != 255, (label != 255).to(dtype)):
        logits = student.clone().requires_grad_()
        with kernels.use(implementation):
            loss = FuzzyPositiveLoss(**keywords)(logits, teacher, weight_map)
            assert torch.equal(loss, fuzzy_positive_loss(logits, teacher, weight_map=weight_map, **keywords))
        loss.backward()
        torch.testing.assert_close(loss.double(), expected, rtol=rtol, atol=0)
        assert logits.grad is not None
        torch.testing.assert_close(logits.grad.double(), gradient, rtol=0, atol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(4, 5), (0, 5), (2, 5, 6)], ids=str)
def test_valid_is_0_where_no_pixel_counts(implementation: str, shape: tuple[int, ...]) -> None:
    student = normal(*shape).float().requires_grad_()
    nowhere = torch.zeros(shape[0], *shape[2:], dtype=torch.bool)
    with kernels.use(implementation):
        loss = fuzzy_positive_loss(student, student, reduction="valid", weight_map=nowhere)
    loss.backward()
    assert loss.item() == 0
    assert student.grad is not None
    assert not student.grad.any()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_valid_is_the_mean_without_a_map(implementation: str) -> None:
    student, teacher = normal(2, 5, 6).float(), normal(2, 5, 6, seed=1).float()
    with kernels.use(implementation):
        found = fuzzy_positive_loss(student, teacher, reduction="valid")
        assert torch.equal(found, fuzzy_positive_loss(student, teacher))


@needs_cpu_kernel
def test_pixels_in_rows_go_by_the_kernel() -> None:
    student, teacher = normal(40, 5).float().requires_grad_(), normal(40, 5, seed=1).float()
    found = []
    for logits, scores in ((student, teacher), (student.t().unsqueeze(0), teacher.t().unsqueeze(0))):
        with kernels.use("cpu"):
            loss = fuzzy_positive_loss(logits, scores)
            terms = fuzzy_positive_terms(logits, scores)
        gradients = [torch.autograd.grad(value, student)[0] for value in (loss, terms.loss.sum())]
        found.append([loss, *(each.flatten() for each in terms), *gradients])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    exact = fuzzy_positive_loss(student.detach().double(), teacher.double())
    torch.testing.assert_close(found[0][0].double(), exact, rtol=1e-6, atol=0)
