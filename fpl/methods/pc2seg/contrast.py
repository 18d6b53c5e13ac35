"""The pixel contrast of PC2Seg: which pixels are drawn, what a negative weighs, and the loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses.checks import to_compute
from fpl.models.dropout import drawn_numbers


def drawn_positions(seen: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Positions among those that are seen, with replacement.

    Args:
        seen: bool [B, n].
        uniform: Numbers [B, k] in [0, 1) that decide.

    Returns:
        Positions int64 [B, k], 0 .. n - 1; and bool [B, k], false for all of an image of which nothing is seen.
    """
    counts = seen.sum(1, keepdim=True)
    # Those that are seen first, in their order.
    order = seen.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    places = drawn_numbers(uniform, counts)
    return order.gather(1, places), (counts > 0).expand_as(places)


def pixels_at(maps: Tensor, positions: Tensor) -> Tensor:
    """Vectors [B, k, C], float32 or float64, of maps [B, C, h, w] at positions int64 [B, k]."""
    flat = to_compute(maps).flatten(2)
    return flat.gather(2, positions.unsqueeze(1).expand(-1, flat.shape[1], -1)).transpose(1, 2)


def unit_pixels(maps: Tensor, positions: Tensor) -> Tensor:
    """`pixels_at`, each vector divided by its length."""
    return F.normalize(pixels_at(maps, positions), dim=-1)


def images_of_negatives(uniform: Tensor, first: int, images: int, *, others: bool) -> Tensor:
    """Which image of the global batch each negative is of, int64 [B, k], all as likely.

    Args:
        uniform: Numbers [B, k] in [0, 1) that decide.
        first: Number in the global batch of the first of these B images.
        images: In the global batch; with `others` 2 or more.
        others: Whether an image's own pixels are no negatives of it.
    """
    choices = images - others
    chosen = (uniform * choices).long().clamp(max=choices - 1)
    if not others:
        return chosen
    own = first + torch.arange(len(uniform), device=uniform.device).unsqueeze(1)
    return (own + 1 + chosen) % images


def negative_weights(anchors: Tensor, negatives: Tensor, *, debiased: bool, confidence: float) -> Tensor:
    """What each negative weighs for each anchor, [B, a, k], 0..1, constants.

    Args:
        anchors: Class probabilities [B, a, C].
        negatives: Class probabilities [B, k, C].
        debiased: Whether it is 1 - p_i . p_j, or 1.
        confidence: Negatives whose highest probability is less weigh 0. What is no number weighs as it is.
    """
    with torch.no_grad(), torch.autocast(anchors.device.type, enabled=False):
        sure = (~(negatives.amax(-1) < confidence)).to(anchors.dtype).unsqueeze(1)
        if not debiased:
            return sure.expand(-1, anchors.shape[1], -1)
        # Rounding may leave less than nothing.
        return (1 - anchors @ negatives.transpose(1, 2)).clamp_min(0) * sure


def contrast(anchors: Tensor, positives: Tensor, negatives: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """InfoNCE of each anchor, [B, a]: -log(e_p / (e_p + SUM_j w_j e_j)), e the exponential of cosine / temperature.

    An anchor all of whose negatives weigh 0 adds nothing.

    Args:
        anchors: Features of length 1, [B, a, D].
        positives: The same pixels in the other view, [B, a, D].
        negatives: Of each image's anchors, [B, k, D].
        weights: [B, a, k], 0 or more.
        temperature: Above 0.
    """
    with torch.autocast(anchors.device.type, enabled=False):
        positive = (anchors * positives).sum(-1, keepdim=True) / temperature
        against = anchors @ negatives.transpose(1, 2) / temperature + weights.log()
        return torch.cat([positive, against], -1).logsumexp(-1) - positive.squeeze(-1)
