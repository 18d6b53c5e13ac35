"""Losses beside the fuzzy positive one: soft and negative (appendix, comparison with other losses), and squared."""

from __future__ import annotations

import torch
from torch import Tensor


def soft_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(q || p) of each pixel [B, *spatial], q the teacher's and p the student's softmax (appendix, soft loss)."""
    target = teacher.log_softmax(1)
    return (target.exp() * (target - student.log_softmax(1))).sum(1)


def negative_loss(student: Tensor, teacher: Tensor, label: Tensor, threshold: float) -> Tensor:
    """Give -SUM_j log(1 - p_j) of each pixel over the classes j with q_j < threshold (appendix, negative loss).

    The teacher's argmax ``label`` is never among them, not even where all q are below the threshold.
    """
    label = label.unsqueeze(1)
    # Not "q < threshold": a NaN has to take part to be seen.
    negative = (~(teacher.softmax(1) >= threshold)).scatter(1, label, torch.zeros_like(label, dtype=torch.bool))
    # Only the student's highest class can have p near 1, where 1 - p cancels: its 1 - p is the sum of all others.
    highest = student.detach().max(1, keepdim=True)
    shifted = student - highest.values
    is_highest = torch.zeros_like(negative).scatter(1, highest.indices, torch.ones_like(negative[:, :1]))
    log_total = shifted.logsumexp(1, keepdim=True)
    log_others = shifted.masked_fill(is_highest, -torch.inf).logsumexp(1, keepdim=True)
    probs = (shifted - log_total).exp().masked_fill(is_highest, 0)
    log_not = torch.where(is_highest, log_others - log_total, torch.log1p(-probs))
    return -log_not.masked_fill(~negative, 0).sum(1)


def squared_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared difference of the two softmaxes, mean over classes, of each pixel [B, *spatial] (mean teacher)."""
    return (student.softmax(1) - teacher.softmax(1)).square().mean(1)


def squared_logit_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared difference of the logits, mean over classes, of each pixel [B, *spatial] (mean teacher of PixelSSL).

    Unlike the others it sees what the logits of a pixel have in common, and needs finite ones.
    """
    return (student - teacher).square().mean(1)
