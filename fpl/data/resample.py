"""A crop of a resized image without resizing the rest of it.

The reference is "resize the whole, then crop" (`Augmentation.apply_whole`). Labels are equal to it pixel for pixel.
Images are resized from a window of the source whose first pixel meets a pixel edge of the resized image: there the
same numbers are computed, so that they are equal too. Some sizes have no such edge nearby (the ratio of 375 to 281,
say); then the window starts where the resized image shifts by at most 1/64 of its pixel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

Bytes = NDArray[np.uint8]

# An edge that is met exactly is looked for among so many source pixels before the first needed one.
REACH = 64
# The largest allowed shift is one resized pixel divided by this.
SHIFT = 64


class Window(NamedTuple):
    """Part of one side of the source that a crop of the resized image needs.

    Attributes:
        start: First source pixel.
        stop: End of the source pixels.
        skip: Resized pixels that the window gives before the crop begins.
    """

    start: int
    stop: int
    skip: int


def source_window(size: int, resized: int, start: int, length: int) -> Window:
    """The window for pixels start .. start + length - 1 of one side that is resized from `size` to `resized`.

    Args:
        size: Pixels of the source, at least 1.
        resized: Pixels after resizing, at least 1.
        start: First pixel of the crop.
        length: Its length; start + length <= resized.
    """
    # Pixel centres: resized pixel x lies at (x + 1/2) size / resized - 1/2 and mixes the pixels on both sides of it.
    lowest = max(0, ((2 * start + 1) * size - resized) // (2 * resized))
    highest = ((2 * (start + length) - 1) * size - resized) // (2 * resized) + 1
    candidates = np.arange(lowest, -1, -1)
    edges = (2 * candidates * resized + size) // (2 * size)
    errors = np.where(edges <= start, np.abs(candidates * resized - edges * size), size)
    # Both searches end at the candidate nearest to the crop; the border of the image always serves.
    best = int(errors[:REACH].argmin())
    if errors[best] * SHIFT > size:
        best = int((errors * SHIFT <= size).argmax())
    return Window(int(candidates[best]), min(size, highest + 2), start - int(edges[best]))


def crop_resized_image(
    image: Bytes, resized: tuple[int, int], corner: tuple[int, int], crop: tuple[int, int], flip: bool
) -> Bytes:
    """Rows and columns of the image flipped and resized (bilinear at pixel centres, no antialiasing).

    Args:
        image: uint8 [H, W, 3]; may be read-only.
        resized: Height and width of the resized image.
        corner: Top and left of the crop in the resized image.
        crop: Height and width of the crop, inside the resized image.
        flip: Mirror left and right first.

    Returns:
        uint8 [h, w, 3], never sharing memory with `image`, but not contiguous where it was flipped.
    """
    height, width = image.shape[:2]
    (top, left), (rows, columns) = corner, crop
    if flip:
        left = resized[1] - left - columns
    if (height, width) == resized:
        part = image[top : top + rows, left : left + columns].copy()
        return _mirrored(part) if flip else part
    down = source_window(height, resized[0], top, rows)
    across = source_window(width, resized[1], left, columns)
    # A contiguous copy is worth its time: resizing a strided view takes twice as long.
    part = image[down.start : down.stop, across.start : across.stop].copy()
    # Called by its operator because only that takes a size and a ratio that do not follow from one another.
    pixels = torch.ops.aten.upsample_bilinear2d(
        torch.from_numpy(part).permute(2, 0, 1).unsqueeze(0),
        [down.skip + rows, across.skip + columns],
        False,
        resized[0] / height,
        resized[1] / width,
    )
    pixels = pixels[0, :, down.skip :, across.skip :]
    if flip:
        pixels = pixels.flip(-1)
    result: Bytes = pixels.permute(1, 2, 0).numpy()
    return result


def crop_resized_label(
    label: Bytes, resized: tuple[int, int], corner: tuple[int, int], crop: tuple[int, int], flip: bool
) -> Bytes:
    """The same for a label, to the nearest pixel: uint8 [H, W] to a new uint8 [h, w]."""
    height, width = label.shape
    rows = _nearest(height, resized[0])[corner[0] : corner[0] + crop[0]]
    columns = _nearest(width, resized[1])[corner[1] : corner[1] + crop[1]]
    if flip:
        columns = width - 1 - columns
    part = label[rows[0] : rows[-1] + 1]
    rows = rows - rows[0]
    # Rows are copied whole and columns pixel by pixel: the latter where there are fewer rows.
    if len(part) < len(rows):
        result: Bytes = part.take(columns, axis=1).take(rows, axis=0)
    else:
        result = part.take(rows, axis=0).take(columns, axis=1)
    return result


def _nearest(size: int, resized: int) -> NDArray[np.int64]:
    """Source pixel of every resized pixel, by torch's own rule: it resizes the numbers of the pixels."""
    numbers = torch.arange(size, dtype=torch.float32).view(1, 1, size)
    return F.interpolate(numbers, size=resized, mode="nearest")[0, 0].numpy().astype(np.int64)


def _mirrored(pixels: Bytes) -> Bytes:
    # torch mirrors bytes about ten times as fast as numpy.
    result: Bytes = torch.from_numpy(pixels).permute(2, 0, 1).flip(-1).permute(1, 2, 0).numpy()
    return result
