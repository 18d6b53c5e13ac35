"""Fuzzy Positive Regularization: the loss of a pixel with several positive classes (FPL, CVPR 2023, section 3.2)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fpl.losses.checks import (
    check_choice,
    check_pair,
    check_weight_map,
    constant,
    counted_pixels,
    only_counted,
    poison,
    to_compute,
)
from fpl.losses.kernels import function, implementation
from fpl.losses.kernels.contract import Pixels, make_settings
from fpl.losses.regularization import loss_gradient, regularize, split_sums
from fpl.losses.rules import DEFAULTS, Rules
from fpl.losses.shortcut import Decision, decide

REDUCTIONS = ("mean", "valid", "sum", "none")


class FuzzyTerms(NamedTuple):
    """What the loss of each pixel is made of; every tensor is [B, *spatial]."""

    loss: Tensor
    """Unweighted loss >= 0, differentiable with respect to the student's logits."""
    weight: Tensor
    """Adaptive weight, 0 .. 1, a constant."""
    k: Tensor
    """int64 number of positives, 1 .. C; of strategy ``soft`` the nearest: a membership of one half counts."""


def fuzzy_positive_terms(student_logits: Tensor, teacher_logits: Tensor, rules: Rules = DEFAULTS) -> FuzzyTerms:
    """Compute loss, weight and K of every pixel, without weighting or reducing.

    Arguments, ranges and errors are those of :func:`fuzzy_positive_loss`, its keywords in ``rules``. The loss cannot be
    differentiated twice.
    """
    rules = rules.checked()
    check_pair(student_logits, teacher_logits)
    teacher_logits = constant(teacher_logits)
    if (kernel := implementation(student_logits, teacher_logits)) is not None:
        settings = make_settings(student_logits.shape[1], rules)
        return FuzzyTerms(*function.mapped(kernel, settings, student_logits, teacher_logits))
    teacher = _read_teacher(teacher_logits, rules)
    student = to_compute(student_logits)
    loss = regularize(student, teacher.positive)
    if teacher.wider is not None and teacher.part is not None:
        loss = torch.lerp(loss, regularize(student, teacher.wider), teacher.part.to(loss.dtype))
    return FuzzyTerms(poison(loss, teacher.top), teacher.weight, teacher.k)


@torch.no_grad()
def _read_teacher(teacher_logits: Tensor, rules: Rules) -> Decision:
    return decide(to_compute(teacher_logits.detach()), rules)


def weighted_pixels(pixels: Pixels, weight_map: Tensor | None, counted: Tensor | None = None) -> Pixels:
    """Give pixels a weight map [B, *spatial] and say which count: those of ``counted``, else of weight > 0."""
    if weight_map is None:
        return pixels._replace(counted=counted)
    counted = counted_pixels(weight_map) if counted is None else counted
    return pixels._replace(weight_map=weight_map.float(), counted=counted)


