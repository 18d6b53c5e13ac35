"""The Triton kernels against the tensor implementation in float64; without a GPU, under Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fpl.losses.fuzzy import fuzzy_positive_terms
from fpl.losses.kernels.contract import SUMS, Pixels
from fpl.losses.rules import Rules
from tests.losses.kernels.gpu_cases import (
    DEFAULTS,
    DEVICE,
    certain,
    check,
    expected,
    gpu,
    maps,
    normal,
    run,
    settings,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


def families(classes: int) -> tuple[Tensor, Tensor]:
    """Student and teacher [2, C, 24], groups of six pixels of each kind."""
    student, teacher = normal(2, classes, 24), normal(2, classes, 24, seed=1)
    teacher[0, :, :6] = 0.7
    teacher[0, :, 6:12] *= 10
    teacher[0, :, 12:18] = teacher[0, :, 12:18].round()
    student[0, :, 12:18] = student[0, :, 12:18].round()
    student[0, :, 18:], teacher[0, :, 18:] = student[0, :, 18:] * 3e3, teacher[0, :, 18:] * 3e3
    student[1, :, :6] += 5e3
    teacher[1, :, :6] += 5e3
    student[1, :, 6:12] = teacher[1, :, 6:12] = 0.0
    student[1, 0, 6:12] = 1e4
    teacher[1, -1, 6:12] = 1e4
    student[1, :, 18:] *= 1e-3
    teacher[1, :, 18:] *= 1e-3
    return student, teacher


@pytest.mark.parametrize(
    ("classes", "threshold"), [(2, 0.9), (3, 0.85), (19, 0.9), (21, 0.95), (21, 0.999), (150, 0.5)]
)
def test_both_forms_on_all_kinds_of_logits(classes: int, threshold: float) -> None:
    student, teacher = families(classes)
    sure = certain(teacher, threshold)
    assert sure.double().mean() > 0.7
    pixels = Pixels(student, teacher, counted=sure)
    check(run(pixels, threshold=threshold), expected(pixels, threshold=threshold))

    found = gpu.mapped(settings(classes, threshold=threshold), student.to(DEVICE), teacher.to(DEVICE))
    leaf = student.double().requires_grad_()
    wanted = fuzzy_positive_terms(leaf, teacher.double(), rules=Rules(threshold=threshold))
    assert torch.equal(found.k.cpu()[sure], wanted.k[sure])
    torch.testing.assert_close(found.loss.cpu().double()[sure], wanted.loss.detach()[sure], rtol=3e-6, atol=1e-7)
    torch.testing.assert_close(found.weight.cpu().double()[sure], wanted.weight[sure], rtol=0, atol=3e-6)
    upstream = normal(2, 24, seed=2, scale=1.0) * sure
    (gradient,) = torch.autograd.grad((wanted.loss * upstream.double()).sum(), leaf)
    result = gpu.mapped_gradient(
        settings(classes, threshold=threshold), student.to(DEVICE), teacher.to(DEVICE), found.state, upstream.to(DEVICE)
    )
    torch.testing.assert_close(result.cpu().double(), gradient, rtol=3e-6, atol=6e-6)


RULES = [
    {"strategy": "n", "weight": "linear"},
    {"strategy": "n", "fidelity": "released", "weight": "convex"},
    {"strategy": "n-1", "fidelity": "released"},
    {"strategy": "n-1", "weight": "convex", "convex_coefficient": 2.5},
    {"strategy": "fixed", "fixed_k": 6, "curvature": 7.0},
    {"strategy": "fixed", "fixed_k": 5, "fidelity": "released", "weight": "linear"},
    {"strategy": "step", "progress": 0.1, "weight": "none"},
    {"strategy": "ratio", "ratio": 0.6, "weight": "convex"},
    {"strategy": "ratio", "ratio": 0.75, "fidelity": "released"},
]


@pytest.mark.parametrize("keywords", RULES, ids=lambda keywords: "-".join(map(str, keywords.values())))
def test_strategies_weights_and_fidelities(keywords: dict[str, Any]) -> None:
    student, teacher = normal(1, 7, 30), normal(1, 7, 30, seed=1, scale=1.2)
    teacher[0, :, 0] = 0.0
    pixels = Pixels(student, teacher, counted=certain(teacher, 0.9))
    wanted = expected(pixels, **keywords)
    check(run(pixels, **keywords), wanted)
    found = gpu.mapped(settings(7, **keywords), student.to(DEVICE), teacher.to(DEVICE))
    assert torch.equal(torch.bincount(found.k.cpu()[pixels.counted] - 1, minlength=7), wanted["histogram"])


def test_a_share_of_n_loses_no_class() -> None:
    """0.29 * 100 is 28.999... in binary, in float32 as well as in float64; K is 29."""
    flat = torch.zeros(1, 101, 2)
    found = run(Pixels(flat, flat), strategy="ratio", ratio=0.29, threshold=99.5 / 101, gradient=False)
    assert found.histogram.nonzero().tolist() == [[28]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_computed_in_float32(dtype: torch.dtype) -> None:
    student, teacher = normal(2, 19, 20).to(dtype), normal(2, 19, 20, seed=1).to(dtype)
    pixels = Pixels(student, teacher, counted=certain(teacher, 0.9))
    found, wanted = run(pixels), expected(pixels)
    assert found.gradient is not None
    assert found.gradient.dtype == dtype
    torch.testing.assert_close(found.sums, wanted["sums"], rtol=3e-6, atol=1e-5)
    assert torch.equal(found.histogram, wanted["histogram"])
    # What is left is rounding the result: one unit in the last place more than half of one.
    torch.testing.assert_close(found.gradient.double(), wanted["gradient"], rtol=torch.finfo(dtype).eps, atol=1e-7)


def layouts(logits: Tensor) -> dict[str, Tensor]:
    """The same [B, C, H, W] logits in other layouts."""
    padded = torch.zeros(*logits.shape[:-1], logits.shape[-1] + 3)
    padded[..., 1:-2] = logits
    return {
        "channels_last": logits.contiguous(memory_format=torch.channels_last),
        "transposed": logits.transpose(2, 3).contiguous().transpose(2, 3),
        "window": padded[..., 1:-2],
    }


@pytest.mark.parametrize("name", ["channels_last", "transposed", "window"])
def test_layouts_give_the_same_numbers_and_a_gradient_of_their_strides(name: str) -> None:
    student, teacher = normal(2, 5, 3, 7), normal(2, 5, 3, 7, seed=1)
    plain = run(Pixels(student, teacher))
    other = layouts(student)[name]
    found = run(Pixels(other, layouts(teacher)[name]))
    assert plain.gradient is not None
    assert found.gradient is not None
    assert torch.equal(found.sums, plain.sums)
    assert torch.equal(found.gradient, plain.gradient)
    assert found.gradient.stride() == torch.empty_like(other).stride()
    rows = run(Pixels(student.permute(0, 2, 3, 1).reshape(-1, 5), teacher.permute(0, 2, 3, 1).reshape(-1, 5)))
    torch.testing.assert_close(rows.sums, plain.sums)
    assert rows.gradient is not None
    assert torch.equal(rows.gradient.view(2, 3, 7, 5).permute(0, 3, 1, 2), plain.gradient)


@pytest.mark.parametrize("second_layout", [torch.contiguous_format, torch.channels_last])
def test_choosing_a_teacher_is_mixing_them_first(second_layout: torch.memory_format) -> None:
    student, teacher, second = normal(2, 5, 4, 5), normal(2, 5, 4, 5, seed=1), normal(2, 5, 4, 5, seed=2)
    inside = normal(2, 4, 5, seed=3) > 0
    second[~inside.unsqueeze(1).expand_as(second)] = torch.nan
    mixed = run(Pixels(student, torch.where(inside.unsqueeze(1), second, teacher)))
    found = run(Pixels(student, teacher, second=second.contiguous(memory_format=second_layout), inside=inside))
    assert torch.equal(found.sums, mixed.sums)
    assert torch.equal(found.histogram, mixed.histogram)
    assert torch.equal(found.gradient, mixed.gradient)


def test_maps_and_scale() -> None:
    pixels = Pixels(normal(2, 7, 5, 4), normal(2, 7, 5, 4, seed=1), **maps(2, 5, 4))
    check(run(pixels, scale=0.37), expected(pixels, scale=0.37), gradient_error=1e-5)
    # Other numbers of a pixel that does not count, and a NaN weight of one that does.
    assert pixels.weight_map is not None and pixels.counted is not None
    before = run(pixels)
    left_out = ~pixels.counted
    student, teacher, weight_map = pixels.student.clone(), pixels.teacher.clone(), pixels.weight_map.clone()
    for one in (student, teacher):
        one[left_out.unsqueeze(1).expand_as(one)] = torch.nan
    weight_map[left_out] = torch.nan
    found = run(pixels._replace(student=student, teacher=teacher, weight_map=weight_map))
    assert torch.equal(found.sums, before.sums)
    assert torch.equal(found.gradient, before.gradient)
    assert found.gradient is not None
    assert found.gradient.movedim(1, -1)[left_out].eq(0).all()
    place = tuple(pixels.counted.nonzero()[3].tolist())
    weight_map[place] = torch.nan
    found = run(pixels._replace(weight_map=weight_map))
    assert found.sums.isnan().tolist() == [name == "value" for name in SUMS]
    assert found.gradient is not None
    broken = found.gradient.isnan()
    assert broken[place[0], :, place[1], place[2]].all()
    assert broken.sum() == 7


@pytest.mark.parametrize("size", [None, (3, 5)])
@pytest.mark.parametrize(("who", "bad"), [("student", torch.nan), ("teacher", torch.nan), ("teacher", torch.inf)])
def test_a_bad_logit_spoils_its_pixel_alone(who: str, bad: float, size: tuple[int, int] | None) -> None:
    student, teacher = normal(1, 5, 2, 3), normal(1, 5, 2, 3, seed=1, scale=2.0)
    pixels = Pixels(student, teacher, size=size)
    clean = run(pixels)
    (student if who == "student" else teacher)[0, 2, 1, 1] = bad
    found = run(pixels)
    assert found.sums[:4].isnan().tolist() == [False, True, True, True]
    assert bool(found.sums[4].isnan()) == (who == "teacher")
    assert found.sums[5].isnan()
    assert found.gradient is not None and clean.gradient is not None
    if size is None:
        assert found.gradient[0, :, 1, 1].isnan().all()
        assert found.gradient.isnan().sum() == 5
        same = ~found.gradient.isnan()
        assert torch.equal(found.gradient[same], clean.gradient[same])
        if who == "teacher":
            assert torch.equal(found.histogram, expected(pixels)["histogram"])
        mapped = gpu.mapped(settings(5), student.to(DEVICE), teacher.to(DEVICE))
        assert mapped.loss.isnan().nonzero().tolist() == [[0, 1, 1]]
        assert mapped.weight.isnan().sum() == (who == "teacher")
        upstream = torch.ones(1, 2, 3, device=DEVICE)
        result = gpu.mapped_gradient(settings(5), student.to(DEVICE), teacher.to(DEVICE), mapped.state, upstream)
        assert torch.equal(result.cpu().isnan(), found.gradient.isnan())
    else:
        assert torch.equal(found.gradient.isnan(), expected(pixels)["gradient"].isnan())


@pytest.mark.parametrize("fidelity", ["paper", "released"])
@pytest.mark.parametrize("shape", ["concave", "linear", "convex"])
@pytest.mark.parametrize("strategy", ["n", "soft", "ratio", "step"])
def test_the_weight_of_a_teacher_without_numbers_is_none(strategy: str, shape: str, fidelity: str) -> None:
    # Its K reaches C with strategy n, where the weight of a teacher with numbers is 1.
    student, teacher = normal(1, 5, 2, 3), normal(1, 5, 2, 3, seed=1, scale=2.0)
    teacher[0, 2, 1, 1] = torch.nan
    teacher[0, :, 0, 0] = torch.nan
    keywords = {"strategy": strategy, "weight": shape, "fidelity": fidelity}
    mapped = gpu.mapped(settings(5, **keywords), student.to(DEVICE), teacher.to(DEVICE))
    terms = fuzzy_positive_terms(student.double(), teacher.double(), Rules(**{**DEFAULTS, **keywords}))
    torch.testing.assert_close(mapped.weight.cpu().double(), terms.weight, rtol=3e-6, atol=1e-6, equal_nan=True)
    assert mapped.weight.isnan().nonzero().tolist() == [[0, 0, 0], [0, 1, 1]]
    assert run(Pixels(student, teacher), **keywords).sums[SUMS.index("weight")].isnan()


def test_rescale_multiplies_in_place() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        gradient = normal(2, 3, 5, 4).to(dtype).contiguous(memory_format=torch.channels_last).to(DEVICE)
        before = gradient.clone()
        assert gpu.rescale(gradient, torch.tensor(1.0, device=DEVICE)) is gradient
        assert torch.equal(gradient, before)
        gpu.rescale(gradient, torch.tensor(0.3, device=DEVICE))
        # The interpreter cuts bfloat16 off where a GPU rounds: one unit in the last place.
        wanted = before.double() * torch.tensor(0.3).double().item()
        torch.testing.assert_close(gradient.double(), wanted, rtol=torch.finfo(dtype).eps, atol=0)


def test_no_pixels() -> None:
    found = run(Pixels(normal(0, 5, 4), normal(0, 5, 4)))
    assert found.sums.tolist() == [0.0] * len(SUMS)
    assert found.histogram.tolist() == [0] * 5
    assert found.gradient is not None and found.gradient.shape == (0, 5, 4)


@pytest.mark.parametrize("factor", [torch.nan, torch.inf])
def test_rescale_leaves_zeros_alone(factor: float) -> None:
    gradient = torch.tensor([0.0, 2.0, 0.0, -3.0], device=DEVICE)
    found = gpu.rescale(gradient, torch.tensor(factor, device=DEVICE))
    wanted = torch.tensor([0.0, 2 * factor, 0.0, -3 * factor])
    torch.testing.assert_close(found.cpu(), wanted, equal_nan=True, rtol=0, atol=0)
