"""Hand-checked pixels with six classes: every number of both fidelities, losses, weights, gradients, balance."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses import (
    PixelLoss,
    adaptive_weight,
    assign,
    fuzzy_positive_gradient,
    fuzzy_positive_loss,
    fuzzy_positive_terms,
)
from fpl.losses.rules import Rules

from .reference import first_exceeding

PIXELS = {
    "A": [0.96, 0.02, 0.01, 0.005, 0.003, 0.002],
    "B": [0.60, 0.35, 0.02, 0.015, 0.01, 0.005],
    "C": [0.50, 0.30, 0.15, 0.03, 0.015, 0.005],
    "D": [0.40, 0.25, 0.15, 0.12, 0.05, 0.03],
    "E": [0.30, 0.20, 0.18, 0.14, 0.10, 0.08],
    "F": [1 / 6] * 6,
    "G": [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125],
    "H": [0.46, 0.45, 0.03, 0.03, 0.02, 0.01],
}
STUDENT = [1.0, 2.0, 0.5, -0.5, 0.0, -1.0]

# Student = teacher. Name: cross-entropy, n, K, loss, concave, linear, convex, concave * loss.
PAPER = {
    "A": (0.040822, 1, 1, 0.040822, 0.994702, 0.979167, 0.903846, 0.040606),
    "B": (0.510826, 2, 1, 0.510826, 0.757921, 0.416667, 0.125000, 0.387165),
    "C": (0.693147, 3, 2, 0.725937, 0.854876, 0.625000, 0.250000, 0.620586),
    "D": (0.916291, 4, 3, 1.290151, 0.796317, 0.550000, 0.196429, 1.027369),
    "E": (1.203973, 5, 4, 1.565635, 0.757150, 0.512195, 0.173554, 1.185421),
    "F": (1.791759, 6, 5, 1.791759, 0.0, 0.0, 0.0, 0.0),
    "G": (0.693147, 4, 3, 1.011601, 0.918501, 0.785714, 0.423077, 0.929157),
    "H": (0.776529, 2, 1, 0.776529, 0.127583, 0.021739, 0.004425, 0.099072),
}
# Name: K, loss, concave, linear, convex of the CPS code, convex of the AEL code, concave * loss.
RELEASED = {
    "A": (1, 0.040822, 0.987648, 0.959184, 0.921569, 0.824561, 0.040318),
    "B": (1, 0.510826, 0.617360, 0.263158, 0.151515, 0.066667, 0.315363),
    "C": (2, 0.725937, 0.791111, 0.526316, 0.357143, 0.181818, 0.574297),
    "D": (3, 1.290151, 0.741094, 0.478261, 0.314286, 0.154930, 0.956123),
    "E": (3, 1.694596, 0.597809, 0.317073, 0.188406, 0.084967, 1.013045),
    "F": (3, 2.302585, 0.0, 0.0, 0.0, 0.0, 0.0),
    "G": (2, 0.916291, 0.813339, 0.571429, 0.400000, 0.210526, 0.745255),
    "H": (1, 0.776529, 0.070446, 0.010989, 0.005525, 0.002217, 0.054703),
}
# Name: paper loss, released loss, for the other student.
OTHER_STUDENT = {
    "A": (1.619617, 1.619617),
    "B": (1.619617, 1.619617),
    "C": (1.037876, 1.037876),
    "D": (1.160363, 1.160363),
    "E": (1.563027, 1.160363),
    "G": (1.160363, 1.037876),
    "H": (1.619617, 1.619617),
}
DTYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 6e-7), (torch.float32, 2e-6)], ids=["float64", "float32"]
)


def probs_of(name: str, dtype: torch.dtype) -> Tensor:
    return torch.tensor(PIXELS[name], dtype=dtype).view(1, 6, 1, 1)


def logits_of(name: str, dtype: torch.dtype) -> Tensor:
    return probs_of(name, dtype).log()


def student(dtype: torch.dtype) -> Tensor:
    return torch.tensor(STUDENT, dtype=dtype).view(1, 6, 1, 1)


def exact_threshold(name: str) -> float:
    return 0.875 if name == "G" else 0.9


def safe_threshold(name: str, fidelity: str) -> float:
    """As the exact one, but not at the mercy of how a softmax rounds: the running sum of G is 0.875 exactly."""
    if name != "G":
        return 0.9
    return 0.876 if fidelity == "paper" else 0.874


@DTYPES
@pytest.mark.parametrize("name", PAPER)
def test_paper(name: str, dtype: torch.dtype, tolerance: float) -> None:
    cross_entropy, n, k, loss, concave, linear, convex, weighted = PAPER[name]
    probs = probs_of(name, dtype)
    assert first_exceeding(PIXELS[name], exact_threshold(name)) == n
    assert assign(probs, threshold=exact_threshold(name)).item() == k
    assert assign(probs, threshold=exact_threshold(name), strategy="n").item() == n
    for shape, expected in (("concave", concave), ("linear", linear), ("convex", convex), ("none", 1.0)):
        weight = adaptive_weight(probs, torch.full((1, 1, 1), k), shape=shape)
        assert weight.item() == pytest.approx(expected, abs=tolerance)
    logits = logits_of(name, dtype)
    threshold = safe_threshold(name, "paper")
    terms = fuzzy_positive_terms(logits, logits, rules=Rules(threshold=threshold))
    assert terms.k.item() == k
    assert terms.loss.item() == pytest.approx(loss, abs=tolerance)
    assert terms.weight.item() == pytest.approx(concave, abs=tolerance)
    assert fuzzy_positive_loss(logits, logits, threshold=threshold).item() == pytest.approx(weighted, abs=tolerance)
    assert PixelLoss("ce")(logits, logits).value.item() == pytest.approx(cross_entropy, abs=tolerance)


@DTYPES
@pytest.mark.parametrize("name", RELEASED)
def test_released(name: str, dtype: torch.dtype, tolerance: float) -> None:
    k, loss, concave, linear, convex_cps, convex_ael, weighted = RELEASED[name]
    probs = probs_of(name, dtype)
    number = assign(probs, threshold=exact_threshold(name), fidelity="released")
    assert number.item() == k
    for shape, coefficient, expected in (
        ("concave", None, concave),
        ("linear", None, linear),
        ("convex", None, convex_cps),
        ("convex", 4.0, convex_ael),
        ("none", None, 1.0),
    ):
        weight = adaptive_weight(probs, number, shape=shape, fidelity="released", convex_coefficient=coefficient)
        assert weight.item() == pytest.approx(expected, abs=tolerance)
    logits = logits_of(name, dtype)
    threshold = safe_threshold(name, "released")
    terms = fuzzy_positive_terms(logits, logits, rules=Rules(threshold=threshold, fidelity="released"))
    assert terms.k.item() == k
    assert terms.loss.item() == pytest.approx(loss, abs=tolerance)
    value = fuzzy_positive_loss(logits, logits, threshold=threshold, fidelity="released")
    assert value.item() == pytest.approx(weighted, abs=tolerance)


@DTYPES
@pytest.mark.parametrize("name", OTHER_STUDENT)
def test_other_student(name: str, dtype: torch.dtype, tolerance: float) -> None:
    for fidelity, expected in zip(("paper", "released"), OTHER_STUDENT[name], strict=True):
        terms = fuzzy_positive_terms(
            student(dtype),
            logits_of(name, dtype),
            rules=Rules(threshold=safe_threshold(name, fidelity), fidelity=fidelity),
        )
        assert terms.loss.item() == pytest.approx(expected, abs=tolerance)
        # The weight is the teacher's alone.
        weight = (PAPER[name][4] if fidelity == "paper" else RELEASED[name][2]) if name != "F" else 0.0
        assert terms.weight.item() == pytest.approx(weight, abs=tolerance)
    value = PixelLoss("ce")(student(dtype), logits_of(name, dtype)).value
    assert value.item() == pytest.approx(1.619617, abs=tolerance)


# Teacher, student, fidelity, gradient.
GRADIENTS = [
    ("B", "self", "paper", [-0.4, 0.35, 0.02, 0.015, 0.01, 0.005]),
    ("C", "self", "paper", [-0.193548, -0.322581, 0.387097, 0.077419, 0.038710, 0.012903]),
    ("D", "self", "paper", [-0.137615, -0.220183, -0.366972, 0.434862, 0.181193, 0.108716]),
    ("E", "self", "paper", [-0.125373, -0.188060, -0.208955, -0.268657, 0.439469, 0.351575]),
    ("B", "self", "released", [-0.4, 0.35, 0.02, 0.015, 0.01, 0.005]),
    ("C", "self", "released", [-0.193548, -0.322581, 0.387097, 0.077419, 0.038710, 0.012903]),
    ("D", "self", "released", [-0.137615, -0.220183, -0.366972, 0.434862, 0.181193, 0.108716]),
    ("E", "self", "released", [-0.195918, -0.293878, -0.326531, 0.357143, 0.255102, 0.204082]),
    ("C", "other", "paper", [-0.472113, -0.173681, 0.293871, 0.108109, 0.178242, 0.065572]),
    ("C", "other", "released", [-0.472113, -0.173681, 0.293871, 0.108109, 0.178242, 0.065572]),
    ("E", "other", "paper", [-0.105424, -0.038783, -0.173815, -0.472477, 0.577901, 0.212598]),
    ("E", "other", "released", [-0.227616, -0.083735, -0.375276, 0.210929, 0.347763, 0.127935]),
]
CROSS_ENTROPY_GRADIENTS = [
    ("B", "self", [-0.4, 0.35, 0.02, 0.015, 0.01, 0.005]),
    ("C", "self", [-0.5, 0.3, 0.15, 0.03, 0.015, 0.005]),
    ("D", "self", [-0.6, 0.25, 0.15, 0.12, 0.05, 0.03]),
    ("E", "self", [-0.7, 0.2, 0.18, 0.14, 0.1, 0.08]),
    ("C", "other", [-0.802026, 0.538150, 0.120078, 0.044174, 0.072831, 0.026793]),
    ("E", "other", [-0.802026, 0.538150, 0.120078, 0.044174, 0.072831, 0.026793]),
]


@DTYPES
@pytest.mark.parametrize(("name", "which", "fidelity", "expected"), GRADIENTS)
def test_gradients(
    name: str, which: str, fidelity: str, expected: list[float], dtype: torch.dtype, tolerance: float
) -> None:
    teacher = logits_of(name, dtype)
    logits = (teacher if which == "self" else student(dtype)).clone().requires_grad_()
    fuzzy_positive_loss(logits, teacher, weight="none", fidelity=fidelity).backward()
    assert logits.grad is not None
    assert logits.grad.flatten().tolist() == pytest.approx(expected, abs=tolerance)
    closed = fuzzy_positive_gradient(logits, teacher, rules=Rules(fidelity=fidelity))
    assert closed.flatten().tolist() == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(("name", "which", "expected"), CROSS_ENTROPY_GRADIENTS)
def test_cross_entropy_gradients(name: str, which: str, expected: list[float]) -> None:
    teacher = logits_of(name, torch.float64)
    logits = (teacher if which == "self" else student(torch.float64)).clone().requires_grad_()
    PixelLoss("ce")(logits, teacher).value.backward()
    assert logits.grad is not None
    assert logits.grad.flatten().tolist() == pytest.approx(expected, abs=6e-7)


@pytest.mark.parametrize(("k", "expected"), [(1, 0.5), (2, 0.516129), (3, 0.375)])
def test_gradient_sum_of_c(k: int, expected: float) -> None:
    logits = logits_of("C", torch.float64)
    gradient = fuzzy_positive_gradient(logits, logits, rules=Rules(strategy="fixed", fixed_k=k)).flatten()
    assert gradient[k:].sum().item() == pytest.approx(expected, abs=6e-7)
    assert gradient[:k].sum().item() == pytest.approx(-expected, abs=6e-7)


@pytest.mark.parametrize(
    ("label", "score", "cosine_fuzzy", "cosine_vanilla", "ideal_norm"),
    [
        (0, 0.375, 0.185083, 1.0, 0.603034),
        (1, 0.625, 0.397743, -0.828030, 0.873871),
        (2, -0.75, -0.921359, -0.460422, 1.031334),
        (3, -0.15, -0.336243, -0.241602, 1.141775),
    ],
)
def test_gradient_geometry_of_c(
    label: int, score: float, cosine_fuzzy: float, cosine_vanilla: float, ideal_norm: float
) -> None:
    probs = torch.tensor(PIXELS["C"], dtype=torch.float64)
    logits = logits_of("C", torch.float64)
    fuzzy = fuzzy_positive_gradient(logits, logits).flatten()
    ideal = probs - F.one_hot(torch.tensor(label), 6)
    vanilla = probs - F.one_hot(torch.tensor(0), 6)
    assert (fuzzy[label] / fuzzy[:2].sum()).item() == pytest.approx(score, abs=6e-7)
    assert F.cosine_similarity(fuzzy, ideal, dim=0).item() == pytest.approx(cosine_fuzzy, abs=6e-7)
    assert F.cosine_similarity(vanilla, ideal, dim=0).item() == pytest.approx(cosine_vanilla, abs=6e-7)
    assert fuzzy.norm().item() == pytest.approx(0.546829, abs=6e-7)
    assert ideal.norm().item() == pytest.approx(ideal_norm, abs=6e-7)


def batch() -> tuple[Tensor, Tensor]:
    teacher = torch.cat([logits_of(name, torch.float64) for name in PIXELS], dim=2)
    return student(torch.float64).expand_as(teacher), teacher


@pytest.mark.parametrize(("weight", "factor"), [("concave", 2.117150), ("none", None)])
def test_balance_of_the_batch(weight: str, factor: float | None) -> None:
    logits, teacher = batch()
    pixel = PixelLoss("fpl", weight=weight, fidelity="released", balance=True)
    term = pixel(logits, teacher)
    assert term.cross_entropy.item() == pytest.approx(1.619617, abs=6e-7)
    if factor is not None:
        assert term.mean.item() == pytest.approx(0.764999, abs=6e-7)
        assert (term.cross_entropy / term.mean).item() == pytest.approx(factor, abs=2e-6)
    assert pixel.total([term]).item() == pytest.approx(1.619617, abs=6e-7)


def test_unweighted_mean_of_the_batch_depends_on_the_tie() -> None:
    """Pixel F is uniform: which three of its classes are positive is a rule (the lowest three), not arithmetic."""
    logits, teacher = batch()
    pixel = PixelLoss("fpl", weight="none", fidelity="released", balance=True)
    lowest = [3 * 1.619617, 1.037876, 4 * 1.160363]
    cross_entropy, mean = pixel(logits, teacher)[2], pixel(logits, teacher).mean
    assert mean.item() == pytest.approx(sum(lowest) / 8, abs=1e-6)
    assert (cross_entropy / mean).item() == pytest.approx(1.229524, abs=1e-6)
    # The other end of the tie, as a library's top-k may choose it. Only F's positives notice so small a nudge.
    nudged = teacher.clone()
    nudged[:, 3:, 5] += 1e-9
    mean = pixel(logits, nudged).mean
    assert mean.item() == pytest.approx(1.692273, abs=6e-7)
    assert (cross_entropy / mean).item() == pytest.approx(0.957067, abs=6e-7)
