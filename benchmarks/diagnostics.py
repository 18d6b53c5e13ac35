"""What watching the pixels costs a run: the same runs with and without diagnostics, at several distances.

    python benchmarks/diagnostics.py [--steps 100] [--rounds 5] [--csv results/benchmarks/diagnostics.csv]

Runs FPL+CPS with CutMix and FPL+AEL at scale mini, and FPL+CPS at a stride of 1, on drawn scenes with one thread, the
ways taking turns, and prints the median over rounds of each way's CPU time over that of the run without diagnostics in
the same round. Reading the labels of unlabeled images is part of it. About six minutes.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import torch

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.spec import find_root, get_spec
from fpl.data.splits import make_split, split_folder, write_split
from fpl.data.synthetic import draw_city
from fpl.files import write_atomic
from fpl.losses import kernels
from fpl.sweep.local import run_local
from fpl.sweep.places import Places
from fpl.sweep.plan.capacity import processor_name
from fpl.text import table
from fpl.train.options import LoopOptions

BASE = Path(__file__).parents[1] / "experiments" / "base"
RUNS = {
    "FPL+CPS, CutMix": ("synthetic_city_fpl.toml", []),
    "FPL+CPS, CutMix, every pixel": ("synthetic_city_fpl.toml", ["loss.stride=1"]),
    "FPL+AEL": ("synthetic_city_fpl_ael.toml", []),
}
EVERY = (50, 10)
TARGET = 1.02


def seconds(config: RunConfig, places: Places, every: int) -> float:
    """CPU seconds of one run; 0 for no diagnostics."""
    options = LoopOptions(log_every=10, checkpoint_every=10**6, diagnose_every=every)
    began = time.process_time()
    run_local(config, places, device="cpu", options=options, say=lambda text: None, stream=io.StringIO())
    return time.process_time() - began


def measure(folder: Path, steps: int, rounds: int) -> list[dict[str, str]]:
    """One row per kind of run and distance."""
    rows = []
    for label, (recipe, changes) in RUNS.items():
        overrides = [f"train.steps={steps}", f"train.evaluate_every={steps}", "model.pretrained=none", *changes]
        config = load_config(BASE / recipe, scale="mini", overrides=overrides)
        times: dict[int, list[float]] = {every: [] for every in (0, *EVERY)}
        for number in range(rounds):
            print(f"\r{label}: round {number + 1} of {rounds}", end="", file=sys.stderr)
            for every in times:
                places = Places(folder / f"{label} {number} {every}", folder, folder / "splits")
                times[every].append(seconds(config, places, every))
        print(file=sys.stderr)
        for every in EVERY:
            ratio = statistics.median(a / b for a, b in zip(times[every], times[0], strict=True))
            step = 1e3 * statistics.median(times[0]) / steps
            met = "yes" if ratio <= TARGET else "no"
            rows.append(
                {
                    "run": label,
                    "diagnostics every": str(every),
                    "ms per step without": f"{step:.1f}",
                    "ratio": f"{ratio:.3f}",
                    "target": str(TARGET),
                    "met": met,
                }
            )
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{processor_name()}, one thread, torch {torch.__version__}; {kernels.describe('cpu')[1].split(' (')[0]}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        draw_city(folder / "synthetic_city")
        split = make_split(
            get_spec("synthetic_city"), find_root(get_spec("synthetic_city"), folder), "every-nth", "1/8"
        )
        write_split(split, split_folder(folder / "splits", "synthetic_city", "every-nth", "1/8"))
        rows = measure(folder, arguments.steps, arguments.rounds)
    print(table(rows))
    if arguments.csv:
        text = pd.DataFrame(rows).assign(machine=processor_name(), torch=torch.__version__).to_csv(index=False)
        write_atomic(arguments.csv, text.encode())
        print(f"written to {arguments.csv}")


if __name__ == "__main__":
    main()
