"""The flaw detector of GCT, what it learns and what its maps decide, against second implementations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import Tensor, nn

from fpl.methods.gct.flaws import FlawDetector, HalfInstanceNorm, blur, compare, flaw_truth, gaussian, handled
from tests.methods.gct_loops import plain_handled, plain_truth


def some_maps(height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(height)
    noise = torch.randn(3, height, width, generator=generator, dtype=torch.float64)
    # A map with flaws, one below 0 all over but in a corner, and one whose flaws are all small.
    maps = torch.stack([noise[0], noise[1] - 5, 0.05 + 0.01 * noise[2]])
    maps[1, :3, :3] = 4.0
    return maps


@pytest.mark.parametrize(("size", "nu"), [((33, 33), 1), ((40, 46), 0), ((34, 33), 2)])
def test_the_truth_of_the_detector_is_that_of_the_loops(size: tuple[int, int], nu: int) -> None:
    generator = torch.Generator().manual_seed(nu)
    probabilities = (3 * torch.randn(2, 4, *size, generator=generator, dtype=torch.float64)).softmax(1)
    label = torch.randint(0, 4, (2, *size), generator=generator)
    label[0, :6] = 255
    found = flaw_truth(probabilities, label, nu)
    for image, mu in enumerate((0.5, 3.0)):  # a factor that the stretch takes out again
        expected = plain_truth(probabilities[image], label[image], mu, nu)
        torch.testing.assert_close(found[image], expected, rtol=1e-7, atol=1e-7)
    assert found.amin((1, 2)).tolist() == [0, 0] and torch.allclose(found.amax((1, 2)), torch.ones(2).double())


@pytest.mark.parametrize("size", [(33, 33), (64, 50)])
@pytest.mark.parametrize("released", [False, True])
def test_handled_maps_are_those_of_the_loops(size: tuple[int, int], released: bool) -> None:
    maps = some_maps(*size)
    found = handled(maps, 0.1, released=released)
    for image in range(3):
        torch.testing.assert_close(found[image], plain_handled(maps[image], released), rtol=1e-9, atol=1e-12)
    flawless = set(found[2].flatten().tolist())
    assert len(flawless) == 1 and (max(flawless) < 0 if released else max(flawless) == 0)
    # One image after the other: nothing depends on who else is in the batch.
    torch.testing.assert_close(found[1:2], handled(maps[1:2], 0.1, released=released), rtol=0, atol=0)


@pytest.mark.parametrize("size", [1, 3, 5, 11, 33, 129])
def test_the_kernel_is_the_one_that_scipy_makes(size: int) -> None:
    spike = np.zeros((size, size))
    spike[size // 2, size // 2] = 1.0
    expected = ndimage.gaussian_filter(spike, 0.3 * ((size - 1) * 0.5 - 1) + 0.8)
    np.testing.assert_allclose(np.outer(gaussian(size), gaussian(size)), expected, rtol=1e-12, atol=1e-16)
    assert math.fsum(gaussian(size)) == pytest.approx(1.0, abs=1e-14)


def test_a_blur_keeps_what_is_constant_and_is_not_that_of_bfloat16() -> None:
    maps = torch.full((2, 40, 40), 0.3)
    torch.testing.assert_close(blur(maps, 4), maps)
    maps = torch.rand(1, 40, 40, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(blur(maps, 4), blur(maps.double(), 4).float(), rtol=1e-6, atol=1e-6)


def test_who_teaches_whom() -> None:
    first = torch.tensor([[[0.1, 0.5, 0.3, 0.9, 0.7, 0.6, 0.2, 0.61]]])
    second = torch.tensor([[[0.4, 0.2, 0.3, 0.7, 0.6, 0.8, 0.9, 0.59]]])
    verdict = compare(first, second, 0.6)
    # 0.9 against 0.7: both are bad, and equal. 0.6 is not above the threshold yet.
    assert verdict.both_bad.int().tolist() == [[[0, 0, 0, 1, 0, 0, 0, 0]]]
    assert verdict.taught[0].int().tolist() == [[[0, 1, 0, 0, 1, 0, 0, 1]]]
    assert verdict.taught[1].int().tolist() == [[[1, 0, 0, 0, 0, 1, 1, 0]]]


def test_targets_are_those_of_masks_and_sums() -> None:
    """As both codes put them together: values above the threshold become 1, targets are sums of masked predictions."""
    generator = torch.Generator().manual_seed(0)
    flaws = torch.rand(2, 3, 8, 8, generator=generator)
    flaws[1, 0], flaws[0, 1, :, :4] = flaws[0, 0], 0.0
    predictions = torch.rand(2, 3, 8, 8, generator=generator)
    verdict = compare(flaws[0], flaws[1], 0.6)
    equal = flaws * (flaws <= 0.6) + (flaws > 0.6)
    keeps = [(equal[1] >= equal[0]).float(), (equal[0] >= equal[1]).float()]
    for own, other in ((0, 1), (1, 0)):
        target = keeps[own] * predictions[own] + (1 - keeps[own]) * predictions[other]
        found = torch.where(verdict.taught[own], predictions[other], predictions[own])
        torch.testing.assert_close(found, target)
    assert torch.equal(verdict.both_bad, (flaws[0] > 0.6) & (flaws[1] > 0.6))


@pytest.mark.parametrize(("classes", "million"), [(21, 8.294), (19, 8.292)])
def test_the_detector_has_the_published_parameters(classes: int, million: float) -> None:
    def expected(width: int) -> int:
        multiples = [1, 2, 2, 4, 4, 8, 8]
        weights = 16 * width * (3 + classes) + 16 * width * 8
        weights += sum(16 * width**2 * one * other for one, other in itertools.pairwise(multiples))
        # Biases, and the two parameters of half of the channels.
        return weights + sum(multiples) * width + 1 + sum(multiples) * width

    found = {width: sum(p.numel() for p in FlawDetector(classes, width).parameters()) for width in (4, 64)}
    assert found == {width: expected(width) for width in (4, 64)}
    assert round(found[64] / 1e6, 3) == million


def plain_detector(detector: FlawDetector, seen: Tensor, strides: list[int]) -> Tensor:
    """Its pass written out, with batch statistics and given strides."""
    convolutions = [module for module in detector.layers if isinstance(module, nn.Conv2d)]
    norms = [module for module in detector.layers if isinstance(module, HalfInstanceNorm)]
    features = seen
    for number, (convolution, stride) in enumerate(zip(convolutions, strides, strict=True)):
        features = F.conv2d(features, convolution.weight, convolution.bias, stride, 1)
        if number == len(norms):
            break
        batch = norms[number].batch
        half = batch.num_features
        normed = []
        for part, axes in ((features[:, :half], (0, 2, 3)), (features[:, half:], (2, 3))):
            mean = part.mean(axes, keepdim=True)
            normed.append((part - mean) / (part.var(axes, unbiased=False, keepdim=True) + 1e-5).sqrt())
        normed[0] = normed[0] * batch.weight.view(1, -1, 1, 1) + batch.bias.view(1, -1, 1, 1)
        joined = torch.cat(normed, dim=1)
        features = torch.where(joined > 0, joined, 0.2 * joined)
    return F.interpolate(features, seen.shape[-2:], mode="bilinear", align_corners=True)[:, 0]


# Published: all five halve. Small: 40, 20, 10, and from there on one row less with every convolution.
@pytest.mark.parametrize(
    ("size", "strides", "inside"),
    [
        ((321, 284), [2, 2, 1, 2, 1, 2, 1, 2], (9, 8)),
        ((40, 40), [2, 2, 1, 1, 1, 1, 1, 1], (4, 4)),
        ((33, 60), [2, 2, 1, 1, 1, 1, 1, 1], (2, 9)),
    ],
)
def test_the_detector_is_the_published_one(size: tuple[int, int], strides: list[int], inside: tuple[int, int]) -> None:
    torch.manual_seed(0)
    detector = FlawDetector(4, 3).double()
    for module in detector.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    seen = torch.randn(2, 7, *size, dtype=torch.float64)
    torch.testing.assert_close(detector(seen), plain_detector(detector, seen, strides), rtol=1e-8, atol=1e-10)
    assert detector.layers(seen).shape[-2:] == inside


def test_the_detector_takes_every_size_that_networks_take() -> None:
    detector = FlawDetector(2, 2)
    for side in [*range(33, 70), 96, 127]:
        assert min(detector.layers(torch.zeros(1, 5, side, 40)).shape[-2:]) >= 2, side
    assert detector(torch.zeros(2, 5, 33, 35)).shape == (2, 33, 35)
