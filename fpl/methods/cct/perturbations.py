"""Perturbations of features, in the paper's order: feature-based, prediction-based, random.

The last, spatial dropout, is `fpl.models.dropout.GlobalDropout2d`.

Features are an embedding, [B, C, h, w]. Random numbers are handed over, so that their caller draws them for the global
batch.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from fpl.losses.checks import to_compute
from fpl.models.network import nearest, resize

EIGHT_NEIGHBOURS = np.ones((3, 3), dtype=bool)
# Rows and columns from a pixel to its neighbours, around it: every second one is above, below, left or right.
AROUND = ((0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1))


def feature_noise(features: Tensor, uniform: Tensor, reach: float) -> Tensor:
    """Feature noise: z + z * N, N uniform in -reach .. reach (F-Noise).

    Args:
        features: [B, C, h, w].
        uniform: Numbers [G, C, h, w] in 0..1: B / G consecutive images share one noise, as those of a process do in the
            released code.
        reach: 0 or more.
    """
    noise = (2 * uniform - 1) * reach
    shared = features.reshape(len(uniform), -1, *features.shape[1:])
    noisy: Tensor = shared + shared * noise.unsqueeze(1)
    return noisy.flatten(0, 1).to(features.dtype)


def feature_drop(features: Tensor, uniform: Tensor, thresholds: tuple[float, float]) -> Tensor:
    """Feature drop: keep positions whose attention, a mean over channels, is below a share of the highest (F-Drop).

    Args:
        features: [B, C, h, w].
        uniform: Numbers [G] in 0..1: B / G consecutive images have one share.
        thresholds: The share is uniform between these two.
    """
    least, most = thresholds
    share = (least + uniform * (most - least)).repeat_interleave(len(features) // len(uniform)).view(-1, 1, 1)
    attention = to_compute(features.detach()).mean(1)
    return _keep(features, attention < share * attention.amax((1, 2), keepdim=True))


def context_mask(features: Tensor, foreground: Tensor) -> Tensor:
    """Hide the context: only objects are left (Con-Msk). `foreground` is bool [B, H, W], of any size."""
    return _keep(features, foreground)


def object_mask(features: Tensor, foreground: Tensor) -> Tensor:
    """Hide the objects: only their context is left (Obj-Msk). `foreground` is bool [B, H, W], of any size."""
    return _keep(features, ~foreground)


def guided_cutout(features: Tensor, holes: Tensor) -> Tensor:
    """Hide a part of each object (G-Cutout). `holes` is bool [B, H, W], of any size: see `cutout_holes`."""
    return _keep(features, ~holes)


def adversarial_perturbation(
    features: Tensor, decoder: nn.Module, uniform: Tensor, size: tuple[int, int], *, step: float, radius: float
) -> Tensor:
    """I-VAT: add what changes a decoder's prediction most, found by one power iteration (Miyato et al. 2018).

    With d a random unit vector per image, and D the KL divergence: g = grad_d D(f(z), f(z + step * d)), and
    z + radius * g / |g| is returned. The prediction is the decoder's own; its weights get no gradient here, z does.

    All of it is in float64. In float32, in which the released code has it, a step of 1e-6 over some 100,000 numbers is
    lost beside each of them, and g is the rounding of its own computation; there it has the norm g / (|g| + 1e-8),
    too, which makes the perturbation smaller than `radius` by orders. This is what the paper says instead.

    Args:
        features: [B, C, h, w].
        decoder: From features to logits.
        uniform: Numbers [B, C, h, w] in 0..1 that the first d is made of.
        size: Height and width that its logits are enlarged to.
        step: Length of the step that asks for the direction (xi).
        radius: Length of the perturbation of each image (epsilon).
    """
    weights = {name: parameter.detach().double() for name, parameter in decoder.named_parameters()}
    clean = features.detach().double()

    def log_probabilities(at: Tensor) -> Tensor:
        logits: Tensor = torch.func.functional_call(decoder, weights, (at,))
        return resize(logits, size).log_softmax(1)

    with torch.autocast(features.device.type, enabled=False):
        with torch.no_grad():
            target = log_probabilities(clean)
        direction = _unit_length(uniform.double() - 0.5).requires_grad_()
        divergence = F.kl_div(log_probabilities(clean + step * direction), target, reduction="sum", log_target=True)
        (gradient,) = torch.autograd.grad(divergence, direction)
    return features + (radius * _unit_length(gradient)).to(features.dtype)


def large_regions(foreground: NDArray[np.bool_], points: int) -> list[tuple[slice, slice]]:
    """Boxes of the large regions of a mask [h, w], rows and columns: those in which guided cut-out hides something.

    As `guided_cutout` of the released code, which has OpenCV look for outer contours and name their corners alone.

    Args:
        foreground: Where objects are.
        points: Corners that the outline of a region has to exceed.
    """
    # Imported late: it takes a third of a second, and few methods need it.
    from scipy import ndimage

    # What lies inside a region belongs to it: outside is what the edge of the image is connected to.
    background, _ = ndimage.label(np.pad(~foreground, 1, constant_values=True))
    filled = (background != background[0, 0])[1:-1, 1:-1]
    regions, count = ndimage.label(filled, structure=EIGHT_NEIGHBOURS)
    counts = corner_counts(filled)
    some = counts.nonzero()
    corners = np.bincount(regions[some], weights=counts[some], minlength=count + 1)
    boxes = ndimage.find_objects(regions)
    return [boxes[number] for number in np.flatnonzero(corners[1:] > points).tolist()]


def cutout_holes(
    size: tuple[int, ...], boxes: Sequence[tuple[slice, slice]], side: float, generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Where guided cut-out hides features, bool [h, w]: in the box of each large region a random box.

    Args:
        size: Height and width.
        boxes: What `large_regions` has found.
        side: Sides of the hole in those of the box.
        generator: Draws the places.
    """
    holes = np.zeros(size, dtype=bool)
    for box in boxes:
        window = []
        for place in box:
            # From the first to the last row or column, which is one less than their number.
            extent = place.stop - place.start - 1
            start = place.start + int(generator.integers(0, int(extent * (1 - side)), endpoint=True))
            window.append(slice(start, start + int(extent * side)))
        holes[tuple(window)] = True
    return holes


