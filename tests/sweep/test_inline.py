"""Memory of a process that carries out run after run."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

# In a process of its own: the heaps of one that has run other tests hold free memory, which a thread takes first.
TRAIN = """
import os, sys, threading
import torch
from fpl.sweep.launch.inline import give_memory_back

def resident():
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1]) * os.sysconf("SC_PAGESIZE")

kept = []
def train():
    for_a_while = [torch.ones(16_000) for _ in range(4_000)]
    # Above what is freed: the heap does not get smaller by itself.
    kept.append(torch.ones(16))
    del for_a_while

before = resident()
thread = threading.Thread(target=train)
thread.start()
thread.join()
print(resident() - before)
give_memory_back()
print(resident() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_what_the_thread_of_a_run_has_freed_goes_back_to_the_system() -> None:
    told = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True, timeout=120)
    freed, left = map(int, told.stdout.split())
    assert freed > 3 * 16_000 * 4_000
    assert left < freed / 4
