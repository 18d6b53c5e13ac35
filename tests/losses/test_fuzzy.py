from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses import (
    FIDELITIES,
    REDUCTIONS,
    STRATEGIES,
    WEIGHTS,
    FuzzyPositiveLoss,
    adaptive_weight,
    assign,
    fuzzy_positive_gradient,
    fuzzy_positive_loss,
    fuzzy_positive_terms,
)
from fpl.losses.rules import Rules

from .reference import integers, loss_of, mixed_losses, naive_losses, normal, order, rows

CLASS_COUNTS = (2, 3, 19, 21, 150)
PIXELS = 40

# Student and teacher [1, C, N] in float64.
FAMILIES: dict[str, Callable[[int], tuple[Tensor, Tensor]]] = {
    "random": lambda c: (normal(1, c, PIXELS), normal(1, c, PIXELS, seed=1)),
    "tied": lambda c: (integers(1, c, PIXELS), integers(1, c, PIXELS, seed=1)),
    "equal": lambda c: (torch.zeros(1, c, PIXELS).double(), torch.zeros(1, c, PIXELS).double()),
    "peaked": lambda c: (normal(1, c, PIXELS) * 30, normal(1, c, PIXELS, seed=1) * 5),
    "huge": lambda c: (integers(1, c, PIXELS) * 5e3, integers(1, c, PIXELS, seed=1) * 5e3),
    "confident": lambda c: (normal(1, c, PIXELS) * 8, normal(1, c, PIXELS) * 8),
}
OVER_FAMILIES = pytest.mark.parametrize("family", FAMILIES)
OVER_CLASSES = pytest.mark.parametrize("classes", CLASS_COUNTS)


@OVER_FAMILIES
@OVER_CLASSES
@pytest.mark.parametrize("strategy", ["n-1", "n"])
def test_value_and_gradient_against_autograd_of_the_formula(family: str, classes: int, strategy: str) -> None:
    student, teacher = FAMILIES[family](classes)
    k = assign(teacher.softmax(1), strategy=strategy)
    inside = k[0] < classes
    reference = rows(student).clone().requires_grad_()
    expected = torch.zeros(PIXELS, dtype=torch.float64)
    gradient = torch.zeros_like(reference)
    if inside.any():
        losses = naive_losses(reference[inside], rows(teacher)[inside], k[0][inside])
        (gradient,) = torch.autograd.grad(losses.sum(), reference)
        expected[inside] = losses.detach()

    logits = student.clone().requires_grad_()
    terms = fuzzy_positive_terms(logits, teacher, rules=Rules(strategy=strategy))
    assert torch.equal(terms.k, k)
    torch.testing.assert_close(terms.loss[0].detach(), expected, rtol=1e-11, atol=1e-13)
    (measured,) = torch.autograd.grad(terms.loss.sum(), logits)
    torch.testing.assert_close(rows(measured), gradient, rtol=1e-9, atol=1e-12)
    closed = fuzzy_positive_gradient(student, teacher, rules=Rules(strategy=strategy))
    assert torch.equal(closed, measured)
    assert not closed.requires_grad


@OVER_FAMILIES
@OVER_CLASSES
def test_float32_against_float64(family: str, classes: int) -> None:
    student, teacher = FAMILIES[family](classes)
    # Compare for inputs that both precisions can hold.
    student, teacher = student.float(), teacher.float()
    logits = student.clone().requires_grad_()
    terms = fuzzy_positive_terms(logits, teacher)
    assert terms.loss.dtype == terms.weight.dtype == torch.float32
    (measured,) = torch.autograd.grad(terms.loss.sum(), logits)
    # K may differ where the running sum is within rounding of T: the reference takes the K that was chosen.
    reference = rows(student).double().requires_grad_()
    losses = naive_losses(reference, rows(teacher).double(), terms.k[0])
    (gradient,) = torch.autograd.grad(losses.sum(), reference)
    torch.testing.assert_close(terms.loss[0].double(), losses, rtol=3e-6, atol=1e-6)
    torch.testing.assert_close(rows(measured).double(), gradient, rtol=0, atol=3e-6)
    assert ((terms.weight >= 0) & (terms.weight <= 1)).all()


@OVER_CLASSES
def test_literal_formula(classes: int) -> None:
    """The formula as printed, without any rearrangement."""
    student, teacher = normal(1, classes, PIXELS), normal(1, classes, PIXELS, seed=1)
    terms = fuzzy_positive_terms(student, teacher)
    for pixel in range(PIXELS):
        positives = order(teacher[0, :, pixel].tolist())[: int(terms.k[0, pixel])]
        assert terms.loss[0, pixel].item() == pytest.approx(loss_of(student[0, :, pixel], positives).item())