def corner_counts(mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """How many corners of its region's outline lie in each pixel, uint8 [h, w], in regions without holes.

    An outline goes from pixel to pixel in eight directions; where it goes on in its direction is no corner
    (`CHAIN_APPROX_SIMPLE` of OpenCV). It may come through a pixel of a thin part several times.
    """
    padded = np.pad(mask, 1)
    height, width = mask.shape
    code = np.zeros(mask.shape, dtype=np.uint8)
    for bit, (row, column) in enumerate(AROUND):
        code |= padded[1 + row : 1 + row + height, 1 + column : 1 + column + width].view(np.uint8) << bit
    return np.where(mask, _corner_table()[code], np.uint8(0))


@functools.cache
def _corner_table() -> NDArray[np.uint8]:
    """Corners in a pixel by its neighbours, bit i for `AROUND[i]`."""
    table = np.zeros(256, dtype=np.uint8)
    for code in range(256):
        inside = [place for place in range(8) if code >> place & 1]
        # The outline passes between two neighbours that follow one another if there is background above, below, left or
        # right of the pixel between them; background is connected through sides alone.
        for before, after in zip(inside, [*inside[1:], *inside[:1]], strict=True):
            gap = (after - before - 1) % 8
            open_to_outside = any((before + 1 + number) % 8 % 2 == 0 for number in range(gap))
            table[code] += open_to_outside and (after - before) % 8 != 4
    table[0] = 1  # a single pixel
    return table


def _keep(features: Tensor, kept: Tensor) -> Tensor:
    """Set features [B, C, h, w] to 0 but where a mask bool [B, H, W] is true at the nearest of its pixels."""
    return features * nearest(kept, features.shape[-2:]).unsqueeze(1)


def _unit_length(vectors: Tensor) -> Tensor:
    """Each image's [B, C, h, w] divided by its length; 0 stays."""
    length = torch.linalg.vector_norm(vectors, dim=(1, 2, 3), keepdim=True)
    return vectors / torch.where(length == 0, torch.ones_like(length), length)
