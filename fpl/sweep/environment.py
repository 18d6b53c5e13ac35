"""On what and with what results were made, as a text that is kept beside them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Sequence

import torch

import fpl
from fpl.config.identity import ARITHMETIC
from fpl.data.parallel import core_count
from fpl.sweep.outcome import provenance
from fpl.sweep.plan.capacity import instruction_sets
from fpl.text import duration, timestamp

# An absolute path up to its last name, alone or behind an equals sign.
_FOLDERS = re.compile(r"(?<![^\s=])/(?:[^\s/]+/)*(?=[^\s/])")
PACKAGES = ("torch", "torchvision", "ray", "optuna", "numpy", "pandas", "pyarrow", "pydantic")


def environment(
    command: str, seconds: float, trained: int, devices: Sequence[str] = (), cuda: Sequence[str] = ()
) -> str:
    """Machine, versions, commit and wall time of a campaign, one `key: value` per line.

    Args:
        command: What was typed. Of absolute paths the last name is kept: what is published names nobody's folders.
        seconds: Wall time of carrying the runs out.
        trained: Runs that were trained in that time.
        devices: On what they ran, as their rows have it; none names this machine's processor.
        cuda: Versions of CUDA that those on GPUs ran with.
    """
    where = provenance(torch.device("cpu"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines = {
        "command": _FOLDERS.sub(".../", command),
        "finished": timestamp(),
        "wall time": f"{duration(seconds)} for the {trained} runs of the last call",
        "commit": where["commit"] or "unknown (not a checkout)",
        "arithmetic": str(ARITHMETIC),
        "machine": f"{', '.join(devices) or where['device']}, {core_count()} cores, {memory:.0f} GiB memory",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "cpu instructions": f"{torch.backends.cpu.get_cpu_capability()}; {instruction_sets() or 'not listed'}",
        "packages": ", ".join(
            [f"fpl {fpl.__version__}", *(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)]
        ),
    }
    if cuda:
        lines["cuda"] = ", ".join(cuda)
    return "".join(f"{key}: {value}\n" for key, value in lines.items())
