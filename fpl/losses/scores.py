"""Order of a teacher's classes, and what the true class tells about the gradients of each pixel (FPL, CVPR 2023).

With p the student's softmax, z its logits, Y the positives that the teacher gives and gt the true class, a pixel
belongs to case 1 if gt is the teacher's best class, to case 2 if it is another class of Y, to case 3 if it is not in Y
(of strategy ``soft``: if its membership of Y is below one half). G^f is the gradient of the unweighted loss, G^v = p -
onehot(the teacher's best class) that of cross-entropy with the pseudo label, G^ide = p - onehot(gt) that of
cross-entropy with the truth. The scores R^f and R^v say how strongly the true class is pushed up (> 0) or down (< 0),
as a share of all that is pushed that way.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses.assignment import sort_classes
from fpl.losses.checks import poison
from fpl.losses.regularization import split_sums
from fpl.losses.rules import Rules
from fpl.losses.shortcut import Decision, decide_ranked


class Order:
    """The classes of each pixel as a teacher orders them, from which K, Y and the weight follow for any rules."""

    def __init__(self, teacher: Tensor) -> None:
        self.teacher = teacher
        self.ranking = sort_classes(teacher)
        # Logits decide the order: probabilities of unlikely classes can underflow to the same zero.
        self.log_probs = self.ranking.values.log_softmax(-1)
        self.probs = self.ranking.values.softmax(-1)
        self.cumulative = self.probs.cumsum(-1)
        self.top = self.ranking.values[..., 0]
        self.label = self.ranking.classes[..., 0]

    def decide(self, rules: Rules) -> Decision:
        """Return K, Y and the weight; Y is of no meaning where a logit is NaN."""
        return decide_ranked(self.teacher, self.ranking, self.probs, self.cumulative, rules)

    def entropy(self) -> Tensor:
        """Return the entropy [B, *spatial] in nats; a class of logit -infinity has 0 log 0 = 0."""
        return -torch.where(self.probs == 0, self.probs, self.probs * self.log_probs).sum(-1)


class Push(NamedTuple):
    """Loss [B, *spatial] of a student, and its gradient: slope [B, *spatial] times direction [B, C, *spatial]."""

    loss: Tensor
    slope: Tensor
    """What is pushed down: the sum of the gradient over the negatives."""
    direction: Tensor
    """Never zero, so that it is known where the slope underflows."""
    some_negative: Tensor
    """bool [B, *spatial]. Where every class is positive the gradient is zero."""


def _push_by(student: Tensor, positive: Tensor) -> Push:
    parts = split_sums(student, positive)
    direction = torch.where(positive, -1 / parts.positive_sum, 1 / parts.negative_sum) * parts.exponential
    loss = F.softplus(parts.violation, threshold=40).squeeze(1)
    return Push(loss, parts.violation.sigmoid().squeeze(1), direction, ~positive.all(1))


def push_by(student: Tensor, decision: Decision) -> Push:
    """Loss and gradient by what a teacher decides, of strategy ``soft`` the means over its two sets."""
    fewer = _push_by(student, decision.positive)
    if decision.wider is None or decision.part is None:
        return fewer
    more, part = _push_by(student, decision.wider), decision.part.to(student.dtype)
    slope = torch.lerp(fewer.slope, more.slope, part)
    share = torch.where(slope == 0, part, part * more.slope / slope)
    direction = torch.lerp(fewer.direction, more.direction, share.unsqueeze(1))
    # The class that belongs in part is pushed both ways: what is left of that counts.
    down = direction.clamp(min=0).sum(1)
    down = torch.where(down == 0, torch.ones_like(down), down)
    return Push(
        loss=torch.lerp(fewer.loss, more.loss, part),
        slope=slope * down,
        direction=direction / down.unsqueeze(1),
        some_negative=more.some_negative | (part < 1),
    )


class Truth(NamedTuple):
    """What the ground truth tells; tensors are [B, *spatial], and anything where it is unknown."""

    known: Tensor
    case: Tensor
    """uint8: 1, 2, 3; 0 where unknown."""
    vanilla_score: Tensor
    fuzzy_score: Tensor
    cosine_fuzzy: Tensor
    cosine_vanilla: Tensor
    norm_fuzzy: Tensor
    norm_ideal: Tensor


def _pick(values: Tensor, label: Tensor) -> Tensor:
    return values.gather(1, label.unsqueeze(1)).squeeze(1)


def _norm(vector: Tensor) -> Tensor:
    return vector.square().sum(1).sqrt()


def _toward(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Split p - onehot(label) into a vector [B, C, *spatial] with -1 at the label, and its factor 1 - p of the label.

    Neither loses digits where p of the label is near 1: the others are summed, relative to the largest of them.
    """
    place = label.unsqueeze(1)
    others = logits.scatter(1, place, -torch.inf)
    highest = others.amax(1, keepdim=True)
    exponential = (others - highest).exp()
    total = exponential.sum(1, keepdim=True)
    # total / total is 1, and NaN where a logit is.
    vector = exponential.scatter(1, place, -total) / total
    factor = (highest + total.log() - logits.gather(1, place)).sigmoid()
    return vector, factor.squeeze(1)


def compare(student: Tensor, order: Order, positive: Tensor, push: Push, truth: Tensor) -> Truth:
    """Compare the gradients with the truth [B, *spatial], an integer tensor."""
    fuzzy, slope, some_negative = push.direction, push.slope, push.some_negative
    known = (truth >= 0) & (truth < student.shape[1])
    label = torch.where(known, truth, 0).long()
    ideal, ideal_factor = _toward(student, label)
    vanilla, _ = _toward(student, order.label)
    case = torch.where(label == order.label, 1, torch.where(_pick(positive, label), 2, 3))
    # Of a teacher that is no number, no class is known to be positive.
    case = torch.where(order.top.isfinite(), case, 3)

    def cosine(vector: Tensor) -> Tensor:
        return (vector * ideal).sum(1) / (_norm(vector) * _norm(ideal))

    def visible(values: Tensor) -> Tensor:
        return poison(values, order.top) + slope * 0

    return Truth(
        known=known,
        case=torch.where(known, case, 0).to(torch.uint8),
        vanilla_score=visible(-_pick(vanilla, label)),
        fuzzy_score=visible(-_pick(fuzzy, label)),
        cosine_fuzzy=visible(torch.where(some_negative, cosine(fuzzy), 0)),
        cosine_vanilla=visible(cosine(vanilla)),
        norm_fuzzy=visible(slope * _norm(fuzzy)),
        norm_ideal=visible(ideal_factor * _norm(ideal)),
    )
