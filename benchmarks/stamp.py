"""Writes a benchmark's table with the commit and the arithmetic that it is of: `stamp.py FROM.csv TO.csv`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd

from fpl.config.identity import ARITHMETIC


def main(source: Path, target: Path) -> None:
    """Write `source` with two more columns as `target`."""
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    # As text: a table's own digits stay.
    frame = pd.read_csv(source, dtype=str, keep_default_na=False)
    frame = frame.assign(commit=commit.stdout.strip(), arithmetic=ARITHMETIC)
    target.write_bytes(frame.to_csv(index=False, lineterminator="\n").encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
