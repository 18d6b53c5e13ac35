"""What the authors' training code computes, written anew in its own manner from a description of its behaviour.

The manner is what it is compared for: the teacher's four highest classes, their running sums, one dense mask per
class, results put in place by boolean masks, two log-sum-exps over all classes, and a cross-entropy of which one number
is used. For the cost of the loss, not for training: `fpl.losses` with ``fidelity="released"`` computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

MOST_POSITIVES = 3
CURVATURE = 50.0
MASKED = -1e7


def class_masks(probs: Tensor, count: int) -> tuple[Tensor, list[Tensor]]:
    """Highest probabilities [B, count, H, W], and for each of them a dense float mask [B, C, H, W] of its class."""
    highest = probs.topk(count, dim=1)
    masks = [torch.zeros_like(probs).scatter_(1, highest.indices[:, place : place + 1], 1.0) for place in range(count)]
    return highest.values, masks


def weight_of(mean: Tensor, best_negative: Tensor, shape: str) -> Tensor:
    """Adaptive weight; any other word than concave, linear or convex leaves 1."""
    if shape == "concave":
        return torch.log(1 + CURVATURE * mean - CURVATURE * best_negative) / torch.log(1 + CURVATURE * mean)
    if shape == "linear":
        return (mean - best_negative) / mean
    if shape == "convex":
        return (mean - best_negative) / (mean + best_negative)
    return torch.ones_like(mean)


def released_terms(
    student: Tensor, teacher: Tensor, *, threshold: float = 0.9, weight: str = "concave"
) -> tuple[Tensor, Tensor]:
    """Compute loss and weight of every pixel.

    Args:
        student: Float32 logits [B, C, H, W], C >= 4.
        teacher: Logits of the same shape.
        threshold: The running sum that has to be reached.
        weight: Shape of the adaptive weight.

    Returns:
        Loss and weight, both [B, H, W]; the weight is a constant.
    """
    values, masks = class_masks(teacher.detach().float().softmax(1), MOST_POSITIVES + 1)
    sums = values.cumsum(1)
    weights = torch.ones_like(sums[:, 0])
    undecided = torch.ones_like(weights, dtype=torch.bool)
    taken = torch.zeros_like(masks[0])
    # What each log-sum-exp reads: the student's logits of its own classes, put in place as the pixels are decided.
    low, high = torch.full_like(taken, MASKED), torch.full_like(taken, MASKED)
    for k in range(1, MOST_POSITIVES + 1):
        taken = taken + masks[k - 1]
        reached = undecided & (sums[:, k] >= threshold) if k < MOST_POSITIVES else undecided
        positive = reached.unsqueeze(1) & (taken == 1)
        negative = reached.unsqueeze(1) & (taken == 0)
        low[positive] = -student[positive]
        high[negative] = student[negative]
        of_k = weight_of(sums[:, k] / (k + 1), values[:, k], weight)
        weights[reached] = of_k[reached]
        undecided = undecided & ~reached
    weights[weights > 1] = 1.0
    return F.softplus(torch.logsumexp(low, 1) + torch.logsumexp(high, 1)), weights


def released_loss(
    directions: Sequence[tuple[Tensor, Tensor]], *, threshold: float = 0.9, weight: str = "concave"
) -> Tensor:
    """Add the directions of a step, rescaled to the value that cross-entropy has.

    Args:
        directions: Pairs of student and teacher logits.
        threshold: See :func:`released_terms`.
        weight: See there.

    Returns:
        A scalar, differentiable.
    """
    fuzzy, plain = [], []
    for student, teacher in directions:
        loss, weights = released_terms(student, teacher, threshold=threshold, weight=weight)
        fuzzy.append((loss * weights).mean())
        plain.append(F.cross_entropy(student, teacher.max(1).indices))
    total = torch.stack(fuzzy).sum()
    # The reference keeps its graph although only its number is read.
    return total * (torch.stack(plain).sum().item() / total.item())
