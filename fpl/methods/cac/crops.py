"""Two overlapping crops of one image, and which positions of their features show the same place.

Features lie on a grid of one position per 8 x 8 pixels, and crops begin a multiple of 8 pixels apart, so that positions
of the one coincide with positions of the other (released code, `PairVOCDataset`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.data.augment import FOR_CHOICE, seeded
from fpl.data.batches import Draw
from fpl.methods.cac.options import CELL

# Times that the second crop is drawn before it falls on the first.
TRIES = 50


class Views(NamedTuple):
    """Where the two crops of an image begin, in pixels of what they are cut from, and whether they are mirrored."""

    tops: tuple[int, int]
    lefts: tuple[int, int]
    flips: tuple[bool, bool]


class Overlap(NamedTuple):
    """Rows and columns of each crop's grid, not mirrored, that the other one shows too."""

    first: tuple[slice, slice]
    second: tuple[slice, slice]


def extents(valid: Tensor) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """First row and the one behind the last, and the same of columns, of the image in each mask bool [B, h, w].

    An image lies in its crop as a rectangle; where there is none, the crop counts as one.
    """
    found = []
    for rows, columns in zip(valid.any(2).cpu().numpy(), valid.any(1).cpu().numpy(), strict=True):
        ends = [np.flatnonzero(line) if line.any() else np.arange(len(line)) for line in (rows, columns)]
        found.append(((int(ends[0][0]), int(ends[0][-1]) + 1), (int(ends[1][0]), int(ends[1][-1]) + 1)))
    return found


def draw_views(draw: Draw, size: tuple[int, int], least_overlap: float, *, flip: bool, seed: int) -> list[Views]:
    """`place_views` for each image of a draw, by its position in the unlabeled stream.

    Args:
        draw: What the views of that height and width are cut from.
        size: Height and width of a view.
        least_overlap: This and `flip` are those of `place_views`.
        flip: See there.
        seed: Of the run.
    """
    whole = (draw.valid.shape[-2], draw.valid.shape[-1])
    found = []
    for (rows, columns), position in zip(extents(draw.valid), draw.position.tolist(), strict=True):
        generator = seeded(seed, FOR_CHOICE, 0, position)
        found.append(
            place_views(rows, columns, whole, size, least_overlap=least_overlap, flip=flip, generator=generator)
        )
    return found


def place_views(
    rows: tuple[int, int],
    columns: tuple[int, int],
    whole: tuple[int, int],
    size: tuple[int, int],
    *,
    least_overlap: float,
    flip: bool,
    generator: np.random.Generator,
) -> Views:
    """Draw two crops of an image, uniform over their places inside it, a multiple of 8 pixels apart.

    The second is drawn again until the two overlap enough, 50 times; after that it is the first. Along a side on which
    the image is shorter than a crop, both hold all of it.

    Args:
        rows: First row of the image and the one behind its last, in what is cut from.
        columns: The same of its columns.
        whole: Height and width of what is cut from, padding included.
        size: Height and width of the crops.
        least_overlap: Least intersection over union of the two, 0..1.
        flip: Whether each is mirrored with a chance of one half.
        generator: Draws.
    """
    flips = tuple(bool(flip and number < 0.5) for number in generator.random(2))
    ranges = [_starts(extent, length, side) for extent, length, side in zip((rows, columns), size, whole, strict=True)]
    first = [int(generator.integers(low, high, endpoint=True)) for low, high in ranges]
    second = first
    for _ in range(TRIES):
        drawn = [int(generator.integers(low, high, endpoint=True)) for low, high in ranges]
        moved = [_snapped(new, start, low) for new, start, (low, _) in zip(drawn, first, ranges, strict=True)]
        if intersection_over_union((first[0], first[1]), (moved[0], moved[1]), size) >= least_overlap:
            second = moved
            break
    return Views((first[0], second[0]), (first[1], second[1]), (flips[0], flips[1]))


