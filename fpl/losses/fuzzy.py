"""Fuzzy Positive Regularization: the loss of a pixel with several positive classes (FPL, CVPR 2023, section 3.2)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fpl.losses.assignment import assign_sorted, check_assignment, positive_mask, sort_classes
from fpl.losses.checks import (
    check_choice,
    check_map,
    check_pair,
    counted_pixels,
    only_counted,
    poison,
    to_compute,
)
from fpl.losses.regularization import loss_gradient, regularize, split_sums
from fpl.losses.weight import check_weight, weight_sorted

REDUCTIONS = ("mean", "sum", "none")


class FuzzyTerms(NamedTuple):
    """What the loss of each pixel is made of; every tensor is [B, *spatial]."""

    loss: Tensor
    """Unweighted loss >= 0, differentiable with respect to the student's logits."""
    weight: Tensor
    """Adaptive weight, 0 .. 1, a constant."""
    k: Tensor
    """int64 number of positives, 1 .. C."""


class _Teacher(NamedTuple):
    """What a teacher's logits decide."""

    positive: Tensor
    k: Tensor
    weight: Tensor
    top: Tensor


@torch.no_grad()
def _read_teacher(
    teacher_logits: Tensor,
    *,
    threshold: float,
    strategy: str,
    weight: str,
    curvature: float,
    fidelity: str,
    fixed_k: int,
    ratio: float,
    progress: float,
    convex_coefficient: float | None,
) -> _Teacher:
    check_assignment(threshold, strategy, fidelity, fixed_k, ratio, progress)
    check_weight(weight, curvature, fidelity, convex_coefficient)
    teacher = to_compute(teacher_logits.detach())
    # Logits decide the order: probabilities of unlikely classes can underflow to the same zero.
    ranking = sort_classes(teacher)
    probs = ranking.values.softmax(-1)
    cumulative = probs.cumsum(-1)
    k = assign_sorted(
        cumulative,
        threshold=threshold,
        strategy=strategy,
        fidelity=fidelity,
        fixed_k=fixed_k,
        ratio=ratio,
        progress=progress,
    )
    pixel_weight = weight_sorted(
        probs,
        cumulative,
        k,
        shape=weight,
        curvature=curvature,
        fidelity=fidelity,
        convex_coefficient=convex_coefficient,
    )
    return _Teacher(positive_mask(teacher, ranking, k), k, pixel_weight, ranking.values[..., 0])


def fuzzy_positive_terms(
    student_logits: Tensor,
    teacher_logits: Tensor,
    *,
    threshold: float = 0.9,
    strategy: str = "n-1",
    weight: str = "concave",
    curvature: float = 50.0,
    fidelity: str = "paper",
    fixed_k: int = 2,
    ratio: float = 0.5,
    progress: float = 0.0,
    convex_coefficient: float | None = None,
) -> FuzzyTerms:
    """Compute loss, weight and K of every pixel, without weighting or reducing.

    Arguments, ranges and errors are those of :func:`fuzzy_positive_loss`. The loss cannot be differentiated twice.
    """
    check_pair(student_logits, teacher_logits)
    teacher = _read_teacher(
        teacher_logits,
        threshold=threshold,
        strategy=strategy,
        weight=weight,
        curvature=curvature,
        fidelity=fidelity,
        fixed_k=fixed_k,
        ratio=ratio,
        progress=progress,
        convex_coefficient=convex_coefficient,
    )
    loss = regularize(to_compute(student_logits), teacher.positive)
    return FuzzyTerms(poison(loss, teacher.top), teacher.weight, teacher.k)


@torch.no_grad()
def fuzzy_positive_gradient(
    student_logits: Tensor,
    teacher_logits: Tensor,
    *,
    threshold: float = 0.9,
    strategy: str = "n-1",
    fidelity: str = "paper",
    fixed_k: int = 2,
    ratio: float = 0.5,
    progress: float = 0.0,
) -> Tensor:
    """Gradient of the unweighted, unreduced loss of each pixel with respect to the student's logits, in closed form.

    With s = sigmoid(log SUM_pos exp(-z) + log SUM_neg exp(z)), it is -s exp(-z_i) / SUM_pos exp(-z) for a positive i
    and s exp(z_j) / SUM_neg exp(z) for a negative j: the gradient equations of section 3.2. Positives sum to -s,
    negatives to s.

    Arguments, ranges and errors are those of :func:`fuzzy_positive_loss`.

    Returns:
        [B, C, *spatial], -1 .. 1, float32 (float64 for float64 logits), a constant.
    """
    check_pair(student_logits, teacher_logits)
    teacher = _read_teacher(
        teacher_logits,
        threshold=threshold,
        strategy=strategy,
        weight="none",
        curvature=1.0,
        fidelity=fidelity,
        fixed_k=fixed_k,
        ratio=ratio,
        progress=progress,
        convex_coefficient=None,
    )
    parts = split_sums(to_compute(student_logits.detach()), teacher.positive)
    upstream = poison(torch.ones_like(parts.violation), teacher.top.unsqueeze(1))
    return loss_gradient(parts, teacher.positive, upstream)


