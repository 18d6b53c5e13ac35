"""What the command line shares with the modules behind it, and needs before it loads any of them."""

from __future__ import annotations

from typing import Literal

# Steps between diagnostics of the pixel loss: they cost less than 2 % of a step (`benchmarks/diagnostics.py`).
DIAGNOSE_EVERY = 50
# CPU threads of torch: more than any machine has cores; far beyond, OpenMP ends the process without a word.
MOST_THREADS = 1024

# Which rows of the tables: those that the paper measured, or the suite's own (controls) too.
Rows = Literal["paper", "all"]
