"""Arguments that no loss can be computed with: refused in words, whatever computes it; and those at the edge, taken."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fpl.losses import (
    FuzzyPositiveLoss,
    PixelLoss,
    adaptive_weight,
    assign,
    cross_entropy,
    fuzzy_positive_gradient,
    fuzzy_positive_loss,
    fuzzy_positive_terms,
    kernels,
    ohem_cross_entropy,
)
from fpl.losses.diagnostics import diagnose
from fpl.losses.rules import Rules
from tests.losses.kernels.cases import needs_cpu_kernel

from .reference import normal

LOGITS = torch.zeros(2, 3, 4)
MAP = torch.zeros(2, 4)
LABEL = MAP.long()
BOTH = pytest.mark.parametrize("name", ["tensor", pytest.param("cpu", marks=needs_cpu_kernel)])


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("curvature", 1e39),
        ("curvature", 1e308),
        ("curvature", 1e-300),
        ("convex_coefficient", 1e39),
    ],
)
def test_settings_that_float32_does_not_hold_are_refused(keyword: str, value: float) -> None:
    for call in (
        lambda: fuzzy_positive_loss(LOGITS, LOGITS, **{keyword: value}),  # type: ignore[arg-type]
        lambda: FuzzyPositiveLoss(**{keyword: value}),  # type: ignore[arg-type]
        lambda: adaptive_weight(LOGITS.softmax(1), LABEL + 1, **{keyword: value}),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=rf"{keyword} is .*; allowed: .* <= {keyword} <= 1e\+30"):
            call()


@BOTH
@pytest.mark.parametrize("fidelity", ["paper", "released"])
@pytest.mark.parametrize(
    "settings",
    [{"curvature": 1e-30}, {"curvature": 1e30}, {"weight": "convex", "convex_coefficient": 1e30}],
)
def test_settings_at_the_edge_give_finite_losses(name: str, fidelity: str, settings: dict[str, Any]) -> None:
    student, teacher = (3 * normal(2, 5, 30, seed=seed).float() for seed in (0, 1))
    teacher[..., :5] *= 30
    with kernels.use(name):
        loss = fuzzy_positive_loss(student, teacher, fidelity=fidelity, **settings)
    exact = fuzzy_positive_loss(student.double(), teacher.double(), fidelity=fidelity, **settings)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=0)


@BOTH
@pytest.mark.parametrize("reduction", ["mean", "valid"])
def test_the_mean_of_losses_near_the_largest_number_is_finite(name: str, reduction: str) -> None:
    teacher = torch.tensor([1.0, -1.0, -1.0]).view(1, 3, 1).expand(1, 3, 8) * 30
    student = (-1e38 * teacher.sign()).requires_grad_()
    with kernels.use(name):
        loss = fuzzy_positive_loss(
            student,
            teacher,
            weight="none",
            reduction=reduction,
            weight_map=torch.ones(1, 8) if reduction == "valid" else None,
        )
    assert loss.item() == pytest.approx(2e38, rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, student)
    torch.testing.assert_close(gradient[0, 0], torch.full((8,), -1 / 8))


@needs_cpu_kernel
@pytest.mark.parametrize("value", [math.inf, -math.inf])
@pytest.mark.parametrize("fidelity", ["paper", "released"])
@pytest.mark.parametrize("broken", range(4))
def test_a_soft_set_and_an_infinite_student_are_the_same_by_tensors_and_on_the_cpu(
    value: float, fidelity: str, broken: int
) -> None:
    teacher, student = (normal(1, 4, 60, seed=seed).float() for seed in (0, 1))
    teacher[..., :20] *= 4
    student[:, broken] = value
    found = []
    for name in ("tensor", "cpu"):
        leaf = student.clone().requires_grad_()
        with kernels.use(name):
            terms = fuzzy_positive_terms(leaf, teacher, Rules(strategy="soft", fidelity=fidelity))
            found.append((terms.loss.detach(), *torch.autograd.grad(terms.loss.sum(), leaf)))
    assert found[0][0].isnan().any() and found[0][0].isfinite().any()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
    # Where it is seen in the value it is in the gradient.
    assert torch.equal(found[1][0].isnan(), found[1][1].isnan().all(1))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.tensor(-1.0), r"denominator is -1\.0; allowed: a finite number >= 0"),
        (torch.ones(3), r"denominator has shape \[3\] .*; allowed: a scalar, real"),
        (torch.tensor(1j), r"denominator .* torch\.complex64; allowed: a scalar, real"),
        (1e-300, r"denominator is 1e-300; allowed: 0, or 1e-30 \.\. 1e\+30"),
    ],
)
@pytest.mark.parametrize("kind", ["fpl", "ce"])
def test_a_denominator_is_one_number_no_less_than_0(value: Any, words: str, kind: str) -> None:
    with pytest.raises(ValueError, match=words):
        PixelLoss(kind)(LOGITS, LOGITS, denominator=value)


@pytest.mark.parametrize("function", [cross_entropy, ohem_cross_entropy])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.float32, torch.bool])
def test_labels_are_integers(function: Any, dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=rf"label has dtype {dtype}; allowed: an integer type"):
        function(LOGITS, LABEL.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.complex64, torch.float8_e4m3fn])
def test_weights_are_floating_or_bool(dtype: torch.dtype) -> None:
    for call in (fuzzy_positive_loss, FuzzyPositiveLoss(), PixelLoss("fpl"), PixelLoss("ce")):
        with pytest.raises(ValueError, match=rf"weight_map has dtype {dtype}; allowed: torch\.float32, .*torch\.bool"):
            call(LOGITS, LOGITS, weight_map=MAP.to(dtype))


@pytest.mark.parametrize("value", [-1e-30, -2.0, -math.inf])
def test_weights_are_no_less_than_0(value: float) -> None:
    for call in (fuzzy_positive_loss, FuzzyPositiveLoss(reduction="none"), PixelLoss("fpl"), PixelLoss("ce")):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            weights = MAP.to(dtype)
            weights[1, 2] = value
            with pytest.raises(ValueError, match=r"weight_map has values from -.* on; allowed: numbers >= 0"):
                call(LOGITS, LOGITS, weight_map=weights)
        for number in (0.0, -0.0, math.nan, math.inf):
            call(LOGITS, LOGITS, weight_map=torch.full_like(MAP, number))


NO_TENSORS: dict[str, Callable[[Any], Any]] = {
    "student_logits": lambda value: fuzzy_positive_loss(value, LOGITS),
    "teacher_logits": lambda value: fuzzy_positive_gradient(LOGITS, value),
    "weight_map": lambda value: fuzzy_positive_loss(LOGITS, LOGITS, weight_map=value),
    "counted": lambda value: PixelLoss("fpl")(LOGITS, LOGITS, counted=value),
    "ground_truth": lambda value: diagnose(LOGITS, LOGITS, ground_truth=value),
    "inside": lambda value: PixelLoss("ce")(LOGITS, LOGITS, second=LOGITS, inside=value),
    "teacher_probs": lambda value: assign(value),
    "k": lambda value: adaptive_weight(LOGITS.softmax(1), value),
    "logits": lambda value: cross_entropy(value, LABEL),
    "label": lambda value: cross_entropy(LOGITS, value),
}


@pytest.mark.parametrize("name", NO_TENSORS)
@pytest.mark.parametrize("value", [[[0.0]], 1.0, "a"])
def test_what_is_no_tensor_is_a_type_error(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"{name} is of type {type(value).__name__}; allowed: torch\.Tensor"):
        NO_TENSORS[name](value)


@pytest.mark.parametrize("value", ["ab", 6, (6.0, 6), (None, 6)])
@pytest.mark.parametrize("call", [PixelLoss("fpl"), PixelLoss("ce"), diagnose])
def test_a_size_is_of_whole_numbers(value: Any, call: Any) -> None:
    logits: Tensor = torch.zeros(1, 3, 4, 4)
    with pytest.raises(TypeError, match=r"size is .*; allowed: \(H, W\), two whole numbers"):
        call(logits, logits, size=value)


def test_logits_where_probabilities_are_asked_for() -> None:
    logits = torch.tensor([2.0, -1.0, 0.5]).view(1, 3, 1)
    for call in (
        lambda probs: assign(probs),
        lambda probs: adaptive_weight(probs, torch.ones(1, 1, dtype=torch.int64)),
    ):
        with pytest.raises(ValueError, match=r"values -1 \.\. 2; allowed: probabilities"):
            call(logits)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            call(logits.softmax(1).to(dtype))
    assert assign(torch.full((1, 3, 1), torch.nan)).item() == 2


def test_what_is_mapped_over_is_not_looked_at() -> None:
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.9, 0.05, 0.05]]).view(2, 1, 3, 1)
    assert torch.vmap(assign)(probs).flatten().tolist() == assign(probs[:, 0]).flatten().tolist() == [2, 1]
    pixel, weights, by = PixelLoss("ce"), torch.tensor([1.0, 2.0]).view(2, 1, 1), torch.tensor([1.0, 2.0])
    found = torch.vmap(lambda *one: pixel(*one).value)(probs, probs, weights, by)
    wanted = [pixel(*one).value for one in zip(probs, probs, weights, by, strict=True)]
    torch.testing.assert_close(found, torch.stack(wanted))


def test_sides_of_a_size_may_be_numbers_of_a_tensor() -> None:
    logits = torch.randn(1, 3, 2, 2)
    assert PixelLoss("fpl")(logits, logits, size=tuple(torch.tensor([4, 4]))).value.isfinite()
