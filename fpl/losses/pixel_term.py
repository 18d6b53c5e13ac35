"""The term of a pixel loss for a pair, a student and what teaches it: by tensors or by a fused implementation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses.alternatives import negative_loss, soft_loss, squared_logit_loss, squared_loss
from fpl.losses.checks import only_counted, poison, to_compute
from fpl.losses.diagnostics import diagnose
from fpl.losses.fuzzy import FuzzyTerms, fuzzy_positive_terms, weighted_pixels
from fpl.losses.kernels import function, implementation
from fpl.losses.kernels.contract import Implementation, Pixels, make_settings
from fpl.losses.resolution import Teaching, enlarge
from fpl.losses.rules import Rules
from fpl.losses.supervised import divide

# Statistics that every collected step has.
BASIC = ("k_histogram", "pixels", "weight_sum", "loss_sum", "weighted_loss_sum", "cross_entropy_sum")


class PixelTerm(NamedTuple):
    """What a pair contributes: a student that learns from a teacher."""

    value: Tensor
    """Scalar, differentiable: SUM weight_map * loss / denominator."""
    mean: Tensor
    """Scalar, a constant: plain mean of the loss (adaptive weight included, weight map not) over counted pixels."""
    cross_entropy: Tensor | None
    """Scalar, a constant: plain mean over counted pixels of the cross-entropy with the teacher's argmax, if needed."""
    statistics: dict[str, Tensor]
    """Constants over counted pixels, or those that are watched; empty unless collected. All but :data:`BASIC` are of
    :func:`fpl.losses.diagnostics.diagnose`, where it was asked for."""
    groups: tuple[PixelTerm, ...] = ()
    """The terms of groups of images that are balanced apart; their values add up to ``value``. Empty for one group."""


class Formula(NamedTuple):
    """What is computed of a pair."""

    kind: str
    rules: Rules
    negative_threshold: float
    cross_entropy: bool
    """Whether the cross-entropy with the teacher's argmax is wanted, whatever the kind."""
    collect: bool
    """Whether statistics are wanted."""


class Pair(NamedTuple):
    """Tensors of one pair, checked; all but the student are constants."""

    student: Tensor
    teaching: Teaching
    weight_map: Tensor | None
    denominator: Tensor | float | None
    counted: Tensor | None
    """Pixels bool [B, *spatial]; None is all."""
    ground_truth: Tensor | None
    """For diagnostics alone."""

    def pixels(self) -> Tensor | float:
        """How many count."""
        if self.counted is not None:
            return self.counted.sum()
        spatial = self.student.shape[2:] if self.teaching.size is None else self.teaching.size
        return float(self.student.shape[0] * math.prod(spatial))

    def split(self, groups: int) -> list[Pair]:
        """Groups of consecutive images, all with the denominator of the whole, so that their values add up."""
        teacher, second, inside, size = self.teaching

        # Not slices: the gradients of these are put together in one pass.
        def chunks(tensor: Tensor | None) -> Sequence[Tensor | None]:
            return (None,) * groups if tensor is None else torch.chunk(tensor, groups)

        denominator = self.pixels() if self.denominator is None else self.denominator
        teachings = zip(torch.chunk(teacher, groups), chunks(second), chunks(inside), strict=True)
        maps = zip(chunks(self.weight_map), chunks(self.counted), chunks(self.ground_truth), strict=True)
        return [
            Pair(student, Teaching(*taught, size), weight_map, denominator, counted, truth)
            for student, taught, (weight_map, counted, truth) in zip(
                torch.chunk(self.student, groups), teachings, maps, strict=True
            )
        ]


def compute(pair: Pair, formula: Formula) -> PixelTerm:
    """Compute a term by the fastest implementation that takes its tensors."""
    teaching = pair.teaching
    teachers = [teaching.teacher] if teaching.second is None else [teaching.teacher, teaching.second]
    if formula.kind == "fpl" and (kernel := implementation(pair.student, *teachers)) is not None:
        return term_by_kernel(kernel, pair, formula)
    return term_by_tensors(pair, formula)


