"""The contrast of unreliable pixels a second time: loops over pixels and classes, in float64, with lists for queues."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

# Of U2PL's paper.
LOW_RANK, HIGH_RANK, CONFIDENCE, TEMPERATURE = 3, 20, 0.3, 0.5


def entropies(logits: Tensor) -> np.ndarray:
    """Of float64 logits [B, C, h, w], in plain Python, [B, h, w]."""
    found = np.zeros((len(logits), *logits.shape[2:]))
    for place in np.ndindex(found.shape):
        scores = [float(score) for score in logits[place[0], :, place[1], place[2]]]
        total = sum(math.exp(score) for score in scores)
        found[place] = -sum(math.exp(score) / total * math.log(math.exp(score) / total) for score in scores)
    return found


@dataclass
class Pixel:
    """What the contrast may ask of one pixel."""

    student: Tensor
    teacher: Tensor
    probabilities: list[float]
    ranks: list[int]
    label: int
    labeled: bool
    entropy: float


@dataclass
class Queue:
    """The last vectors, each in the place of the one that it drove out."""

    capacity: int
    vectors: list[Tensor] = field(default_factory=list)
    place: int = 0

    def push(self, vectors: list[Tensor]) -> None:
        for vector in vectors[-self.capacity :]:
            # Of unit length, but for what half precision takes from it.
            kept = (vector / vector.norm()).half().double()
            if self.place < len(self.vectors):
                self.vectors[self.place] = kept
            else:
                self.vectors.append(kept)
            self.place = (self.place + 1) % self.capacity


def pixels_of(
    student: Tensor, teacher: Tensor, logits: Tensor, label: Tensor, labeled: int, entropy: np.ndarray
) -> list[Pixel]:
    """Those of one group, in which so many images are labeled; all is at one resolution."""
    found = []
    for image, row, column in np.ndindex(len(logits), *logits.shape[2:]):
        probabilities = logits[image, :, row, column].softmax(0).tolist()
        order = sorted(range(len(probabilities)), key=lambda number, p=probabilities: (-p[number], number))
        found.append(
            Pixel(
                student[image, :, row, column],
                teacher[image, :, row, column].detach(),
                probabilities,
                [order.index(number) for number in range(len(order))],
                int(label[image, row, column]),
                image < labeled,
                float(entropy[image - labeled, row, column]) if image >= labeled else 0.0,
            )
        )
    return found


class Loops:
    """Queues, and the loss of a step.

    Args:
        capacities: Of the queues, by class.
        definition: "paper" or "released".
    """

    def __init__(self, capacities: tuple[int, ...], definition: str) -> None:
        self.queues = [Queue(capacity) for capacity in capacities]
        self.definition = definition

    def loss(
        self, groups: list[list[Pixel]], entropy: list[np.ndarray], share: float, anchors: Tensor, negatives: Tensor
    ) -> Tensor:
        """The mean over groups; `entropy` are those whose percentiles count, at any resolution.

        Args:
            groups: Their pixels.
            entropy: Of each group's unlabeled images.
            share: That is unreliable.
            anchors: Numbers [G, C, M] that choose.
            negatives: Numbers [G, C, M, N] that choose.
        """
        thresholds = [(np.percentile(own, 100 * share), np.percentile(own, 100 - 100 * share)) for own in entropy]
        for number, queue in enumerate(self.queues):
            queue.push(
                [
                    pixel.teacher
                    for group, (_, high) in zip(groups, thresholds, strict=True)
                    for pixel in group
                    if self.is_negative(pixel, number, high)
                ]
            )
        parts = zip(groups, thresholds, anchors, negatives, strict=True)
        return torch.stack([self.of_group(*part) for part in parts]).mean()

    def is_negative(self, pixel: Pixel, number: int, high: float) -> bool:
        if pixel.label == 255:
            return False
        rank = pixel.ranks[number]
        if pixel.labeled:
            # The released code asks for the label and its opposite.
            return self.definition == "paper" and pixel.label != number and rank < LOW_RANK
        wanted = pixel.entropy > high and LOW_RANK <= rank < HIGH_RANK
        return wanted and (self.definition == "paper" or pixel.label == number)

    def of_group(
        self, group: list[Pixel], thresholds: tuple[float, float], anchors: Tensor, negatives: Tensor
    ) -> Tensor:
        low, high = thresholds
        limit = high if self.definition == "paper" else low
        candidates = [
            [pixel for pixel in group if pixel.label == number and (pixel.labeled or pixel.entropy <= limit)]
            for number in range(len(self.queues))
        ]
        sure = [[p for p in own if p.probabilities[c] > CONFIDENCE] for c, own in enumerate(candidates)]
        present = [number for number, own in enumerate(candidates) if own]
        zero = sum((pixel.student.sum() for pixel in group), torch.zeros((), dtype=torch.float64)) * 0
        if len(present) < 2:
            return zero
        total = zero
        for place, number in enumerate(present):
            # By the released code the i-th class there is meets the anchors of class i.
            of = number if self.definition == "paper" else place
            queue = self.queues[number].vectors
            if not sure[of] or not queue:
                continue
            mean_of = sure[of] if self.definition == "paper" else candidates[of]
            centre = torch.stack([pixel.teacher for pixel in mean_of]).mean(0)
            losses = []
            for k in range(anchors.shape[1]):
                chosen = sure[of][int(float(anchors[of, k]) * len(sure[of]))].student
                near = torch.cosine_similarity(chosen, centre, 0) / TEMPERATURE
                far = [
                    chosen @ queue[int(float(each) * len(queue))] / chosen.norm() / TEMPERATURE
                    for each in negatives[of, k]
                ]
                below = torch.exp(near) + sum(torch.exp(value) for value in far)
                losses.append(-torch.log(torch.exp(near) / below))
            total = total + torch.stack(losses).mean()
        return total / len(present)
