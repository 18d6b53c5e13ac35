"""Defaults of how runs are carried out, which the command line and the training loop share."""

from __future__ import annotations

# Steps between diagnostics of the pixel loss: they cost less than 2 % of a step (`benchmarks/diagnostics.py`).
DIAGNOSE_EVERY = 50
# CPU threads of torch: more than any machine has cores; far beyond, OpenMP ends the process without a word.
MOST_THREADS = 1024
