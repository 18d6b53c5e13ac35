"""The fused implementations as operators of ``torch.library``: opaque steps of what ``torch.compile`` traces.

Their arguments are those of ``contract.py``, flat, after the name of an implementation. Eager code does not come here:
the autograd functions of ``function.py`` cost less per call, and scale their gradient in place. A traced graph must
not: its backward may run twice on what its forward saved.
"""

from __future__ import annotations

from typing import Any, get_type_hints

import torch
from torch import Tensor

from fpl.losses.kernels import by_name
from fpl.losses.kernels.contract import SUMS, VALUE, Pixels, Settings
from fpl.losses.once import differentiable_once

_SETTINGS = ", ".join(f"{kind.__name__} {name}" for name, kind in get_type_hints(Settings).items())
_MAPS = ", ".join(f"Tensor? {name}" for name in Pixels._fields[2:-1])
_LOGITS = "str implementation, Tensor student, Tensor teacher"
_PIXELS = len(Pixels._fields)


@torch.library.custom_op(
    "fpl::summed",
    mutates_args=(),
    schema=f"({_LOGITS}, {_MAPS}, int[]? size, Tensor scale, Tensor? early, Tensor? late, bool cross_entropy, "
    f"bool gradient, {_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def summed(implementation: str, *arguments: Any) -> tuple[Tensor, ...]:
    """The summed form: value, sums and histogram, and the gradient of ``early * value / scale`` (empty unless asked).

    ``late`` is what backward multiplies it by besides the upstream gradient; None is 1.
    """
    pixels = Pixels(*arguments[:_PIXELS])
    scale, early, _, cross_entropy, gradient, *settings = arguments[_PIXELS:]
    if pixels.size is not None:
        height, width = pixels.size
        pixels = pixels._replace(size=(height, width))
    found = by_name(implementation).summed(
        Settings(*settings), pixels, scale=early, cross_entropy=cross_entropy, gradient=gradient
    )
    value = (found.sums[VALUE] * scale).float()
    # On a GPU the histogram is a part of a larger tensor.
    return value, found.sums, found.histogram.clone(), _as_promised(found.gradient, pixels.student)


def _as_promised(gradient: Tensor | None, student: Tensor) -> Tensor:
    """The gradient with the strides that the fake operator gives it."""
    if gradient is None:
        return student.new_empty(0)
    strides = torch.empty_like(student, device="meta").stride()
    return gradient if gradient.stride() == strides else torch.empty_like(student).copy_(gradient)


@summed.register_fake
def _summed_fake(_implementation: str, student: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    gradient = arguments[_PIXELS + 3]
    return (
        student.new_empty((), dtype=torch.float32),
        student.new_empty(len(SUMS), dtype=torch.float64),
        student.new_empty(student.shape[1], dtype=torch.int64),
        torch.empty_like(student) if gradient else student.new_empty(0),
    )


def _summed_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.inputs = len(inputs)
    late = inputs[1 + _PIXELS + 2]
    ctx.save_for_backward(inputs[1], output[3], late)


@differentiable_once
def _summed_backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    _, gradient, late = ctx.saved_tensors
    factor = (upstream if late is None else upstream * late).float()
    # Zeros stay zeros: NaN must not reach pixels that do not count.
    scaled = torch.where(gradient == 0, gradient, (gradient * factor).to(gradient.dtype))
    return (None, scaled, *(None,) * (ctx.inputs - 2))


summed.register_autograd(_summed_backward, setup_context=_summed_context)


@torch.library.custom_op(
    "fpl::mapped",
    mutates_args=(),
    schema=f"({_LOGITS}, {_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def mapped(implementation: str, student: Tensor, teacher: Tensor, *settings: Any) -> tuple[Tensor, ...]:
    """The mapped form: loss, weight, K and the two tensors of its state."""
    loss, weight, k, state = by_name(implementation).mapped(Settings(*settings), student, teacher)
    return loss, weight, k, *state


@mapped.register_fake
def _mapped_fake(_implementation: str, student: Tensor, *_: Any) -> tuple[Tensor, ...]:
    shape = (student.shape[0], *student.shape[2:])
    kinds = (torch.float32, torch.float32, torch.int64, torch.float32, torch.int32)
    return tuple(student.new_empty(shape, dtype=kind) for kind in kinds)


@torch.library.custom_op(
    "fpl::mapped_gradient",
    mutates_args=(),
    schema=f"({_LOGITS}, Tensor last_value, Tensor last_class, Tensor upstream, {_SETTINGS}) -> Tensor",
)
def mapped_gradient(
    implementation: str,
    student: Tensor,
    teacher: Tensor,
    value: Tensor,
    index: Tensor,
    upstream: Tensor,
    *settings: Any,
) -> Tensor:
    """Gradient of SUM ``upstream`` * loss of the mapped form."""
    found = by_name(implementation).mapped_gradient(Settings(*settings), student, teacher, (value, index), upstream)
    return _as_promised(found, student)


@mapped_gradient.register_fake
def _mapped_gradient_fake(_implementation: str, student: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(student)


def _mapped_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    implementation, student, teacher, *settings = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.implementation, ctx.settings = implementation, settings
    ctx.save_for_backward(student, teacher, *output[3:])


@differentiable_once
def _mapped_backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    upstream = upstream.float().contiguous()
    gradient = mapped_gradient(ctx.implementation, *ctx.saved_tensors, upstream, *ctx.settings)
    return (None, gradient, None, *(None,) * len(ctx.settings))


mapped.register_autograd(_mapped_backward, setup_context=_mapped_context)