@torch.no_grad()
def fuzzy_positive_gradient(student_logits: Tensor, teacher_logits: Tensor, rules: Rules = DEFAULTS) -> Tensor:
    """Gradient of the unweighted, unreduced loss of each pixel with respect to the student's logits, in closed form.

    With s = sigmoid(log SUM_pos exp(-z) + log SUM_neg exp(z)), it is -s exp(-z_i) / SUM_pos exp(-z) for a positive i
    and s exp(z_j) / SUM_neg exp(z) for a negative j: the gradient equations of section 3.2. Positives sum to -s,
    negatives to s. Of strategy ``soft`` it is the mean of the gradients of the sets on either side.

    Arguments, ranges and errors are those of :func:`fuzzy_positive_loss`, its keywords in ``rules``.

    Returns:
        [B, C, *spatial], -1 .. 1, float32 (float64 for float64 logits), a constant.
    """
    check_pair(student_logits, teacher_logits)
    teacher, student = _read_teacher(teacher_logits, rules.checked()), to_compute(student_logits.detach())

    def gradient(positive: Tensor) -> Tensor:
        parts = split_sums(student, positive)
        upstream = poison(torch.ones_like(parts.violation), teacher.top.unsqueeze(1))
        return loss_gradient(parts, positive, upstream)

    found = gradient(teacher.positive)
    if teacher.wider is not None and teacher.part is not None:
        return torch.lerp(found, gradient(teacher.wider), teacher.part.unsqueeze(1).to(found.dtype))
    return found


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
    (float64 for float64 logits), is finite for logits of a pixel whose differences are finite (for reduction ``sum``:
    where their sum is), and does not change when all logits of a pixel are shifted. The rescaling to the value of
    cross-entropy that the released training code applies is not part of it: see :class:`fpl.losses.PixelLoss`.

    **Strategy** ``soft``, this suite's own, has a set with a partial member: K = n - 1 + m, where m, 0 .. 1, is the
    membership of the n-th class (:func:`fpl.losses.assign`). All classes whose membership is a or more, 0 < a <= 1, are
    a set as above: the n first for a <= m, the n - 1 first for a > m. Loss, gradient and weight are their means over
    a. With L_K, g_K and w_K those of the K first (of all C classes 0, 0 and 1)::

        loss = (1 - m) L_{n-1} + m L_n      gradient = (1 - m) g_{n-1} + m g_n      weight = (1 - m) w_{n-1} + m w_n

    * They are those of n - 1 for m = 0 and of n for m = 1, where the next class goes on with m = 0, and linear between
      them: continuous in m. K = 1 is cross-entropy with the teacher's argmax.
    * Either set leaves the n-th class on one side alone: no term has exp(z_n - z_n), it does not push against itself.
      Shifts change nothing, as they change neither L.
    * The bounds that the appendix proves of whole K hold, being convex: the gradient's components sum to 0, each is
      within -1 .. 1, and the norm is at most the square root of 2.
    * The appendix's gradient vanishes with K = n as the negatives' probability does, and for n - 1 that is 1 - T or
      more. Here it is (1 - m) (1 - V_{n-1}) + m (1 - V_n) = 1 - T in the mean, V_K being the sum of the K first. With
      the student equal to the teacher, N the negatives' probability and X = N SUM_{i in Y} 1 / p_i >= N, what the
      negatives are pushed by, s = X / (1 + X), is N / 2 or more: (1 - T) / 2 in the mean.
    * K and weight depend on the sorted probabilities alone, and are continuous in them. So are loss and gradient but
      where the n-th class ties with one before or behind it: there an order without a reason decides, as for whole K,
      which of the two has the membership. No set of this form avoids that: of two equal classes one would have m and
      the other 0, on either side of the tie the other way round. Logits are compared as they are given, so that
      rounding the sums never moves it.

    One logarithm, log(1 + SUM_{i != j} w_i (1 - w_j) exp(z_j - z_i)) with memberships w, has the same ends, but is
    log((1 - m) exp(L_{n-1}) + m exp(L_n)): with L_n far above L_{n-1} a small m moves it nearly as far as the jump did.

    Args:
        student_logits: z, [B, C, *spatial], any floating dtype, C >= 2.
        teacher_logits: Logits of the same shape; always detached.
        threshold: T, see :func:`fpl.losses.assign`, as for ``strategy``, ``fixed_k``, ``ratio`` and ``progress``.
        strategy: How K follows from the teacher.
        weight: Adaptive weight, see :func:`fpl.losses.adaptive_weight`, as for the two numbers it takes.
        curvature: A of the concave weight.
        fidelity: ``paper`` for the published formulas, ``released`` for what the authors' code computes.
        reduction: ``mean`` over all pixels, whatever their weight; ``valid``, the sum divided by the number of pixels
            whose weight in ``weight_map`` is not 0, as ``F.cross_entropy`` divides with an ``ignore_index``; ``sum``;
            or ``none`` for [B, *spatial].
        fixed_k: K of strategy ``fixed``.
        ratio: alpha of strategy ``ratio``.
        progress: Share of training that is over, 0 .. 1, for strategy ``step``.
        convex_coefficient: c of the convex weight.
        weight_map: Further factors [B, *spatial], floating and >= 0, or bool, such as ``label != 255``; a constant: no
            gradient goes to it. A pixel with weight 0 adds neither value nor gradient, not even if its logits are NaN.

    Returns:
        A scalar, 0 with a zero gradient if no pixel counts, or [B, *spatial] for reduction ``none``. NaN in the
        student's or teacher's logits gives NaN there, and so does an infinite logit that the student gives a class on
        the wrong side: positive infinity to a negative, negative infinity to a positive or to all negatives; of
        ``soft`` in either set that has a share.

    Raises:
        ValueError: An argument is outside its range, or a tensor has another shape, dtype or device.
        TypeError: What should be a tensor is none.
    """
    rules = Rules(threshold, strategy, weight, curvature, fidelity, fixed_k, ratio, progress, convex_coefficient)
    return _loss_of(student_logits, teacher_logits, rules.checked(), reduction, weight_map)


def _loss_of(
    student_logits: Tensor, teacher_logits: Tensor, rules: Rules, reduction: str, weight_map: Tensor | None
) -> Tensor:
    check_choice("reduction", reduction, REDUCTIONS)
    check_pair(student_logits, teacher_logits)
    if weight_map is not None:
        check_weight_map(weight_map, student_logits)
        weight_map = constant(weight_map)
    if reduction != "none" and (kernel := implementation(student_logits, teacher_logits)) is not None:
        settings = make_settings(student_logits.shape[1], rules)
        pixels = weighted_pixels(Pixels(student_logits, constant(teacher_logits)), weight_map)
        if reduction == "valid" and pixels.counted is not None:
            scale = pixels.counted.sum().clamp(min=1).reciprocal()
        else:
            count = 1 if reduction == "sum" else student_logits.shape[0] * student_logits[0, 0].numel()
            scale = torch.full((), 1 / count, device=student_logits.device)
        return function.summed(kernel, settings, pixels, scale=scale, cross_entropy=False).value
    student = to_compute(student_logits)
    if weight_map is not None:
        counted = counted_pixels(weight_map)
        student = only_counted(student, counted)
    terms = fuzzy_positive_terms(student, teacher_logits, rules)
    loss = terms.loss * terms.weight
    if weight_map is not None:
        loss = torch.where(counted, loss * weight_map, torch.zeros_like(loss))
    if reduction == "none":
        return loss
    if reduction == "valid" and weight_map is not None:
        return _mean(loss, counted.sum().clamp(min=1))
    # The mean over no pixels is 0, as their sum is.
    return loss.sum() if reduction == "sum" or not loss.numel() else _mean(loss, loss.numel())


def _mean(loss: Tensor, count: Tensor | int) -> Tensor:
    """Divide the sum by a number of pixels; it is finite where the losses are, though their sum may not be."""
    # A power of two changes no digit.
    return (loss * 2.0**-32).sum() / count * 2.0**32


class RuledLoss(nn.Module):
    """Base of the modules that follow rules; ``progress`` and ``threshold`` are set as training goes on."""

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self.rules = rules.checked()

    @property
    def progress(self) -> float:
        """Share of training that is over, 0 .. 1, for strategy ``step``."""
        return self.rules.progress

    @progress.setter
    def progress(self, value: float) -> None:
        self.rules = self.rules._replace(progress=value).checked()

    @property
    def threshold(self) -> float:
        """T, for strategies that gather probability; may change as training goes on."""
        return self.rules.threshold

    @threshold.setter
    def threshold(self, value: float) -> None:
        self.rules = self.rules._replace(threshold=value).checked()


class FuzzyPositiveLoss(RuledLoss):
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
        super().__init__(
            Rules(threshold, strategy, weight, curvature, fidelity, fixed_k, ratio, progress, convex_coefficient)
        )
        check_choice("reduction", reduction, REDUCTIONS)
        self.reduction = reduction

    def forward(self, student_logits: Tensor, teacher_logits: Tensor, weight_map: Tensor | None = None) -> Tensor:
        """Compute the loss; see :func:`fuzzy_positive_loss`."""
        return _loss_of(student_logits, teacher_logits, self.rules, self.reduction, weight_map)

    def extra_repr(self) -> str:
        """Name the settings that decide the loss."""
        rules = self.rules
        return (
            f"threshold={rules.threshold}, strategy={rules.strategy!r}, weight={rules.weight!r}, "
            f"fidelity={rules.fidelity!r}, reduction={self.reduction!r}"
        )
