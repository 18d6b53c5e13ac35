"""Autograd over the fused implementations: the summed form and the mapped form of `contract.py`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fpl.losses.checks import to_compute
from fpl.losses.kernels import operators
from fpl.losses.kernels.contract import SUMS, VALUE, Implementation, Pixels, Settings
from fpl.losses.once import differentiable_once


class Totals(NamedTuple):
    """The summed form as callers see it."""

    value: Tensor
    """float32 scalar: scale * SUM weight map * weight * loss; differentiable."""
    sums: dict[str, Tensor]
    """float64 scalars by their names in `contract.SUMS`; constants."""
    histogram: Tensor
    """int64 [C]; constant."""


class _Summed(torch.autograd.Function):
    """The gradient is written with the value and scaled at the first backward; a second one computes it again."""

    @staticmethod
    def forward(
        ctx: Any,
        student: Tensor,
        pixels: Pixels,
        settings: Settings,
        implementation: Implementation,
        scale: Tensor,
        early: Tensor | None,
        late: Tensor | None,
        cross_entropy: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        result = implementation.summed(settings, pixels, scale=early, cross_entropy=cross_entropy, gradient=True)
        ctx.gradient, ctx.early, ctx.late = result.gradient, early, late
        ctx.settings, ctx.implementation, ctx.size = settings, implementation, pixels.size
        ctx.save_for_backward(*pixels[:-1])
        ctx.mark_non_differentiable(result.sums, result.histogram)
        return (result.sums[VALUE] * scale).float(), result.sums, result.histogram

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            pixels = Pixels(*ctx.saved_tensors)._replace(size=ctx.size)
            gradient = ctx.implementation.summed(
                ctx.settings, pixels, scale=ctx.early, cross_entropy=False, gradient=True
            ).gradient
        factor = upstream if ctx.late is None else upstream * ctx.late
        return ctx.implementation.rescale(gradient, factor.float().resolve_neg()), *(None,) * 7


def _early_and_late(scale: Tensor, pixels: Pixels) -> tuple[Tensor | None, Tensor | None]:
    """What a gradient is multiplied by when it is written, and what later, together with the upstream gradient.

    None is 1. A float16 gradient cannot hold one over a number of pixels: small factors, those of the map included,
    wait for the loss scale.
    """
    if pixels.student.dtype != torch.float16:
        return scale, None
    if pixels.weight_map is None:
        return None, scale
    largest = pixels.weight_map.nan_to_num(0.0, 0.0, 0.0).amax().clamp(min=1e-30)
    return 1 / largest, scale * largest


class _Mapped(torch.autograd.Function):
    """Two passes: values first, the gradient for any upstream later."""

    @staticmethod
    def forward(
        ctx: Any, student: Tensor, teacher: Tensor, settings: Settings, implementation: Implementation
    ) -> tuple[Tensor, Tensor, Tensor]:
        result = implementation.mapped(settings, student, teacher)
        ctx.settings, ctx.implementation = settings, implementation
        ctx.save_for_backward(student, teacher, *result.state)
        ctx.mark_non_differentiable(result.weight, result.k)
        return result.loss, result.weight, result.k

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        student, teacher, *state = ctx.saved_tensors
        gradient = ctx.implementation.mapped_gradient(
            ctx.settings, student, teacher, tuple(state), upstream.float().resolve_neg().contiguous()
        )
        return gradient, None, None, None


def summed(
    implementation: Implementation, settings: Settings, pixels: Pixels, *, scale: Tensor, cross_entropy: bool
) -> Totals:
    """Sum over pixels, differentiable with respect to the student's logits where they want a gradient.

    Args:
        implementation: Computes.
        settings: Decide the loss.
        pixels: Logits of any mix of the kernels' dtypes.
        scale: float32 scalar that multiplies the value.
        cross_entropy: Whether to sum the cross-entropy with the teacher's argmax, too.
    """
    pixels, scale = _readable(pixels), scale.resolve_neg()
    wanted = torch.is_grad_enabled() and pixels.student.requires_grad
    early, late = _early_and_late(scale, pixels) if wanted else (None, None)
    if torch.compiler.is_compiling():
        value, sums, histogram, _ = operators.summed(
            implementation.NAME, *pixels, scale, early, late, cross_entropy, wanted, *settings
        )
    elif wanted:
        value, sums, histogram = _Summed.apply(
            pixels.student, pixels, settings, implementation, scale, early, late, cross_entropy
        )
    else:
        result = implementation.summed(settings, pixels, scale=None, cross_entropy=cross_entropy, gradient=False)
        value, sums, histogram = (result.sums[VALUE] * scale).float(), result.sums, result.histogram
    return Totals(value, dict(zip(SUMS, sums.unbind(), strict=True)), histogram)


def mapped(
    implementation: Implementation, settings: Settings, student: Tensor, teacher: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss (differentiable), weight and K of every pixel [B, *spatial]."""
    if student.ndim == 2:
        loss, weight, k = mapped(implementation, settings, _as_image(student), _as_image(teacher))
        return loss.squeeze(0), weight.squeeze(0), k.squeeze(0)
    pixels = _readable(Pixels(student, teacher))
    if torch.compiler.is_compiling():
        return tuple(operators.mapped(implementation.NAME, pixels.student, pixels.teacher, *settings)[:3])
    loss, weight, k = _Mapped.apply(pixels.student, pixels.teacher, settings, implementation)
    return loss, weight, k


def _as_image(logits: Tensor) -> Tensor:
    """Pixels [N, C] as one image [1, C, N], a view: kernels go along the pixels of an image."""
    return logits.t().unsqueeze(0)


def _readable(pixels: Pixels) -> Pixels:
    """The same pixels as memory shows them: logits of one dtype, and no sign that is kept beside the numbers."""
    tensors: list[Any] = list(pixels[:-1])
    if pixels.student.ndim == 2:
        tensors = [each if each is None else _as_image(each) if each.ndim == 2 else each[None] for each in tensors]
    tensors = [each if each is None else each.resolve_neg() for each in tensors]
    pixels = Pixels(*tensors)._replace(size=pixels.size)
    logits = [logits for logits in pixels[:3] if logits is not None]
    if len({each.dtype for each in logits}) == 1:
        return pixels
    student, teacher, second = (None if each is None else to_compute(each) for each in pixels[:3])
    assert student is not None
    assert teacher is not None
    return pixels._replace(student=student, teacher=teacher, second=second)
