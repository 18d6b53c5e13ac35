"""Fused implementations of the fuzzy positive loss, and the choice among them.

``cpu`` is C++ that is compiled once, on first use; ``triton`` is for GPUs; ``tensor`` is plain PyTorch: it runs
everywhere, computes float64, and is what the others are tested against. Without a choice the fused one of the logits'
device is taken, and PyTorch with a warning where that one is not to be had. The environment variable ``FPL_LOSS`` or
:func:`use` chooses one by name.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from fpl.losses.checks import check_choice
from fpl.losses.kernels.contract import KERNEL_DTYPES, Implementation

IMPLEMENTATIONS = ("auto", "tensor", "cpu", "triton")
VARIABLE = "FPL_LOSS"

_chosen: list[str] = []


class Found(NamedTuple):
    """One fused implementation, or why there is none."""

    module: Implementation | None
    reason: str
    """How it was made, or what is missing."""


@lru_cache(maxsize=1)
def find_cpu() -> Found:
    """Build or load the CPU kernel, once per process."""
    from fpl.losses.kernels import build, cpu

    try:
        library = build.build()
        cpu.library()
    except build.BuildError as error:
        return Found(None, str(error))
    return Found(cpu, str(library))


@lru_cache(maxsize=1)
def find_triton() -> Found:
    """Import the Triton kernels, once per process."""
    try:
        from fpl.losses.kernels import gpu
    except ImportError as error:
        return Found(None, f"triton cannot be imported: {error}")
    return Found(gpu, "compiled on first use for each shape")


def chosen() -> str:
    """Name of the implementation asked for: by :func:`use`, by the environment, or ``auto``.

    Raises:
        ValueError: The environment variable holds another word.
    """
    name = _chosen[-1] if _chosen else os.environ.get(VARIABLE, "auto")
    check_choice(VARIABLE, name, IMPLEMENTATIONS)
    return name


@contextlib.contextmanager
def use(name: str) -> Iterator[None]:
    """Compute with one implementation inside a ``with`` block, whatever the environment says.

    Raises:
        ValueError: ``name`` is none of :data:`IMPLEMENTATIONS`.
    """
    check_choice("name", name, IMPLEMENTATIONS)
    _chosen.append(name)
    try:
        yield
    finally:
        _chosen.pop()


def find(device_type: str) -> tuple[str, Found]:
    """What computes logits of a device: name and implementation; module None means PyTorch.

    Args:
        device_type: ``torch.device.type`` of the logits.
    """
    name = chosen()
    if name == "auto":
        name = {"cpu": "cpu", "cuda": "triton"}.get(device_type, "tensor")
    if name == "tensor":
        return name, Found(None, "asked for" if chosen() == "tensor" else f"there is no fused loss for {device_type}")
    return name, find_cpu() if name == "cpu" else find_triton()


def implementation(student: Tensor) -> Implementation | None:
    """Fused implementation for these logits, None for PyTorch.

    Raises:
        ValueError: One was asked for by name and is not to be had.
    """
    if student.dtype not in KERNEL_DTYPES or not student.numel() or student.ndim < 3:
        return None
    name, found = find(student.device.type)
    if found.module is None and name != "tensor":
        if chosen() != "auto":
            raise ValueError(f"the {name} implementation of the loss is not available: {found.reason}")
        _announce(name, found.reason)
    return found.module


@lru_cache(maxsize=4)
def _announce(name: str, reason: str) -> None:
    warnings.warn(
        f"fuzzy positive loss without its {name} kernel: {reason}; plain PyTorch computes the same values several "
        f"times slower. `fpl doctor` tells more; {VARIABLE}=tensor silences this",
        stacklevel=4,
    )


def describe(device_type: str) -> tuple[bool, str]:
    """Whether a fused implementation computes logits of a device, and one line that says which and why."""
    name, found = find(device_type)
    if found.module is None:
        return False, f"PyTorch: {found.reason}" if name == "tensor" else f"PyTorch, without {name}: {found.reason}"
    return True, f"{name} kernel ({found.reason})"


def available(name: str) -> bool:
    """Whether a fused implementation, ``cpu`` or ``triton``, can be had on this machine."""
    return (find_cpu() if name == "cpu" else find_triton()).module is not None
