"""Gradients that are computed by formulas of their own, and of which there is no gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Backward = Callable[..., tuple[Tensor | None, ...]]


class _Last(torch.autograd.Function):
    """A gradient as it is, that refuses a gradient of its own with respect to what it was computed from."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *sources: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Tensor:
        raise RuntimeError(
            "a loss of fpl, and batch norm over several processes, are differentiable once: second derivatives "
            "(gradient penalty, Hessian, meta-learning) are not computed; keep it out of such a term, or differentiate "
            "that by finite differences"
        )


def differentiable_once(backward: Backward) -> Backward:
    """For the backward pass of an autograd function: a gradient of its gradient is refused, and never silently zero.

    Torch's own `once_differentiable` refuses only where the incoming gradient has one: that of a loss is the constant
    1, and what the loss itself is curved by would be missing. The function saves its inputs: through them leads what
    is refused.
    """

    @functools.wraps(backward)
    def last(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            gradients = backward(ctx, *upstream)
        if not torch.is_grad_enabled():
            return gradients
        sources = [each for each in (*ctx.saved_tensors, *upstream) if each is not None and each.requires_grad]
        return tuple(each if each is None else _Last.apply(each, *sources) for each in gradients)

    return last
