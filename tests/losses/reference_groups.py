"""What the released codes compute process by process, and K in exact arithmetic: loops over pixels in float64."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from .reference import k_of, naive_losses, order, weight_of

IGNORED = 255


def softmax(scores: list[float]) -> list[float]:
    shifted = [math.exp(score - max(scores)) for score in scores]
    return [value / math.fsum(shifted) for value in shifted]


def supervised(logits: Tensor, label: Tensor, processes: int) -> tuple[float, Tensor]:
    """Value and gradient of cross-entropy that each process averages over its own labeled pixels.

    The processes' values are averaged, and so are their gradients. A mean over nothing is 0 / 0 where it is written
    down; it sends no gradient back, and the process counts in the average all the same.

    Args:
        logits: float64 [B, C, N].
        label: [B, N], 255 for unlabeled pixels.
        processes: Each has B / processes consecutive images.
    """
    value, gradient = 0.0, torch.zeros_like(logits)
    own = len(logits) // processes
    for process in range(processes):
        pixels = [
            (image, pixel)
            for image in range(process * own, (process + 1) * own)
            for pixel in range(label.shape[1])
            if int(label[image, pixel]) != IGNORED
        ]
        for image, pixel in pixels:
            share = softmax(logits[image, :, pixel].tolist())
            true = int(label[image, pixel])
            value -= math.log(share[true]) / len(pixels) / processes
            for number, probability in enumerate(share):
                slope = probability - (1.0 if number == true else 0.0)
                gradient[image, number, pixel] = slope / len(pixels) / processes
    return value, gradient


def balanced(directions: list[tuple[Tensor, Tensor]], processes: int, threshold: float, shape: str) -> Tensor:
    """The cross term of the released FPL code: in each process one factor, cross-entropy over loss of both directions.

    Args:
        directions: Student (differentiable) and teacher, float64 [B, C, N].
        processes: Each has B / processes consecutive images.
        threshold: T.
        shape: Adaptive weight.
    """
    totals = []
    own = len(directions[0][0]) // processes
    for process in range(processes):
        fuzzy, plain = [], []
        for student, teacher in directions:
            z = student[process * own : (process + 1) * own].movedim(1, -1).flatten(0, 1)
            t = teacher[process * own : (process + 1) * own].movedim(1, -1).flatten(0, 1).tolist()
            probs = [softmax(scores) for scores in t]
            k = [k_of(each, threshold, "released") for each in probs]
            weights = [weight_of(each, n, shape, "released", 1.0) for each, n in zip(probs, k, strict=True)]
            losses = naive_losses(z, torch.tensor(t, dtype=torch.float64), torch.tensor(k))
            fuzzy.append((losses * torch.tensor(weights, dtype=torch.float64)).sum() / len(t))
            plain += [-math.log(softmax(a)[order(b)[0]]) / len(t) for a, b in zip(z.tolist(), t, strict=True)]
        loss = torch.stack(fuzzy).sum()
        totals.append(loss * (math.fsum(plain) / loss.item()))
    return torch.stack(totals).sum() / processes


def exact_n(scores: list[float], threshold: Fraction, fidelity: str = "paper") -> int:
    """First place at which the exact running sum of probabilities passes T (released: reaches it), C if none does."""
    masses = [Fraction(math.exp(score - max(scores))) for score in sorted(scores, reverse=True)]
    total, running = sum(masses, Fraction(0)), Fraction(0)
    for n, mass in enumerate(masses, start=1):
        running += mass
        if running > threshold * total or (fidelity == "released" and running == threshold * total):
            return n
    return len(masses)