@OVER_CLASSES
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_positive_is_cross_entropy(classes: int, dtype: torch.dtype) -> None:
    student, teacher = normal(2, classes, 5, 6).to(dtype) * 3, normal(2, classes, 5, 6, seed=1).to(dtype)
    results = []
    for compute in (
        lambda z: fuzzy_positive_loss(z, teacher, strategy="fixed", fixed_k=1, weight="none"),
        lambda z: F.cross_entropy(z, teacher.argmax(1)),
    ):
        logits = student.clone().requires_grad_()
        loss = compute(logits)
        loss.backward()
        results.append((loss.detach(), logits.grad))
    tolerance = 1e-14 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(results[0][0], results[1][0], rtol=tolerance, atol=0)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=0, atol=tolerance)


def test_two_classes() -> None:
    student, teacher = normal(1, 2, 50), normal(1, 2, 50, seed=1)
    for fidelity in FIDELITIES:
        loss = fuzzy_positive_loss(student, teacher, weight="none", fidelity=fidelity)
        torch.testing.assert_close(loss, F.cross_entropy(student, teacher.argmax(1)))


def test_one_hot_teacher_trains_like_cross_entropy() -> None:
    student = normal(1, 5, 5)
    teacher = torch.eye(5, dtype=torch.float64).view(1, 5, 5) * 1e4
    for fidelity in FIDELITIES:
        loss = fuzzy_positive_loss(student, teacher, fidelity=fidelity)
        torch.testing.assert_close(loss, F.cross_entropy(student, torch.arange(5).view(1, 5)))


@pytest.mark.parametrize("student_scale", [1.0, 1e4])
def test_no_negatives_no_loss(student_scale: float) -> None:
    logits = (normal(1, 6, 10) * student_scale).requires_grad_()
    teacher = torch.zeros(1, 6, 10, dtype=torch.float64)
    terms = fuzzy_positive_terms(logits, teacher, rules=Rules(strategy="n"))
    assert terms.k.unique().tolist() == [6]
    assert torch.equal(terms.loss, torch.zeros(1, 10, dtype=torch.float64))
    assert torch.equal(terms.weight, torch.ones(1, 10, dtype=torch.float64))
    terms.loss.sum().backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros_like(logits))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_every_setting_is_the_product_of_its_parts(strategy: str, weight: str, fidelity: str) -> None:
    student, teacher = normal(2, 7, 4, 5), normal(2, 7, 4, 5, seed=1)
    numbers = {"threshold": 0.7, "fixed_k": 3, "ratio": 0.4, "progress": 0.5}
    settings: dict[str, object] = {"strategy": strategy, "fidelity": fidelity, **numbers}
    shaping: dict[str, object] = {"curvature": 20.0, "fidelity": fidelity, "convex_coefficient": 2.5}
    probs = teacher.softmax(1)
    k = assign(probs, **settings)  # type: ignore[arg-type]
    expected_weight = adaptive_weight(probs, k, shape=weight, **shaping)  # type: ignore[arg-type]
    flat = student.movedim(1, -1).reshape(-1, 7), teacher.movedim(1, -1).reshape(-1, 7)
    losses = mixed_losses(*flat, k.flatten())
    every: dict[str, object] = settings | shaping | {"weight": weight}
    value = fuzzy_positive_loss(student, teacher, reduction="none", **every)  # type: ignore[arg-type]
    torch.testing.assert_close(value, losses.view(2, 4, 5) * expected_weight)
    module = FuzzyPositiveLoss(reduction="none", **every)  # type: ignore[arg-type]
    assert torch.equal(module(student, teacher), value)


def test_module_follows_progress() -> None:
    student, teacher = normal(1, 6, 8), normal(1, 6, 8, seed=1)
    module = FuzzyPositiveLoss(strategy="step", weight="none")
    for progress, k in ((0.0, 3), (0.5, 2), (1.0, 1)):
        module.progress = progress
        expected = fuzzy_positive_loss(student, teacher, strategy="fixed", fixed_k=k, weight="none")
        assert torch.equal(module(student, teacher), expected)
    assert "strategy='step'" in repr(module)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions_and_weight_map(reduction: str) -> None:
    student, teacher = normal(2, 5, 3, 4), normal(2, 5, 3, 4, seed=1)
    weight_map = normal(2, 3, 4, seed=2).clamp(min=0)
    assert (weight_map == 0).any()
    terms = fuzzy_positive_terms(student, teacher)
    per_pixel = terms.loss * terms.weight
    counted = int((weight_map > 0).sum())

    def reduce(values: Tensor, valid: int) -> Tensor:
        return values if reduction == "none" else values.sum() / {"sum": 1, "mean": 24, "valid": valid}[reduction]

    plain = fuzzy_positive_loss(student, teacher, reduction=reduction)
    torch.testing.assert_close(plain, reduce(per_pixel, 24))
    weighted = fuzzy_positive_loss(student, teacher, reduction=reduction, weight_map=weight_map)
    torch.testing.assert_close(weighted, reduce(per_pixel * weight_map, counted))


