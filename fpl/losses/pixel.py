"""The one slot for a loss between two predictions of the same pixels: methods never choose a formula themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses.checks import (
    check_choice,
    check_map,
    check_range,
    counted_pixels,
    only_counted,
    poison,
    to_compute,
)
from fpl.losses.comparison import negative_loss, soft_loss, squared_loss
from fpl.losses.diagnostics import diagnose
from fpl.losses.fuzzy import FuzzyTerms, RuledLoss, terms_of, weighted_pixels
from fpl.losses.kernels import function, implementation
from fpl.losses.kernels.contract import Implementation, Pixels, make_settings
from fpl.losses.resolution import Teaching, enlarge, make_teaching
from fpl.losses.rules import Rules
from fpl.losses.supervised import divide

KINDS = ("ce", "fpl", "soft", "negative", "ce+negative", "mse")


# Statistics that every collected step has.
BASIC = ("k_histogram", "pixels", "weight_sum", "loss_sum", "weighted_loss_sum", "cross_entropy_sum")


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


class PixelLoss(RuledLoss):
    """Loss of a student's pixels against a teacher's, with a weight map and a denominator.

    Kinds: ``ce`` (cross-entropy with the teacher's argmax), ``fpl`` (fuzzy positive loss), ``soft`` (KL divergence),
    ``negative`` (negative learning), ``ce+negative`` (their sum), ``mse`` (squared difference of probabilities).
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
        check_choice("kind", kind, KINDS)
        super().__init__(
            Rules(threshold, strategy, weight, curvature, fidelity, fixed_k, ratio, 0.0, convex_coefficient)
        )
        check_range("negative_threshold", negative_threshold, "0 < value <= 1", 0 < negative_threshold <= 1)
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
    ) -> PixelTerm:
        """Compute one direction.

        With ``size`` the logits are enlarged first, bilinearly with aligned corners, and [B, *spatial] is [B, H, W];
        with ``second`` another teacher teaches some pixels, as after CutMix. The result is that of doing both before
        the call; a fused implementation never stores the enlarged or mixed logits.

        Args:
            student_logits: [B, C, *spatial], any floating dtype, C >= 2.
            teacher_logits: Logits (or log-probabilities) of the same shape, aligned pixel to pixel.
            weight_map: Factors [B, *spatial], >= 0; None is 1 everywhere. A pixel of weight 0 does not count: neither
                value, gradient nor statistics see it, whatever its logits are.
            denominator: What the weighted sum is divided by; None is the number of pixels that count. 0 is read as 1.
            counted: Pixels bool [B, *spatial] that count instead, for a method that leaves pixels out of the loss but
                not out of the plain means.
            second: Logits of a second teacher, of the same shape.
            inside: Pixels bool [B, *spatial] that ``second`` teaches; goes with it.
            size: (H, W) that logits [B, C, h, w] are enlarged to.
            ground_truth: True classes [B, *spatial], uint8 or int64, other values are unknown; for diagnostics alone.
            watched: Pixels bool [B, *spatial] that statistics cover; None for those that count.

        Returns:
            The term; its value is 0 with a zero gradient if no pixel counts.

        Raises:
            ValueError: A tensor has another shape or dtype, ``denominator`` is negative, or ``fixed_k`` exceeds C - 1.
        """
        teaching = make_teaching(student_logits, teacher_logits, second, inside, size)
        if weight_map is not None:
            check_map("weight_map", weight_map, student_logits, size)
        if counted is not None:
            check_map("counted", counted, student_logits, size)
        if ground_truth is not None:
            check_map("ground_truth", ground_truth, student_logits, size)
        if counted is None and weight_map is not None:
            counted = counted_pixels(weight_map)
        if self.kind == "fpl" and (kernel := implementation(student_logits)) is not None:
            term = self._fused(kernel, student_logits, teaching, weight_map, denominator, counted)
        else:
            term = self._term(student_logits, teaching, weight_map, denominator, counted)
        if self.diagnose or (self.collect and watched is not None):
            if watched is not None:
                check_map("watched", watched, student_logits, size)
                counted = watched if counted is None else counted & watched
                # What the loss itself summed is of other pixels.
                term.statistics.clear()
            self._diagnose(term, student_logits, teaching, counted, ground_truth)
        return term

    def _diagnose(
        self,
        term: PixelTerm,
        student_logits: Tensor,
        teaching: Teaching,
        counted: Tensor | None,
        ground_truth: Tensor | None,
    ) -> None:
        """Add what the statistics lack."""
        found = diagnose(
            student_logits.detach(),
            teaching.teacher,
            ground_truth=ground_truth,
            counted=counted,
            second=teaching.second,
            inside=teaching.inside,
            size=teaching.size,
            **self.rules._asdict(),
        )
        wanted = found if self.diagnose else BASIC
        # What the loss itself summed stays: it is what the step was taken with, to the last bit.
        term.statistics.update({name: found[name] for name in wanted if name not in term.statistics})

    def _term(
        self,
        student_logits: Tensor,
        teaching: Teaching,
        weight_map: Tensor | None,
        denominator: Tensor | float | None,
        counted: Tensor | None,
    ) -> PixelTerm:
        """Do it by tensors."""
        student, teacher = enlarge(to_compute(student_logits), teaching.size), teaching.mixed()
        included = torch.ones_like(teacher[:, 0], dtype=torch.bool) if counted is None else counted
        if counted is not None:
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

    def _fused(
        self,
        kernel: Implementation,
        student: Tensor,
        teaching: Teaching,
        weight_map: Tensor | None,
        denominator: Tensor | float | None,
        counted: Tensor | None,
    ) -> PixelTerm:
        """Do it for kind ``fpl`` in one pass over the logits."""
        pixels = weighted_pixels(
            Pixels(student, teaching.teacher, teaching.second, teaching.inside, size=teaching.size), weight_map, counted
        )
        settings = make_settings(student.shape[1], self.rules)
        if denominator is None:
            if pixels.counted is None:
                spatial = student.shape[2:] if teaching.size is None else teaching.size
                denominator = float(student.shape[0] * math.prod(spatial))
            else:
                denominator = pixels.counted.sum()
        scale = divide(torch.ones((), device=student.device), denominator).float()
        wanted = self.balance or self.collect
        found = function.summed(kernel, settings, pixels, scale=scale, cross_entropy=wanted)
        sums = found.sums
        statistics = {"k_histogram": found.histogram, "pixels": sums["pixels"].long()}
        statistics |= {f"{name}_sum": sums[name] for name in ("weight", "loss", "weighted_loss", "cross_entropy")}
        return PixelTerm(
            value=found.value,
            mean=divide(sums["weighted_loss"], sums["pixels"]).float(),
            cross_entropy=divide(sums["cross_entropy"], sums["pixels"]).float() if wanted else None,
            statistics=statistics if self.collect else {},
        )

    def _per_pixel(self, student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor | None, FuzzyTerms | None]:
        """Loss [B, *spatial], cross-entropy [B, *spatial] if needed, and the fuzzy terms for kind ``fpl``."""
        if self.kind == "fpl":
            fuzzy = terms_of(student, teacher, self.rules)
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
        fuzzy = terms_of(student, teacher, self.rules) if fuzzy is None else fuzzy
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
        rules = self.rules
        return (
            f"kind='fpl', threshold={rules.threshold}, strategy={rules.strategy!r}, weight={rules.weight!r}, "
            f"fidelity={rules.fidelity!r}, balance={self.balance}"
        )
