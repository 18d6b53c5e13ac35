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

import torch
from torch import Tensor

from fpl.losses.checks import check_choice
from fpl.losses.kernels.contract import KERNEL_DTYPES, Implementation

IMPLEMENTATIONS = ("auto", "tensor", "cpu", "triton")
# What the logits of the fused ones are on.
DEVICES = {"cpu": "cpu", "triton": "cuda"}
VARIABLE = "FPL_LOSS"

_chosen: list[str | Implementation] = []


class Found(NamedTuple):
    """One fused implementation, or why there is none."""

    module: Implementation | None
    reason: str
    """How it was made, or what is missing."""


@lru_cache(maxsize=1)
def find_cpu() -> Found:
    """Build or load the CPU kernel, once per process."""
    from fpl.losses.kernels import build, cpu, cpu_library

    try:
        library = cpu_library.library()
    except build.BuildError as error:
        return Found(None, str(error))
    return Found(cpu, library._name)


@lru_cache(maxsize=1)
def find_triton() -> Found:
    """Import the Triton kernels and, where there is a GPU, launch one, once per process."""
    try:
        from fpl.losses.kernels import gpu
    except ImportError as error:
        return Found(None, f"triton cannot be imported: {error}")
    if torch.cuda.is_available():
        try:
            gpu.probe()
        except Exception as error:
            # No C compiler for the launcher, a GPU too old for it: Triton has no common class for what goes wrong.
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            return Found(None, f"triton cannot launch a kernel here: {reason}")
    return Found(gpu, "compiled on first use for each shape")


def chosen() -> str:
    """Name of the implementation asked for: by :func:`use`, by the environment, or ``auto``.

    Raises:
        ValueError: The environment variable holds another word.
    """
    name = _chosen[-1] if _chosen else os.environ.get(VARIABLE, "auto")
    if not isinstance(name, str):
        return name.NAME
    check_choice(VARIABLE, name, IMPLEMENTATIONS)
    return name


@contextlib.contextmanager
def use(name: str | Implementation) -> Iterator[None]:
    """Compute with one implementation inside a ``with`` block, whatever the environment says.

    Args:
        name: One of :data:`IMPLEMENTATIONS`, or an implementation itself, for logits on any device.

    Raises:
        ValueError: A name is none of :data:`IMPLEMENTATIONS`.
    """
    if isinstance(name, str):
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
    if _chosen and not isinstance(_chosen[-1], str):
        return _chosen[-1].NAME, Found(_chosen[-1], "given")
    name = chosen()
    if name == "auto":
        name = next((fused for fused, device in DEVICES.items() if device == device_type), "tensor")
    elif name in DEVICES and device_type != DEVICES[name] and not _interpreted(name, device_type):
        return name, Found(None, f"it is for logits on {DEVICES[name]}, and these are on {device_type}")
    if name == "tensor":
        return name, Found(None, "asked for" if chosen() == "tensor" else f"there is no fused loss for {device_type}")
    return name, find_cpu() if name == "cpu" else find_triton()


def used(device_type: str) -> str:
    """Name of the implementation that computes float32 logits of a device: ``cpu``, ``triton`` or ``tensor``.

    Args:
        device_type: ``torch.device.type`` of the logits.
    """
    name, found = find(device_type)
    return name if found.module is not None else "tensor"


def _interpreted(name: str, device_type: str) -> bool:
    """Whether Triton's interpreter computes, which does it on the CPU."""
    return name == "triton" and device_type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"


def check_chosen(device_type: str) -> None:
    """Check that a fused implementation asked for by name, if one was, can compute logits of a device.

    Raises:
        ValueError: It cannot, or the environment variable holds another word.
    """
    if chosen() not in DEVICES:
        return
    name, found = find(device_type)
    if found.module is None:
        raise ValueError(f"the {name} implementation of the loss is not available: {found.reason}")


def implementation(student: Tensor, *teachers: Tensor) -> Implementation | None:
    """Fused implementation for a student's logits and those that teach it, None for PyTorch.

    Raises:
        ValueError: One was asked for by name and is not to be had.
    """
    fitting = all(logits.dtype in KERNEL_DTYPES for logits in (student, *teachers))
    return _usable(student.device.type) if fitting and student.numel() else None


def _usable(device_type: str) -> Implementation | None:
    name, found = find(device_type)
    if found.module is None and name != "tensor":
        check_chosen(device_type)
        _announce(name, found.reason)
    return found.module


# `torch.compile` asks once, when it traces. This is all that `torch.compiler.assume_constant_result` does, but for
# importing the whole compiler, which takes longer than torch itself.
_usable._dynamo_marked_constant = True  # type: ignore[attr-defined]


def by_name(name: str) -> Implementation:
    """A fused implementation that :func:`implementation` has given before."""
    module = (find_cpu() if name == "cpu" else find_triton()).module
    assert module is not None
    return module


@lru_cache(maxsize=4)
def _announce(name: str, reason: str) -> None:
    warnings.warn(
        f"fuzzy positive loss without its {name} kernel: {reason}; plain PyTorch computes the same values several "
        f"times slower. `fpl doctor` tells more; {VARIABLE}=tensor silences this",
        stacklevel=5,
    )


def describe(device_type: str) -> tuple[bool, str]:
    """Whether a fused implementation computes logits of a device, and one line that says which and why."""
    name, found = find(device_type)
    if found.module is None:
        if chosen() in DEVICES:
            return False, f"nothing: {VARIABLE} is {name}, and {found.reason}"
        return False, f"PyTorch: {found.reason}" if name == "tensor" else f"PyTorch, without {name}: {found.reason}"
    return True, f"{name} kernel ({found.reason})"


def available(name: str) -> bool:
    """Whether a fused implementation, ``cpu`` or ``triton``, can be had on this machine."""
    return (find_cpu() if name == "cpu" else find_triton()).module is not None
