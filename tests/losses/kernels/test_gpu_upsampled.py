"""Enlarging inside the Triton kernels against F.interpolate and the tensor implementation in float64."""

from __future__ import annotations

import pytest
import torch

from fpl.losses.kernels.contract import Pixels
from tests.losses.kernels.gpu_cases import DEVICE, certain, check, enlarged, expected, maps, normal, run

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")

SIZES = [
    (2, (1, 1), (3, 5)),
    (1, (2, 3), (17, 4)),
    (2, (3, 4), (3, 4)),
    (1, (3, 4), (7, 9)),
    (2, (5, 6), (3, 2)),
    (1, (3, 3), (1, 8)),
]


@pytest.mark.parametrize(("images", "low", "high"), SIZES, ids=str)
def test_enlargement(images: int, low: tuple[int, int], high: tuple[int, int]) -> None:
    student, teacher = normal(images, 3, *low), normal(images, 3, *low, seed=1)
    large = enlarged(teacher.double(), high)
    pixels = Pixels(student, teacher, counted=certain(large, 0.9), size=high)
    check(run(pixels), expected(pixels), gradient_error=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_enlargement_with_everything(dtype: torch.dtype) -> None:
    student, teacher, second = (normal(1, 7, 2, 33, seed=seed, scale=6.0).to(dtype) for seed in (0, 1, 2))
    size = (4, 67)
    student = student.contiguous(memory_format=torch.channels_last)
    inside = normal(1, *size, seed=3) > 0
    pixels = Pixels(student, teacher, second, inside, size=size, **maps(1, *size))
    mixed = torch.where(inside.unsqueeze(1), enlarged(second.double(), size), enlarged(teacher.double(), size))
    assert pixels.counted is not None
    pixels = pixels._replace(counted=pixels.counted & certain(mixed, 0.9))
    found, wanted = run(pixels, scale=0.37), expected(pixels, scale=0.37)
    assert found.gradient is not None
    assert found.gradient.dtype == dtype
    assert found.gradient.stride() == student.stride()
    if dtype == torch.float32:
        check(found, wanted, gradient_error=2e-5)
    else:
        torch.testing.assert_close(found.sums, wanted["sums"], rtol=3e-6, atol=1e-5)
        torch.testing.assert_close(found.gradient.double(), wanted["gradient"], rtol=2**-7, atol=2e-5)


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter runs one program after the other: nothing can differ")
@pytest.mark.parametrize("size", [None, (300, 410)])
def test_results_are_the_same_every_time(size: tuple[int, int] | None) -> None:
    pixels = Pixels(normal(2, 21, 90, 110), normal(2, 21, 90, 110, seed=1), size=size)
    first = run(pixels)
    for _ in range(3):
        again = run(pixels)
        assert torch.equal(again.sums, first.sums)
        assert torch.equal(again.gradient, first.gradient)
