"""The CPU kernel that enlarges logits itself, against F.interpolate and the tensor implementation in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses import fuzzy_positive_terms
from fpl.losses.kernels.contract import SUMS, Pixels, Summed, make_settings
from fpl.losses.kernels.cpu_upsampled import summed_upsampled
from fpl.losses.rules import Rules
from tests.losses.kernels.cases import needs_cpu_kernel

pytestmark = needs_cpu_kernel

SIZES = [
    ((1, 1), (7, 9)),
    ((1, 6), (5, 40)),
    ((6, 1), (300, 3)),
    ((33, 33), (129, 129)),
    ((9, 17), (40, 65)),  # no whole ratio
    ((5, 7), (23, 301)),  # more than a tile, no multiple of a vector
    ((24, 24), (25, 260)),  # hardly enlarged: neighbouring columns lie in neighbouring cells
    ((20, 12), (20, 12)),
    ((20, 12), (20, 50)),
    ((12, 20), (50, 20)),
    ((40, 30), (17, 11)),  # made smaller: cells are left out
    ((9, 300), (4, 270)),
    ((4, 5), (1, 1)),
]


def enlarge(logits: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(logits, size=size, mode="bilinear", align_corners=True)


def enlarge_float64(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Enlarge in float64 with the weights that F.interpolate has in float32: those it gives the unit vectors."""
    logits = logits.double()
    h, w = logits.shape[2:]
    rows = enlarge(torch.eye(h)[:, None, :, None], (size[0], 1))[:, 0, :, 0].double()
    columns = enlarge(torch.eye(w)[:, None, None, :], (1, size[1]))[:, 0, 0, :].double()
    return rows.T @ logits @ columns


class Expected(NamedTuple):
    sums: dict[str, float]
    histogram: Tensor
    gradient: Tensor


def expect(pixels: Pixels, scale: float, weights_of: str = "float32", **keywords: Any) -> Expected:
    """What the tensor implementation and autograd give in float64."""
    assert pixels.size is not None
    up = enlarge_float64 if weights_of == "float32" else lambda x, size: enlarge(x.double(), size)
    low = pixels.student.detach().double().requires_grad_()
    student, teacher = up(low, pixels.size), up(pixels.teacher, pixels.size)
    if pixels.second is not None and pixels.inside is not None:
        teacher = torch.where(pixels.inside.unsqueeze(1), up(pixels.second, pixels.size), teacher)
    terms = fuzzy_positive_terms(student, teacher, rules=Rules(**keywords))
    counted = torch.ones_like(terms.k, dtype=torch.bool) if pixels.counted is None else pixels.counted
    weighted = terms.loss * terms.weight
    value = (weighted if pixels.weight_map is None else weighted * pixels.weight_map.double())[counted].sum()
    (gradient,) = torch.autograd.grad(value * scale, low)
    cross_entropy = F.cross_entropy(student, teacher.max(1).indices, reduction="none")
    classes = student.shape[1]
    sums = {
        "pixels": counted.sum(),
        "value": value,
        "weighted_loss": weighted[counted].sum(),
        "loss": terms.loss[counted].sum(),
        "weight": terms.weight[counted].sum(),
        "cross_entropy": cross_entropy[counted].sum(),
    }
    histogram = torch.bincount(terms.k[counted] - 1, minlength=classes)
    return Expected({name: number.item() for name, number in sums.items()}, histogram, gradient)


def compute(
    pixels: Pixels, scale: float = 1.0, cross_entropy: bool = True, gradient: bool = True, **keywords: Any
) -> Summed:
    settings = make_settings(pixels.student.shape[1], Rules(**keywords))
    return summed_upsampled(settings, pixels, scale=torch.tensor(scale), cross_entropy=cross_entropy, gradient=gradient)


