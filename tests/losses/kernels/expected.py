"""What kernels should give: the tensor implementation in float64 with autograd, and the inputs it is asked about."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses import class_rank, fuzzy_positive_terms
from fpl.losses.kernels.contract import Pixels, Settings, make_settings
from fpl.losses.rules import Rules

DEFAULTS: dict[str, Any] = {
    "threshold": 0.9,
    "strategy": "n-1",
    "weight": "concave",
    "curvature": 50.0,
    "fidelity": "paper",
    "fixed_k": 2,
    "ratio": 0.3,
    "progress": 0.4,
    "convex_coefficient": None,
}
FAMILIES = ("random", "flat", "equal", "peaked", "ties", "uniform", "one-hot", "offset")
SHAPE = (13, 7)  # 91 pixels: no multiple of any vector


def options(classes: int, **changed: Any) -> dict[str, Any]:
    return DEFAULTS | {"fixed_k": min(2, classes - 1)} | changed


def settings(classes: int, **changed: Any) -> Settings:
    return make_settings(classes, Rules(**options(classes, **changed)))


def logits(family: str, classes: int, *, seed: int = 0, images: int = 1, shape: tuple[int, ...] = SHAPE) -> Tensor:
    """Float32 [images, classes, *shape]."""
    generator = torch.Generator().manual_seed(seed + 1000 * classes)
    normal = torch.randn(images, classes, *shape, generator=generator)
    if family == "one-hot":
        chosen = torch.randint(classes, (images, 1, *shape), generator=generator)
        return torch.zeros_like(normal).scatter_(1, chosen, 1e4)
    return {
        "random": normal * 2,
        "flat": normal * 0.01,
        "equal": torch.zeros_like(normal),
        "peaked": normal * 30,
        "ties": normal.round(),
        "uniform": torch.rand(normal.shape, generator=generator) * 2e4 - 1e4,
        # Multiples of 1/256 stay exact when 5000 is added.
        "offset": (normal * 512).round() / 256 + 5e3,
    }[family]


class Expected(NamedTuple):
    """Float64 results of each pixel [B, *spatial]."""

    loss: Tensor
    weight: Tensor
    k: Tensor
    cross_entropy: Tensor
    gradient: Tensor
    """[B, C, *spatial], of SUM upstream * loss."""
    sure: Tensor
    """False where a running sum is so near the threshold that float32 may see it on the other side."""


def expect(student: Tensor, teacher: Tensor, upstream: Tensor | None = None, **changed: Any) -> Expected:
    """Upstream None: the weight, so that the gradient is that of SUM weight * loss."""
    keywords = options(student.shape[1], **changed)
    leaf = student.double().requires_grad_()
    scores = teacher.double()
    terms = fuzzy_positive_terms(leaf, scores, rules=Rules(**keywords))
    factor = terms.weight if upstream is None else upstream
    (terms.loss * factor).sum().backward()
    assert leaf.grad is not None
    sums = scores.softmax(1).sort(1, descending=True).values.cumsum(1)
    sure = ((sums - keywords["threshold"]).abs() > 1e-5).all(1)
    if keywords["strategy"] in ("fixed", "step"):
        sure = torch.ones_like(sure)
    top = class_rank(scores).eq(0).int().argmax(1)
    cross_entropy = F.cross_entropy(leaf.detach(), top, reduction="none")
    return Expected(terms.loss.detach(), terms.weight, terms.k, cross_entropy, leaf.grad, sure)


def expect_sums(expected: Expected, pixels: Pixels) -> dict[str, float]:
    """`contract.SUMS` by name."""
    counted = expected.sure if pixels.counted is None else pixels.counted
    weight_map = torch.ones_like(expected.loss) if pixels.weight_map is None else pixels.weight_map.double()
    sums = {
        "pixels": torch.ones_like(expected.loss),
        "value": expected.loss * expected.weight * weight_map,
        "weighted_loss": expected.loss * expected.weight,
        "loss": expected.loss,
        "weight": expected.weight,
        "cross_entropy": expected.cross_entropy,
    }
    return {name: values[counted].double().sum().item() for name, values in sums.items()}