def _starts(extent: tuple[int, int], length: int, side: int) -> tuple[int, int]:
    """First and last start of a crop of some length along a side of what it is cut from."""
    begin, end = extent
    if end - begin >= length:
        return begin, end - length
    middle = begin - (length - (end - begin)) // 2
    only = min(max(middle, 0), side - length)
    return only, only


def _snapped(start: int, other: int, low: int) -> int:
    """The next start at or before one that is a multiple of 8 from another, or behind it where that is below `low`."""
    moved = (start - other) // CELL * CELL + other
    return moved + CELL if moved < low else moved


def intersection_over_union(first: tuple[int, int], second: tuple[int, int], size: tuple[int, int]) -> float:
    """Of two boxes of one size, 0..1, that begin at these rows and columns."""
    shared = 1
    for one, other, length in zip(first, second, size, strict=True):
        shared *= max(0, length - abs(one - other))
    return shared / (2 * size[0] * size[1] - shared)


def overlap(views: Views, grid: tuple[int, int]) -> Overlap:
    """Which positions of both crops' grids, of that height and width, show the same places, in the same order."""
    first, second = [], []
    for (one, other), length in zip((views.tops, views.lefts), grid, strict=True):
        shift = (other - one) // CELL
        count = max(0, length - abs(shift))
        begin, again = max(0, shift), max(0, -shift)
        first.append(slice(begin, begin + count))
        second.append(slice(again, again + count))
    return Overlap((first[0], first[1]), (second[0], second[1]))


def cut(draw: Draw, views: list[Views], number: int, size: tuple[int, int]) -> Draw:
    """The first (0) or the second (1) crop of every image of a draw; index and position stay."""

    def pieces(maps: Tensor) -> Tensor:
        found = []
        for one, place in zip(maps, views, strict=True):
            top, left = place.tops[number], place.lefts[number]
            piece = one[..., top : top + size[0], left : left + size[1]]
            found.append(piece.flip(-1) if place.flips[number] else piece)
        return torch.stack(found)

    truth = None if draw.truth is None else pieces(draw.truth)
    return replace(draw, image=pieces(draw.image), valid=pieces(draw.valid), truth=truth)


def upright(maps: Tensor, views: list[Views], number: int) -> Tensor:
    """Maps [B, ..., w] of the first (0) or the second (1) crops, the mirrored ones mirrored back."""
    return torch.stack([one.flip(-1) if place.flips[number] else one for one, place in zip(maps, views, strict=True)])


def whole_cells(valid: Tensor) -> Tensor:
    """Which positions of the grid show the image alone, bool [B, h / 8, w / 8], by a mask bool [B, h, w] of pixels."""
    padding = F.max_pool2d((~valid).float().unsqueeze(1), CELL)
    return padding.squeeze(1) == 0


def middle_pixels(label: Tensor) -> Tensor:
    """Of a label [B, h, w] what lies in the middle of the grid's positions, [B, h / 8, w / 8]."""
    return label[:, CELL // 2 :: CELL, CELL // 2 :: CELL]


def positions_of(maps: Tensor, places: Sequence[tuple[slice, slice]]) -> Tensor:
    """Rows [N, D] of maps [B, D, h, w], one for each position of the overlaps, image after image."""
    cuts = [one[:, rows, columns].flatten(1) for one, (rows, columns) in zip(maps, places, strict=True)]
    return torch.cat(cuts, dim=1).T


def transferred(maps: Tensor, overlaps: list[Overlap], back: bool = False) -> Tensor:
    """Maps [B, D, h, w] of the second crops on the grid of the first ones, 0 outside the overlap; `back`: reversed."""
    height, width = maps.shape[-2:]
    found = []
    for one, place in zip(maps, overlaps, strict=True):
        (rows, columns), (to_rows, to_columns) = (place.first, place.second) if back else (place.second, place.first)
        around = (to_columns.start, width - to_columns.stop, to_rows.start, height - to_rows.stop)
        found.append(F.pad(one[:, rows, columns], around))
    return torch.stack(found)
