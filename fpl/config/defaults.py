"""Defaults of how runs are carried out, which the command line and the training loop share."""

from __future__ import annotations

# Steps between diagnostics of the pixel loss: they cost less than 2 % of a step (`benchmarks/diagnostics.py`).
DIAGNOSE_EVERY = 50
# Pixels that a validation sends through the network at once, by device, if a single image or window does not have more:
# small images are as good as free in company; large ones gain little by it, and their logits fill the memory. On a CPU
# more than this, which no longer fits into its caches, is slower again.
BATCH_PIXELS = {"cpu": 2**18, "cuda": 2**22}
