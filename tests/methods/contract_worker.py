"""One of two processes of test_contract.py that train each example of each method together, one after the other.

Usage: python contract_worker.py RUN_FILE OUT DATA_ROOT, with the variables of a process group set.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from fpl.sweep.places import Places
from tests.methods.examples import EXAMPLES
from tests.train.runs import run


def main(run_file: Path, out: Path, data_root: Path) -> None:
    torch.set_num_threads(1)
    for example in EXAMPLES:
        run(example.config(run_file), Places(out / str(example), data_root, data_root / "splits"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
