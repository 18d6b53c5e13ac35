"""Inputs, and slow, literal versions of the paper's formulas: lists and loops in float64, one pixel at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def order(scores: list[float]) -> list[int]:
    """Classes from the highest to the lowest score; equal scores: lower index first."""
    return sorted(range(len(scores)), key=lambda index: (-scores[index], index))


def first_exceeding(probs: list[float], threshold: float, fidelity: str = "paper") -> int:
    total = 0.0
    for n, index in enumerate(order(probs), start=1):
        total += probs[index]
        if total > threshold or (fidelity == "released" and total == threshold):
            return n
    return len(probs)


def k_of(probs: list[float], threshold: float, fidelity: str = "paper") -> int:
    k = max(first_exceeding(probs, threshold, fidelity) - 1, 1)
    return k if fidelity == "paper" else min(k, 3, len(probs) - 1)


def soft_of(probs: list[float], threshold: float, fidelity: str = "paper") -> tuple[int, float]:
    """Strategy ``soft``: how many classes belong to the set wholly, and the membership of the next."""
    ranked, n = sorted(probs, reverse=True), first_exceeding(probs, threshold, fidelity)
    whole, cap = max(n - 1, 1), len(probs) if fidelity == "paper" else min(3, len(probs) - 1)
    if n == 1 or whole >= cap:
        return min(whole, cap), 0.0
    return whole, min((threshold - sum(ranked[:whole])) / ranked[whole], 1.0) if threshold < 1 else 1.0


def weight_of(probs: list[float], k: int, shape: str, fidelity: str = "paper", c: float = 4.0) -> float:
    ranked = sorted(probs, reverse=True)
    q = ranked[k]
    taken = ranked[:k] if fidelity == "paper" else ranked[: k + 1]
    m = sum(taken) / len(taken)
    if shape == "concave":
        return math.log(1 + 50 * (m - q)) / math.log(1 + 50 * m)
    if shape == "linear":
        return (m - q) / m
    return (m - q) / (m + c * q) if shape == "convex" else 1.0


def loss_of(logits: Tensor, positives: list[int]) -> Tensor:
    """The loss of one pixel exactly as printed; float64 logits [C] of moderate size."""
    negatives = [index for index in range(len(logits)) if index not in positives]
    return torch.log(1 + torch.exp(-logits[positives]).sum() * torch.exp(logits[negatives]).sum())


def stable_loss_of(logits: Tensor, positives: list[int]) -> Tensor:
    """The same for any size of logits."""
    negatives = [index for index in range(len(logits)) if index not in positives]
    x = torch.logsumexp(-logits[positives], 0) + torch.logsumexp(logits[negatives], 0)
    return torch.logaddexp(x, torch.zeros_like(x))


def naive_losses(student: Tensor, teacher: Tensor, k: Tensor) -> Tensor:
    """Losses [N] of float64 logits [N, C] with the given K [N], differentiable."""
    rows = []
    for logits, scores, number in zip(student, teacher.tolist(), k.tolist(), strict=True):
        rows.append(stable_loss_of(logits, order(scores)[:number]))
    return torch.stack(rows)


def mixed_losses(student: Tensor, teacher: Tensor, k: Tensor) -> Tensor:
    """The same for any K, 1 .. C: without negatives it is 0, and between whole numbers the mean of both sides."""

    def whole(k: Tensor) -> Tensor:
        inside = k < student.shape[1]
        losses = torch.zeros_like(student[:, 0])
        if inside.any():
            losses[inside] = naive_losses(student[inside], teacher[inside], k[inside])
        return losses

    fewer = k.long().clamp(max=student.shape[1] - 1) if k.is_floating_point() else k
    return whole(fewer) if fewer is k else (1 - (k - fewer)) * whole(fewer) + (k - fewer) * whole(fewer + 1)


def random_probs(classes: int, pixels: int = 60, seed: int = 0) -> Tensor:
    """Float64 probabilities [1, C, N], from nearly uniform to peaked."""
    generator = torch.Generator().manual_seed(seed + classes)
    logits = torch.randn(1, classes, pixels, generator=generator, dtype=torch.float64)
    return (logits * torch.linspace(0.1, 8, pixels, dtype=torch.float64)).softmax(1)


def columns(probs: Tensor) -> list[list[float]]:
    return probs[0].T.tolist()


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def integers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).double()


def rows(values: Tensor) -> Tensor:
    """[1, C, N] as [N, C]."""
    return values[0].T


def pixel_value(kind: str, z: list[float], t: list[float], tau: float = 0.2) -> float:
    """One pixel's loss by the textbook, in plain Python."""

    def softmax(values: list[float]) -> list[float]:
        exponentials = [math.exp(value) for value in values]
        return [value / sum(exponentials) for value in exponentials]

    p, q = softmax(z), softmax(t)
    label = q.index(max(q))
    if kind == "ce":
        return -math.log(p[label])
    if kind == "soft":
        return sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    if kind == "mse":
        return sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) / len(p)
    if kind == "mse_logits":
        return sum((a - b) ** 2 for a, b in zip(z, t, strict=True)) / len(z)
    if kind == "negative":
        return -sum(math.log(1 - a) for j, (a, b) in enumerate(zip(p, q, strict=True)) if b < tau and j != label)
    if kind == "ce+negative":
        return pixel_value("ce", z, t) + pixel_value("negative", z, t, tau)
    k = k_of(q, 0.9)
    loss = naive_losses(torch.tensor([z], dtype=torch.float64), torch.tensor([t]), torch.tensor([k])).item()
    return loss * weight_of(q, k, "concave")


def pixel_map(kind: str, student: Tensor, teacher: Tensor, tau: float = 0.2) -> Tensor:
    """[B, N] for [B, C, N]."""
    images = []
    for z, t in zip(student.detach(), teacher, strict=True):
        images.append([pixel_value(kind, a, b, tau) for a, b in zip(z.T.tolist(), t.T.tolist(), strict=True)])
    return torch.tensor(images, dtype=torch.float64)


def pair(*shape: int, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    return (normal(*shape) * scale).requires_grad_(), normal(*shape, seed=1) * scale
