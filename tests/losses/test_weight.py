from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fpl.losses import FIDELITIES, WEIGHTS, adaptive_weight, assign

from .reference import columns, random_probs, weight_of


@pytest.mark.parametrize("shape", WEIGHTS)
@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("classes", [2, 3, 19, 150])
def test_formulas(shape: str, fidelity: str, classes: int) -> None:
    probs = random_probs(classes)
    k = assign(probs, fidelity=fidelity)
    weight = adaptive_weight(probs, k, shape=shape, fidelity=fidelity)
    c = 4.0 if fidelity == "paper" else 1.0
    expected = [
        weight_of(column, number, shape, fidelity, c)
        for column, number in zip(columns(probs), k[0].tolist(), strict=True)
    ]
    assert weight[0].tolist() == pytest.approx(expected, abs=1e-12)
    single = adaptive_weight(probs.float(), k, shape=shape, fidelity=fidelity)
    assert single.dtype == torch.float32
    assert single[0].tolist() == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("q", [0.0, 0.1, 0.2, 0.3, 0.4])
def test_curves_of_the_appendix(q: float) -> None:
    """Values of the three curves at K = 2 and m = 0.475 (T = 0.95)."""
    expected = {
        "concave": {0.0: 1.0, 0.1: 0.9297, 0.2: 0.8387, 0.3: 0.7097, 0.4: 0.4856},
        "linear": {0.0: 1.0, 0.1: 0.7895, 0.2: 0.5789, 0.3: 0.3684, 0.4: 0.1579},
        "convex": {0.0: 1.0, 0.1: 0.4286, 0.2: 0.2157, 0.3: 0.1045, 0.4: 0.0361},
    }
    probs = torch.tensor([0.475, 0.475, q]).view(1, 3, 1)
    for shape, curve in expected.items():
        weight = adaptive_weight(probs, torch.tensor([[2]]), shape=shape)
        assert weight.item() == pytest.approx(curve[q], abs=6e-5)


def test_curvature_bends() -> None:
    probs = torch.tensor([0.6, 0.35, 0.05]).view(1, 3, 1)
    k = torch.tensor([[1]])
    linear = adaptive_weight(probs, k, shape="linear").item()
    flat, default, bent = (adaptive_weight(probs, k, curvature=a).item() for a in (1e-3, 50.0, 500.0))
    assert linear == pytest.approx(flat, abs=1e-3)
    assert flat < default < bent < 1


@pytest.mark.parametrize("shape", WEIGHTS)
@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("classes", [2, 3, 6, 7, 21, 150])
def test_uniform_teacher_has_no_weight(shape: str, fidelity: str, classes: int) -> None:
    probs = torch.full((1, classes, 1), 1 / classes)
    weight = adaptive_weight(probs, assign(probs, fidelity=fidelity), shape=shape, fidelity=fidelity)
    if shape == "none":
        assert weight.item() == 1
    else:
        # Rounding is magnified by the curvature, but never to a negative weight.
        assert 0 <= weight.item() < 1e-4


@pytest.mark.parametrize("shape", WEIGHTS)
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_one_hot_teacher(shape: str, fidelity: str) -> None:
    probs = torch.eye(4).view(1, 4, 4)
    weight = adaptive_weight(probs, torch.ones(1, 4, dtype=torch.int64), shape=shape, fidelity=fidelity)
    assert weight.tolist() == [[1.0] * 4]


@pytest.mark.parametrize("shape", WEIGHTS)
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_no_negatives_weigh_one(shape: str, fidelity: str) -> None:
    probs = random_probs(5)
    weight = adaptive_weight(probs, torch.full((1, 60), 5), shape=shape, fidelity=fidelity)
    assert torch.equal(weight, torch.ones_like(weight))


@pytest.mark.parametrize("shape", ["concave", "linear", "convex"])
def test_nan_stays_where_it_is(shape: str) -> None:
    probs = random_probs(5, 4)
    probs[0, :, 2] = torch.nan
    weight = adaptive_weight(probs, assign(probs), shape=shape)
    assert weight.isnan().tolist() == [[False, False, True, False]]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"shape": "log"}, "weight is 'log'; allowed: 'concave', 'linear', 'convex', 'none'"),
        ({"curvature": 0.0}, "curvature is 0.0; allowed: 1e-30 <= curvature <= 1e\\+30"),
        ({"fidelity": "both"}, "fidelity is 'both'; allowed: 'paper', 'released'"),
        (
            {"convex_coefficient": -1.0},
            "convex_coefficient is -1.0; allowed: 0 <= convex_coefficient <= 1e\\+30, or None",
        ),
    ],
)
def test_bad_arguments(keywords: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adaptive_weight(random_probs(5), torch.ones(1, 60, dtype=torch.int64), **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (torch.ones(1, 60, dtype=torch.int32), "k has dtype torch.int32; allowed: torch.int64, "),
        (torch.ones(60, dtype=torch.int64), r"k has shape \[60\]; allowed: \[B, \*spatial\] = \[1, 60\]"),
    ],
)
def test_bad_k(k: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adaptive_weight(random_probs(5), k)
