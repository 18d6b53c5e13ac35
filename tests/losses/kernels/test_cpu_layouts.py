"""The CPU kernels: dtypes and layouts in memory, two teachers, weight maps, threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from fpl.losses.kernels import cpu, cpu_library
from fpl.losses.kernels.contract import SUMS, Pixels

from .cases import needs_cpu_kernel
from .expected import expect, expect_sums, logits, settings
from .test_cpu import by_name, close, run

pytestmark = needs_cpu_kernel


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def same(measured: tuple[Tensor | None, ...], wanted: tuple[Tensor | None, ...]) -> None:
    for one, other in zip(measured, wanted, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["random", "flat", "ties", "peaked"])
@pytest.mark.parametrize("classes", [2, 19])
def test_half_precision(dtype: torch.dtype, family: str, classes: int) -> None:
    student, teacher = logits(family, classes).to(dtype), logits(family, classes, seed=1).to(dtype)
    expected = expect(student, teacher)
    pixels = Pixels(student, teacher, counted=expected.sure)
    result = run(pixels)
    exact = expect_sums(expected, pixels)
    assert by_name(result) == pytest.approx(exact, rel=3e-6, abs=3e-6 * max(exact["loss"], exact["pixels"]))
    assert result.gradient is not None
    assert result.gradient.dtype == dtype
    wanted = torch.where(expected.sure.unsqueeze(1), expected.gradient, 0)
    # Half a unit in the last place of the dtype, and float32's own error.
    digits = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-10}[dtype]
    close(result.gradient, wanted, relative=digits, absolute=3e-6)
    # Rounded to nearest, as a cast rounds: the same bits as the float32 result cast.
    single = run(Pixels(student.float(), teacher.float(), counted=expected.sure))
    assert torch.equal(result.sums, single.sums)
    assert single.gradient is not None
    assert torch.equal(result.gradient, single.gradient.to(dtype))
    mapped = cpu.mapped(settings(classes), student, teacher)
    same(mapped[:3], cpu.mapped(settings(classes), student.float(), teacher.float())[:3])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_half_precision_number_is_read_and_written_right(dtype: torch.dtype) -> None:
    """The pixels' gradient with respect to the only class that matters takes all magnitudes, denormals included."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    every = every[every.isfinite()].view(1, 1, -1)
    student = torch.cat([every, torch.zeros_like(every)], 1)
    teacher = torch.tensor([1.0, 0.0], dtype=dtype).view(1, 2, 1).expand_as(student)
    result = cpu.mapped(settings(2, weight="none"), student, teacher)
    single = cpu.mapped(settings(2, weight="none"), student.float(), teacher.float())
    same(result[:3], single[:3])
    close(result.loss, torch.nn.functional.softplus(-every[0].double(), threshold=100))
    for scale in (1.0, 1e-6, 3e4, 1e38):
        upstream = torch.full((1, every.shape[-1]), scale)
        gradient = cpu.mapped_gradient(settings(2), student, teacher, result.state, upstream)
        wanted = cpu.mapped_gradient(settings(2), student.float(), teacher.float(), single.state, upstream)
        assert torch.equal(gradient, wanted.to(dtype))


