from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from fpl.losses import FIDELITIES, KINDS, STRATEGIES, WEIGHTS, PixelLoss, fuzzy_positive_terms
from fpl.losses.rules import Rules

from .reference import normal, pair, pixel_map

OVER_KINDS = pytest.mark.parametrize("kind", KINDS)


@OVER_KINDS
@pytest.mark.parametrize("classes", [2, 3, 19])
def test_plain_mean(kind: str, classes: int) -> None:
    student, teacher = pair(2, classes, 15)
    term = PixelLoss(kind)(student, teacher)
    expected = pixel_map(kind, student, teacher).mean().item()
    assert term.value.item() == pytest.approx(expected, rel=1e-10)
    assert term.mean.item() == pytest.approx(expected, rel=1e-10)
    assert term.value.requires_grad
    assert not term.mean.requires_grad
    assert term.statistics == {}


@OVER_KINDS
@pytest.mark.parametrize("denominator", [None, 7, torch.tensor(7.0)])
def test_weight_map_and_denominator(kind: str, denominator: Tensor | float | None) -> None:
    student, teacher = pair(2, 5, 15)
    weight_map = normal(2, 15, seed=2).clamp(min=0)
    counted = weight_map > 0
    assert 0 < counted.sum() < 30
    term = PixelLoss(kind)(student, teacher, weight_map, denominator)
    losses = pixel_map(kind, student, teacher)
    divisor = counted.sum().item() if denominator is None else 7
    assert term.value.item() == pytest.approx(((losses * weight_map).sum() / divisor).item(), rel=1e-10)
    assert term.mean.item() == pytest.approx(losses[counted].mean().item(), rel=1e-10)


@OVER_KINDS
def test_boolean_weight_map(kind: str) -> None:
    student, teacher = pair(2, 5, 15)
    mask = normal(2, 15, seed=2) > 0
    term = PixelLoss(kind)(student, teacher, mask)
    assert term.value.item() == pytest.approx(pixel_map(kind, student, teacher)[mask].mean().item(), rel=1e-10)


@OVER_KINDS
def test_gradcheck(kind: str) -> None:
    student, teacher = pair(2, 5, 3)
    weight_map = torch.tensor([[1.0, 0.0, 0.5], [2.0, 1.0, 0.0]], dtype=torch.float64)
    pixel = PixelLoss(kind, threshold=0.7)
    assert torch.autograd.gradcheck(lambda z: pixel(z, teacher, weight_map).value, (student,))


def test_negative_threshold_and_the_argmax_class() -> None:
    student, teacher = pair(1, 19, 20, scale=0.1)
    assert teacher.softmax(1).max() < 0.2  # every class is below the threshold, the argmax class too
    for tau in (0.05, 0.2, 1.0):
        value = PixelLoss("negative", negative_threshold=tau)(student, teacher).value.item()
        assert value == pytest.approx(pixel_map("negative", student, teacher, tau).mean().item(), rel=1e-10)


def test_one_hot_teacher_unites_ce_soft_and_fpl() -> None:
    student = normal(1, 5, 5)
    teacher = torch.eye(5, dtype=torch.float64).view(1, 5, 5) * 1e3
    values = [PixelLoss(kind)(student, teacher).value.item() for kind in ("ce", "soft", "fpl")]
    assert values == pytest.approx([values[0]] * 3, rel=1e-10)
    assert abs(PixelLoss("negative")(student, teacher).value.item() - values[0]) > 0.1


def test_soft_loss_of_equal_predictions_is_zero() -> None:
    logits = normal(1, 19, 30).float()
    assert PixelLoss("soft")(logits, logits).value.item() == 0


@pytest.mark.parametrize("kind", ["ce", "fpl", "negative", "ce+negative"])
def test_argmax_ties_go_to_the_lower_class(kind: str) -> None:
    teacher = torch.tensor([0.0, 3.0, 3.0, 3.0]).view(1, 4, 1)
    student = torch.zeros(1, 4, 1, requires_grad=True)
    pixel = PixelLoss(kind, weight="none", strategy="fixed", fixed_k=1, negative_threshold=0.5)
    pixel(student, teacher).value.backward()
    assert student.grad is not None
    assert (student.grad < 0).flatten().tolist() == [False, True, False, False]


@OVER_KINDS
def test_statistics_are_those_of_the_fuzzy_loss_for_every_kind(kind: str) -> None:
    student, teacher = pair(2, 7, 4, 5)
    weight_map = normal(2, 4, 5, seed=2).clamp(min=0)
    counted = weight_map > 0
    pixel = PixelLoss(kind, threshold=0.8)
    pixel.collect = True
    term = pixel(student, teacher, weight_map)
    terms = fuzzy_positive_terms(student, teacher, rules=Rules(threshold=0.8))
    k = terms.k[counted]
    assert len(k.unique()) > 2
    assert term.statistics["k_histogram"].dtype == torch.int64
    assert term.statistics["k_histogram"].tolist() == [int((k == i).sum()) for i in range(1, 8)]
    assert term.statistics["pixels"].item() == int(counted.sum())
    cross_entropy = pixel_map("ce", student.flatten(2), teacher.flatten(2)).view(2, 4, 5)[counted]
    for name, values in (
        ("weight_sum", terms.weight[counted]),
        ("loss_sum", terms.loss[counted]),
        ("weighted_loss_sum", (terms.loss * terms.weight)[counted]),
        ("cross_entropy_sum", cross_entropy),
    ):
        assert term.statistics[name].item() == pytest.approx(values.sum().item()), name
        assert not term.statistics[name].requires_grad
    assert term.cross_entropy is not None
    assert term.cross_entropy.item() == pytest.approx(cross_entropy.mean().item())
    pixel.collect = False
    assert torch.equal(pixel(student, teacher, weight_map).value, term.value)


