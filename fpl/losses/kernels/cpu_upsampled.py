"""Fused loss on CPUs of low-resolution logits that are enlarged on the way; see ``contract.py``."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from fpl.losses.kernels import contract
from fpl.losses.kernels.contract import SUMS, Pixels, Summed
from fpl.losses.kernels.cpu_library import KINDS, CLogits, address, as_map, c_settings, library


class CField(ctypes.Structure):
    """``Field`` of ``upsample.hpp``."""

    _fields_ = (("cells", CLogits), ("row", ctypes.c_int64))


class CUpsampled(ctypes.Structure):
    """``Upsampled`` of ``upsampled.cpp``."""

    _fields_ = (
        ("student", CField),
        ("teacher", CField),
        ("second", CField),
        ("gradient", CField),
        ("images", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("height", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("inside", ctypes.c_void_p),
        ("weight_map", ctypes.c_void_p),
        ("counted", ctypes.c_void_p),
        ("constant", ctypes.c_float),
        ("cross_entropy", ctypes.c_int32),
    )


def _describe(tensor: Tensor | None) -> CField:
    """Describe a [B, C, h, w] tensor of any strides to the kernels; zeros for None."""
    if tensor is None:
        return CField()
    image, channel, row, column = tensor.stride()
    return CField(CLogits(tensor.data_ptr(), image, channel, column, KINDS[tensor.dtype]), row)


def summed_upsampled(
    settings: contract.Settings, pixels: Pixels, *, scale: Tensor | None, cross_entropy: bool, gradient: bool
) -> Summed:
    """Compute the sums at ``pixels.size``, and the gradient of ``scale * value`` at the logits' own resolution.

    Logits are enlarged in float32, with the weights of ``F.interpolate(..., mode="bilinear", align_corners=True)``;
    the gradient is summed up in float32 and rounded once. Results do not depend on the number of threads.
    """
    student = pixels.student.detach()
    assert pixels.size is not None
    height, width = pixels.size
    inside = None if pixels.second is None else as_map(pixels.inside, torch.bool)
    weight_map = as_map(pixels.weight_map, torch.float32)
    counted = as_map(pixels.counted, torch.bool)
    written = torch.empty_like(student) if gradient else None
    sums = torch.empty(len(SUMS), dtype=torch.float64)
    histogram = torch.empty(settings.classes, dtype=torch.int64)
    upsampled = CUpsampled(
        student=_describe(student),
        teacher=_describe(pixels.teacher),
        second=_describe(pixels.second),
        gradient=_describe(written),
        images=student.shape[0],
        rows=student.shape[2],
        columns=student.shape[3],
        height=height,
        width=width,
        inside=address(inside),
        weight_map=address(weight_map),
        counted=address(counted),
        constant=1.0 if scale is None else scale.item(),
        cross_entropy=cross_entropy,
    )
    library().fpl_summed_upsampled(
        ctypes.byref(c_settings(settings)), ctypes.byref(upsampled), address(sums), address(histogram)
    )
    return Summed(sums, histogram, written)
