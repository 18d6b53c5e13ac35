"""Value and closed-form gradient of the fuzzy positive loss for given positives (FPL, CVPR 2023, section 3.2)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses.once import differentiable_once


class Parts(NamedTuple):
    """Pieces from which both the loss and its gradient follow."""

    exponential: Tensor
    """[B, C, *spatial]: exp(min_pos - z) of positives, exp(z - max_neg) of negatives, all <= 1."""
    positive_sum: Tensor
    """[B, 1, *spatial]: sum over the positives, >= 1."""
    negative_sum: Tensor
    """[B, 1, *spatial]: sum over the negatives, >= 1, or 0 if there are none."""
    violation: Tensor
    """[B, 1, *spatial]: x of loss = log(1 + exp(x))."""


def split_sums(logits: Tensor, positive: Tensor) -> Parts:
    """Sum over positives and over negatives, logits [B, C, *spatial] and bool positives of the same shape."""
    # Each sum is shifted by its own extreme, and only the difference of the two extremes is kept: the result stays
    # finite for any logits and does not lose digits when all logits share a large offset.
    scratch = torch.where(positive, logits, torch.full_like(logits[:1, :1], math.inf))
    min_positive = scratch.amin(1, keepdim=True)
    torch.where(positive, torch.full_like(logits[:1, :1], -math.inf), logits, out=scratch)
    max_negative = scratch.amax(1, keepdim=True)
    exponential = torch.where(positive, min_positive, max_negative).sub_(logits).abs_().neg_().exp_()
    positive_sum = torch.mul(exponential, positive, out=scratch).sum(1, keepdim=True)
    negative_sum = torch.mul(exponential, ~positive, out=scratch).sum(1, keepdim=True)
    violation = (max_negative - min_positive) + (positive_sum.log() + negative_sum.log())
    return Parts(exponential, positive_sum, negative_sum, violation)


def loss_gradient(parts: Parts, positive: Tensor, upstream: Tensor) -> Tensor:
    """Gradient [B, C, *spatial] of the loss times ``upstream`` [B, 1, *spatial] (section 3.2, gradient equations)."""
    total = upstream * parts.violation.sigmoid()
    return torch.where(positive, -total / parts.positive_sum, total / parts.negative_sum).mul_(parts.exponential)


class _FuzzyPositive(torch.autograd.Function):
    """Loss of each pixel; the closed-form gradient is exact at ties and needs fewer saved tensors than autograd."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, positive: Tensor) -> Tensor:
        parts = split_sums(logits, positive)
        ctx.save_for_backward(logits, positive, *parts)
        # From 40 on log(1 + exp(x)) is x even in float64; the default 20 would cut digits off.
        return F.softplus(parts.violation, threshold=40).squeeze(1)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        _, positive, *parts = ctx.saved_tensors
        return loss_gradient(Parts(*parts), positive, upstream.unsqueeze(1)), None


def regularize(logits: Tensor, positive: Tensor) -> Tensor:
    """Loss [B, *spatial] of logits [B, C, *spatial] whose positives are marked; differentiable once."""
    # Traced, `out=` takes contiguous tensors alone.
    if torch.compiler.is_compiling():
        logits, positive = logits.contiguous(), positive.contiguous()
    return cast(Tensor, _FuzzyPositive.apply(logits, positive))
