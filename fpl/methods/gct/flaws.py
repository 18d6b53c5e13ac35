"""The flaw detector of GCT, what it learns, and what its flaw maps say about two predictions.

Flaw maps are [B, H, W], of the images' size, about 0 where a prediction is right and about 1 where it is wrong. Nothing
here mixes images, batch norm apart, which the suite extends over all workers.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.data.batches import send
from fpl.data.spec import IGNORE
from fpl.losses.checks import to_compute
from fpl.models.network import resize

# A layer halves what has so many rows and columns or more; images of 284 pixels or more are never below it.
SMALLEST_HALVED = 16
# Of min-max normalisation, as in both codes.
EPSILON = 1e-9


class FlawDetector(nn.Module):
    """Tell where a prediction is wrong (PixelSSL, `FlawDetector`).

    Eight convolutions of 4 x 4, five of which halve the resolution, with half batch norm, half instance norm and leaky
    ReLU behind all but the last; its map is enlarged to the image's size and has no activation. A crop much smaller
    than the published ones would vanish on the way: there the later convolutions halve nothing. A crop of 40 gives a
    map of 4 x 4, one of 512 a map of 15 x 15 as published.

    Args:
        classes: C.
        channels: Of the first layer: 64 in both codes, which makes 8.294 M parameters for 21 classes.
    """

    def __init__(self, classes: int, channels: int = 64) -> None:
        super().__init__()
        plan = [(1, True), (2, True), (2, False), (4, True), (4, False), (8, True), (8, False)]
        layers: list[nn.Module] = []
        width = 3 + classes
        for multiple, halves in plan:
            layers += [
                _Convolution(width, multiple * channels, halves),
                HalfInstanceNorm(multiple * channels),
                nn.LeakyReLU(0.2, inplace=True),
            ]
            width = multiple * channels
        self.layers = nn.Sequential(*layers, _Convolution(width, 1, halves=True))

    def forward(self, seen: Tensor) -> Tensor:
        """Compute a flaw map [B, H, W] for normalised images and probabilities, one above the other, [B, 3 + C, H, W].

        Sides of 33 pixels or more; in training batch norm takes its statistics over all of the batch.
        """
        # In bfloat16 an enlarged map would have steps.
        return resize(to_compute(self.layers(seen)), seen.shape[-2:]).squeeze(1)


class _Convolution(nn.Conv2d):
    """A convolution of 4 x 4 with a border of 1 that halves the resolution of what is large enough."""

    def __init__(self, in_channels: int, out_channels: int, halves: bool) -> None:
        super().__init__(in_channels, out_channels, kernel_size=4, stride=2 if halves else 1, padding=1)

    def forward(self, input: Tensor) -> Tensor:
        stride = self.stride if min(input.shape[-2:]) >= SMALLEST_HALVED else 1
        return F.conv2d(input, self.weight, self.bias, stride, self.padding)


class HalfInstanceNorm(nn.Module):
    """Batch norm for the first half of the channels, instance norm without parameters for the others (`IBNorm`)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.split = [channels - channels // 2, channels // 2]
        self.batch = nn.BatchNorm2d(self.split[0])
        self.instance = nn.InstanceNorm2d(self.split[1])

    def forward(self, features: Tensor) -> Tensor:
        """Normalise [B, C, h, w]."""
        first, second = torch.split(features, self.split, dim=1)
        return torch.cat([self.batch(first), self.instance(second)], dim=1)


@functools.cache
def gaussian(size: int) -> tuple[float, ...]:
    """Weights of the codes' blur along one axis; their sum is 1.

    Both let scipy blur a 1 in an image of `size` x `size` with sigma = 0.3 ((size - 1) / 2 - 1) + 0.8: a Gaussian cut
    off at 4 sigma, what exceeds the image being mirrored back into it. With the 1 in the middle of an odd image that
    is a sum over all distances that differ by multiples of `size`.

    Args:
        size: Odd.
    """
    sigma = 0.3 * ((size - 1) / 2 - 1) + 0.8
    reach = int(4 * sigma + 0.5)
    weights = [0.0] * size
    for distance in range(-reach, reach + 1):
        weights[(distance + size // 2) % size] += math.exp(-0.5 * (distance / sigma) ** 2)
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def blur(maps: Tensor, share: int) -> Tensor:
    """Blur [B, H, W] with a Gaussian window whose side is a `share`-th of the maps', made odd; borders are mirrored.

    The side is that of the square crops in both codes; of others it is the smaller one.
    """
    size = min(maps.shape[-2:]) // share
    size += 1 - size % 2
    kernel = send(torch.tensor(gaussian(size), dtype=maps.dtype), maps.device)
    padded = F.pad(maps.unsqueeze(1), [size // 2] * 4, mode="reflect")
    # In bfloat16 a blurred map would have steps, and autocast does convolve in it.
    with torch.autocast(maps.device.type, enabled=False):
        columns = F.conv2d(padded, kernel.view(1, 1, -1, 1))
        return F.conv2d(columns, kernel.view(1, 1, 1, -1)).squeeze(1)


@torch.no_grad()
def flaw_truth(probabilities: Tensor, label: Tensor, nu: int = 1) -> Tensor:
    """Compute what the detector is to say, G, [B, H, W] in 0..1 ("pipeline C" of the paper, `FDGTGenerator`).

    Half the L1 distance between prediction and one-hot label, blurred, then `nu` times dilated (3 x 3) and blurred
    more, and stretched so that each image has both a 0 and a 1. An ignored pixel has a one-hot label of zeros, as in
    both codes: its distance is 1/2. The half is the codes' mu; stretching makes all of its values the same.

    Args:
        probabilities: [B, C, H, W].
        label: int64 [B, H, W].
        nu: Rounds of dilation.
    """
    known = label != IGNORE
    right = to_compute(probabilities).gather(1, torch.where(known, label, 0).unsqueeze(1)).squeeze(1)
    # All but the true class's share is on wrong ones, so the two halves of the distance are alike.
    maps = blur(torch.where(known, 1 - right, 0.5), 8)
    for _ in range(nu):
        maps = blur(F.max_pool2d(maps.unsqueeze(1), 3, stride=1, padding=1).squeeze(1), 4)
    least, most = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return (maps - least) / (most - least + EPSILON)


@torch.no_grad()
def handled(maps: Tensor, flawless_below: float = 0.1, *, released: bool = False) -> Tensor:
    """Flaw maps that can be compared, [B, H, W] (`FlawmapHandler`).

    Cut off at 0, blurred, stretched so that each image has both a 0 and a 1; 0 all over where nothing is large.

    Args:
        maps: Flaw maps as the detector gives them.
        flawless_below: What the largest value must exceed.
        released: An image without a flaw gets -min / (max - min) all over, as both codes compute it.
    """
    maps = blur(to_compute(maps).clamp(min=0), 16)
    least, most = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    flawed = most > flawless_below
    if released:
        return (maps * flawed - least) / (most - least + EPSILON)
    return torch.where(flawed, (maps - least) / (most - least + EPSILON), 0.0)


class Verdict(NamedTuple):
    """What two handled flaw maps say, bool [B, H, W] each."""

    taught: tuple[Tensor, Tensor]
    """Where the first network is to learn from the second, and where the second from the first."""
    both_bad: Tensor
    """Where nobody has anything to teach."""


def compare(first: Tensor, second: Tensor, threshold: float) -> Verdict:
    """Find the smaller of two handled flaw maps at each pixel (`DCGTGenerator`).

    Above the threshold all flaws are equal. Of two equal ones nobody learns: each network keeps its own prediction.
    """
    first_bad, second_bad = first > threshold, second > threshold
    first, second = first.masked_fill(first_bad, 1.0), second.masked_fill(second_bad, 1.0)
    return Verdict((first > second, second > first), first_bad & second_bad)
