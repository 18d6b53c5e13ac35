"""The CPU kernels against the tensor implementation in float64."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from fpl.losses import FIDELITIES, STRATEGIES, WEIGHTS
from fpl.losses.kernels import cpu, cpu_library, cpu_upsampled
from fpl.losses.kernels.contract import SUMS, Pixels, Summed

from .cases import needs_cpu_kernel
from .expected import FAMILIES, SHAPE, expect, expect_sums, logits, settings

pytestmark = needs_cpu_kernel

# The tolerances of `soft` are its own: test_soft.py.
WHOLE = [strategy for strategy in STRATEGIES if strategy != "soft"]
THRESHOLDS = (0.5, 0.85, 0.9, 0.95, 0.999)


def run(pixels: Pixels, *, scale: float | None = None, gradient: bool = True, **changed: Any) -> Summed:
    return cpu.summed(
        settings(pixels.student.shape[1], **changed),
        pixels,
        scale=None if scale is None else torch.tensor(scale),
        cross_entropy=True,
        gradient=gradient,
    )


def by_name(result: Summed) -> dict[str, float]:
    return dict(zip(SUMS, result.sums.tolist(), strict=True))


def close(measured: Tensor, exact: Tensor, *, relative: float = 3e-6, absolute: float = 3e-7) -> None:
    torch.testing.assert_close(measured.double(), exact.double(), rtol=relative, atol=absolute)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("classes", [2, 3, 19, 21, 150])
def test_every_input_and_setting(family: str, classes: int) -> None:
    student, teacher = logits(family, classes), logits(family, classes, seed=1)
    upstream = torch.rand(1, *SHAPE, generator=torch.Generator().manual_seed(0))
    weights = itertools.cycle(WEIGHTS)
    for strategy, fidelity, threshold in itertools.product(WHOLE, FIDELITIES, THRESHOLDS):
        changed = {"strategy": strategy, "fidelity": fidelity, "threshold": threshold, "weight": next(weights)}
        chosen = settings(classes, **changed)
        expected = expect(student, teacher, upstream, **changed)
        result = cpu.mapped(chosen, student, teacher)
        gradient = cpu.mapped_gradient(chosen, student, teacher, result.state, upstream)
        sure = expected.sure
        assert torch.equal(result.k[sure], expected.k[sure])
        close(result.loss[sure], expected.loss[sure])
        close(result.weight[sure], expected.weight[sure], relative=0, absolute=3e-6)
        close(gradient.movedim(1, -1)[sure], expected.gradient.movedim(1, -1)[sure], relative=0, absolute=3e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("classes", [2, 3, 19, 21, 150])
def test_sums_and_their_gradient(family: str, classes: int) -> None:
    student, teacher = logits(family, classes), logits(family, classes, seed=1)
    weights = itertools.cycle(WEIGHTS)
    for strategy, fidelity, threshold in itertools.product(WHOLE, FIDELITIES, (0.5, 0.9)):
        changed = {"strategy": strategy, "fidelity": fidelity, "threshold": threshold, "weight": next(weights)}
        expected = expect(student, teacher, **changed)
        # A pixel whose K may differ does not count, so everything else has to agree.
        pixels = Pixels(student, teacher, counted=expected.sure)
        result = run(pixels, **changed)
        sums = by_name(result)
        exact = expect_sums(expected, pixels)
        assert sums["pixels"] == exact["pixels"]
        for name in SUMS:
            # The weight of equal probabilities is 0 in exact numbers alone: 3e-6 of the loss may be left.
            spare = 3e-6 * max(exact["loss"], exact["pixels"])
            assert sums[name] == pytest.approx(exact[name], rel=3e-6, abs=spare), name
        assert torch.equal(result.histogram, torch.bincount(expected.k[expected.sure] - 1, minlength=classes))
        assert result.gradient is not None
        wanted = torch.where(expected.sure.unsqueeze(1), expected.gradient, 0)
        close(result.gradient, wanted, relative=0, absolute=3e-6)


def test_the_families_have_what_they_are_named_for() -> None:
    """Most pixels are compared, and there are many values of K among them."""
    expected = {family: expect(logits(family, 21), logits(family, 21)) for family in FAMILIES}
    assert len(expected["random"].k.unique()) > 6
    assert (expected["flat"].k == 18).all()
    assert (expected["one-hot"].k == 1).all()
    for family in FAMILIES:
        assert expected[family].sure.double().mean() > 0.97, family


def test_a_known_pixel() -> None:
    """A pixel by hand: p = .60 .35 .02 .015 .01 .005 has K = 1 at T = 0.9, since .60 + .35 exceeds it."""
    teacher = torch.tensor([0.60, 0.35, 0.02, 0.015, 0.01, 0.005]).log().view(1, 6, 1)
    sums = by_name(run(Pixels(teacher.clone(), teacher), weight="linear"))
    assert sums["pixels"] == 1
    assert sums["loss"] == pytest.approx(0.5108256, rel=1e-6)  # -log .60
    assert sums["weight"] == pytest.approx(0.4166667, rel=1e-6)  # (.60 - .35) / .60
    sums = by_name(run(Pixels(teacher.clone(), teacher), threshold=0.96))
    # K = 2: log(1 + (1 / .60 + 1 / .35) * .05)
    assert sums["loss"] == pytest.approx(0.2039122, rel=1e-6)


@pytest.mark.parametrize("curvature", [0.01, 50.0, 1e4])
@pytest.mark.parametrize("coefficient", [0.0, 2.5])
def test_numbers_of_the_weight(curvature: float, coefficient: float) -> None:
    student, teacher = logits("random", 7), logits("random", 7, seed=1)
    for weight in ("concave", "convex"):
        changed = {"weight": weight, "curvature": curvature, "convex_coefficient": coefficient}
        expected = expect(student, teacher, **changed)
        result = cpu.mapped(settings(7, **changed), student, teacher)
        close(result.weight[expected.sure], expected.weight[expected.sure])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("who", ["student", "teacher"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nan_is_seen_and_stays_local(value: float, who: str, strategy: str) -> None:
    tensors = {"student": logits("random", 5), "teacher": logits("random", 5, seed=1)}
    weight = dict(zip(STRATEGIES, ("concave", "none", "linear", "convex", "concave", "linear"), strict=True))[strategy]
    changed = {"strategy": strategy, "weight": weight}
    clean = cpu.mapped(settings(5, **changed), tensors["student"], tensors["teacher"])
    clean_gradient = run(Pixels(tensors["student"], tensors["teacher"]), **changed).gradient
    assert clean_gradient is not None
    bad = torch.zeros(1, *SHAPE, dtype=torch.bool)
    bad[0, 3, 2] = True
    for channel in range(5):
        broken = {name: tensor.clone() for name, tensor in tensors.items()}
        broken[who][0, channel, 3, 2] = value
        result = cpu.mapped(settings(5, **changed), broken["student"], broken["teacher"])
        summed = run(Pixels(broken["student"], broken["teacher"]), **changed)
        assert summed.gradient is not None
        if value != value or who == "teacher":
            assert torch.equal(result.loss.isnan(), bad)
            assert summed.sums[SUMS.index("value")].isnan()
            for gradient in (
                summed.gradient,
                cpu.mapped_gradient(
                    settings(5, **changed), broken["student"], broken["teacher"], result.state, torch.ones(1, *SHAPE)
                ),
            ):
                assert gradient.isnan().all(1)[bad].all()
        if who == "teacher":
            assert torch.equal(result.weight.isnan(), bad if weight != "none" else torch.zeros_like(bad))
            assert result.k[bad].item() == {"n-1": 4, "n": 5, "fixed": 2, "step": 2, "ratio": 1, "soft": 4}[strategy]
        assert torch.equal(result.loss[~bad], clean.loss[~bad])
        assert torch.equal(result.k[~bad], clean.k[~bad])
        assert torch.equal(summed.gradient.movedim(1, -1)[~bad], clean_gradient.movedim(1, -1)[~bad])


@pytest.mark.parametrize("who", ["student", "teacher", "both"])
def test_uncounted_pixels_add_nothing(who: str) -> None:
    student, teacher = logits("random", 19), logits("random", 19, seed=1)
    generator = torch.Generator().manual_seed(0)
    counted = torch.rand(1, *SHAPE, generator=generator) < 0.6
    counted.flatten()[16:48] = False  # whole vectors, too
    broken = [tensor.clone() for tensor in (student, teacher)]
    for name, tensor in zip(("student", "teacher"), broken, strict=True):
        if who in (name, "both"):
            tensor.movedim(1, -1)[~counted] = torch.nan
    weight_map = torch.rand(1, *SHAPE, generator=generator).where(counted, torch.tensor(torch.nan))
    measured = run(Pixels(*broken, counted=counted, weight_map=weight_map))
    clean = run(Pixels(student, teacher, counted=counted, weight_map=weight_map))
    assert torch.equal(measured.sums, clean.sums)
    assert torch.equal(measured.histogram, clean.histogram)
    assert measured.histogram.sum() == counted.sum()
    assert measured.gradient is not None
    assert clean.gradient is not None
    assert torch.equal(measured.gradient, clean.gradient)
    assert (measured.gradient.movedim(1, -1)[~counted] == 0).all()
    assert (measured.gradient.movedim(1, -1)[counted] != 0).any(-1).all()


def test_nothing_counted_is_zero() -> None:
    student = torch.full((2, 4, 9), torch.nan)
    result = run(Pixels(student, student, counted=torch.zeros(2, 9, dtype=torch.bool)))
    assert result.sums.tolist() == [0.0] * len(SUMS)
    assert result.gradient is not None
    assert (result.gradient == 0).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_cross_entropy_with_a_teacher_that_is_no_number(strategy: str) -> None:
    student, teacher = logits("flat", 5), logits("flat", 5, seed=1)
    for channel, value in itertools.product(range(5), (torch.nan, torch.inf)):
        broken = teacher.clone()
        broken[0, channel, 3, 2] = value
        assert run(Pixels(student, broken), strategy=strategy).sums[SUMS.index("cross_entropy")].isnan()


def test_no_memory_is_an_error_and_not_the_end() -> None:
    """Buffers for 2^46 classes cannot be had: neither by the threads nor by the functions themselves."""
    student = torch.zeros(1, 2, 20_000)
    structure = cpu_library.c_settings(settings(2))
    structure.classes, structure.threads = 1 << 46, 4
    upsampled = cpu_upsampled.CUpsampled(images=1, rows=64, columns=1, height=64, width=1)
    pixels = ctypes.byref(structure), ctypes.c_int64(1), ctypes.c_int64(20_000)
    pair = [cpu_library.reference(cpu_library.describe(student))] * 2
    room = torch.zeros(8, dtype=torch.float64)
    unused = [ctypes.c_void_p()] * 5
    for name, arguments in {
        "fpl_mapped": (*pixels, *pair, *unused),
        "fpl_mapped_gradient": (*pixels, *pair, *unused[:3], pair[0]),
        "fpl_summed": (
            *(*pixels, *pair, *unused, ctypes.c_float(1), ctypes.c_int32(0), None),
            *(cpu_library.address(room), cpu_library.address(room)),
        ),
        "fpl_summed_upsampled": (
            *(ctypes.byref(structure), ctypes.byref(upsampled)),
            *(cpu_library.address(room), cpu_library.address(room)),
        ),
        "fpl_diagnose": (*pixels, *pair, *unused[:2], cpu_library.address(room)),
    }.items():
        with pytest.raises(MemoryError, match=f"{name} got no memory"):
            getattr(cpu_library.library(), name)(*arguments)