@pytest.mark.parametrize("kind", ["soft", "negative", "mse", "mse_logits", "fpl"])
def test_cross_entropy_only_when_needed(kind: str) -> None:
    student, teacher = pair(1, 5, 6)
    assert PixelLoss(kind)(student, teacher).cross_entropy is None


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_fpl_settings_are_handed_on(strategy: str, weight: str, fidelity: str) -> None:
    student, teacher = pair(1, 7, 20)
    settings = {
        "threshold": 0.8,
        "strategy": strategy,
        "fixed_k": 3,
        "ratio": 0.4,
        "weight": weight,
        "curvature": 9.0,
        "convex_coefficient": 2.5,
        "fidelity": fidelity,
    }
    pixel = PixelLoss("fpl", **settings)  # type: ignore[arg-type]
    for progress in (0.0, 0.5, 1.0):
        pixel.progress = progress
        terms = fuzzy_positive_terms(student, teacher, rules=Rules(progress=progress, **settings))  # type: ignore[arg-type]
        torch.testing.assert_close(pixel(student, teacher).value, (terms.loss * terms.weight).mean())


@OVER_KINDS
def test_total_without_balance_is_a_sum(kind: str) -> None:
    student, teacher = pair(1, 5, 6)
    pixel = PixelLoss(kind)
    terms = [pixel(student, teacher), pixel(teacher, student)]
    torch.testing.assert_close(pixel.total(terms), terms[0].value + terms[1].value)


@OVER_KINDS
def test_the_teacher_is_detached(kind: str) -> None:
    student, teacher = pair(1, 5, 6)
    teacher.requires_grad_()
    PixelLoss(kind)(student, teacher).value.backward()
    assert teacher.grad is None
    assert student.grad is not None


@OVER_KINDS
@pytest.mark.parametrize("spatial", [(), (24,), (4, 6), (2, 3, 4)])
def test_any_spatial_shape(kind: str, spatial: tuple[int, ...]) -> None:
    student, teacher = normal(3, 5, *spatial), normal(3, 5, *spatial, seed=1)
    pixel = PixelLoss(kind)
    pixel.collect = True
    weights = normal(3, *spatial, seed=2).abs()
    term = pixel(student, teacher, weights)
    flat = pixel(student.reshape(3, 5, -1), teacher.reshape(3, 5, -1), weights.reshape(3, -1))
    torch.testing.assert_close(term.value, flat.value)
    torch.testing.assert_close(term.statistics, flat.statistics)


@OVER_KINDS
def test_gradient_descent_moves_the_student_to_the_teacher(kind: str) -> None:
    student, teacher = pair(1, 5, 40)
    pixel = PixelLoss(kind)
    values = []
    for _ in range(5):
        value = pixel(student, teacher, denominator=1.0).value
        (gradient,) = torch.autograd.grad(value, student)
        student = (student - 0.1 * gradient).detach().requires_grad_()
        values.append(value.item())
    assert all(later < earlier for earlier, later in pairwise(values))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        (
            {"kind": "kl"},
            r"kind is 'kl'; allowed: 'ce', 'fpl', 'soft', 'negative', 'ce\+negative', 'mse', 'mse_logits'",
        ),
        ({"kind": "fpl", "strategy": "x"}, "strategy is 'x'; allowed: 'n-1', 'n', 'fixed', 'step', 'ratio', 'soft'"),
        ({"kind": "ce", "threshold": 2.0}, "threshold is 2.0; allowed: 0 < threshold <= 1"),
        ({"weight": "x"}, "weight is 'x'; allowed: 'concave', 'linear', 'convex', 'none'"),
        ({"negative_threshold": 0.0}, "negative_threshold is 0.0; allowed: 0 < value <= 1"),
        ({"kind": "soft", "balance": True}, "balance is True with kind 'soft'; allowed: kind 'fpl' only"),
    ],
)
def test_bad_arguments(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PixelLoss(**keywords)  # type: ignore[arg-type]


def test_bad_tensors_and_terms() -> None:
    student, teacher = pair(1, 5, 6)
    pixel = PixelLoss("fpl", balance=True)
    with pytest.raises(ValueError, match=r"teacher_logits has shape \[1, 5, 4\]; allowed: .*\[1, 5, 6\]"):
        pixel(student, teacher[..., :4])
    with pytest.raises(ValueError, match=r"weight_map has shape \[1, 5\]; allowed: .* = \[1, 6\]"):
        pixel(student, teacher, torch.ones(1, 5))
    with pytest.raises(ValueError, match=r"denominator is -2; allowed: 0, or 1e-30 \.\. 1e\+30"):
        pixel(student, teacher, None, -2)
    with pytest.raises(ValueError, match="terms is empty; allowed: one term or more"):
        pixel.total([])
    with pytest.raises(ValueError, match="a term has no cross_entropy"):
        pixel.total([PixelLoss("fpl")(student, teacher)])


def test_settings_are_shown() -> None:
    assert repr(PixelLoss("soft")) == "PixelLoss(kind='soft')"
    assert "balance=True" in repr(PixelLoss("fpl", balance=True))
