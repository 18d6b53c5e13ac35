"""Inputs and contestants of `benchmarks/loss.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from released import released_loss
from torch import Tensor

from fpl.losses import PixelLoss, fuzzy_positive_loss, fuzzy_positive_terms, kernels

# Standard deviation of the logits of a smooth field. With T = 0.9 it makes 93 % of the pixels K = 1 (a teacher late in
# training) or 44 % (early). Noise has no smooth field: every pixel for itself, mean K 12.6 of 21.
SCALES = {"late": 18.3, "early": 5.75}
REGIMES = (*SCALES, "noise")
SHAPES = {
    "cpu": ((2, 21, 512, 512), (1, 19, 800, 800)),
    "cuda": ((8, 21, 512, 512), (8, 19, 800, 800)),
}
SMALL = ((1, 21, 96, 96), (1, 19, 128, 128))
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ERRORS = ("loss, relative", "weight, absolute", "gradient, absolute")
# From the decoder's output to the image, and from one node of the smooth field to the next.
STRIDE, CELL = 4, 32

Shape = tuple[int, int, int, int]


class Inputs(NamedTuple):
    """Logits of one direction: of full size, or of a decoder with a second teacher and where that one teaches."""

    student: Tensor
    teacher: Tensor
    second: Tensor | None = None
    inside: Tensor | None = None
    size: tuple[int, int] | None = None


class Case(NamedTuple):
    """A contestant: forward and backward, once."""

    name: str
    implementation: str
    run: Callable[[Inputs], Tensor]
    """Gives the gradient."""
    slow: bool = False
    """Takes part in the first rounds only."""


def low_field(shape: Shape, regime: str, seed: int) -> Tensor:
    """Float32 logits [B, C, H/4, W/4] of a decoder, smooth in space."""
    batch, classes, height, width = shape
    nodes = [max(side // CELL, 2) for side in (height, width)]
    field = torch.randn(batch, classes, *nodes, generator=torch.Generator().manual_seed(seed)) * SCALES[regime]
    low = [side // STRIDE for side in (height, width)]
    return F.interpolate(field, size=low, mode="bilinear", align_corners=True)


def full_field(shape: Shape, regime: str, seed: int) -> Tensor:
    """Float32 logits [B, C, H, W]."""
    if regime == "noise":
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(low_field(shape, regime, seed), size=shape[2:], mode="bilinear", align_corners=True)


def make_inputs(shape: Shape, regime: str, dtype: torch.dtype, device: str, enlarged: bool) -> Inputs:
    """Draw the logits; ``enlarged``: those of a decoder, to be enlarged and mixed."""

    def logits(seed: int) -> Tensor:
        field = low_field(shape, regime, seed) if enlarged else full_field(shape, regime, seed)
        return field.to(device, dtype)

    if not enlarged:
        return Inputs(logits(0), logits(1))
    batch, _, height, width = shape
    inside = torch.zeros(batch, height, width, dtype=torch.bool, device=device)
    # CutMix: a rectangle of half the area.
    inside[:, height // 8 : height // 8 + height * 5 // 8, width // 16 : width // 16 + width * 4 // 5] = True
    return Inputs(logits(0), logits(1), logits(2), inside, (height, width))


def at_full_size(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Student and teacher of full size by eager operations, as a training loop without fusion has them."""
    if inputs.size is None:
        return inputs.student, inputs.teacher

    def enlarge(logits: Tensor) -> Tensor:
        return F.interpolate(logits, size=inputs.size, mode="bilinear", align_corners=True)

    assert inputs.second is not None
    assert inputs.inside is not None
    with torch.no_grad():
        teacher = torch.where(inputs.inside.unsqueeze(1), enlarge(inputs.second), enlarge(inputs.teacher))
    return enlarge(inputs.student), teacher


def _gradient(inputs: Inputs, loss: Callable[[Inputs], Tensor]) -> Tensor:
    student = inputs.student.detach().requires_grad_()
    torch.autograd.backward(loss(inputs._replace(student=student)))
    assert student.grad is not None
    return student.grad


def vanilla(inputs: Inputs) -> Tensor:
    """Cross-entropy with the teacher's highest class, which `torch.max` finds faster than `argmax` on a CPU."""
    student, teacher = at_full_size(inputs)
    return F.cross_entropy(student, teacher.max(1).indices)


def vanilla_argmax(inputs: Inputs) -> Tensor:
    """The same by `argmax`."""
    student, teacher = at_full_size(inputs)
    return F.cross_entropy(student, teacher.argmax(1))


