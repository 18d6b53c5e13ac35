"""The maps of GCT a second time, by loops over rows of numbers in float64."""

from __future__ import annotations

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

Rows = list[list[float]]


def mirrored(place: int, length: int) -> int:
    place = abs(place)
    return 2 * (length - 1) - place if place >= length else place


def blurred(rows: Rows, share: int) -> Rows:
    """A sum over the whole window at each place, with the weights that scipy makes."""
    height, width = len(rows), len(rows[0])
    size = min(height, width) // share
    size = size if size % 2 else size + 1
    spike = np.zeros((size, size))
    spike[size // 2, size // 2] = 1.0
    kernel = ndimage.gaussian_filter(spike, 0.3 * ((size - 1) * 0.5 - 1) + 0.8).tolist()
    half, result = size // 2, []
    for row in range(height):
        result.append([0.0] * width)
        for column in range(width):
            for down in range(-half, half + 1):
                line = rows[mirrored(row + down, height)]
                for right in range(-half, half + 1):
                    weight = kernel[down + half][right + half]
                    result[row][column] += weight * line[mirrored(column + right, width)]
    return result


def dilated(rows: Rows) -> Rows:
    height, width = len(rows), len(rows[0])
    around = (-1, 0, 1)
    return [
        [
            max(
                rows[row + down][column + right]
                for down in around
                for right in around
                if 0 <= row + down < height and 0 <= column + right < width
            )
            for column in range(width)
        ]
        for row in range(height)
    ]


def span(rows: Rows) -> tuple[float, float]:
    values = [value for row in rows for value in row]
    return min(values), max(values)


def stretched(rows: Rows) -> Rows:
    least, most = span(rows)
    return [[(value - least) / (most - least + 1e-9) for value in row] for row in rows]


def plain_truth(probabilities: Tensor, label: Tensor, mu: float, nu: int) -> Tensor:
    """G of one image from the one-hot label, which is 0 all over where the label is 255."""
    classes, height, width = probabilities.shape
    rows = [[0.0] * width for _ in range(height)]
    for row in range(height):
        for column in range(width):
            for number in range(classes):
                true = float(label[row, column] == number)
                rows[row][column] += mu * abs(true - float(probabilities[number, row, column]))
    rows = blurred(rows, 8)
    for _ in range(nu):
        rows = blurred(dilated(rows), 4)
    return torch.tensor(stretched(rows), dtype=torch.float64)


def plain_handled(maps: Tensor, released: bool, flawless: float = 0.1) -> Tensor:
    """The handled map of one image, in the order of the released code if asked."""
    rows = blurred([[value if value >= 0 else 0.0 for value in row] for row in maps.tolist()], 16)
    least, most = span(rows)
    if most > flawless:
        return torch.tensor(stretched(rows), dtype=torch.float64)
    value = (0.0 - least) / (most - least + 1e-9) if released else 0.0
    return torch.full_like(maps, value)
