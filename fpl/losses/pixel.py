"""The one slot for a loss between two predictions of the same pixels: methods never choose a formula themselves."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fpl.losses.checks import (
    check_choice,
    check_denominator,
    check_groups,
    check_mask,
    check_range,
    check_truth,
    check_weight_map,
    constant,
    counted_pixels,
)
from fpl.losses.fuzzy import RuledLoss
from fpl.losses.pixel_term import Formula, Pair, PixelTerm, add_diagnostics, compute, compute_groups
from fpl.losses.resolution import make_teaching
from fpl.losses.rules import Rules

KINDS = ("ce", "fpl", "soft", "negative", "ce+negative", "mse", "mse_logits")


def _balanced(terms: Sequence[PixelTerm]) -> Tensor:
    """The directions of one group of images, rescaled to the value of their cross-entropy."""
    value = torch.stack([term.value for term in terms]).sum()
    reference = torch.stack([term.cross_entropy for term in terms if term.cross_entropy is not None]).sum()
    loss = torch.stack([term.mean for term in terms]).sum()
    return value * torch.where(loss == 0, torch.ones_like(loss), reference / loss)


class PixelLoss(RuledLoss):
    """Loss of a student's pixels against a teacher's, with a weight map and a denominator.

    Kinds: ``ce`` (cross-entropy with the teacher's argmax), ``fpl`` (fuzzy positive loss), ``soft`` (KL divergence),
    ``negative`` (negative learning), ``ce+negative`` (their sum), ``mse`` (squared difference of probabilities, mean
    over classes), ``mse_logits`` (the same of logits).
    The teacher is always detached. Everything is computed in float32, in float64 for float64 logits.

    The training loop sets three attributes before each step: ``progress`` (share of training that is over, 0 .. 1,
    for strategy ``step``), ``collect`` (whether to fill :attr:`PixelTerm.statistics`) and ``diagnose`` (whether to add
    those of :func:`fpl.losses.diagnostics.diagnose`).

    Args:
        kind: One of :data:`KINDS`.
        threshold: T; this and the next six are those of :func:`fpl.losses.fuzzy_positive_loss`. Kinds other than
            ``fpl`` use them for statistics alone.
        strategy: How K follows from the teacher.
        fixed_k: K of strategy ``fixed``.
        ratio: alpha of strategy ``ratio``.
        weight: Adaptive weight.
        curvature: A of the concave weight.
        convex_coefficient: c of the convex weight.
        fidelity: ``paper`` or ``released``.
        balance: Rescale ``fpl`` in :meth:`total` to the value of cross-entropy, as the released training code does:
            the factor is of all directions of a step, so the ``value`` of a term alone does not have it.
            ``fidelity`` alone does not rescale: it decides K and the weight.
        negative_threshold: Teacher probability below which a class is negative, 0 < threshold <= 1 (paper: e.g. 0.2).

    Raises:
        ValueError: A keyword is outside its range, or ``balance`` is asked of another kind than ``fpl``.
    """

    def __init__(
        self,
        kind: str = "ce",
        *,
        threshold: float = 0.9,
        strategy: str = "n-1",
        fixed_k: int = 2,
        ratio: float = 0.5,
        weight: str = "concave",
        curvature: float = 50.0,
        convex_coefficient: float | None = None,
        fidelity: str = "paper",
        balance: bool = False,
        negative_threshold: float = 0.2,
    ) -> None:
        check_choice("kind", kind, KINDS)
        super().__init__(
            Rules(threshold, strategy, weight, curvature, fidelity, fixed_k, ratio, 0.0, convex_coefficient)
        )
        check_range("negative_threshold", negative_threshold, "0 < value <= 1", lambda value: 0 < value <= 1)
        if balance and kind != "fpl":
            raise ValueError(f"balance is {balance!r} with kind {kind!r}; allowed: kind 'fpl' only")
        self.kind = kind
        self.balance = balance
        self.negative_threshold = negative_threshold
        self.collect = False
        self.diagnose = False

    def forward(
        self,
        student_logits: Tensor,
        teacher_logits: Tensor,
        weight_map: Tensor | None = None,
        denominator: Tensor | float | None = None,
        counted: Tensor | None = None,
        *,
        second: Tensor | None = None,
        inside: Tensor | None = None,
        size: tuple[int, int] | None = None,
        ground_truth: Tensor | None = None,
        watched: Tensor | None = None,
        groups: int = 1,
    ) -> PixelTerm:
        """Compute one pair.

        With ``size`` the logits are enlarged first, bilinearly with aligned corners, and [B, *spatial] is [B, H, W];
        with ``second`` another teacher teaches some pixels, as after CutMix. The result is that of doing both before
        the call; a fused implementation never stores the enlarged or mixed logits.

        Args:
            student_logits: [B, C, *spatial], any floating dtype, C >= 2.
            teacher_logits: Logits (or log-probabilities) of the same shape, aligned pixel to pixel.
            weight_map: Factors [B, *spatial], floating and >= 0, or bool, a constant; None is 1 everywhere. A pixel of
                weight 0 does not count: neither value, gradient nor statistics see it, whatever its logits are.
            denominator: What the weighted sum is divided by, a number or a scalar tensor; None is the number of pixels
                that count. 0 is read as 1. A tensor on a GPU is not looked at: a negative one gives a negative value.
            counted: Pixels bool [B, *spatial] that count instead, for a method that leaves pixels out of the loss but
                not out of the plain means.
            second: Logits of a second teacher, of the same shape.
            inside: Pixels bool [B, *spatial] that ``second`` teaches; goes with it.
            size: (H, W) that logits [B, C, h, w] are enlarged to.
            ground_truth: True classes [B, *spatial], uint8 or int64, other values are unknown; for diagnostics alone.
            watched: Pixels bool [B, *spatial] that statistics cover; None for those that count.
            groups: Number of groups of consecutive images, a divisor of B, that :meth:`total` balances each by itself.
                Nothing else depends on it.

        Returns:
            The term; its value is 0 with a zero gradient if no pixel counts.

        Raises:
            ValueError: A tensor has another shape, dtype or device, ``denominator`` is negative or no single number,
                ``groups`` does not divide B, or ``fixed_k`` exceeds C - 1.
            TypeError: What should be a tensor is none, or ``size`` holds no whole numbers.
        """
        teaching = make_teaching(student_logits, teacher_logits, second, inside, size)
        check_groups(groups, student_logits)
        if weight_map is not None:
            check_weight_map(weight_map, student_logits, size)
            weight_map = constant(weight_map)
        if denominator is not None:
            check_denominator(denominator)
        for name, mask in (("counted", counted), ("watched", watched)):
            if mask is not None:
                check_mask(name, mask, student_logits, size)
        if counted is not None:
            counted = constant(counted)
        elif weight_map is not None:
            counted = counted_pixels(weight_map)
        if ground_truth is not None:
            check_truth(ground_truth, student_logits, size)
            ground_truth = constant(ground_truth)
        pair = Pair(student_logits, teaching, weight_map, denominator, counted, ground_truth)
        formula = Formula(
            self.kind, self.rules, self.negative_threshold, self.balance or self.collect, collect=self.collect
        )
        if self.balance and groups > 1 and len(student_logits):
            term = compute_groups(pair, formula, groups)
        else:
            term = compute(pair, formula)
        if self.diagnose or (self.collect and watched is not None):
            add_diagnostics(term, pair, self.rules, watched, basic=not self.diagnose)
        return term

    def total(self, terms: Sequence[PixelTerm]) -> Tensor:
        """Add the directions of one step up, and balance them if asked.

        With ``balance`` the sum is multiplied by a constant, the cross-entropy of all terms divided by their mean loss:
        its value becomes that of plain cross-entropy, its direction stays that of the fuzzy positive loss. The released
        CPS code has one such factor for both directions together, so hand them over together. It has one in each of
        its processes, before their losses are averaged: so has each of the ``groups`` that the terms were made with.

        Args:
            terms: Results of :meth:`forward`, at least one, all with the same ``groups``.

        Returns:
            A scalar, differentiable. Where all losses are 0 the factor is 1.

        Raises:
            ValueError: ``terms`` is empty, their groups differ, or one holds no cross-entropy to balance with.
        """
        if not terms:
            raise ValueError("terms is empty; allowed: one term or more")
        if not self.balance:
            return torch.stack([term.value for term in terms]).sum()
        if any(term.cross_entropy is None for term in terms):
            raise ValueError("a term has no cross_entropy; allowed: terms of a PixelLoss with balance=True")
        parts = [term.groups or (term,) for term in terms]
        if len({len(part) for part in parts}) > 1:
            raise ValueError(f"terms have {sorted({len(part) for part in parts})} groups; allowed: as many in each")
        return torch.stack([_balanced(group) for group in zip(*parts, strict=True)]).sum()

    def extra_repr(self) -> str:
        """Name the settings that decide the loss."""
        if self.kind != "fpl":
            return f"kind={self.kind!r}"
        rules = self.rules
        return (
            f"kind='fpl', threshold={rules.threshold}, strategy={rules.strategy!r}, weight={rules.weight!r}, "
            f"fidelity={rules.fidelity!r}, balance={self.balance}"
        )
