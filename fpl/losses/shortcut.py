"""What a teacher decides about each pixel: its positives, their number K and the weight of the loss.

Sorting the classes is what costs most, and most pixels do not need it: the two highest classes tell whether K is 1,
and then they also give the weight. On the CPU only the other pixels are sorted. On a GPU all are: to gather pixels
there the host would have to wait for their number. So are float64 scores, with which everything else is compared.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fpl.losses.assignment import (
    RELEASED_CAP,
    Ranking,
    assign_sorted,
    nearest_k,
    partial_membership,
    positive_mask,
    sort_classes,
    step_k,
)
from fpl.losses.rules import Rules
from fpl.losses.weight import shape_weight, weight_between, weight_sorted


class Decision(NamedTuple):
    """What a teacher's logits [B, C, *spatial] decide."""

    positive: Tensor
    """bool [B, C, *spatial]; of strategy ``soft`` the whole members."""
    k: Tensor
    """int64 [B, *spatial]; of strategy ``soft`` the nearest."""
    weight: Tensor
    """[B, *spatial]; NaN where the teacher is."""
    top: Tensor
    """The largest logit [B, *spatial]; NaN where any is."""
    wider: Tensor | None = None
    """Of strategy ``soft`` the positives and the class that belongs to them in part."""
    part: Tensor | None = None
    """Its membership [B, *spatial], 0 .. 1."""

    def counted_positive(self) -> Tensor:
        """The ``k`` highest classes, bool [B, C, *spatial]: members in part from one half on."""
        if self.wider is None or self.part is None:
            return self.positive
        return torch.where((self.part >= 0.5).unsqueeze(1), self.wider, self.positive)


def decide(teacher: Tensor, rules: Rules) -> Decision:
    """Decide by whichever way is faster on the device and exact enough for the dtype.

    Args:
        teacher: Logits [B, C, *spatial], float32 or float64, detached.
        rules: What K and the weight follow from.

    Raises:
        ValueError: ``fixed_k`` exceeds C - 1.
    """
    if teacher.device.type == "cpu" and teacher.dtype == torch.float32 and constant_k(rules, teacher.shape[1]) < 2:
        return decide_by_two(teacher, rules)
    return decide_sorted(teacher, rules)


def decide_sorted(teacher: Tensor, rules: Rules) -> Decision:
    """Sort all classes of all pixels."""
    # Logits decide the order: probabilities of unlikely classes can underflow to the same zero.
    ranking = sort_classes(teacher)
    probs = ranking.values.softmax(-1)
    return decide_ranked(teacher, ranking, probs, probs.cumsum(-1), rules)


def decide_ranked(teacher: Tensor, ranking: Ranking, probs: Tensor, cumulative: Tensor, rules: Rules) -> Decision:
    """Decide from the order of the classes, their descending probabilities and the running sums of these."""
    k = assign_sorted(cumulative, rules)
    positive, top = positive_mask(teacher, ranking, k), ranking.values[..., 0]
    if rules.strategy != "soft":
        return Decision(positive, k, weight_sorted(probs, cumulative, k, rules), top)
    part = partial_membership(probs, cumulative, k, rules)
    # A class without any part stays out: whatever the student makes of it there does not count.
    wider = positive_mask(teacher, ranking, k + (part > 0))
    weight = weight_between(probs, cumulative, k, part, rules)
    return Decision(positive, nearest_k(k, part), weight, top, wider, part)


def constant_k(rules: Rules, classes: int) -> int:
    """Give K where the teacher has no part in it, 0 where it has."""
    if rules.strategy == "fixed":
        return rules.fixed_k
    if rules.strategy == "step":
        return step_k(rules.progress, classes)
    return 1 if rules.fidelity == "released" and min(RELEASED_CAP, classes - 1) == 1 else 0


def two_highest(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Highest score, second highest score and class of the highest, each [B, *spatial].

    Equal scores: the lower class is the highest and the second score is the same. A NaN is the highest score.

    Args:
        scores: [B, C, *spatial], C >= 2.
    """
    first, index = scores.max(1, keepdim=True)
    second = scores.scatter(1, index, -torch.inf).amax(1)
    return first.squeeze(1), second, index.squeeze(1)


def decide_by_two(teacher: Tensor, rules: Rules) -> Decision:
    """Read the two highest classes of all pixels, and sort only where they do not settle that K is 1.

    The arguments are those of :func:`decide`, without a strategy that makes K larger than 1 everywhere.
    """
    first, second, index = two_highest(teacher)
    # Probabilities of the two, for K = 1 those of the positive and of the best negative.
    total = (teacher - first.unsqueeze(1)).exp_().sum(1)
    positive_share = total.reciprocal()
    negative_share = (second - first).exp_().div_(total)
    both = positive_share + negative_share
    weight = shape_weight(positive_share if rules.fidelity == "paper" else both / 2, negative_share, rules)
    k = torch.ones_like(index)
    positive = torch.zeros_like(teacher, dtype=torch.bool).scatter_(1, index.unsqueeze(1), True)
    decision = Decision(positive, k, weight, first)
    if rules.strategy == "soft":
        decision = decision._replace(wider=positive.clone(), part=torch.zeros_like(first))
    if constant_k(rules, teacher.shape[1]) != 1:
        # n is 1 or 2 where the sum of both exceeds the threshold: which K follows from 2, as in `assign_sorted`?
        one_of_two = rules.strategy == "n-1" or (rules.strategy == "ratio" and 2 * rules.ratio + 1e-9 < 2)
        reach = both if one_of_two else positive_share
        # A NaN settles nothing.
        settled = reach > rules.bound if rules.fidelity == "paper" else reach >= rules.bound
        _sort_into(decision, teacher, settled.logical_not_(), rules)
    return decision


def _sort_into(decision: Decision, teacher: Tensor, where: Tensor, rules: Rules) -> None:
    """Replace what is decided about the pixels of bool ``where`` [B, *spatial] by what sorting decides."""
    rows = decide_sorted(teacher.movedim(1, -1)[where], rules)
    decision.positive.movedim(1, -1)[where] = rows.positive
    decision.k[where] = rows.k
    decision.weight[where] = rows.weight
    if decision.wider is not None and decision.part is not None:
        assert rows.wider is not None
        assert rows.part is not None
        decision.wider.movedim(1, -1)[where] = rows.wider
        decision.part[where] = rows.part