def _sum(parts: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(0)


def compute_groups(pair: Pair, formula: Formula, groups: int) -> PixelTerm:
    """Compute the term of each group of images, and from these that of all."""
    parts = pair.split(groups)
    terms = tuple(compute(part, formula) for part in parts)
    # Filled on the device: a number that is copied there would be waited for.
    empty = pair.student.new_zeros((), dtype=terms[0].mean.dtype)
    counts = torch.stack([empty + part.pixels() for part in parts])

    def mean(values: Sequence[Tensor | None]) -> Tensor | None:
        known = [value for value in values if value is not None]
        return divide((torch.stack(known) * counts).sum(), counts.sum()) if known else None

    loss = mean([term.mean for term in terms])
    assert loss is not None
    return PixelTerm(
        value=torch.stack([term.value for term in terms]).sum(),
        mean=loss,
        cross_entropy=mean([term.cross_entropy for term in terms]),
        statistics={name: _sum(term.statistics[name] for term in terms) for name in terms[0].statistics},
        groups=terms,
    )


def term_by_tensors(pair: Pair, formula: Formula) -> PixelTerm:
    """Compute a term of any kind in plain PyTorch."""
    teaching, counted, weight_map = pair.teaching, pair.counted, pair.weight_map
    student, teacher = enlarge(to_compute(pair.student), teaching.size), teaching.mixed()
    included = torch.ones_like(teacher[:, 0], dtype=torch.bool) if counted is None else counted
    if counted is not None:
        student = only_counted(student, included)
    pixels = included.sum()
    per_pixel, cross_entropy, fuzzy = _per_pixel(student, teacher, formula)
    value = _total(per_pixel if weight_map is None else per_pixel * weight_map, included)
    cross_entropy_sum = None if cross_entropy is None else _total(cross_entropy.detach(), included)
    statistics = {}
    if formula.collect:
        assert cross_entropy_sum is not None
        if fuzzy is None:
            with torch.no_grad():
                fuzzy = fuzzy_positive_terms(student, teacher, formula.rules)
        statistics = _statistics(fuzzy, included, student.shape[1]) | {"cross_entropy_sum": cross_entropy_sum}
    return PixelTerm(
        value=divide(value, pixels if pair.denominator is None else pair.denominator),
        mean=divide(_total(per_pixel.detach(), included), pixels),
        cross_entropy=None if cross_entropy_sum is None else divide(cross_entropy_sum, pixels),
        statistics=statistics,
    )


def term_by_kernel(kernel: Implementation, pair: Pair, formula: Formula) -> PixelTerm:
    """Compute a term of kind ``fpl`` in one pass over the logits."""
    student, teaching, denominator = pair.student, pair.teaching, pair.denominator
    pixels = Pixels(student, teaching.teacher, teaching.second, teaching.inside, size=teaching.size)
    pixels = weighted_pixels(pixels, pair.weight_map, pair.counted)
    if denominator is None:
        denominator = pair.pixels()
    scale = divide(torch.ones((), device=student.device), denominator).float()
    settings = make_settings(student.shape[1], formula.rules)
    found = function.summed(kernel, settings, pixels, scale=scale, cross_entropy=formula.cross_entropy)
    sums = found.sums
    statistics = {}
    if formula.collect:
        statistics = {"k_histogram": found.histogram, "pixels": sums["pixels"].long()}
        statistics |= {f"{name}_sum": sums[name] for name in ("weight", "loss", "weighted_loss", "cross_entropy")}
    return PixelTerm(
        value=found.value,
        mean=divide(sums["weighted_loss"], sums["pixels"]).float(),
        cross_entropy=divide(sums["cross_entropy"], sums["pixels"]).float() if formula.cross_entropy else None,
        statistics=statistics,
    )


def add_diagnostics(term: PixelTerm, pair: Pair, rules: Rules, watched: Tensor | None, basic: bool) -> None:
    """Add what the statistics of a term lack; with ``watched`` they are of those pixels alone.

    Args:
        term: Its statistics are changed.
        pair: What it was computed from.
        rules: Those of the loss.
        watched: bool [B, *spatial].
        basic: Leave out all but :data:`BASIC`.
    """
    counted = pair.counted
    if watched is not None:
        counted = watched if counted is None else counted & watched
        # What the loss itself summed is of other pixels.
        term.statistics.clear()
    teaching = pair.teaching
    found = diagnose(
        pair.student.detach(),
        teaching.teacher,
        ground_truth=pair.ground_truth,
        counted=counted,
        second=teaching.second,
        inside=teaching.inside,
        size=teaching.size,
        rules=rules,
    )
    # What the loss itself summed stays: it is what the step was taken with, to the last bit.
    wanted = [name for name in (BASIC if basic else found) if name not in term.statistics]
    term.statistics.update({name: found[name] for name in wanted})


def _total(per_pixel: Tensor, included: Tensor) -> Tensor:
    return torch.where(included, per_pixel, torch.zeros_like(per_pixel)).sum()


def _per_pixel(student: Tensor, teacher: Tensor, formula: Formula) -> tuple[Tensor, Tensor | None, FuzzyTerms | None]:
    """Loss [B, *spatial], cross-entropy [B, *spatial] if needed, and the fuzzy terms for kind ``fpl``."""
    kind = formula.kind
    if kind == "fpl":
        fuzzy = fuzzy_positive_terms(student, teacher, formula.rules)
        cross_entropy = _cross_entropy(student.detach(), *teacher.max(1)) if formula.cross_entropy else None
        return fuzzy.loss * fuzzy.weight, cross_entropy, fuzzy
    top, label = teacher.max(1)
    cross_entropy = None
    if kind in ("ce", "ce+negative"):
        cross_entropy = _cross_entropy(student, top, label)
    elif formula.cross_entropy:
        cross_entropy = _cross_entropy(student.detach(), top, label)
    if kind == "soft":
        per_pixel = soft_loss(student, teacher)
    elif kind == "mse":
        per_pixel = squared_loss(student, teacher)
    elif kind == "mse_logits":
        per_pixel = squared_logit_loss(student, teacher)
    elif kind == "negative":
        per_pixel = negative_loss(student, teacher, label, formula.negative_threshold)
    else:
        assert cross_entropy is not None
        per_pixel = cross_entropy
        if kind == "ce+negative":
            per_pixel = per_pixel + negative_loss(student, teacher, label, formula.negative_threshold)
    return poison(per_pixel, top), cross_entropy, None


def _cross_entropy(student: Tensor, top: Tensor, label: Tensor) -> Tensor:
    return poison(F.cross_entropy(student, label, reduction="none"), top)


@torch.no_grad()
def _statistics(fuzzy: FuzzyTerms, included: Tensor, classes: int) -> dict[str, Tensor]:
    histogram = torch.zeros(classes, dtype=torch.int64, device=included.device)
    return {
        "k_histogram": histogram.scatter_add_(0, fuzzy.k.flatten() - 1, included.flatten().long()),
        "pixels": included.sum(),
        "weight_sum": _total(fuzzy.weight, included),
        "loss_sum": _total(fuzzy.loss, included),
        "weighted_loss_sum": _total(fuzzy.loss * fuzzy.weight, included),
    }