def layouts(tensor: Tensor) -> dict[str, Tensor]:
    """The same [B, C, H, W] numbers, lying in memory in different ways."""
    images, classes, height, width = tensor.shape
    within = torch.full((images + 1, classes + 2, height, width), 7.0, dtype=tensor.dtype)[1:, 1:-1]
    rows = torch.full((images, classes, height, width + 3), 7.0, dtype=tensor.dtype)[..., 1:-2]
    every_other = torch.full((images, classes, height, 2 * width), 7.0, dtype=tensor.dtype)[..., ::2]
    return {
        "contiguous": tensor.contiguous(),
        "channels_last": tensor.contiguous(memory_format=torch.channels_last),
        "slice": within.copy_(tensor),
        "cut rows": rows.copy_(tensor),
        "every other pixel": every_other.copy_(tensor),
        "turned": tensor.transpose(2, 3).contiguous().transpose(2, 3),
        "channel by channel": tensor.transpose(0, 1).contiguous().transpose(0, 1),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_layouts(dtype: torch.dtype) -> None:
    student = logits("random", 5, images=2).to(dtype)
    teacher = logits("random", 5, images=2, seed=1).to(dtype)
    upstream = torch.rand(2, 13, 7)
    plain, chosen = run(Pixels(student, teacher)), settings(5)
    maps = cpu.mapped(chosen, student, teacher)
    slopes = cpu.mapped_gradient(chosen, student, teacher, maps.state, upstream)
    students, teachers = layouts(student), layouts(teacher)
    for one, other in itertools.product(students, teachers):
        leaf, scores = students[one], teachers[other]
        result = run(Pixels(leaf, scores))
        same(result, plain)
        assert result.gradient is not None
        if one in ("contiguous", "channels_last", "channel by channel"):
            assert result.gradient.stride() == leaf.stride()
        same(cpu.mapped(chosen, leaf, scores)[:3], maps[:3])
        assert torch.equal(cpu.mapped_gradient(chosen, leaf, scores, maps.state, upstream), slopes)


def test_only_layouts_without_one_stride_are_copied() -> None:
    tensors = layouts(logits("random", 5, images=2))
    copied = {
        name for name, tensor in tensors.items() if cpu_library.addressable(tensor).data_ptr() != tensor.data_ptr()
    }
    assert copied == {"cut rows", "turned"}


@pytest.mark.parametrize("shape", [(), (1,), (40,), (1, 1), (3, 1), (1, 5), (2, 3, 4), (0, 3)])
def test_spatial_dimensions(shape: tuple[int, ...]) -> None:
    student, teacher = (logits("random", 4, images=2, shape=shape, seed=seed) for seed in (0, 1))
    result = run(Pixels(student, teacher))
    flat = run(Pixels(student.reshape(2, 4, -1), teacher.reshape(2, 4, -1)))
    assert torch.equal(result.sums, flat.sums)
    assert result.sums[0] == student[:, 0].numel()
    assert result.gradient is not None
    assert flat.gradient is not None
    assert torch.equal(result.gradient.reshape(2, 4, -1), flat.gradient)
    assert cpu.mapped(settings(4), student, teacher).k.shape == (2, *shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_second_teacher_is_the_mixed_teacher_bit_by_bit(dtype: torch.dtype, channels_last: bool) -> None:
    form = torch.channels_last if channels_last else torch.contiguous_format
    student, first, second = (
        logits("random", 6, images=2, shape=(24, 33), seed=seed).to(dtype).contiguous(memory_format=form)
        for seed in range(3)
    )
    rectangle = torch.zeros(2, 24, 33, dtype=torch.bool)
    rectangle[0, 5:20, 8:30] = True  # the second image has none
    for inside in (rectangle, ~rectangle, torch.ones_like(rectangle), torch.rand(2, 24, 33) < 0.5):
        mixed = torch.where(inside.unsqueeze(1), second, first)
        same(run(Pixels(student, first, second=second, inside=inside)), run(Pixels(student, mixed)))


def test_a_teacher_that_does_not_teach_may_be_nan() -> None:
    student, first = logits("random", 6), logits("random", 6, seed=1)
    inside = torch.zeros(1, 13, 7, dtype=torch.bool)
    inside[0, 3:9] = True
    second = torch.where(inside.unsqueeze(1), logits("random", 6, seed=2), torch.nan)
    result = run(Pixels(student, first.masked_fill(inside.unsqueeze(1), torch.nan), second=second, inside=inside))
    assert result.sums.isfinite().all()


def test_weight_map() -> None:
    student, teacher = logits("random", 19), logits("random", 19, seed=1)
    weight_map = torch.rand(1, 13, 7, generator=torch.Generator().manual_seed(0)) * 3
    weight_map[0, 2] = 0
    constant = expect(student, teacher).weight
    expected = expect(student, teacher, constant * weight_map * 0.25)
    assert expected.sure.all()
    pixels = Pixels(student, teacher, weight_map=weight_map)
    result = run(pixels, scale=0.25)
    assert by_name(result) == pytest.approx(expect_sums(expected, pixels), rel=3e-6)
    assert result.gradient is not None
    close(result.gradient, expected.gradient, relative=0, absolute=3e-6)
    # Other dtypes and layouts of the map are taken, too.
    other = weight_map.double().transpose(1, 2).contiguous().transpose(1, 2)
    same(run(pixels._replace(weight_map=other), scale=0.25), result)
    # Not a number, and not on the quiet.
    weight_map[0, 4, 4] = torch.nan
    broken = run(pixels)
    assert by_name(broken)["value"] != by_name(broken)["value"]
    assert by_name(broken)["weighted_loss"] == by_name(result)["weighted_loss"]
    assert broken.gradient is not None
    wrong = broken.gradient.isnan().all(1)
    assert wrong[0, 4, 4]
    assert wrong.sum() == 1
    assert broken.gradient.isnan().any(1).sum() == 1


def test_scale_and_what_is_not_asked_for() -> None:
    student, teacher = logits("random", 19), logits("random", 19, seed=1)
    plain, scaled = run(Pixels(student, teacher)), run(Pixels(student, teacher), scale=0.125)
    assert torch.equal(plain.sums, scaled.sums)
    assert plain.gradient is not None
    assert scaled.gradient is not None
    assert torch.equal(scaled.gradient, plain.gradient * 0.125)
    without = run(Pixels(student, teacher), gradient=False)
    assert without.gradient is None
    assert torch.equal(without.sums, plain.sums)
    result = cpu.summed(settings(19), Pixels(student, teacher), scale=None, cross_entropy=False, gradient=False)
    assert result.sums[SUMS.index("cross_entropy")] == 0


def test_cross_entropy_is_the_loss_where_k_is_one() -> None:
    student, teacher = logits("random", 19), logits("random", 19, seed=1)
    sums = by_name(run(Pixels(student, teacher), strategy="fixed", fixed_k=1))
    assert sums["cross_entropy"] == sums["loss"]
    exact = torch.nn.functional.cross_entropy(student.double(), teacher.argmax(1), reduction="sum").item()
    assert sums["loss"] == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_the_number_of_threads_changes_no_bit(two_threads: None, layout: str) -> None:
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    student, teacher = (
        logits("random", 5, images=3, shape=(90, 71), seed=seed).contiguous(memory_format=form) for seed in (0, 1)
    )
    counted = torch.rand(3, 90, 71) < 0.8
    pixels = Pixels(student, teacher, counted=counted, weight_map=torch.rand(3, 90, 71))
    double = run(pixels), cpu.mapped(settings(5), student, teacher)
    slopes = cpu.mapped_gradient(settings(5), student, teacher, double[1].state, torch.ones(3, 90, 71))
    torch.set_num_threads(1)
    single = run(pixels), cpu.mapped(settings(5), student, teacher)
    same(double[0], single[0])
    same(double[1][:3], single[1][:3])
    ones = torch.ones(3, 90, 71)
    assert torch.equal(slopes, cpu.mapped_gradient(settings(5), student, teacher, single[1].state, ones))
    assert double[0].sums[0] == counted.sum()


def test_rescale_is_in_place_and_leaves_one_alone() -> None:
    gradient = torch.tensor([1.0, -2.0])
    assert cpu.rescale(gradient, torch.tensor(0.5)) is gradient
    assert gradient.tolist() == [0.5, -1.0]
    version = gradient._version
    assert cpu.rescale(gradient, torch.tensor(1.0)) is gradient
    assert gradient._version == version
    half = torch.tensor([3.0], dtype=torch.bfloat16)
    # 1.01 in bfloat16 would be 1.0078: the product has to be rounded once.
    assert cpu.rescale(half, torch.tensor(1.01)).item() == torch.tensor(3.03).bfloat16().item()
