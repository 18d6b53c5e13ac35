"""What AEL does to images and pixels: boxes for adaptive CutMix, adaptive copy-paste, and the weights of pixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fpl.methods.ael.bank import TINY

# Share of the crop that the box covers where no component is large enough.
RANDOM_BOX_AREA = 0.5
EIGHT_NEIGHBOURS = np.ones((3, 3), dtype=bool)


class Box(NamedTuple):
    """Rows top..bottom-1 and columns left..right-1."""

    top: int
    left: int
    bottom: int
    right: int


def component_box(mask: NDArray[np.bool_], area: float, generator: np.random.Generator) -> Box | None:
    """Bounding box of a random connected component (8 neighbours) of more than `area` of the pixels; None if none is.

    Args:
        mask: Where the wanted class is, `[h, w]`.
        area: Share of all pixels that a component must exceed.
        generator: Draws among the components.
    """
    # Imported late: it takes a third of a second, and no other method needs it.
    from scipy import ndimage

    components, _ = ndimage.label(mask, structure=EIGHT_NEIGHBOURS)
    sizes = np.bincount(components.ravel())[1:]
    large = np.flatnonzero(sizes > area * mask.size)
    if not large.size:
        return None
    chosen = int(generator.choice(large))
    rows, columns = ndimage.find_objects(components)[chosen]
    return Box(rows.start, columns.start, rows.stop, columns.stop)


def random_box(size: tuple[int, int], generator: np.random.Generator) -> Box:
    """A box of half the area, rounded to whole pixels: its height is 0.5^u of the image's, its place uniform."""
    aspect, top, left = generator.random(3)
    height_share = RANDOM_BOX_AREA**aspect
    rows = round(size[0] * height_share)
    columns = round(size[1] * RANDOM_BOX_AREA / height_share)
    first_row, first_column = round(top * (size[0] - rows)), round(left * (size[1] - columns))
    return Box(first_row, first_column, first_row + rows, first_column + columns)


def box_mask(box: Box, grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Mask bool `[*size]` of the pixels inside a box that was found on a coarser (or the same) grid."""
    mask = torch.zeros(size, dtype=torch.bool)
    rows, columns = size[0] / grid[0], size[1] / grid[1]
    top, bottom = int(box.top * rows), round(box.bottom * rows)
    left, right = int(box.left * columns), round(box.right * columns)
    mask[top:bottom, left:right] = True
    return mask


def copy_paste(
    image: Tensor, label: Tensor, other_image: Tensor, other_label: Tensor, wanted: Tensor
) -> tuple[Tensor, Tensor]:
    """Paste the pixels of the wanted classes of other labeled images.

    Args:
        image: `[B, 3, h, w]`.
        label: int64 `[B, h, w]`.
        other_image: What to paste from, `[B, 3, h, w]`.
        other_label: int64 `[B, h, w]`, 0..C-1 or 255.
        wanted: bool `[B, C]`, the classes of each slot.
    """
    slot = torch.arange(len(label), device=label.device).view(-1, 1, 1)
    inside = wanted[slot, other_label.clamp(max=wanted.shape[1] - 1)] & (other_label != 255)
    return torch.where(inside.unsqueeze(1), other_image, image), torch.where(inside, other_label, label)


def pixel_weights(
    teacher: Tensor,
    student: Tensor,
    *,
    power: float,
    gate: float = 0.0,
    rates: Tensor | None = None,
    uniform: Tensor | None = None,
    groups: int = 1,
) -> Tensor:
    """Weights `[B, h, w]` whose sum over a batch of `groups` groups is at most 1 (released code, `Criterion_cons`).

    A pixel weighs the teacher's highest probability to a power, over the sum of its group. Pixels that sampling leaves
    out are out of that sum; pixels below the gate stay in it and weigh 0.

    Args:
        teacher: Logits `[B, C, h, w]`.
        student: Logits `[B, C, h, w]`; its prediction decides the sampling rate.
        power: Exponent of the confidence (gamma).
        gate: Confidence below which a pixel teaches nothing.
        rates: Sampling rate of each class, `[C]`; None keeps all pixels.
        uniform: Numbers `[B, h, w]` in 0..1 that decide the sampling.
        groups: Groups of consecutive images, a divisor of B.
    """
    confidence = teacher.detach().float().softmax(1).max(1).values
    weight = confidence**power
    if rates is not None:
        assert uniform is not None
        weight = weight * (uniform < rates[student.detach().max(1).indices])
    total = weight.view(groups, -1).sum(1) + TINY
    weight = (weight.view(groups, -1) / (total * groups).unsqueeze(1)).view_as(weight)
    return torch.where(confidence < gate, torch.zeros_like(weight), weight)
