"""Adaptive weight: less for pixels whose positives are hardly ahead (FPL, CVPR 2023, section 3.2)."""

from __future__ import annotations

import torch
from torch import Tensor

from fpl.losses.assignment import check_k, sort_classes
from fpl.losses.checks import check_probabilities, check_scores, to_compute
from fpl.losses.rules import Rules

PAPER_CONVEX_COEFFICIENT = 4.0
RELEASED_CONVEX_COEFFICIENT = 1.0


def convex_coefficient_of(rules: Rules) -> float:
    """Coefficient of the convex weight, where none is given that of the fidelity."""
    if rules.convex_coefficient is not None:
        return rules.convex_coefficient
    return PAPER_CONVEX_COEFFICIENT if rules.fidelity == "paper" else RELEASED_CONVEX_COEFFICIENT


def shape_weight(mean: Tensor, negative: Tensor, rules: Rules) -> Tensor:
    """Weight from m and q of :func:`adaptive_weight`, of any one shape."""
    if rules.weight == "none":
        return torch.ones_like(mean)
    gap = mean - negative
    if rules.weight == "concave":
        weight = torch.log1p(rules.curvature * gap) / torch.log1p(rules.curvature * mean)
    elif rules.weight == "linear":
        weight = gap / mean
    else:
        weight = gap / (mean + convex_coefficient_of(rules) * negative)
    # The clamp is for rounding, which can take the difference of two equal numbers below zero.
    return weight.clamp(0, 1)


def weight_sorted(probs: Tensor, cumulative: Tensor, k: Tensor, rules: Rules) -> Tensor:
    """Do the work of :func:`adaptive_weight` on descending probabilities and their running sums [B, *spatial, C]."""
    if rules.weight == "none":
        return torch.ones_like(probs[..., 0])
    classes = probs.shape[-1]
    next_place = k.clamp(max=classes - 1).unsqueeze(-1)
    negative = probs.gather(-1, next_place).squeeze(-1)
    if rules.fidelity == "paper":
        mean = cumulative.gather(-1, (k - 1).unsqueeze(-1)).squeeze(-1) / k
    else:
        mean = cumulative.gather(-1, next_place).squeeze(-1) / (k + 1)
    # A NaN has K = C with strategy n, and stays NaN.
    full = (k == classes) & ~mean.isnan()
    weight = shape_weight(mean, negative, rules)
    return torch.where(full, torch.ones_like(weight), weight)


def weight_between(probs: Tensor, cumulative: Tensor, k: Tensor, part: Tensor, rules: Rules) -> Tensor:
    """Weight of strategy ``soft``: the mean of those of K and K + 1 positives, the latter with the share ``part``."""
    fewer, more = (weight_sorted(probs, cumulative, number, rules) for number in (k, k + 1))
    return torch.lerp(fewer, more, part)


def adaptive_weight(
    teacher_probs: Tensor,
    k: Tensor,
    *,
    shape: str = "concave",
    curvature: float = 50.0,
    fidelity: str = "paper",
    convex_coefficient: float | None = None,
) -> Tensor:
    """Weight of each pixel's loss from the gap between its positives and its best negative.

    With m the mean probability of the positives, q the largest probability of the negatives and A the curvature:

    * ``concave`` (section 3.2): log(1 + A (m - q)) / log(1 + A m)
    * ``linear`` (appendix): (m - q) / m
    * ``convex`` (appendix): (m - q) / (m + c q)
    * ``none``: 1

    Between whole numbers, which K of strategy ``soft`` takes, it is the mean of the weights on either side.

    Args:
        teacher_probs: Probabilities [B, C, *spatial], C >= 2.
        k: Number of positives [B, *spatial], 1 .. C, int64 or a float.
        shape: One of :data:`WEIGHTS`.
        curvature: A, 1e-30 .. 1e30: what float32 can compute with.
        fidelity: ``paper``: m over the K positives. ``released``: m over the top K + 1, so it includes q itself, as
            in the released code.
        convex_coefficient: c, 0 .. 1e30; None is 4 for ``paper`` and 1 for ``released`` (the released CPS code; the
            released AEL code has 4).

    Returns:
        [B, *spatial], 0 .. 1, not differentiable; 1 where K = C (no negatives), NaN where the probabilities are.

    Raises:
        ValueError: An argument is outside its range, a tensor has another shape or dtype, or on a CPU values that are
            no probabilities.
    """
    check_scores("teacher_probs", teacher_probs)
    check_k(k, teacher_probs)
    rules = Rules(weight=shape, curvature=curvature, fidelity=fidelity, convex_coefficient=convex_coefficient).checked()
    with torch.no_grad():
        probs = sort_classes(to_compute(teacher_probs)).values
        check_probabilities("teacher_probs", probs[..., 0], probs[..., -1])
        cumulative = probs.cumsum(-1)
        if not k.is_floating_point():
            return weight_sorted(probs, cumulative, k, rules)
        whole = k.nan_to_num(1.0).long().clamp(max=probs.shape[-1] - 1)
        return weight_between(probs, cumulative, whole, (k - whole).to(probs.dtype), rules)
