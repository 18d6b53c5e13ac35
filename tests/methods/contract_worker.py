"""One of two processes of test_contract.py that train each example of each method together, one after the other.

Usage: python contract_worker.py RUN_FILE OUT DATA_ROOT PORT..., with the variables of a process group but its port set.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from fpl.sweep.places import Places
from tests.methods.examples import EXAMPLES
from tests.train.runs import run


def main(run_file: Path, out: Path, data_root: Path, ports: list[str]) -> None:
    torch.set_num_threads(1)
    # A group of its own for each: one that begins where another ends could meet the other's port.
    for example, port in zip(EXAMPLES, ports, strict=True):
        os.environ["MASTER_PORT"] = port
        run(example.config(run_file), Places(out / str(example), data_root, data_root / "splits"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), sys.argv[4:])
