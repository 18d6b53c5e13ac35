"""Drawn pictures in place of a data set, so that the examples run anywhere: put your own loaders here."""

from __future__ import annotations

import torch
from torch import Tensor

CLASSES = ("ground", "disc", "square")
IGNORE = 255


def draw(images: int, size: int = 32, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw a disc and a square on each picture.

    Args:
        images: Number of pictures.
        size: Their side in pixels.
        seed: Of their places, colours and noise.

    Returns:
        Pictures float32 [images, 3, size, size] and labels int64 [images, size, size]: indices of :data:`CLASSES`, and
        :data:`IGNORE` on the outermost pixels, as where a real picture was padded.
    """
    generator = torch.Generator().manual_seed(seed)
    place = torch.linspace(-1, 1, size)
    y, x = place.view(1, size, 1), place.view(1, 1, size)
    centers = torch.rand(images, 4, 1, 1, generator=generator) * 1.2 - 0.6
    disc = (y - centers[:, 0]).square() + (x - centers[:, 1]).square() < 0.12
    square = torch.maximum((y - centers[:, 2]).abs(), (x - centers[:, 3]).abs()) < 0.3
    labels = torch.where(square, 2, torch.where(disc, 1, 0))
    colours = torch.tensor([[0.2, 0.3, 0.2], [0.8, 0.4, 0.3], [0.3, 0.4, 0.8]])
    pictures = colours[labels].movedim(-1, 1)
    pictures = pictures + 0.2 * torch.randn(pictures.shape, generator=generator)
    for edge in (labels[:, 0], labels[:, -1], labels[:, :, 0], labels[:, :, -1]):
        edge.fill_(IGNORE)
    return pictures, labels
