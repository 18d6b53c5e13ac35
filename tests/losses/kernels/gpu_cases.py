"""What the Triton kernels are run on and what they have to give: tensors in float64 with autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses.assignment import sort_classes
from fpl.losses.fuzzy import fuzzy_positive_terms
from fpl.losses.kernels.contract import Pixels, Settings, Summed, make_settings

pytest.importorskip("triton", reason="triton is not installed")

from fpl.losses.kernels import gpu
from fpl.losses.rules import Rules

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DEFAULTS: dict[str, Any] = {
    "threshold": 0.9, "strategy": "n-1", "weight": "concave", "curvature": 50.0, "fidelity": "paper", "fixed_k": 1,
    "ratio": 0.5, "progress": 0.0, "convex_coefficient": None,
}  # fmt: skip
Expected = dict[str, Any]


def settings(classes: int, **keywords: Any) -> Settings:
    return make_settings(classes, Rules(**{**DEFAULTS, **keywords}))


def normal(*shape: int, seed: int = 0, scale: float = 3.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def certain(teacher: Tensor, threshold: float) -> Tensor:
    """Pixels whose running sum of probabilities is not so near T that float32 may decide otherwise."""
    cumulative = sort_classes(teacher.double()).values.softmax(-1).cumsum(-1)
    return ((cumulative - threshold).abs() > 1e-5).all(-1)


def enlarged(logits: Tensor, size: tuple[int, int] | None) -> Tensor:
    return logits if size is None else F.interpolate(logits, size=size, mode="bilinear", align_corners=True)


def expected(pixels: Pixels, scale: float = 1.0, **keywords: Any) -> Expected:
    """What the summed form has to give, from float64 tensors and autograd."""
    leaf = pixels.student.double().requires_grad_()
    student, teacher = enlarged(leaf, pixels.size), enlarged(pixels.teacher.double(), pixels.size)
    if pixels.second is not None and pixels.inside is not None:
        teacher = torch.where(pixels.inside.unsqueeze(1), enlarged(pixels.second.double(), pixels.size), teacher)
    counted = torch.ones_like(teacher[:, 0], dtype=torch.bool) if pixels.counted is None else pixels.counted
    student = torch.where(counted.unsqueeze(1), student, 0.0)
    terms = fuzzy_positive_terms(student, teacher, rules=Rules(**{**DEFAULTS, **keywords}))
    weighted = terms.loss * terms.weight
    value = (weighted if pixels.weight_map is None else weighted * pixels.weight_map)[counted].sum()
    (gradient,) = torch.autograd.grad(scale * value, leaf)
    entropy = F.cross_entropy(student, teacher.max(1).indices, reduction="none")
    maps = [counted.double(), None, weighted, terms.loss, terms.weight, entropy]
    sums = [value if one is None else one[counted].sum() for one in maps]
    return {
        "sums": torch.stack(sums).detach(),
        "histogram": torch.bincount(terms.k[counted] - 1, minlength=student.shape[1]),
        "gradient": gradient,
    }


def run(pixels: Pixels, scale: float | None = None, gradient: bool = True, **keywords: Any) -> Summed:
    """The kernels' result on the CPU."""
    moved = [one.to(DEVICE) if isinstance(one, Tensor) else one for one in pixels]
    factor = None if scale is None else torch.tensor(scale, device=DEVICE)
    found = gpu.summed(
        settings(pixels.student.shape[1], **keywords),
        Pixels(*moved),
        scale=factor,
        cross_entropy=True,
        gradient=gradient,
    )
    result = None if found.gradient is None else found.gradient.cpu()
    return Summed(found.sums.cpu(), found.histogram.cpu(), result)


def check(found: Summed, wanted: Expected, gradient_error: float = 3e-6) -> None:
    assert found.gradient is not None
    torch.testing.assert_close(found.sums, wanted["sums"], rtol=3e-6, atol=1e-5, equal_nan=True)
    assert torch.equal(found.histogram, wanted["histogram"])
    torch.testing.assert_close(
        found.gradient.double(), wanted["gradient"], rtol=3e-6, atol=gradient_error, equal_nan=True
    )


def maps(*shape: int) -> dict[str, Tensor]:
    """A weight map with zeros, and pixels that do not count."""
    weight_map = normal(*shape, seed=5).abs()
    weight_map.view(-1)[::3] = 0.0
    return {"weight_map": weight_map, "counted": normal(*shape, seed=7) > -1}
