"""Run a worker script in two processes that share a batch, and read what each of them left."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from tests import warm


def run_two(worker: Path, folder: Path) -> list[dict]:
    """Call `python WORKER FOLDER RANK` for both ranks; each writes FOLDER/rank{RANK}.pt."""
    results = warm.run_together([[worker, folder, str(rank)] for rank in range(2)], [os.environ] * 2)
    assert [code for code, *_ in results] == [0, 0], results
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
