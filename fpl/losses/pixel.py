"""The one slot for a loss between two predictions of the same pixels: methods never choose a formula themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.losses.assignment import check_assignment
from fpl.losses.checks import (
    check_choice,
    check_map,
    check_pair,
    check_range,
    counted_pixels,
    only_counted,
    poison,
    to_compute,
)
from fpl.losses.fuzzy import FuzzyTerms, fuzzy_positive_terms
from fpl.losses.supervised import divide
from fpl.losses.weight import check_weight

KINDS = ("ce", "fpl", "soft", "negative", "ce+negative", "mse")


class PixelTerm(NamedTuple):
    """One direction of a pixel loss (student from teacher)."""

    value: Tensor
    """Scalar, differentiable: SUM weight_map * loss / denominator."""
    mean: Tensor
    """Scalar, a constant: plain mean of the loss (adaptive weight included, weight map not) over counted pixels."""
    cross_entropy: Tensor | None
    """Scalar, a constant: plain mean over counted pixels of the cross-entropy with the teacher's argmax, if needed."""
    statistics: dict[str, Tensor]
    """Constants over counted pixels; empty unless collected."""


def _identity(value: Tensor) -> Tensor:
    return value


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


class PixelLoss(nn.Module):
    """Loss of a student's pixels against a teacher's, with a weight map and a denominator.

    Kinds: ``ce`` (cross-entropy with the teacher's argmax), ``fpl`` (fuzzy positive loss), ``soft`` (KL divergence),
    ``negative`` (negative learning), ``ce+negative`` (their sum), ``mse`` (squared difference of probabilities).
    The teacher is always detached. Everything is computed in float32, in float64 for float64 logits.

    The training loop sets two attributes before each step: ``progress`` (share of training that is over, 0 .. 1,
    for strategy ``step``) and ``collect`` (whether to fill :attr:`PixelTerm.statistics`).

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
        balance: Rescale ``fpl`` in :meth:`total` to the value of cross-entropy, as the released training code does.
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
        super().__init__()
        check_choice("kind", kind, KINDS)
        check_assignment(threshold, strategy, fidelity, fixed_k, ratio, 0.0)
        check_weight(weight, curvature, fidelity, convex_coefficient)
        check_range("negative_threshold", negative_threshold, "0 < value <= 1", 0 < negative_threshold <= 1)
        if balance and kind != "fpl":
            raise ValueError(f"balance is {balance!r} with kind {kind!r}; allowed: kind 'fpl' only")
        self.kind = kind
        self.threshold = threshold
        self.strategy = strategy
        self.fixed_k = fixed_k
        self.ratio = ratio
        self.weight = weight
        self.curvature = curvature
        self.convex_coefficient = convex_coefficient
        self.fidelity = fidelity
        self.balance = balance
        self.negative_threshold = negative_threshold
        self.progress = 0.0
        self.collect = False

    def forward(
        self,
        student_logits: Tensor,
        teacher_logits: Tensor,
        weight_map: Tensor | None = None,
        denominator: Tensor | float | None = None,
        counted: Tensor | None = None,
    ) -> PixelTerm:
        """Compute one direction.

        Args:
            student_logits: [B, C, *spatial], any floating dtype, C >= 2.
            teacher_logits: Logits (or log-probabilities) of the same shape, aligned pixel to pixel.
            weight_map: Factors [B, *spatial], >= 0; None is 1 everywhere. A pixel of weight 0 does not count: neither
                value, gradient nor statistics see it, whatever its logits are.
            denominator: What the weighted sum is divided by; None is the number of pixels that count. 0 is read as 1.
            counted: Pixels bool [B, *spatial] that count instead, for a method that leaves pixels out of the loss but
                not out of the plain means.

        Returns:
            The term; its value is 0 with a zero gradient if no pixel counts.

        Raises:
            ValueError: A tensor has another shape or dtype, ``denominator`` is negative, or ``fixed_k`` exceeds C - 1.
        """
        check_pair(student_logits, teacher_logits)
        student = to_compute(student_logits)
        teacher = to_compute(teacher_logits.detach())
        if weight_map is not None:
            check_map("weight_map", weight_map, student)
        if counted is not None:
            check_map("counted", counted, student)
            included = counted
        elif weight_map is not None:
            included = counted_pixels(weight_map)
        else:
            included = torch.ones_like(teacher[:, 0], dtype=torch.bool)
        if weight_map is not None or counted is not None:
            student = only_counted(student, included)
        pixels = included.sum()

        def total(per_pixel: Tensor) -> Tensor:
            return torch.where(included, per_pixel, torch.zeros_like(per_pixel)).sum()

        per_pixel, cross_entropy, fuzzy = self._per_pixel(student, teacher)
        value = total(per_pixel if weight_map is None else per_pixel * weight_map)
        cross_entropy_sum = None if cross_entropy is None else total(cross_entropy.detach())
        return PixelTerm(
            value=divide(value, pixels if denominator is None else denominator),
            mean=divide(total(per_pixel.detach()), pixels),
            cross_entropy=None if cross_entropy_sum is None else divide(cross_entropy_sum, pixels),
            statistics=self._statistics(student, teacher, fuzzy, cross_entropy_sum, included, total),
        )

    def _per_pixel(self, student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor | None, FuzzyTerms | None]:
        """Loss [B, *spatial], cross-entropy [B, *spatial] if needed, and the fuzzy terms for kind ``fpl``."""
        if self.kind == "fpl":
            fuzzy = self._fuzzy(student, teacher)
            cross_entropy = None
            if self.balance or self.collect:
                with torch.no_grad():
                    cross_entropy = F.cross_entropy(student, teacher.max(1).indices, reduction="none")
            return fuzzy.loss * fuzzy.weight, cross_entropy, fuzzy
        top, label = teacher.max(1)
        in_graph = self.kind in ("ce", "ce+negative")
        cross_entropy = None
        if in_graph or self.collect:
            with torch.set_grad_enabled(in_graph and torch.is_grad_enabled()):
                cross_entropy = F.cross_entropy(student, label, reduction="none")
        if self.kind == "soft":
            per_pixel = soft_loss(student, teacher)
        elif self.kind == "mse":
            per_pixel = squared_loss(student, teacher)
        elif self.kind == "negative":
            per_pixel = negative_loss(student, teacher, label, self.negative_threshold)
        else:
            assert cross_entropy is not None
            per_pixel = cross_entropy
            if self.kind == "ce+negative":
                per_pixel = per_pixel + negative_loss(student, teacher, label, self.negative_threshold)
        return poison(per_pixel, top), cross_entropy, None

    def _fuzzy(self, student: Tensor, teacher: Tensor) -> FuzzyTerms:
        return fuzzy_positive_terms(
            student,
            teacher,
            threshold=self.threshold,
            strategy=self.strategy,
            weight=self.weight,
            curvature=self.curvature,
            fidelity=self.fidelity,
            fixed_k=self.fixed_k,
            ratio=self.ratio,
            progress=self.progress,
            convex_coefficient=self.convex_coefficient,
        )

    @torch.no_grad()
    def _statistics(
        self,
        student: Tensor,
        teacher: Tensor,
        fuzzy: FuzzyTerms | None,
        cross_entropy_sum: Tensor | None,
        counted: Tensor,
        total: Callable[[Tensor], Tensor],
    ) -> dict[str, Tensor]:
        if not self.collect:
            return {}
        assert cross_entropy_sum is not None
        fuzzy = self._fuzzy(student, teacher) if fuzzy is None else fuzzy
        histogram = torch.zeros(student.shape[1], dtype=torch.int64, device=student.device)
        return {
            "k_histogram": histogram.scatter_add_(0, fuzzy.k.flatten() - 1, counted.flatten().long()),
            "pixels": counted.sum(),
            "weight_sum": total(fuzzy.weight),
            "loss_sum": total(fuzzy.loss),
            "weighted_loss_sum": total(fuzzy.loss * fuzzy.weight),
            "cross_entropy_sum": cross_entropy_sum,
        }

    def total(self, terms: Sequence[PixelTerm], average: Callable[[Tensor], Tensor] = _identity) -> Tensor:
        """Add the directions of one step up, and balance them if asked.

        With ``balance`` the sum is multiplied by a constant, the cross-entropy of all terms divided by their mean loss:
        its value becomes that of plain cross-entropy, its direction stays that of the fuzzy positive loss. The released
        CPS code has one such factor for both directions together, so hand them over together.

        Args:
            terms: Results of :meth:`forward`, at least one.
            average: Averages a scalar over all workers, so that each of them gets the same factor.

        Returns:
            A scalar, differentiable. If all losses are 0 the factor is 1.

        Raises:
            ValueError: ``terms`` is empty, or a term holds no cross-entropy to balance with.
        """
        if not terms:
            raise ValueError("terms is empty; allowed: one term or more")
        value = torch.stack([term.value for term in terms]).sum()
        if not self.balance:
            return value
        known = [term.cross_entropy for term in terms if term.cross_entropy is not None]
        if len(known) < len(terms):
            raise ValueError("a term has no cross_entropy; allowed: terms of a PixelLoss with balance=True")
        reference = average(torch.stack(known).sum())
        loss = average(torch.stack([term.mean for term in terms]).sum())
        return value * torch.where(loss == 0, torch.ones_like(loss), reference / loss)

    def extra_repr(self) -> str:
        """Name the settings that decide the loss."""
        if self.kind != "fpl":
            return f"kind={self.kind!r}"
        return (
            f"kind='fpl', threshold={self.threshold}, strategy={self.strategy!r}, weight={self.weight!r}, "
            f"fidelity={self.fidelity!r}, balance={self.balance}"
        )
