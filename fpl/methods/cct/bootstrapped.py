"""Annealed bootstrapped cross-entropy: labels of pixels that the network is sure of do not count, fewer and fewer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.data.spec import IGNORE
from fpl.losses.checks import to_compute
from fpl.losses.supervised import divide


def bootstrap_threshold(risen: float, end: float, num_classes: int) -> float:
    """Threshold on the true class's probability when it has risen by a share 0..1 of its way from 1 / C to `end`."""
    start = 1.0 / num_classes
    return start + risen * (end - start)


def bootstrapped_cross_entropy(logits: Tensor, label: Tensor, threshold: float, groups: int = 1) -> Tensor:
    """Mean over groups of images of the cross-entropy of those pixels whose class is less probable than a threshold.

    In each group the threshold is at least the probability that n pixels are below, n the number of its images: one
    pixel of each is kept, if not of the same image (`abCE_loss` of the released code, `min_kept` = 1). A group without
    any labeled pixel adds 0.

    Args:
        logits: [B, C, h, w], any floating dtype.
        label: int64 [B, h, w], 0 .. C-1 or 255.
        threshold: 0 .. 1.
        groups: Groups of consecutive images, a divisor of B.
    """
    per_pixel = F.cross_entropy(to_compute(logits), label, ignore_index=IGNORE, reduction="none")
    per_pixel, valid = per_pixel.reshape(groups, -1), (label != IGNORE).reshape(groups, -1)
    with torch.no_grad():
        probability = torch.exp(-per_pixel)
        # Pixels without a label come last; of a few labeled ones, all but the surest are kept.
        ordered = probability.masked_fill(~valid, torch.inf).sort(dim=1).values
        place = (valid.sum(1, keepdim=True) - 1).clamp(min=0, max=len(label) // groups)
        cut = ordered.gather(1, place).clamp(min=threshold)
        # Not "probability < cut": a NaN has to be kept to be seen.
        kept = valid & ~(probability >= cut)
    total = torch.where(kept, per_pixel, torch.zeros_like(per_pixel)).sum(1)
    return divide(total, kept.sum(1)).mean()
