"""Adaptive weight: less for pixels whose positives are hardly ahead (FPL, CVPR 2023, section 3.2)."""

from __future__ import annotations

import torch
from torch import Tensor

from fpl.losses.assignment import FIDELITIES, check_k, sort_classes
from fpl.losses.checks import check_choice, check_range, check_scores, to_compute

WEIGHTS = ("concave", "linear", "convex", "none")

PAPER_CONVEX_COEFFICIENT = 4.0
RELEASED_CONVEX_COEFFICIENT = 1.0


def check_weight(shape: str, curvature: float, fidelity: str, convex_coefficient: float | None) -> None:
    """Raise ValueError for a value outside its range."""
    check_choice("weight", shape, WEIGHTS)
    check_choice("fidelity", fidelity, FIDELITIES)
    check_range("curvature", curvature, "curvature > 0", curvature > 0)
    if convex_coefficient is not None:
        check_range("convex_coefficient", convex_coefficient, ">= 0, or None", convex_coefficient >= 0)


def weight_sorted(
    probs: Tensor,
    cumulative: Tensor,
    k: Tensor,
    *,
    shape: str,
    curvature: float,
    fidelity: str,
    convex_coefficient: float | None,
) -> Tensor:
    """Do the work of :func:`adaptive_weight` on descending probabilities and their running sums [B, *spatial, C]."""
    if shape == "none":
        return torch.ones_like(probs[..., 0])
    classes = probs.shape[-1]
    next_place = k.clamp(max=classes - 1).unsqueeze(-1)
    negative = probs.gather(-1, next_place).squeeze(-1)
    if fidelity == "paper":
        mean = cumulative.gather(-1, (k - 1).unsqueeze(-1)).squeeze(-1) / k
    else:
        mean = cumulative.gather(-1, next_place).squeeze(-1) / (k + 1)
    gap = mean - negative
    if shape == "concave":
        weight = torch.log1p(curvature * gap) / torch.log1p(curvature * mean)
    elif shape == "linear":
        weight = gap / mean
    else:
        default = PAPER_CONVEX_COEFFICIENT if fidelity == "paper" else RELEASED_CONVEX_COEFFICIENT
        coefficient = default if convex_coefficient is None else convex_coefficient
        weight = gap / (mean + coefficient * negative)
    # The clamp is for rounding, which can take the difference of two equal numbers below zero.
    return torch.where(k == classes, torch.ones_like(weight), weight.clamp(0, 1))


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

    Args:
        teacher_probs: Probabilities [B, C, *spatial], C >= 2.
        k: int64 [B, *spatial], number of positives, 1 .. C.
        shape: One of :data:`WEIGHTS`.
        curvature: A > 0.
        fidelity: ``paper``: m over the K positives. ``released``: m over the top K + 1, so it includes q itself, as
            in the released code.
        convex_coefficient: c >= 0; None is 4 for ``paper`` and 1 for ``released`` (the released CPS code; the released
            AEL code has 4).

    Returns:
        [B, *spatial], 0 .. 1, not differentiable; 1 where K = C (no negatives), NaN where the probabilities are.

    Raises:
        ValueError: An argument is outside its range, or a tensor has another shape or dtype.
    """
    check_scores("teacher_probs", teacher_probs)
    check_k(k, teacher_probs)
    check_weight(shape, curvature, fidelity, convex_coefficient)
    with torch.no_grad():
        probs = sort_classes(to_compute(teacher_probs)).values
        return weight_sorted(
            probs,
            probs.cumsum(-1),
            k,
            shape=shape,
            curvature=curvature,
            fidelity=fidelity,
            convex_coefficient=convex_coefficient,
        )
