"""The diagnostics' CPU kernel against the tensor version in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fpl.losses import kernels
from fpl.losses.diagnostics import diagnose
from fpl.losses.kernels import cpu_diagnose
from fpl.losses.kernels.contract import make_settings
from fpl.losses.rules import Rules
from tests.losses.kernels.cases import needs_cpu_kernel

pytestmark = needs_cpu_kernel

SETTINGS: list[dict[str, Any]] = [
    {},
    {"fidelity": "released"},
    {"fidelity": "released", "weight": "convex", "threshold": 0.99},
    {"strategy": "n"},
    {"strategy": "ratio", "ratio": 0.7, "weight": "linear"},
    {"strategy": "fixed", "fixed_k": 1},
    {"strategy": "step", "progress": 0.4, "weight": "none"},
]


def scene(
    classes: int, scale: float = 4.0, shape: tuple[int, ...] = (27, 41), seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Student and teacher [2, C, *shape], and truths of which some are unknown.

    From left to right the teacher gets more certain, and of the students half agree with it.
    """
    generator = torch.Generator().manual_seed(seed + classes)
    certainty = torch.linspace(0.05, 1, shape[-1]) * scale
    teacher = torch.randn(2, classes, *shape, generator=generator) * certainty
    student = torch.randn(2, classes, *shape, generator=generator) * certainty
    student[:, :, ::2] += teacher[:, :, ::2]
    truth = torch.randint(0, classes + 1, (2, *shape), generator=generator)
    truth = torch.where(torch.rand(truth.shape, generator=generator) < 0.5, teacher.max(1).indices, truth)
    return student, teacher, torch.where(truth == classes, 255, truth)


def near_threshold(teacher: Tensor, threshold: float) -> Tensor:
    """Pixels whose K rounding may decide."""
    sums = teacher.double().softmax(1).sort(1, descending=True).values.cumsum(1)
    return ((sums - threshold).abs() < 1e-5).any(1)


def check(
    student: Tensor, teacher: Tensor, truth: Tensor | None, counted: Tensor | None = None, **settings: Any
) -> dict[str, Tensor]:
    """Compare, without the pixels that rounding decides."""
    sure = ~near_threshold(teacher, settings.get("threshold", 0.9))
    assert sure.float().mean() > 0.95
    counted = sure if counted is None else counted & sure
    with kernels.use("cpu"):
        found = diagnose(student, teacher, ground_truth=truth, counted=counted, rules=Rules(**settings))
    expected = diagnose(
        student.double(), teacher.double(), ground_truth=truth, counted=counted, rules=Rules(**settings)
    )
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        # Sums of cosines and scores of both signs can be far smaller than what they are sums of.
        loose = 1e-5 * int(found["pixels"]) ** 0.5 if name.startswith("cosine") else 1e-6
        assert found[name].tolist() == pytest.approx(value.tolist(), rel=1e-5, abs=loose, nan_ok=True), name
        if name in cpu_diagnose.COUNTS:
            assert torch.equal(found[name], value), name
    return found


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(map(str, settings.values())) or "default")
@pytest.mark.parametrize("classes", [2, 3, 6, 21, 150])
def test_settings(classes: int, settings: dict[str, Any]) -> None:
    student, teacher, truth = scene(classes)
    counted = torch.rand(truth.shape, generator=torch.Generator().manual_seed(1)) < 0.8
    found = check(student, teacher, truth, counted, **settings)
    assert found["case_pixels"][0] > 0 < found["case_pixels"][2] or settings.get("strategy") == "n"
    assert found["case_pixels"][1] > 0 or classes == 2 or settings.get("fixed_k") == 1


@pytest.mark.parametrize("scale", [0.1, 30.0, 1e4])
@pytest.mark.parametrize("classes", [2, 6, 21])
def test_flat_and_huge_logits(classes: int, scale: float) -> None:
    found = check(*scene(classes, scale=scale))
    assert not any(values.isnan().any() for values in found.values())


