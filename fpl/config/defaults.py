"""What the command line shares with the modules behind it, and needs before it loads any of them."""

from __future__ import annotations

from typing import Literal

# Steps between diagnostics of the pixel loss: they cost less than 2 % of a step (`benchmarks/diagnostics.py`).
DIAGNOSE_EVERY = 50
# CPU threads of torch: more than any machine has cores; far beyond, OpenMP ends the process without a word.
MOST_THREADS = 1024
# Processes that read images for one worker: each takes some 100 MB, and a machine that has none left kills others.
MOST_LOADER_WORKERS = 256
# Seeds, of whatever: beyond, torch and Optuna have none. Indices of splits stand beside them.
MOST_SEED = 2**31 - 1
# Runs of a cell or of a trial. A plan of all tables makes each as a value: of so many, in half a minute and 0.3 GB.
MOST_RUNS = 200
MOST_STEPS = 10**9
# Of a search, and hours of its budget: a hundred years.
MOST_TRIALS, MOST_HOURS = 100_000, 10**6
# Processes that share a run: no batch has more images.
MOST_WORKERS = 4096
# Of one process; and of all machines together, cores as well, or runs at once.
MOST_GPUS, MOST_DEVICES = 64, 10**6
# Images of which a run keeps pictures.
MOST_PICTURES = 1000
# Of a network, and pixels of a side.
MOST_CHANNELS, MOST_DEPTH, MOST_SIDE = 65_536, 1000, 8192

# Repetitions of one run with one seed, for the noise floor.
REPEATS = 3
# Columns of what is printed into a file; a terminal decides itself.
FILE_WIDTH = 120

# Which rows of the tables: those that the paper measured, or the suite's own (controls) too.
Rows = Literal["paper", "all"]

# How Optuna proposes trials; `grid` tries the paper's own settings and nothing else.
Sampler = Literal["tpe", "random", "gp", "grid"]
# What ends a trial before its last step.
Stop = Literal["asha", "median", "none"]
# What trials are compared on: the validation images, as in the paper, or a part of the labeled ones, which are then not
# trained on.
Images = Literal["val", "holdout"]

# Pixels that a validation sends through the network at once, by device, if a single image or window does not have more:
# small images are as good as free in company; large ones gain little by it, and their logits fill the memory. On a CPU
# more than this, which no longer fits into its caches, is slower again.
BATCH_PIXELS = {"cpu": 2**18, "cuda": 2**22}
# Why a cell of a cited row is not run: there is nothing to run, or only the rows that the paper measured were wanted.
CITED, CITED_HERE = "cited", "cited; --rows all trains it here too"
