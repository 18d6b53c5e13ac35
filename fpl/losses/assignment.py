"""Fuzzy Positive Assignment: how many classes of a pixel are positive (FPL, CVPR 2023, section 3.1)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fpl.losses.checks import check_map, check_probabilities, check_scores, check_tensor, check_whole, to_compute
from fpl.losses.rules import Rules

RELEASED_CAP = 3
STEP_START = 3


class Ranking(NamedTuple):
    """Scores of each pixel from high to low, classes in the last dimension; equal scores: lower class index first."""

    values: Tensor
    """[B, *spatial, C], descending."""
    classes: Tensor
    """int64 [B, *spatial, C], the class that each value belongs to."""


def step_k(progress: float, classes: int) -> int:
    """K of strategy ``step``: 3, 2, 1 in the thirds of training, C - 1 at most."""
    # The small term keeps a progress such as 2/3 = 0.666... in the third that it begins.
    return min(max(STEP_START - int(3 * progress + 1e-9), 1), classes - 1)


def fitting_k(fixed_k: int, classes: int) -> int:
    """K of strategy ``fixed``.

    Raises:
        ValueError: It would leave no class negative.
    """
    check_whole("fixed_k", fixed_k, f"1 <= fixed_k <= C - 1 = {classes - 1}", lambda value: 1 <= value < classes)
    return int(fixed_k)


def sort_classes(scores: Tensor) -> Ranking:
    """Sort the classes of each pixel by score, highest first.

    Args:
        scores: Logits or probabilities [B, C, *spatial].
    """
    # Sorting contiguous rows costs half of sorting along a strided dimension, the copy included.
    rows = scores.detach().movedim(1, -1).contiguous()
    values, classes = torch.sort(rows, dim=-1, descending=True, stable=True)
    return Ranking(values, classes)


def class_rank(scores: Tensor) -> Tensor:
    """Rank of every class in its pixel: 0 for the highest score; equal scores: the lower class index ranks first.

    A class belongs to the fuzzy positive set of a pixel exactly if ``rank < K``.

    Args:
        scores: Logits or probabilities [B, C, *spatial].

    Returns:
        int64 [B, C, *spatial], each pixel a permutation of 0 .. C-1.

    Raises:
        ValueError: ``scores`` is not a floating-point [B, C, *spatial] tensor with C >= 2.
    """
    check_scores("scores", scores)
    classes = sort_classes(scores).classes
    places = torch.arange(classes.shape[-1], device=classes.device).expand_as(classes)
    return torch.empty_like(classes).scatter_(-1, classes, places).movedim(-1, 1)


def positive_mask(scores: Tensor, ranking: Ranking, k: Tensor) -> Tensor:
    """Mark the K highest classes of each pixel: the same as ``class_rank(scores) < K`` without the scatter.

    Args:
        scores: The scores [B, C, *spatial] that ``ranking`` was made from.
        ranking: Their order.
        k: int64 [B, *spatial], 1 .. C.

    Returns:
        bool [B, C, *spatial].
    """
    last = (k - 1).unsqueeze(-1)
    last_value = ranking.values.gather(-1, last).movedim(-1, 1)
    last_class = ranking.classes.gather(-1, last).movedim(-1, 1)
    class_index = torch.arange(scores.shape[1], device=scores.device).view(1, -1, *([1] * (scores.ndim - 2)))
    tied_in = (scores == last_value).logical_and_(class_index <= last_class)
    return (scores > last_value).logical_or_(tied_in)


def assign_sorted(cumulative: Tensor, rules: Rules) -> Tensor:
    """Do the work of :func:`assign` on running sums [B, *spatial, C] of descending probabilities.

    Of ``soft`` it gives the classes that belong to the set wholly: the rest is :func:`partial_membership`.
    """
    classes = cumulative.shape[-1]
    pixels = cumulative.shape[:-1]
    if rules.strategy == "fixed":
        k = torch.full(pixels, fitting_k(rules.fixed_k, classes), dtype=torch.int64, device=cumulative.device)
    elif rules.strategy == "step":
        k = torch.full(pixels, step_k(rules.progress, classes), dtype=torch.int64, device=cumulative.device)
    else:
        exceeds = cumulative > rules.bound if rules.fidelity == "paper" else cumulative >= rules.bound
        n = (exceeds.logical_not_().sum(-1) + 1).clamp_(max=classes)
        if rules.strategy in ("n-1", "soft"):
            k = (n - 1).clamp_(min=1)
        elif rules.strategy == "ratio":
            # The small term keeps a product such as 0.29 * 100 = 28.999... from losing a whole class.
            k = (n.double() * rules.ratio + 1e-9).floor_().long().clamp_(min=1)
        else:
            k = n
    return k.clamp_(max=min(RELEASED_CAP, classes - 1)) if rules.fidelity == "released" else k


def partial_membership(probs: Tensor, cumulative: Tensor, k: Tensor, rules: Rules) -> Tensor:
    """Membership m of the class behind the K first, for ``soft``: the share of it that fills their sum up to T.

    Args:
        probs: Descending probabilities [B, *spatial, C].
        cumulative: Their running sums.
        k: Whole members [B, *spatial], what :func:`assign_sorted` gives.
        rules: T, and whether the released bound holds.

    Returns:
        [B, *spatial], 0 .. 1; NaN where the probabilities are.
    """
    lack = rules.bound - cumulative.gather(-1, (k - 1).unsqueeze(-1)).squeeze(-1)
    # K is below C here. Where nothing is lacking, the class may have no probability to divide by.
    share = lack / probs.gather(-1, k.unsqueeze(-1)).squeeze(-1)
    part = torch.where(lack <= 0, torch.zeros_like(share), share.clamp(max=1))
    bounded = rules.fidelity == "released"
    return part.masked_fill(k >= min(RELEASED_CAP, probs.shape[-1] - 1), 0) if bounded else part


def nearest_k(k: Tensor, part: Tensor) -> Tensor:
    """K as a whole number, for counts and pictures: a class belongs to the set from a membership of one half on."""
    return k + (part >= 0.5)


def assign(
    teacher_probs: Tensor,
    *,
    threshold: float = 0.9,
    strategy: str = "n-1",
    fidelity: str = "paper",
    fixed_k: int = 2,
    ratio: float = 0.5,
    progress: float = 0.0,
) -> Tensor:
    """Choose the number K of fuzzy positive classes of each pixel.

    With the probabilities of a pixel in descending order, n is the first place (from 1) at which their running sum
    exceeds T, and C if it never does: with T = 1 everywhere, whatever rounding makes of the sums. Algorithm 1 and the
    appendix ("K value selection strategy") define:

    * ``n-1``, the method: K = max(n - 1, 1).
    * ``n``: K = n. It can reach C: then no class is negative, the loss and its gradient are 0.
    * ``fixed``: K = ``fixed_k`` everywhere.
    * ``step``: K = 3, 2, 1 in the first, second and last third of training, C - 1 at most.
    * ``ratio``: K = max(floor(ratio * n), 1), the appendix's [alpha n], an integer below n.

    One more is this suite's own:

    * ``soft``: the K at which the running sum is T, no more and no less: n - 1 classes belong to the set wholly and
      the n-th with the membership m = (T - V^{n-1}) / p^n, where V^{n-1} is the sum before it; K = n - 1 + m. Where the
      first class alone exceeds T, K = 1. K is continuous in the probabilities, where n - 1 and n jump. Of the n-th
      class p^n >= (1 - T) / (C - n + 1), since it is the largest of those that share what is missing from 1: an error
      of e in a sum moves K by no more than e (C - n + 1) / (1 - T).

    Args:
        teacher_probs: Probabilities [B, C, *spatial], C >= 2.
        threshold: T, 0 < T <= 1.
        strategy: One of :data:`STRATEGIES`.
        fidelity: ``paper``: the running sum has to be > T. ``released``: >= T, and K is 3 at most (and C - 1), as in
            the released code. That code has ``n-1`` only; the other strategies get the same comparison and bound. At
            T = 1 only the sum of all classes is >= T, so that K is 3 (or C - 1) everywhere; where that code's own
            float32 sum of two or three classes rounds to 1, it has a smaller K.
        fixed_k: K of ``fixed``, 1 .. C - 1.
        ratio: alpha of ``ratio``, 0 < alpha < 1.
        progress: Share of training that is over, 0 .. 1, for ``step``.

    Returns:
        K [B, *spatial], 1 <= K <= C - 1 (C for ``n``, and for ``soft`` where T is 1). int64, and a pixel with a NaN has
        the largest K of its strategy; for ``soft`` float32 (float64 for such probabilities), and NaN.

    Raises:
        ValueError: An argument is outside its range, or the tensor has another shape or dtype, or on a CPU values
            that are no probabilities.
    """
    check_scores("teacher_probs", teacher_probs)
    rules = Rules(
        threshold=threshold, strategy=strategy, fidelity=fidelity, fixed_k=fixed_k, ratio=ratio, progress=progress
    ).checked()
    with torch.no_grad():
        probs = sort_classes(to_compute(teacher_probs)).values
        check_probabilities("teacher_probs", probs[..., 0], probs[..., -1])
        cumulative = probs.cumsum(-1)
        k = assign_sorted(cumulative, rules)
        return k + partial_membership(probs, cumulative, k, rules) if rules.strategy == "soft" else k


def check_k(k: Tensor, scores: Tensor) -> None:
    """Raise ValueError unless ``k`` has one number, 1 .. C, for each pixel of ``scores``, int64 or a float."""
    check_tensor("k", k)
    if k.dtype not in (torch.int64, torch.float32, torch.float64):
        raise ValueError(f"k has dtype {k.dtype}; allowed: torch.int64, torch.float32, torch.float64")
    check_map("k", k, scores)
    if k.numel() and not k.is_meta:
        least, most = (number.item() for number in torch.aminmax(k))
        # A NaN is neither: such a pixel's weight is NaN.
        if least < 1 or most > scores.shape[1]:
            raise ValueError(f"k holds {least if least < 1 else most}; allowed: 1 .. C = {scores.shape[1]}")