@pytest.mark.parametrize("settings", SETTINGS[:4])
def test_ties(settings: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randint(-2, 3, (2, 6, 900), generator=generator).float() for _ in range(2))
    found = check(student, teacher, torch.randint(0, 6, (2, 900), generator=generator), **settings)
    assert found["case_pixels"].min() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_dtypes_and_layouts(dtype: torch.dtype, layout: torch.memory_format) -> None:
    student, teacher, truth = scene(21)
    student, teacher = (values.to(dtype).contiguous(memory_format=layout) for values in (student, teacher))
    found = check(student, teacher, truth.to(torch.uint8))
    again = check(student, teacher, torch.where(truth == 255, 2**40, truth))
    assert all(torch.equal(found[name], again[name]) for name in found)


@pytest.mark.parametrize("shape", [(1,), (17,), (257,), (4099,), (3, 5, 7)])
def test_any_number_of_pixels(shape: tuple[int, ...]) -> None:
    check(*scene(5, shape=shape))


def test_without_truth() -> None:
    student, teacher, truth = scene(21)
    found = check(student, teacher, None)
    with_truth = check(student, teacher, truth)
    assert "case_pixels" not in found
    assert all(torch.equal(found[name], with_truth[name]) for name in found)


@pytest.mark.parametrize("settings", [{}, {"fidelity": "released"}, {"strategy": "n"}])
@pytest.mark.parametrize(("who", "value"), [(0, float("nan")), (1, float("nan")), (1, float("inf"))])
def test_broken_pixels(who: int, value: float, settings: dict[str, Any]) -> None:
    student, teacher, truth = scene(6)
    truth[0, 3, 30] = 2
    (student, teacher)[who][0, 4, 3, 30] = value
    found = check(student, teacher, truth, **settings)
    assert found["loss_sum"].isnan()
    assert found["vanilla_score_sum"].isnan().sum() == found["fuzzy_score_sum"].isnan().sum() == 1
    counted = torch.ones_like(truth, dtype=torch.bool)
    counted[0, 3, 30] = False
    found = check(student, teacher, truth, counted, **settings)
    assert not any(values.isnan().any() for values in found.values())


def test_threads_do_not_change_a_bit() -> None:
    student, teacher, truth = scene(8, shape=(150, 150))
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            with kernels.use("cpu"):
                found.append(diagnose(student, teacher, ground_truth=truth))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0][name], other[name]) for other in found[1:] for name in other)


def test_the_kernel_is_taken_where_it_can_be() -> None:
    student, teacher, _ = scene(3)
    chosen = make_settings(3, Rules())
    with kernels.use("cpu"):
        assert cpu_diagnose.usable(chosen, student, teacher.bfloat16())
        assert not cpu_diagnose.usable(chosen, student.double(), teacher.double())
        assert not cpu_diagnose.usable(chosen, student[:0], teacher[:0])
        assert not cpu_diagnose.usable(chosen._replace(soft=True), student, teacher)
    with kernels.use("tensor"):
        assert not cpu_diagnose.usable(chosen, student, teacher)


def test_low_resolution_and_two_teachers() -> None:
    student, teacher, _ = scene(4, shape=(8, 9))
    second = teacher.flip(1)
    truth = torch.randint(0, 4, (2, 29, 33), generator=torch.Generator().manual_seed(3))
    inside = truth % 2 == 0
    keywords: dict[str, Any] = {"ground_truth": truth, "inside": inside, "size": (29, 33)}
    with kernels.use("cpu"):
        found = diagnose(student, teacher, second=second, **keywords)
    expected = diagnose(student.double(), teacher.double(), second=second.double(), **keywords)
    assert found["case_pixels"].min() > 0
    for name, value in expected.items():
        assert found[name].tolist() == pytest.approx(value.tolist(), rel=1e-4, abs=1e-3), name
