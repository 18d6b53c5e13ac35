"""How sure a teacher is of a pixel by the entropy of its prediction, against the other pixels of the same images."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fpl.losses.checks import to_compute


@torch.no_grad()
def pixel_entropy(logits: Tensor) -> Tensor:
    """Entropy of each pixel's probabilities in nats, float32 (float64 for float64) [B, *spatial], 0..ln C.

    Args:
        logits: [B, C, *spatial].
    """
    logarithms = to_compute(logits).log_softmax(1)
    # A class that is impossible adds nothing: 0 * -inf would be no number.
    return -(logarithms.exp() * logarithms.clamp_min(torch.finfo(logarithms.dtype).min)).sum(1)


@torch.no_grad()
def lowest(values: Tensor, share: float, groups: int) -> Tensor:
    """Where values are not above a percentile of their group, bool [B, *spatial].

    The percentile is that of `numpy.percentile`, interpolated between neighbours; what ties with it is in, and so is
    what is no number, so that a loss sees it.

    Args:
        values: [B, *spatial].
        share: Of the pixels of each group, 0..1; 1 are all, 0 the lowest alone.
        groups: Groups of consecutive images, a divisor of B.
    """
    ordered = values.reshape(groups, -1).sort(1).values
    place = share * (ordered.shape[1] - 1)
    below = math.floor(place)
    above = min(below + 1, ordered.shape[1] - 1)
    # Between the two by hand: `lerp` of equal neighbours may round to less than both.
    threshold = ordered[:, below] + (place - below) * (ordered[:, above] - ordered[:, below])
    return ~(values.reshape(groups, -1) > threshold.unsqueeze(1)).reshape(values.shape)
