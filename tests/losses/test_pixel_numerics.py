from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fpl.losses import KINDS, PixelLoss

from .reference import normal, pair, pixel_value

OVER_KINDS = pytest.mark.parametrize("kind", KINDS)


@OVER_KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_everything_is_computed_in_float32(kind: str, dtype: torch.dtype, autocast: bool) -> None:
    student, teacher = (tensor.detach().to(dtype) for tensor in pair(2, 5, 15))
    pixel = PixelLoss(kind)
    pixel.collect = True
    leaf = student.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        term = pixel(leaf, teacher)
    exact = pixel(student.float(), teacher.float())
    assert term.value.dtype == term.mean.dtype == torch.float32
    assert torch.equal(term.value, exact.value)
    for name, value in exact.statistics.items():
        assert torch.equal(term.statistics[name], value)
    term.value.backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype == dtype
    assert leaf.grad.isfinite().all()


@OVER_KINDS
@pytest.mark.parametrize("offset", [5e3, -5e3])
def test_a_shared_offset_changes_nothing(kind: str, offset: float) -> None:
    student, teacher = ((tensor.detach() * 256).round().float() / 256 for tensor in pair(2, 5, 15))
    results = []
    for added in (0.0, offset):
        leaf = (student + added).requires_grad_()
        value = PixelLoss(kind)(leaf, teacher + added).value
        value.backward()
        results.append((value.detach(), leaf.grad))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=2e-6, atol=0)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=0, atol=1e-6)


@OVER_KINDS
@pytest.mark.parametrize("side", ["agree", "oppose"])
def test_extreme_logits(kind: str, side: str) -> None:
    teacher = torch.tensor([1e4, -1e4, -1e4, -1e4]).view(1, 4, 1)
    student = (teacher if side == "agree" else teacher.flip(1)).clone().requires_grad_()
    value = PixelLoss(kind)(student, teacher).value
    # log p and log(1 - p) of the student's 1e4 against three -1e4: 2e4 each; the teacher's argmax class is no negative.
    opposing = {"ce": 2e4, "fpl": 2e4, "soft": 2e4, "negative": 2e4 - math.log(3), "mse": 0.5, "mse_logits": 2e8}
    opposing["ce+negative"] = opposing["ce"] + opposing["negative"]
    assert value.item() == pytest.approx(0.0 if side == "agree" else opposing[kind], rel=1e-6, abs=1e-12)
    value.backward()
    assert student.grad is not None
    assert student.grad.isfinite().all()
    if side == "oppose" and kind != "mse":
        assert student.grad[0, 3, 0] > 0.9  # the confident mistake is pushed down at full strength
    elif side == "agree":
        assert student.grad.abs().max() == 0


def test_negative_learning_near_certainty_is_exact() -> None:
    """1 - p of the student's own class is far below float32's resolution of p."""
    student = torch.tensor([[30.0, 0.0, 0.0]]).view(1, 3, 1)
    teacher = torch.tensor([[0.0, 9.0, 0.0]]).view(1, 3, 1)
    expected = pixel_value("negative", [30.0, 0.0, 0.0], [0.0, 9.0, 0.0])
    assert PixelLoss("negative")(student, teacher).value.item() == pytest.approx(30 - math.log(2), rel=1e-6)
    assert expected == pytest.approx(30 - math.log(2), rel=1e-3)


@OVER_KINDS
@pytest.mark.parametrize("who", ["student", "teacher"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("collect", [False, True])
def test_a_broken_pixel_of_weight_zero_does_not_leak(kind: str, who: str, value: float, collect: bool) -> None:
    clean = {"student": normal(1, 5, 6), "teacher": normal(1, 5, 6, seed=1)}
    broken = {name: tensor.clone() for name, tensor in clean.items()}
    broken[who][0, :, 3] = value
    weight_map = torch.ones(1, 6, dtype=torch.float64)
    weight_map[0, 3] = 0
    pixel = PixelLoss(kind, balance=kind == "fpl")
    pixel.collect = collect
    results = []
    for tensors in (clean, broken):
        leaf = tensors["student"].clone().requires_grad_()
        term = pixel(leaf, tensors["teacher"], weight_map)
        pixel.total([term]).backward()
        results.append((term, leaf.grad))
    (expected, expected_gradient), (term, gradient) = results
    assert torch.equal(term.value, expected.value)
    assert torch.equal(term.mean, expected.mean)
    assert torch.equal(gradient, expected_gradient)
    assert torch.equal(gradient[0, :, 3], torch.zeros(5, dtype=torch.float64))
    assert expected.statistics.keys() == term.statistics.keys()
    for name, number in expected.statistics.items():
        assert torch.equal(term.statistics[name], number), name


@OVER_KINDS
@pytest.mark.parametrize("who", ["student", "teacher", "weight_map"])
def test_nan_that_counts_is_seen_and_stays_local(kind: str, who: str) -> None:
    tensors = {
        "student": normal(1, 5, 6),
        "teacher": normal(1, 5, 6, seed=1),
        "weight_map": torch.ones(1, 6, dtype=torch.float64),
    }
    tensors[who][..., 3] = torch.nan
    leaf = tensors["student"].clone().requires_grad_()
    value = PixelLoss(kind)(leaf, tensors["teacher"], tensors["weight_map"]).value
    assert value.isnan()
    value.backward()
    assert leaf.grad is not None
    assert leaf.grad.isnan().any(1).tolist() == [[False, False, False, True, False, False]]


@OVER_KINDS
@pytest.mark.parametrize("denominator", [None, 0, torch.tensor(0), torch.tensor(0.0), 5])
def test_nothing_counted(kind: str, denominator: Tensor | float | None) -> None:
    student, teacher = pair(1, 5, 6)
    pixel = PixelLoss(kind, balance=kind == "fpl")
    pixel.collect = True
    term = pixel(student, teacher, torch.zeros(1, 6), denominator)
    total = pixel.total([term])
    assert term.value.item() == term.mean.item() == total.item() == 0
    total.backward()
    assert student.grad is not None
    assert torch.equal(student.grad, torch.zeros_like(student))
    assert term.statistics["pixels"].item() == 0
    assert term.statistics["k_histogram"].tolist() == [0] * 5
