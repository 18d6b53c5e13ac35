from __future__ import annotations

import math

import pytest
import torch

from fpl.losses import STRATEGIES, WEIGHTS, fuzzy_positive_gradient, fuzzy_positive_loss, fuzzy_positive_terms
from fpl.losses.rules import Rules

from .reference import naive_losses, normal, rows


@pytest.mark.parametrize("shape", ["agree", "oppose", "single"])
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_extreme_logits_are_exact(shape: str, k: int, size: float) -> None:
    teacher = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0]).view(1, 5, 1)
    student = {
        "agree": torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0]),
        "oppose": torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0]),
        "single": torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0]),
    }[shape].view(1, 5, 1) * size
    logits = student.clone().requires_grad_()
    loss = fuzzy_positive_loss(logits, teacher, strategy="fixed", fixed_k=k, weight="none")
    loss.backward()
    reference = rows(student).double().requires_grad_()
    expected = naive_losses(reference, rows(teacher), torch.tensor([k])).sum()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-12)
    assert logits.grad is not None
    assert reference.grad is not None
    torch.testing.assert_close(rows(logits.grad).double(), reference.grad, rtol=0, atol=1e-6)


def test_a_shared_offset_changes_nothing() -> None:
    # Multiples of 1/256 stay exact when 5000 is added, so any difference would be the loss's own.
    student = (normal(1, 21, 200) * 3 * 256).round().float() / 256
    teacher = (normal(1, 21, 200, seed=1) * 256).round().float() / 256
    results = []
    for offset in (0.0, 5e3, -5e3):
        logits = (student + offset).requires_grad_()
        loss = fuzzy_positive_loss(logits, teacher + offset, reduction="none")
        loss.sum().backward()
        results.append((loss.detach(), logits.grad))
    for loss, gradient in results[1:]:
        torch.testing.assert_close(loss, results[0][0], rtol=1e-6, atol=0)
        torch.testing.assert_close(gradient, results[0][1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", ["one positive", "uniform", "all but one", "sixty"])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_logits(dtype: torch.dtype, case: str, autocast: bool) -> None:
    student, teacher = normal(2, 6, 8).to(dtype), normal(2, 6, 8, seed=1).to(dtype)
    options: dict[str, object] = {"weight": "none"}
    if case == "one positive":
        options |= {"strategy": "fixed", "fixed_k": 1}
    elif case == "uniform":
        student, teacher = torch.zeros_like(student), torch.zeros_like(teacher)
    elif case == "all but one":
        options |= {"strategy": "fixed", "fixed_k": 5}
    else:
        student, teacher = student.sign() * 60, teacher.sign() * 60
    logits = student.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = fuzzy_positive_loss(logits, teacher, reduction="none", **options)  # type: ignore[arg-type]
    loss.sum().backward()
    exact = student.float().requires_grad_()
    expected = fuzzy_positive_loss(exact, teacher.float(), reduction="none", **options)  # type: ignore[arg-type]
    expected.sum().backward()
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected)
    assert logits.grad is not None
    assert exact.grad is not None
    assert logits.grad.dtype == dtype
    assert torch.equal(logits.grad, exact.grad.to(dtype))
    assert logits.grad.isfinite().all()
    if case == "uniform":
        # K = 5 of 6: log(1 + 5 * 1).
        torch.testing.assert_close(loss, torch.full_like(loss, 1.791759), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_teacher_is_read_in_float32(dtype: torch.dtype) -> None:
    student, teacher = normal(2, 19, 40).to(dtype), (normal(2, 19, 40, seed=1) * 2).to(dtype)
    terms = fuzzy_positive_terms(student, teacher)
    expected = fuzzy_positive_terms(student.float(), teacher.float())
    for measured, exact in zip(terms, expected, strict=True):
        assert measured.dtype == exact.dtype
        assert torch.equal(measured, exact)


@pytest.mark.parametrize("margin", [-45.0, -25.0, 0.0, 19.0, 21.0, 25.0, 39.0, 41.0, 1e3])
def test_no_digit_is_lost_at_any_margin(margin: float) -> None:
    student = torch.tensor([0.0, margin], dtype=torch.float64).view(1, 2, 1)
    teacher = torch.tensor([1.0, 0.0], dtype=torch.float64).view(1, 2, 1)
    loss = fuzzy_positive_terms(student, teacher).loss.item()
    expected = max(margin, 0.0) + math.log1p(math.exp(-abs(margin)))
    assert loss == pytest.approx(expected, rel=1e-14)


def test_underflowing_probabilities_keep_their_order() -> None:
    """Two far-off classes have probability 0 both, but the teacher still prefers one of them."""
    teacher = torch.tensor([-3e3, 1e4, -2e3]).view(1, 3, 1)
    gradient = fuzzy_positive_gradient(torch.zeros(1, 3, 1), teacher, rules=Rules(strategy="fixed", fixed_k=2))
    assert (gradient < 0).flatten().tolist() == [False, True, True]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("who", ["student", "teacher"])
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nan_is_seen_and_stays_local(value: float, who: str, weight: str, strategy: str) -> None:
    tensors = {"student": normal(1, 5, 3, 4), "teacher": normal(1, 5, 3, 4, seed=1)}
    clean = fuzzy_positive_loss(
        tensors["student"], tensors["teacher"], reduction="none", weight=weight, strategy=strategy
    )
    for channel in range(5):
        broken = {name: tensor.clone() for name, tensor in tensors.items()}
        broken[who][0, channel, 1, 2] = value
        logits = broken["student"].requires_grad_()
        loss = fuzzy_positive_loss(logits, broken["teacher"], reduction="none", weight=weight, strategy=strategy)
        bad = torch.zeros(1, 3, 4, dtype=torch.bool)
        bad[0, 1, 2] = True
        if value != value or who == "teacher":
            assert torch.equal(loss.isnan(), bad)
        assert torch.equal(loss[~bad], clean[~bad])
        loss.sum().backward()
        assert logits.grad is not None
        assert logits.grad.isfinite().all(1)[~bad].all()
        if value != value:
            assert logits.grad.isnan().all(1)[bad].all()


@pytest.mark.parametrize("who", ["student", "teacher"])
def test_pixels_without_weight_may_be_nan(who: str) -> None:
    student, teacher = normal(1, 5, 6), normal(1, 5, 6, seed=1)
    broken = {"student": student.clone(), "teacher": teacher.clone()}
    broken[who][0, 2, 3] = torch.nan
    weight_map = torch.ones(1, 6, dtype=torch.float64)
    weight_map[0, 3] = 0
    results = []
    for logits, scores in ((student, teacher), (broken["student"], broken["teacher"])):
        leaf = logits.clone().requires_grad_()
        loss = fuzzy_positive_loss(leaf, scores, weight_map=weight_map)
        loss.backward()
        results.append((loss.detach(), leaf.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert torch.equal(results[1][1][0, :, 3], torch.zeros(5, dtype=torch.float64))
