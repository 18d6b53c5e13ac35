"""Peak memory of one contestant of `benchmarks/loss.py`."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from loss_cases import SMALL, Shape, make_cases, make_inputs


def status_kib(name: str) -> int:
    """A line of this process's /proc status."""
    found = re.search(rf"^{name}:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def extra_bytes(device: str, shape: Shape, enlarged: bool, index: int) -> int:
    """Peak memory of a contestant above the level with its inputs there; for a process that does nothing else."""
    torch.set_num_threads(1)
    case = make_cases(device, enlarged)[index]
    # Libraries and thread pools are not the loss's.
    case.run(make_inputs(SMALL[0], "late", torch.float32, device, enlarged))
    inputs = make_inputs(shape, "late", torch.float32, device, enlarged)
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        level = torch.cuda.memory_allocated()
        case.run(inputs)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - level
    # Forgets the peak of drawing the inputs.
    Path("/proc/self/clear_refs").write_text("5")
    level = status_kib("VmRSS")
    case.run(inputs)
    return (status_kib("VmHWM") - level) * 1024
