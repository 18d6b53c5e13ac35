"""What benchmarks of whole steps share: contestants take turns in one process, and a table is kept as CSV."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from fpl.files import write_atomic
from fpl.sweep.plan.capacity import processor_name

Step = Callable[[], None]


def seconds(step: Step, device: torch.device) -> float:
    """How long one step takes; on a CPU those of this process, so that other programs do not count."""
    if device.type == "cpu":
        began = time.process_time()
        step()
        return time.process_time() - began
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    step()
    torch.cuda.synchronize(device)
    return time.perf_counter() - began


def measure(steps: Mapping[str, Step], device: torch.device, rounds: int) -> dict[str, list[float]]:
    """Seconds of every contestant in every round, after one that does not count."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for number in range(rounds + 1):
        # Each begins a round in its turn, and every other round goes backwards.
        order = names[number % len(names) :] + names[: number % len(names)]
        for name in order if number % 2 == 0 else reversed(order):
            took = seconds(steps[name], device)
            if number:
                times[name].append(took)
            print(f"\rround {number}/{rounds}  {name}: {took:.2f} s          ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return times


def machine_of(device: torch.device) -> str:
    """What the figures are of."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{processor_name()}, 1 thread, torch {torch.__version__}"


def write_rows(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Write rows of the same columns as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(path, text.getvalue().encode())