def make(classes: int, low: tuple[int, int], size: tuple[int, int], *, everything: bool = True) -> Pixels:
    """Two images; with ``everything`` a rectangle of a second teacher, a weight map and uncounted pixels."""
    generator = torch.Generator().manual_seed(classes + 1000 * low[0] + size[1])
    student, teacher, second = (3 * torch.randn(2, classes, *low, generator=generator) for _ in range(3))
    if not everything:
        return Pixels(student, teacher, size=size)
    inside = torch.zeros(2, *size, dtype=torch.bool)
    inside[0, size[0] // 4 :, size[1] // 3 : 2 * size[1] // 3 + 1] = True
    inside[1, : size[0] // 2 + 1] = True
    return Pixels(
        student,
        teacher,
        second=second,
        inside=inside,
        weight_map=2 * torch.rand(2, *size, generator=generator),
        counted=torch.rand(2, *size, generator=generator) < 0.7,
        size=size,
    )


def check(found: Summed, expected: Expected, *, loss: float = 1e-5, gradient: float = 3e-6) -> None:
    numbers = dict(zip(SUMS, found.sums.tolist(), strict=True))
    assert numbers == pytest.approx(expected.sums, rel=loss, abs=1e-12)
    assert found.histogram.equal(expected.histogram)
    assert found.gradient is not None
    error = (found.gradient.double() - expected.gradient).abs().max()
    assert error <= gradient * expected.gradient.abs().max()


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize(("low", "size"), SIZES)
def test_value_sums_and_gradient(low: tuple[int, int], size: tuple[int, int], everything: bool) -> None:
    pixels = make(5, low, size, everything=everything)
    check(compute(pixels, 0.01), expect(pixels, 0.01))


@pytest.mark.parametrize("classes", [2, 3, 19, 21, 150])
def test_numbers_of_classes(classes: int) -> None:
    pixels = make(classes, (9, 11), (40, 45))
    check(compute(pixels, 0.01), expect(pixels, 0.01))


@pytest.mark.parametrize("strategy", ["n-1", "n", "fixed", "ratio"])
@pytest.mark.parametrize("fidelity", ["paper", "released"])
def test_settings_reach_the_kernel(strategy: str, fidelity: str) -> None:
    pixels = make(7, (6, 5), (23, 20))
    chosen = {"strategy": strategy, "fidelity": fidelity, "weight": "convex", "threshold": 0.7}
    check(compute(pixels, **chosen), expect(pixels, 1.0, **chosen))


def test_agrees_with_interpolation_in_float64() -> None:
    """At a ratio of exactly 4 the weights of float32 and float64 are the same."""
    pixels = make(19, (17, 33), (65, 129))
    check(compute(pixels), expect(pixels, 1.0, weights_of="float64"))


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)])
def test_half_precision_is_rounded_once(dtype: torch.dtype, rounding: float) -> None:
    pixels = make(19, (9, 17), (40, 65))
    pixels = pixels._replace(
        student=pixels.student.to(dtype), teacher=pixels.teacher.to(dtype), second=pixels.second.to(dtype)
    )
    found = compute(pixels, 0.01)
    assert found.gradient is not None
    assert found.gradient.dtype == dtype
    check(found, expect(pixels, 0.01), gradient=1.01 * rounding)
    exact = compute(
        pixels._replace(student=pixels.student.float(), teacher=pixels.teacher.float(), second=pixels.second.float()),
        0.01,
    )
    assert exact.gradient is not None
    assert found.sums.equal(exact.sums)
    assert found.gradient.equal(exact.gradient.to(dtype))


def test_any_strides() -> None:
    pixels = make(6, (10, 12), (40, 45))
    plain = compute(pixels)
    student = pixels.student.contiguous(memory_format=torch.channels_last)
    teacher = pixels.teacher.transpose(2, 3).contiguous().transpose(2, 3)
    second = torch.randn(2, 9, 10, 24)[:, 2:8, :, ::2]
    second.copy_(pixels.second)
    found = compute(pixels._replace(student=student, teacher=teacher, second=second))
    assert found.sums.equal(plain.sums)
    assert found.gradient.equal(plain.gradient)
    assert found.gradient.stride() == student.stride()


