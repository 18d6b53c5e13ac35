"""Fused loss on CPUs: the kernels of ``source/``, called by address. See ``contract.py`` for what the functions do."""

from __future__ import annotations

import ctypes
import math

import torch
from torch import Tensor

from fpl.losses.kernels import contract, memory
from fpl.losses.kernels.contract import SUMS, Mapped, Pixels, Summed
from fpl.losses.kernels.cpu_library import address, addressable, as_map, c_settings, describe, library, reference
from fpl.losses.kernels.cpu_upsampled import summed_upsampled

NAME = "cpu"


def _counts(tensor: Tensor) -> tuple[ctypes.c_int64, ctypes.c_int64]:
    """Images, and pixels of each."""
    pixels = 1
    for size in tensor.shape[2:]:
        pixels *= size
    return ctypes.c_int64(tensor.shape[0]), ctypes.c_int64(pixels)


def summed(
    settings: contract.Settings, pixels: Pixels, *, scale: Tensor | None, cross_entropy: bool, gradient: bool
) -> Summed:
    """Compute the sums, and the gradient of ``scale * value`` if asked."""
    if pixels.size is not None and pixels.size != tuple(pixels.student.shape[2:]):
        return summed_upsampled(settings, pixels, scale=scale, cross_entropy=cross_entropy, gradient=gradient)
    student, teacher = addressable(pixels.student), addressable(pixels.teacher)
    second = None if pixels.second is None else addressable(pixels.second)
    inside = as_map(pixels.inside, torch.bool)
    weight_map = as_map(pixels.weight_map, torch.float32)
    counted = as_map(pixels.counted, torch.bool)
    written = addressable(memory.empty_like(student)) if gradient else None
    sums = torch.empty(len(SUMS), dtype=torch.float64, device="cpu")
    histogram = torch.empty(settings.classes, dtype=torch.int64, device="cpu")
    library().fpl_summed(
        ctypes.byref(c_settings(settings)),
        *_counts(student),
        reference(describe(student)),
        reference(describe(teacher)),
        reference(describe(second)),
        address(inside),
        address(weight_map),
        address(counted),
        ctypes.c_float(1.0 if scale is None else scale.item()),
        ctypes.c_int32(cross_entropy),
        reference(describe(written)),
        address(sums),
        address(histogram),
    )
    return Summed(sums, histogram, written)


def mapped(settings: contract.Settings, student: Tensor, teacher: Tensor) -> Mapped:
    """Compute loss, weight and K of every pixel."""
    student, teacher = addressable(student), addressable(teacher)
    shape = (student.shape[0], *student.shape[2:])
    loss, weight, value = (torch.empty(shape, dtype=torch.float32, device="cpu") for _ in range(3))
    k = torch.empty(shape, dtype=torch.int64, device="cpu")
    index = torch.empty(shape, dtype=torch.int32, device="cpu")
    library().fpl_mapped(
        ctypes.byref(c_settings(settings)),
        *_counts(student),
        reference(describe(student)),
        reference(describe(teacher)),
        *(address(tensor) for tensor in (loss, weight, k, value, index)),
    )
    return Mapped(loss, weight, k, (value, index))


def mapped_gradient(
    settings: contract.Settings, student: Tensor, teacher: Tensor, state: tuple[Tensor, ...], upstream: Tensor
) -> Tensor:
    """Gradient of SUM ``upstream`` * loss."""
    student, teacher = addressable(student), addressable(teacher)
    value, index = state
    upstream = upstream.detach().to(torch.float32).contiguous()
    gradient = addressable(memory.empty_like(student))
    library().fpl_mapped_gradient(
        ctypes.byref(c_settings(settings)),
        *_counts(student),
        reference(describe(student)),
        reference(describe(teacher)),
        *(address(tensor) for tensor in (value, index, upstream)),
        reference(describe(gradient)),
    )
    return gradient


def rescale(gradient: Tensor, factor: Tensor) -> Tensor:
    """Multiply by a float32 scalar, in place, without traffic where it is 1; zeros stay zeros."""
    number = factor.item()
    if not math.isfinite(number):
        return gradient.copy_(torch.where(gradient == 0, gradient, gradient * number))
    return gradient if number == 1 else gradient.mul_(number)
