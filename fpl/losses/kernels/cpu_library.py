"""The compiled kernels of ``source/`` as foreign functions, and tensors as they read them: by address."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from fpl.losses.kernels import contract
from fpl.losses.kernels.build import BuildError, build, load

FUNCTIONS = ("fpl_summed", "fpl_summed_upsampled", "fpl_mapped", "fpl_mapped_gradient", "fpl_diagnose")
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class CLogits(ctypes.Structure):
    """``Logits`` of ``logits.hpp``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("image", ctypes.c_int64),
        ("channel", ctypes.c_int64),
        ("pixel", ctypes.c_int64),
        ("kind", ctypes.c_int32),
    )


class CSettings(ctypes.Structure):
    """``Settings`` of ``pixel.hpp``."""

    _fields_ = (
        ("classes", ctypes.c_int64),
        ("ratio", ctypes.c_double),
        ("threshold", ctypes.c_float),
        ("curvature", ctypes.c_float),
        ("convex", ctypes.c_float),
        ("strategy", ctypes.c_int32),
        ("soft", ctypes.c_int32),
        ("k", ctypes.c_int32),
        ("cap", ctypes.c_int32),
        ("released", ctypes.c_int32),
        ("weight", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    )


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Load the kernels, compiled first where that has not been done.

    Raises:
        BuildError: They cannot be compiled or loaded here.
    """
    path = build()
    kernels = load(path)
    for name in FUNCTIONS:
        try:
            function = getattr(kernels, name)
        except AttributeError as error:
            raise BuildError(f"{path} has no function {name}") from error
        function.restype = ctypes.c_int32
        function.errcheck = _check_status
    return kernels


def _check_status(status: int, function: Any, _: object) -> int:
    if status:
        raise MemoryError(f"{function.__name__} got no memory for its buffers")
    return status


def c_settings(settings: contract.Settings) -> CSettings:
    """Settings as the kernels read them, with torch's number of threads."""
    return CSettings(
        classes=settings.classes,
        ratio=settings.ratio,
        threshold=settings.threshold,
        curvature=settings.curvature,
        convex=settings.convex_coefficient,
        strategy=settings.strategy,
        soft=settings.soft,
        k=settings.k,
        cap=settings.cap,
        released=settings.released,
        weight=settings.weight,
        threads=torch.get_num_threads(),
    )


def address(tensor: Tensor | None) -> ctypes.c_void_p:
    """Where a contiguous tensor lies; null for None."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _pixel_stride(tensor: Tensor) -> int | None:
    """Stride with which all pixels of a [B, C, *spatial] tensor follow each other; None if there is no such stride."""
    stride: int | None = None
    expected = 0
    for size, step in zip(reversed(tensor.shape[2:]), reversed(tensor.stride()[2:]), strict=True):
        if size == 1:
            continue
        if stride is None:
            stride = step
        elif step != expected:
            return None
        expected = size * step
    return 1 if stride is None else stride


def addressable(tensor: Tensor) -> Tensor:
    """The tensor itself if its pixels follow each other with one stride, else a contiguous copy.

    Contiguous and channels_last tensors, and slices of their images or channels, are taken as they are.
    """
    tensor = tensor.detach().resolve_neg()
    return tensor.contiguous() if _pixel_stride(tensor) is None else tensor


def describe(tensor: Tensor | None) -> CLogits | None:
    """Describe an addressable tensor of :data:`KINDS` to the kernels."""
    if tensor is None:
        return None
    pixel = _pixel_stride(tensor)
    assert pixel is not None
    return CLogits(tensor.data_ptr(), tensor.stride(0), tensor.stride(1), pixel, KINDS[tensor.dtype])


def reference(structure: ctypes.Structure | None) -> object:
    """Pointer to a structure, null for None, as an argument of a foreign function."""
    return None if structure is None else ctypes.byref(structure)


def as_map(values: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A map [B, *spatial] as the kernels read it; it has to be kept until they have."""
    return None if values is None else values.detach().to(dtype).resolve_neg().contiguous()