@pytest.mark.parametrize(("low", "size"), [((33, 33), (129, 129)), ((40, 30), (17, 11)), ((30, 9), (61, 300))])
def test_threads_do_not_change_a_bit(low: tuple[int, int], size: tuple[int, int], threads: None) -> None:
    results = []
    for number in (1, 2, 5):
        torch.set_num_threads(number)
        results.append(compute(make(5, low, size)))
    for result in results[1:]:
        assert result.sums.equal(results[0].sums)
        assert result.histogram.equal(results[0].histogram)
        assert result.gradient.equal(results[0].gradient)


@pytest.mark.parametrize(("low", "size"), [((5, 5), (13, 9)), ((5, 5), (5, 12)), ((5, 5), (5, 5)), ((5, 5), (3, 3))])
@pytest.mark.parametrize("which", ["student", "teacher", "second"])
def test_nan_reaches_the_pixels_it_reaches_in_interpolation(
    which: str, low: tuple[int, int], size: tuple[int, int]
) -> None:
    pixels = make(3, low, size)._replace(weight_map=None)
    logits = getattr(pixels, which)
    logits[0, 1, 2, 1] = torch.nan
    touched = enlarge(logits, size).isnan().any(1)
    if which == "teacher":
        touched &= ~pixels.inside
    if which == "second":
        touched &= pixels.inside
    value = SUMS.index("value")
    for y in range(size[0]):
        for x in range(size[1]):
            counted = torch.zeros_like(touched)
            counted[0, y, x] = True
            found = compute(pixels._replace(counted=counted))
            assert found.sums[value].isnan() == touched[0, y, x]
            assert found.gradient.isnan().any() == touched[0, y, x]
    assert compute(pixels._replace(counted=~touched)).sums.isfinite().all()


def test_uncounted_nan_changes_nothing() -> None:
    pixels = make(4, (6, 7), (23, 30))
    spoilt = pixels.student.clone()
    spoilt[1, 2, 3, 4] = torch.nan
    pixels = pixels._replace(counted=pixels.counted & ~enlarge(spoilt, (23, 30)).isnan().any(1))
    found, clean = compute(pixels._replace(student=spoilt)), compute(pixels)
    assert found.sums.equal(clean.sums)
    assert found.gradient.equal(clean.gradient)


def test_nan_does_not_reach_the_next_tile() -> None:
    """The second tile of columns, 256 to 299, reads the cells 24 to 29; the first tile's seventh cell is NaN."""
    pixels = make(4, (3, 30), (9, 300))
    pixels.student[..., 6] = torch.nan
    touched = enlarge(pixels.student, (9, 300)).isnan().any(1)
    found = compute(pixels._replace(counted=~touched))
    assert found.sums.isfinite().all()
    assert found.gradient.isfinite().all()


def test_constant_logits_give_one_pixel_s_loss_everywhere() -> None:
    """C = 2, K = 1: loss log(1 + exp(1)) and gradient -+sigmoid(1), shared out over the cells."""
    logits = torch.tensor([0.0, 1.0])[None, :, None, None].expand(1, 2, 3, 4)
    found = compute(Pixels(logits, logits.flip(1), size=(9, 10)), weight="none", strategy="fixed", fixed_k=1)
    assert found.sums[SUMS.index("value")].item() == pytest.approx(90 * 1.3132616875182228, rel=1e-6)
    per_class = found.gradient.sum((0, 2, 3)).tolist()
    assert per_class == pytest.approx([-90 * 0.7310585786300049, 90 * 0.7310585786300049], rel=1e-6)


def test_only_what_is_asked_for() -> None:
    pixels = make(4, (6, 7), (23, 30))
    full, bare = compute(pixels), compute(pixels, cross_entropy=False, gradient=False)
    assert bare.gradient is None
    entropy = SUMS.index("cross_entropy")
    assert bare.sums[entropy] == 0
    full.sums[entropy] = 0
    assert bare.sums.equal(full.sums)
