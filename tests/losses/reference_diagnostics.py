"""Quantities of the diagnostics by their definitions: one pixel at a time, with gradients from autograd."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .reference import first_exceeding, k_of, mixed_losses, normal, order, soft_of, stable_loss_of, weight_of


def gradient(logits: Tensor, positives: list[int]) -> Tensor:
    """Gradient of one pixel's loss by autograd; zero if every class is positive."""
    if len(positives) == len(logits):
        return torch.zeros_like(logits)
    wanted = logits.clone().requires_grad_()
    return torch.autograd.grad(stable_loss_of(wanted, positives), wanted)[0]


def label_gradient(logits: Tensor, label: int) -> Tensor:
    wanted = logits.clone().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(wanted.unsqueeze(0), torch.tensor([label])), wanted)[0]


def cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a, b) / (a.norm() * b.norm()))


def push(gradient: Tensor, truth: int) -> float:
    """Score R: the true class's share of all that is pushed up, or minus its share of what is pushed down."""
    component = gradient[truth].item()
    same_sign = gradient[gradient < 0] if component < 0 else gradient[gradient > 0]
    return -component / same_sign.abs().sum().item()


def soft_pixel(z: Tensor, t: Tensor) -> tuple[int, float, float, Tensor]:
    """Strategy ``soft``: the nearest K, loss, weight and gradient."""
    probs = t.softmax(0).tolist()
    whole, part = soft_of(probs, 0.9)
    leaf = z.clone().requires_grad_()
    loss = mixed_losses(leaf.unsqueeze(0), t.unsqueeze(0), torch.tensor([whole + part], dtype=torch.float64)).squeeze(0)
    wider = weight_of(probs, whole + 1, "concave") if whole + 1 < len(probs) else 1.0
    weight = (1 - part) * weight_of(probs, whole, "concave") + part * wider
    return whole + (part >= 0.5), loss.item(), weight, torch.autograd.grad(loss, leaf)[0]


def one_pixel(z: Tensor, t: Tensor, truth: int, strategy: str, fidelity: str) -> dict[str, Any]:
    """All quantities of one pixel, by the definitions."""
    classes = len(z)
    probs = t.softmax(0).tolist()
    ranked = order(t.tolist())
    n = first_exceeding(probs, 0.9)
    k = n if strategy == "n" else k_of(probs, 0.9, fidelity)
    slopes = {}
    for name, number in (("gradient_sum_n_minus_1", max(n - 1, 1)), ("gradient_sum_n", n)):
        g = gradient(z, ranked[:number])
        slopes[name] = g[ranked[number:]].sum().item()
    loss = stable_loss_of(z, ranked[:k]).item() if k < classes else 0.0
    weight = weight_of(probs, k, "concave", fidelity) if k < classes else 1.0
    fuzzy = gradient(z, ranked[:k])
    if strategy == "soft":
        k, loss, weight, fuzzy = soft_pixel(z, t)
    entropy = -sum(p * math.log(p) for p in probs)

    def at(place: int, value: float, length: int = classes) -> list[float]:
        return [value if index == place else 0.0 for index in range(length)]

    found: dict[str, Any] = slopes | {
        "pixels": 1,
        "k_histogram": at(k - 1, 1),
        "k_histogram_uncapped": at(max(n - 1, 1) - 1, 1),
        "weight_sum": weight,
        "loss_sum": loss,
        "weighted_loss_sum": loss * weight,
        "cross_entropy_sum": F.cross_entropy(z.unsqueeze(0), torch.tensor([ranked[0]])).item(),
        "entropy_sum_by_k": at(k - 1, entropy),
        "entropy_square_sum_by_k": at(k - 1, entropy**2),
    }
    vanilla = label_gradient(z, ranked[0])
    if not 0 <= truth < classes:
        return found
    ideal = label_gradient(z, truth)
    place = 0 if truth == ranked[0] else 1 if truth in ranked[:k] else 2
    scores = push(vanilla, truth), push(fuzzy, truth) if fuzzy.any() else fuzzy_share(z, ranked, truth)
    second = place == 1
    cosines = (cosine(fuzzy, ideal) if fuzzy.any() else 0.0, cosine(vanilla, ideal)) if second else (0.0, 0.0)
    return found | {
        "labeled_pixels": 1,
        "case_pixels": at(place, 1, 3),
        "case_1_k1_pixels": int(place == 0 and k == 1),
        "vanilla_score_sum": at(place, scores[0], 3),
        "vanilla_score_square_sum": at(place, scores[0] ** 2, 3),
        "fuzzy_score_sum": at(place, scores[1], 3),
        "fuzzy_score_square_sum": at(place, scores[1] ** 2, 3),
        "cosine_fuzzy_sum": cosines[0],
        "cosine_vanilla_sum": cosines[1],
        "cosine_fuzzy_positive": int(cosines[0] > 0),
        "norm_fuzzy_sum": fuzzy.norm().item() * second,
        "norm_ideal_sum": ideal.norm().item() * second,
        "norm_fuzzy_sum_all": fuzzy.norm().item(),
        "norm_ideal_sum_all": ideal.norm().item(),
    }


def fuzzy_share(z: Tensor, positives: list[int], truth: int) -> float:
    """R^f of a positive where no class is negative: its share by the formula, the gradient itself being zero."""
    return float(torch.exp(-z[truth]) / torch.exp(-z[positives]).sum())


def add_up(found: list[dict[str, Any]], names: set[str]) -> dict[str, Tensor]:
    return {
        name: sum((torch.tensor(pixel[name], dtype=torch.float64) for pixel in found if name in pixel), torch.zeros(()))
        for name in names
    }


def scene(classes: int, count: int = 40, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Student and teacher [2, C, N] that agree now more, now less, and truths [2, N] of all cases, some unknown."""
    scale = torch.linspace(0.2, 5, count, dtype=torch.float64)
    teacher = normal(2, classes, count, seed=seed) * scale
    student = teacher * 0.6 + normal(2, classes, count, seed=seed + 1) * scale * 0.5
    places = torch.arange(count) % 4
    ranks = teacher.sort(1, descending=True).indices
    truth = torch.where(places == 3, 255, ranks.gather(1, places.clamp(max=classes - 1).expand(2, 1, -1)).squeeze(1))
    return student, teacher, truth
