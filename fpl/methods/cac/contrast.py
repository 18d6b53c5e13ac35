"""The directional contrastive loss of CAC: a pixel's feature against its surer counterpart and against other classes.

Anchors times features of the bank are more numbers than a GPU should hold. They are made for one block of the bank at
a time, and made again on the way back: memory is that of a block, whatever the bank's size is.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fpl.losses.assignment import assign_sorted, positive_mask, sort_classes
from fpl.losses.rules import Rules

# Features of the bank in one block (released code).
BLOCK = 8000
# Logarithm of what is left out of a sum. Finite: the gradient of infinities alone is no number.
NOTHING = -1e30


def directional_contrast(anchors: Tensor, positives: Tensor, negatives: Tensor, temperature: float) -> Tensor:
    """-log(e^p / (e^p + SUM e^n)) for each anchor, p and n its similarities over the temperature, [N].

    Gradients reach the anchors alone. The released code adds 1e-8 inside the logarithm and below the fraction.

    Args:
        anchors: Features [N, D] of length 1.
        positives: Their counterparts, of the same shape; a constant.
        negatives: log SUM e^n [N] of each anchor: `log_negatives`.
        temperature: Above 0.
    """
    positive = (anchors * positives.detach()).sum(1) / temperature
    return F.softplus(negatives - positive)


def log_negatives(
    anchors: Tensor, excluded: Tensor, features: Tensor, labels: Tensor, temperature: float, block: int = BLOCK
) -> Tensor:
    """log SUM e^(anchor . feature / temperature) over each anchor's negatives, [N]; about -1e30 where it has none.

    Args:
        anchors: Features [N, D] of length 1, in float32 or float64.
        excluded: Classes bool [N, C] whose features are no negatives of an anchor.
        features: Of the bank, [M, D]; constants.
        labels: Their classes int64 [M]; -1 where there is no feature.
        temperature: Above 0.
        block: Features that are compared at once.
    """
    # Its last column is what -1 stands for.
    excluded = F.pad(excluded, (0, 1), value=True)
    # Scaled here, numbers are fewer by far than similarities.
    anchors = anchors / temperature
    parts = [
        checkpoint(_log_block, anchors, excluded, some, their, use_reentrant=False, preserve_rng_state=False)
        for some, their in zip(torch.split(features.detach(), block), torch.split(labels, block), strict=True)
    ]
    return torch.stack(parts).logsumexp(0)


def _log_block(anchors: Tensor, excluded: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    # In bfloat16 a similarity over the temperature is off by 0.04.
    with torch.autocast(anchors.device.type, enabled=False):
        similar = anchors @ features.to(anchors.dtype).T
        return similar.masked_fill(excluded[:, labels], NOTHING).logsumexp(1)


def own_class(prediction: Tensor, classes: int) -> Tensor:
    """Classes that are no negatives as published, bool [B, C, h, w]: the predicted one, int64 [B, h, w]."""
    return prediction.unsqueeze(1) == torch.arange(classes, device=prediction.device).view(-1, 1, 1)


def fuzzy_classes(probabilities: Tensor, rules: Rules) -> Tensor:
    """Classes that are no negatives in our reading of FPL, bool [B, C, h, w]: the fuzzy positives.

    Args:
        probabilities: Of the anchors' own predictions, [B, C, h, w].
        rules: Of the pixel loss.
    """
    ranking = sort_classes(probabilities)
    return positive_mask(probabilities, ranking, assign_sorted(ranking.values.cumsum(-1), rules))