@pytest.mark.parametrize("spatial", [(), (24,), (4, 6), (2, 3, 4)])
def test_any_spatial_shape(spatial: tuple[int, ...]) -> None:
    student, teacher = normal(3, 5, *spatial), normal(3, 5, *spatial, seed=1)
    loss = fuzzy_positive_loss(student, teacher, reduction="none")
    assert loss.shape == (3, *spatial)
    flat = fuzzy_positive_loss(student.reshape(3, 5, -1), teacher.reshape(3, 5, -1), reduction="none")
    torch.testing.assert_close(loss.reshape(3, -1), flat)
    assert fuzzy_positive_gradient(student, teacher).shape == student.shape


def test_memory_layout_does_not_matter() -> None:
    student, teacher = normal(2, 5, 4, 6), normal(2, 5, 4, 6, seed=1)
    expected = fuzzy_positive_loss(student, teacher)
    last = fuzzy_positive_loss(
        student.to(memory_format=torch.channels_last), teacher.to(memory_format=torch.channels_last)
    )
    torch.testing.assert_close(last, expected)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_gradcheck(strategy: str, fidelity: str) -> None:
    logits = normal(2, 6, 3).requires_grad_()
    teacher = normal(2, 6, 3, seed=1)
    assert torch.autograd.gradcheck(
        lambda z: fuzzy_positive_loss(z, teacher, strategy=strategy, fidelity=fidelity), (logits,)
    )


def test_positive_and_negative_gradients_balance() -> None:
    student, teacher = normal(1, 19, 100), normal(1, 19, 100, seed=1)
    gradient = fuzzy_positive_gradient(student, teacher)
    positive = gradient.clamp(max=0).sum(1)
    torch.testing.assert_close(positive, -gradient.clamp(min=0).sum(1))
    loss = fuzzy_positive_terms(student, teacher).loss
    torch.testing.assert_close(-positive, 1 - torch.exp(-loss))


def test_inputs_are_left_alone_and_the_teacher_is_detached() -> None:
    student = normal(1, 5, 6).requires_grad_()
    teacher = normal(1, 5, 6, seed=1).requires_grad_()
    before = student.detach().clone(), teacher.detach().clone()
    fuzzy_positive_loss(student, teacher).backward()
    assert teacher.grad is None
    assert student.grad is not None
    assert torch.equal(student, before[0])
    assert torch.equal(teacher, before[1])


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"reduction": "average"}, "reduction is 'average'; allowed: 'mean', 'valid', 'sum', 'none'"),
        ({"weight": "soft"}, "weight is 'soft'; allowed: 'concave', 'linear', 'convex', 'none'"),
        ({"strategy": "n-2"}, "strategy is 'n-2'; allowed: 'n-1', 'n', 'fixed', 'step', 'ratio', 'soft'"),
        ({"fidelity": "code"}, "fidelity is 'code'; allowed: 'paper', 'released'"),
        ({"threshold": -0.1}, "threshold is -0.1; allowed: 0 < threshold <= 1"),
        ({"curvature": -1}, "curvature is -1; allowed: 1e-30 <= curvature <= 1e\\+30"),
    ],
)
def test_bad_arguments(keywords: dict[str, object], message: str) -> None:
    student = normal(1, 5, 6)
    with pytest.raises(ValueError, match=message):
        fuzzy_positive_loss(student, student, **keywords)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        FuzzyPositiveLoss(**keywords)  # type: ignore[arg-type]


def test_bad_tensors() -> None:
    student = normal(1, 5, 6)
    with pytest.raises(ValueError, match=r"teacher_logits has shape \[1, 5, 7\]; allowed: .*\[1, 5, 6\]"):
        fuzzy_positive_loss(student, normal(1, 5, 7))
    with pytest.raises(ValueError, match=r"student_logits has shape \[1, 1, 6\]"):
        fuzzy_positive_loss(normal(1, 1, 6), normal(1, 1, 6))
    with pytest.raises(ValueError, match=r"teacher_logits has dtype torch.int64; allowed: floating point"):
        fuzzy_positive_loss(student, student.long())
    with pytest.raises(ValueError, match=r"weight_map has shape \[6\]; allowed: .* = \[1, 6\]"):
        fuzzy_positive_loss(student, student, weight_map=torch.ones(6))
    with pytest.raises(ValueError, match=r"fixed_k is 5; allowed: 1 <= fixed_k <= C - 1 = 4"):
        fuzzy_positive_loss(student, student, strategy="fixed", fixed_k=5)
