"""Memory of a process that carries out run after run."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

import pytest
import torch

from fpl.sweep.launch.inline import give_memory_back


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_what_the_thread_of_a_run_has_freed_goes_back_to_the_system() -> None:
    size, count = 16_000, 4_000
    kept: list[torch.Tensor] = []

    def train() -> None:
        for_a_while = [torch.ones(size) for _ in range(count)]
        # Above what is freed: the heap does not get smaller by itself.
        kept.append(torch.ones(16))
        del for_a_while

    before = resident()
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    freed = resident() - before
    assert freed > 3 * size * count
    give_memory_back()
    assert resident() - before < freed / 4