def fuzzy_positive_loss(
    student_logits: Tensor,
    teacher_logits: Tensor,
    *,
    threshold: float = 0.9,
    strategy: str = "n-1",
    weight: str = "concave",
    curvature: float = 50.0,
    fidelity: str = "paper",
    reduction: str = "mean",
    fixed_k: int = 2,
    ratio: float = 0.5,
    progress: float = 0.0,
    convex_coefficient: float | None = None,
    weight_map: Tensor | None = None,
) -> Tensor:
    """Fuzzy positive loss: every positive class above every negative class (section 3.2, eq. 2).

    Per pixel, with Y the K classes that the teacher gives the highest scores (equal scores: lower class index first)::

        loss = log(1 + SUM_{i in Y} exp(-z_i) * SUM_{j not in Y} exp(z_j))

    times the adaptive weight. With K = 1 it is the cross-entropy with the teacher's argmax. It is computed in float32
    (float64 for float64 logits), is finite for any finite logits, and does not change when all logits of a pixel are
    shifted. The rescaling to the value of cross-entropy that the released training code applies is not part of it:
    see :class:`fpl.losses.PixelLoss`.

    Args:
        student_logits: z, [B, C, *spatial], any floating dtype, C >= 2.
        teacher_logits: Logits of the same shape; always detached.
        threshold: T, see :func:`fpl.losses.assign`, as for ``strategy``, ``fixed_k``, ``ratio`` and ``progress``.
        strategy: How K follows from the teacher.
        weight: Adaptive weight, see :func:`fpl.losses.adaptive_weight`, as for the two numbers it takes.
        curvature: A of the concave weight.
        fidelity: ``paper`` for the published formulas, ``released`` for what the authors' code computes.
        reduction: ``mean`` over all pixels, whatever their weight; ``sum``; or ``none`` for [B, *spatial].
        fixed_k: K of strategy ``fixed``.
        ratio: alpha of strategy ``ratio``.
        progress: Share of training that is over, 0 .. 1, for strategy ``step``.
        convex_coefficient: c of the convex weight.
        weight_map: Further factors [B, *spatial], >= 0. A pixel with weight 0 adds neither value nor gradient, not
            even if its logits are NaN.

    Returns:
        A scalar, or [B, *spatial] for reduction ``none``. NaN in the student's or teacher's logits gives NaN there.

    Raises:
        ValueError: An argument is outside its range, or a tensor has another shape or dtype.
    """
    check_choice("reduction", reduction, REDUCTIONS)
    check_pair(student_logits, teacher_logits)
    student = to_compute(student_logits)
    if weight_map is not None:
        check_map("weight_map", weight_map, student)
        counted = counted_pixels(weight_map)
        student = only_counted(student, counted)
    terms = fuzzy_positive_terms(
        student,
        teacher_logits,
        threshold=threshold,
        strategy=strategy,
        weight=weight,
        curvature=curvature,
        fidelity=fidelity,
        fixed_k=fixed_k,
        ratio=ratio,
        progress=progress,
        convex_coefficient=convex_coefficient,
    )
    loss = terms.loss * terms.weight
    if weight_map is not None:
        loss = torch.where(counted, loss * weight_map, torch.zeros_like(loss))
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.mean()


class FuzzyPositiveLoss(nn.Module):
    """:func:`fuzzy_positive_loss` as a module with the same keywords; set ``progress`` as training goes on.

    Raises:
        ValueError: A keyword is outside its range.
    """

    def __init__(
        self,
        *,
        threshold: float = 0.9,
        strategy: str = "n-1",
        weight: str = "concave",
        curvature: float = 50.0,
        fidelity: str = "paper",
        reduction: str = "mean",
        fixed_k: int = 2,
        ratio: float = 0.5,
        progress: float = 0.0,
        convex_coefficient: float | None = None,
    ) -> None:
        super().__init__()
        check_assignment(threshold, strategy, fidelity, fixed_k, ratio, progress)
        check_weight(weight, curvature, fidelity, convex_coefficient)
        check_choice("reduction", reduction, REDUCTIONS)
        self.threshold = threshold
        self.strategy = strategy
        self.weight = weight
        self.curvature = curvature
        self.fidelity = fidelity
        self.reduction = reduction
        self.fixed_k = fixed_k
        self.ratio = ratio
        self.progress = progress
        self.convex_coefficient = convex_coefficient

    def forward(self, student_logits: Tensor, teacher_logits: Tensor, weight_map: Tensor | None = None) -> Tensor:
        """Compute the loss; see :func:`fuzzy_positive_loss`."""
        return fuzzy_positive_loss(
            student_logits,
            teacher_logits,
            threshold=self.threshold,
            strategy=self.strategy,
            weight=self.weight,
            curvature=self.curvature,
            fidelity=self.fidelity,
            reduction=self.reduction,
            fixed_k=self.fixed_k,
            ratio=self.ratio,
            progress=self.progress,
            convex_coefficient=self.convex_coefficient,
            weight_map=weight_map,
        )

    def extra_repr(self) -> str:
        """Name the settings that decide the loss."""
        return (
            f"threshold={self.threshold}, strategy={self.strategy!r}, weight={self.weight!r}, "
            f"fidelity={self.fidelity!r}, reduction={self.reduction!r}"
        )
