"""What a network makes of the views of unlabeled images, on the grid of the features, and of the places they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fpl.losses.supervised import divide
from fpl.methods.base import Workers
from fpl.methods.cac.crops import positions_of


class Seen(NamedTuple):
    """What the network makes of one view of each image, on the grid of the features, not mirrored."""

    features: Tensor
    """Projected, of length 1, [B, D, h, w]."""
    logits: Tensor
    """[B, C, h, w], with their gradient."""
    confidence: Tensor
    """Highest probability [B, h, w], a constant."""
    prediction: Tensor
    """Its class, int64 [B, h, w]."""
    excluded: Tensor
    """Classes bool [B, C, h, w] whose features are no negatives."""
    valid: Tensor
    """bool [B, h, w], false where a position shows padding."""
    truth: Tensor | None
    """uint8 [B, h, w], for diagnostics alone."""


class Places(NamedTuple):
    """The places of all overlaps, N of them, image after image, as one of the views has them."""

    features: Tensor
    """[N, D]."""
    confidence: Tensor
    """[N]."""
    excluded: Tensor
    """bool [N, C]."""
    valid: Tensor
    """bool [N]."""
    counts: list[int]
    """How many there are of each image."""


def places_of(seen: Seen, cells: Sequence[tuple[slice, slice]]) -> Places:
    """The places of the overlaps on the grid of one view, whose rows and columns `cells` has for each image."""
    features, excluded = (positions_of(maps, cells) for maps in (seen.features, seen.excluded))
    confidence, valid = (positions_of(maps.unsqueeze(1), cells).squeeze(1) for maps in (seen.confidence, seen.valid))
    counts = [(rows.stop - rows.start) * (columns.stop - columns.start) for rows, columns in cells]
    return Places(features, confidence, excluded, valid, counts)


def mean_loss(losses: Tensor, kept: Tensor, places: Places, workers: Workers, *, by_image: bool) -> Tensor:
    """Sum of the losses [N] of some places over their number in the global batch; 0 over none.

    Args:
        losses: Of all places.
        kept: bool [N], which of them count.
        places: All of them.
        workers: Those that share the batch, equally.
        by_image: Divide by the number of all places of an image that show no padding, and take the mean of the images.
    """
    losses = torch.where(kept, losses, torch.zeros_like(losses))
    if not by_image:
        return divide(losses.sum(), workers.average(kept.sum().to(losses.dtype)))
    images = zip(*(torch.split(part, places.counts) for part in (losses, places.valid)), strict=True)
    return torch.stack([divide(own.sum(), valid.sum()) for own, valid in images]).mean()
