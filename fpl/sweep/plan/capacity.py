"""What this machine has for runs, and how runs are laid out on it. Imports neither torch nor Ray."""

from __future__ import annotations

import contextlib
import heapq
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fpl.data.parallel import core_count
from fpl.errors import FplError
from fpl.sweep.execution import Execution
from fpl.text import plural, size_text


@dataclass(frozen=True)
class Capacity:
    """Cores and GPUs for runs.

    Attributes:
        cores: CPU cores.
        gpus: GPUs.
        cpu_name: Name of the processor, as the store has it.
        gpu_name: Name of the first GPU; empty without one.
        gpu_memory: Bytes of the smallest GPU; 0 where it is not known.
        nodes: CPUs and GPUs of each machine of a cluster, those that may come too; empty: this machine alone.
        described: What a cluster says of itself.
    """

    cores: int
    gpus: int = 0
    cpu_name: str = ""
    gpu_name: str = ""
    gpu_memory: float = 0.0
    nodes: tuple[tuple[float, float], ...] = ()
    described: str = ""

    def words(self) -> str:
        """`2 cores (Intel ...)` or `8 GPUs (...), 96 cores`; of a cluster what it says."""
        if self.described:
            return self.described
        cores = plural(self.cores, "core", spec="d")
        if not self.gpus:
            return f"{cores} ({self.cpu_name})" if self.cpu_name else cores
        size = f"{size_text(self.gpu_memory)}{' each' if self.gpus != 1 else ''}" if self.gpu_memory else ""
        named = ", ".join(filter(None, (self.gpu_name, size)))
        return f"{plural(self.gpus, 'GPU', spec='d')}{f' ({named})' if named else ''}, {cores}"

    def shortage(self, execution: Execution) -> str:
        """Why not even one run fits, with the remedy; empty if one does."""
        if self.nodes and (room := execution.room(self.nodes)) < execution.workers:
            asked = f"{execution.words()} needed for a run, room for {room}"
            return f"{asked} on {self.described} -> ask for less, or add nodes"
        needs = ((execution.gpus_per_worker, self.gpus, "GPU"), (execution.cpus_per_worker, self.cores, "CPU"))
        for each, there, unit in needs:
            needed = each * execution.workers
            if needed > there:
                remedy = "fewer --workers, another machine, or --address of a Ray cluster that has them"
                asked = f"{plural(needed, unit, spec='g')} needed for a run with {execution.workers} workers"
                return f"{asked}, {there} here -> {remedy}"
        return ""

    def slots(self, execution: Execution) -> int:
        """Runs that fit at once; the workers of a run may lie on several nodes of a cluster."""
        fit = execution.room(self.nodes or [(self.cores, self.gpus)]) // execution.workers
        return min(fit, 1 if execution.local else execution.concurrency or fit)


def capacity(
    cores: int | None = None, gpus: int | None = None, gpu_memory: float | None = None, gpu_name: str | None = None
) -> Capacity:
    """This machine's capacity; what is given replaces what is found."""
    found = gpus_here() if gpus is None or gpus > 0 else []
    return Capacity(
        core_count() if cores is None else cores,
        len(found) if gpus is None else gpus,
        processor_name(),
        gpu_name or (found[0].name if found else ""),
        min((gpu.memory for gpu in found), default=0.0) if gpu_memory is None else gpu_memory,
    )


def known_capacity(
    execution: Execution,
    cores: int | None = None,
    gpus: int | None = None,
    gpu_memory: float | None = None,
    gpu_name: str | None = None,
) -> Capacity | None:
    """What there is for runs: this machine; None where a Ray cluster is joined, which says what it holds when it is."""
    joined = not execution.local and (execution.address or os.environ.get("RAY_ADDRESS"))
    return None if joined else capacity(cores, gpus, gpu_memory, gpu_name)


# Instructions that change how sums of floats are rounded, as the kernel lists them.
FLOAT_INSTRUCTIONS = re.compile(r"(avx|amx|fma|f16c|asimd|sve|bf16|i8mm)\w*|sme\d*")


def instruction_sets(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Vector instructions of this processor, sorted: `avx avx2 f16c fma`; empty where the system does not list them.

    Libraries choose their kernels by these, so that two processors with the same ones usually compute the same bits.
    """
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    listed = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    return " ".join(sorted(word for word in set(listed.split()) if FLOAT_INSTRUCTIONS.fullmatch(word)))


class Gpu(NamedTuple):
    """A GPU of this machine: its name, and its memory in bytes, 0 where the driver does not say."""

    name: str
    memory: float


def gpus_here() -> list[Gpu]:
    """The NVIDIA GPUs that this process may use, asked of the driver's own tool: torch loads for seconds."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        # The tool without a working driver: no GPU that a run could use.
        return []
    rows = [line.rpartition(",") for line in said.splitlines() if line.strip()]
    # In MiB; a device whose memory is the host's names none.
    found = [Gpu(name.strip(), float(size) * 2**20 if size.strip().isdecimal() else 0.0) for name, _, size in rows]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return found if visible is None else _visible(found, visible)


def _visible(found: list[Gpu], visible: str) -> list[Gpu]:
    """Those that CUDA_VISIBLE_DEVICES leaves; of what is named by an identifier only how many there are is known."""
    seen: list[Gpu] = []
    for place, part in enumerate(each.strip() for each in visible.split(",")):
        number = int(part) if part.isdecimal() else place
        # As CUDA has it: what stands behind one that is none is not seen.
        if part in ("", "-1") or number >= len(found):
            break
        seen.append(found[number])
    return seen


def processor_name() -> str:
    """Name of the processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def makespan(seconds: Sequence[float], slots: int) -> float:
    """Wall time of jobs on equal slots, the longest first, each taken by the slot that is free first."""
    if slots < 1:
        raise FplError("no run fits", where="capacity")
    ends = [0.0] * min(slots, len(seconds))
    for each in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends, default=0.0)