def released(inputs: Inputs) -> Tensor:
    """The authors' algorithm, which needs float32."""
    student, teacher = at_full_size(inputs)
    return released_loss([(student.float(), teacher)])


def summed(inputs: Inputs, strategy: str = "n-1") -> Tensor:
    """Ours as training uses it: rescaled to the value of cross-entropy, enlarged and mixed on the way."""
    pixel_loss = PixelLoss("fpl", strategy=strategy, balance=True)
    student, teacher, second, inside, size = inputs
    return pixel_loss.total([pixel_loss(student, teacher, second=second, inside=inside, size=size)])


def summed_soft(inputs: Inputs) -> Tensor:
    """The same with a K that is no whole number."""
    return summed(inputs, "soft")


def mapped(inputs: Inputs) -> Tensor:
    """Ours with a value for each pixel, reduced outside; neither cross-entropy nor rescaling."""
    return fuzzy_positive_loss(inputs.student, inputs.teacher, reduction="none").mean()


def _case(name: str, implementation: str, loss: Callable[[Inputs], Tensor], slow: bool = False) -> Case:
    def run(inputs: Inputs) -> Tensor:
        if implementation == "torch":
            return _gradient(inputs, loss)
        with kernels.use(implementation):
            return _gradient(inputs, loss)

    return Case(name, implementation, run, slow)


def implementations(device: str) -> list[str]:
    """Those of ours that can be had on a device, PyTorch first."""
    fused = "triton" if device == "cuda" else "cpu"
    return ["tensor", *([fused] if kernels.available(fused) else [])]


def make_cases(device: str, enlarged: bool) -> list[Case]:
    """All contestants, the baseline first."""
    cases = [
        _case("vanilla", "torch", vanilla),
        _case("vanilla, argmax", "torch", vanilla_argmax),
        _case("released", "torch", released, slow=True),
    ]
    for name in implementations(device):
        cases.append(_case("fpl", name, summed, slow=name == "tensor"))
        cases.append(_case("fpl soft", name, summed_soft, slow=name == "tensor"))
        if not enlarged:
            cases.append(_case("fpl per pixel", name, mapped, slow=name == "tensor"))
    return cases


@torch.no_grad()
def k_shares(inputs: Inputs) -> tuple[float, float]:
    """Share of pixels with K = 1, and mean K."""
    _, teacher = at_full_size(inputs)
    with kernels.use("tensor"):
        k = fuzzy_positive_terms(teacher, teacher).k
    return (k == 1).float().mean().item(), k.float().mean().item()


def errors(implementation: str, shape: Shape, regime: str, dtype: torch.dtype, device: str) -> dict[str, float]:
    """Largest differences from float64: relative of the loss, absolute of the weight (0 .. 1) and gradient (-1 .. 1).

    A loss below 0.001 counts as if it were that. Pixels with another K are left out if a running sum is within 1e-5 of
    the threshold; else everything is infinite.
    ``huge`` is a regime of its own here: logits up to +-10,000.
    """
    if regime == "huge":
        generator = torch.Generator().manual_seed(0)
        student, teacher = (
            ((torch.rand(shape, generator=generator) * 2 - 1) * 1e4).to(device, dtype) for _ in range(2)
        )
    else:
        student, teacher, *_ = make_inputs(shape, regime, dtype, device, enlarged=False)
    found: list[Tensor] = []
    exact: list[Tensor] = []
    for logits, scores, results in ((student, teacher, found), (student.double(), teacher.double(), exact)):
        leaf = logits.detach().requires_grad_()
        with kernels.use(implementation):
            terms = fuzzy_positive_terms(leaf, scores)
            torch.autograd.backward(terms.loss.sum())
        assert leaf.grad is not None
        results += [terms.k, terms.loss.detach().double(), terms.weight.double(), leaf.grad.movedim(1, -1).double()]
    same = found[0] == exact[0]
    sums = teacher.double().softmax(1).sort(1, descending=True).values.cumsum(1)
    if not (same | ((sums - 0.9).abs() < 1e-5).any(1)).all():
        return dict.fromkeys(ERRORS, float("inf"))
    loss, weight, gradient = ((one - other).abs()[same] for one, other in zip(found[1:], exact[1:], strict=True))
    relative = loss / exact[1][same].clamp(min=1e-3)
    return {name: values.max().item() for name, values in zip(ERRORS, (relative, weight, gradient), strict=True)}
