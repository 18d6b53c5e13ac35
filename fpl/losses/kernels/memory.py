"""Memory for gradients that is used again.

A tensor of the size of full-resolution logits comes from the system anew each time, and the first touch of its pages
costs a CPU a fifth of what computing the loss does. So the last gradient's memory is kept for the next one: one block
per process, the size of one gradient.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref

import torch
from torch import Tensor

# Smaller tensors come from an allocator that keeps its memory anyway.
LEAST = 1 << 20

# At most one block, which no tensor uses.
_kept: list[mmap.mmap] = []


def empty_like(tensor: Tensor) -> Tensor:
    """Make an uninitialised CPU tensor as ``torch.empty_like`` does, in kept memory if it is large."""
    size = tensor.numel() * tensor.element_size()
    if size < LEAST or not hasattr(mmap, "MAP_ANONYMOUS"):
        return torch.empty_like(tensor)
    strides = torch.empty_like(tensor, device="meta").stride()
    return _lease(size, tensor.dtype).as_strided(tensor.shape, strides)


def _lease(size: int, dtype: torch.dtype) -> Tensor:
    """Flat tensor of some bytes; when the last tensor that shares its memory goes, the memory comes back."""
    block = _take(size)
    owner = (ctypes.c_char * size).from_buffer(block)
    weakref.finalize(owner, _give_back, block).atexit = False
    # The tensor's storage owns `owner`, and autograd may share the storage as it likes.
    return torch.frombuffer(owner, dtype=dtype)


def _take(size: int) -> mmap.mmap:
    try:
        block = _kept.pop()
    except IndexError:
        pass
    else:
        # A much larger block is not held by a small tensor.
        if size <= len(block) <= 2 * size:
            return block
    # Not Python's default, memory that is shared with forked processes: it never has large pages.
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


def _give_back(block: mmap.mmap) -> None:
    _kept[:] = [block]
