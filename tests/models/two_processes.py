"""Run a worker script in two processes that share a batch, and read what each of them left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

REPOSITORY = Path(__file__).resolve().parents[2]


def run_two(worker: Path, folder: Path) -> list[dict]:
    """Call `python WORKER FOLDER RANK` for both ranks; each writes FOLDER/rank{RANK}.pt."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen(
            [sys.executable, str(worker), str(folder), str(rank)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate()[0] for process in workers]
    finally:
        for process in workers:
            process.kill()
    assert [process.returncode for process in workers] == [0, 0], "\n".join(outputs)
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
