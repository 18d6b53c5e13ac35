"""What the pixel slot takes, what it refuses, and what it says about the ground truth."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fpl.losses import KINDS, PixelLoss, fuzzy_positive_loss, fuzzy_positive_terms, kernels
from fpl.losses.diagnostics import diagnose
from fpl.losses.pixel_term import BASIC
from fpl.losses.rules import Rules

from .reference import pair

Call = Callable[..., object]
IMPLEMENTATIONS = pytest.mark.parametrize("name", ["cpu", "tensor", "triton"])


def float_pair(*shape: int) -> tuple[Tensor, Tensor]:
    return pair(*shape)[0].detach().float().requires_grad_(), pair(*shape)[1].float()


def need(name: str) -> None:
    if name == "triton":
        pytest.importorskip("triton")
    if not kernels.available(name) and name != "tensor":
        pytest.skip(f"no {name} implementation here")


@pytest.mark.parametrize(
    "call", [fuzzy_positive_loss, fuzzy_positive_terms, diagnose, PixelLoss("fpl"), PixelLoss("ce")]
)
def test_a_teacher_elsewhere_is_refused(call: Call) -> None:
    """A kernel would read the address of another device's memory, here the null pointer."""
    student, teacher = float_pair(1, 4, 5)
    with pytest.raises(ValueError, match="teacher_logits is on meta; allowed: the device of the scores, cpu"):
        call(student, teacher.to("meta"))


@pytest.mark.parametrize("name", ["weight_map", "counted", "ground_truth", "watched", "inside"])
def test_maps_elsewhere_are_refused(name: str) -> None:
    student, teacher = float_pair(1, 4, 5)
    dtype = {"weight_map": torch.float32, "ground_truth": torch.uint8}.get(name, torch.bool)
    values = torch.ones(1, 5, dtype=dtype, device="meta")
    second = {"second": teacher} if name == "inside" else {}
    with pytest.raises(ValueError, match=f"{name} is on meta; allowed: .*cpu"):
        PixelLoss("fpl")(student, teacher, **second, **{name: values})
    if name == "weight_map":
        with pytest.raises(ValueError, match="weight_map is on meta"):
            fuzzy_positive_loss(student, teacher, weight_map=values)
    elif name != "watched":
        with pytest.raises(ValueError, match=f"{name} is on meta"):
            diagnose(student, teacher, **second, **{name: values})


def test_a_second_teacher_elsewhere_is_refused() -> None:
    student, teacher = float_pair(1, 4, 5)
    inside = torch.ones(1, 5, dtype=torch.bool)
    for call in (PixelLoss("fpl"), diagnose):
        with pytest.raises(ValueError, match="teacher_logits is on meta"):
            call(student, teacher, second=teacher.to("meta"), inside=inside)  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["fpl", "ce"])
@pytest.mark.parametrize("name", ["counted", "watched", "inside"])
def test_masks_are_bool(kind: str, name: str) -> None:
    student, teacher = float_pair(1, 4, 5)
    mask = torch.tensor([[2, 1, 0, 0, 1]])
    second = {"second": teacher} if name == "inside" else {}
    for call in (PixelLoss(kind), diagnose) if name != "watched" else (PixelLoss(kind),):
        with pytest.raises(ValueError, match=rf"{name} has dtype torch\.int64; allowed: torch\.bool"):
            call(student, teacher, **second, **{name: mask})  # type: ignore[operator]


def test_a_ground_truth_is_uint8_or_int64() -> None:
    student, teacher = float_pair(1, 4, 5)
    with pytest.raises(ValueError, match=r"ground_truth has dtype torch\.int32"):
        PixelLoss("fpl")(student, teacher, ground_truth=torch.zeros(1, 5, dtype=torch.int32))


@pytest.mark.parametrize("kind", KINDS)
def test_a_ground_truth_is_for_diagnostics_alone(kind: str) -> None:
    student, teacher = pair(2, 6, 40)
    truth = torch.arange(80).view(2, 40) % 8
    slot = PixelLoss(kind, threshold=0.8)
    slot.collect = True
    assert set(slot(student, teacher, ground_truth=truth).statistics) == set(BASIC)
    slot.diagnose = True
    found = slot(student, teacher, ground_truth=truth).statistics
    expected = diagnose(student, teacher, ground_truth=truth, rules=Rules(threshold=0.8))
    assert set(found) == set(expected)
    assert found["labeled_pixels"].item() == expected["labeled_pixels"].item() == 60
    assert found["case_pixels"].tolist() == expected["case_pixels"].tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_cross_entropy_with_a_broken_teacher_is_no_number(kind: str, value: float) -> None:
    student, teacher = pair(1, 5, 6)
    teacher[0, 2, 3] = value
    slot = PixelLoss(kind)
    slot.collect = True
    term = slot(student, teacher)
    assert term.statistics["cross_entropy_sum"].isnan()
    assert term.cross_entropy is not None
    assert term.cross_entropy.isnan()


@pytest.mark.parametrize("kind", ["ce", "fpl"])
@pytest.mark.parametrize("diagnosed", [False, True])
def test_statistics_of_watched_pixels_are_those_of_a_loss_on_them_alone(kind: str, diagnosed: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = (2 * torch.randn(4, 5, 6, 7, generator=generator) for _ in range(2))
    truth = torch.randint(0, 6, (4, 6, 7), generator=generator).to(torch.uint8)
    watched = torch.zeros(4, 6, 7, dtype=torch.bool)
    watched[2:] = True
    slot = PixelLoss(kind)
    slot.collect, slot.diagnose = True, diagnosed
    term = slot(student, teacher, ground_truth=truth, watched=watched)
    torch.testing.assert_close(term.value, PixelLoss(kind)(student, teacher).value)
    alone = slot(student[2:], teacher[2:], ground_truth=truth[2:]).statistics
    assert term.statistics["pixels"] == 2 * 6 * 7
    for name, value in term.statistics.items():
        torch.testing.assert_close(value.double(), alone[name].double(), rtol=1e-6, atol=1e-9)
    assert ("case_pixels" in term.statistics) == diagnosed
