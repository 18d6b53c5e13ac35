"""The boxes of UniMatch's CutMix: other areas and aspects than those of CPS, CutMix-Seg and U2PL."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fpl.data.augment import FOR_CUTMIX, seeded

# Smallest and largest area, in those of the image, and ratio of height to width, in those of the image's sides.
AREA = (0.02, 0.4)
RATIO = (0.3, 1 / 0.3)


def box_masks(seed: int, positions: Tensor, size: tuple[int, int], stream: int, probability: float) -> Tensor:
    """Masks bool [B, *size] on the CPU, true in one box or nowhere: where a partner is pasted.

    As released (`dataset/transform.py`, `obtain_cutmix_box`): area and ratio are uniform, the corner too, over the
    whole image, and ratio and corner are drawn again until the box lies inside.

    Args:
        seed: Seed of the run.
        positions: int64 [B], in the unlabeled stream (`Draw.position`); a mask is a function of seed, stream, position.
        size: Height and width in pixels.
        stream: Masks of different streams are independent: one for each strong view.
        probability: Chance of a mask to hold a box, 0..1.
    """
    height, width = size
    masks = np.zeros((len(positions), height, width), dtype=bool)
    for mask, position in zip(masks, positions.tolist(), strict=True):
        generator = seeded(seed, FOR_CUTMIX, stream, int(position))
        if generator.random() < probability:
            top, left, rows, columns = _box(generator)
            y, x = int(top * height), int(left * width)
            mask[y : y + int(rows * height), x : x + int(columns * width)] = True
    return torch.from_numpy(masks)


def _box(generator: np.random.Generator) -> tuple[float, float, float, float]:
    """Top, left, height and width of a box inside the unit square."""
    area = generator.uniform(*AREA)
    # The largest of boxes lie inside once in twenty draws: this ends soon.
    while True:
        ratio, top, left = generator.uniform(*RATIO), generator.random(), generator.random()
        rows, columns = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if top + rows <= 1 and left + columns <= 1:
            return top, left, rows, columns
