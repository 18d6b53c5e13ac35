"""What the fuzzy positive loss costs beside the cross-entropy it replaces and beside the authors' algorithm.

    python benchmarks/loss.py time [--rounds 7] [--threads 1] [--small] [--csv results/benchmarks/loss.csv]
    python benchmarks/loss.py memory [--small] [--csv results/benchmarks/loss.csv]

`time`: forward and backward, all contestants alternating in this one process; a ratio is the median of the ratios of
the rounds. On one CPU thread seconds are those of the process, so that other programs do not count. `vanilla` is
`torch.max` + `F.cross_entropy`; "enlarged" rows start from the decoder's logits and enlarge and mix them (CutMix)
first. Then the largest differences from float64, relative for the loss, absolute for weights and gradients.

`memory`: peak above the level with the inputs there, gradient included, in full-size logit tensors; every contestant
in a process of its own. On a GPU where there is one. Rows of the other command and of other devices stay in the CSV.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from loss_cases import (
    DTYPES,
    REGIMES,
    SHAPES,
    SMALL,
    Case,
    Inputs,
    Shape,
    errors,
    implementations,
    k_shares,
    make_cases,
    make_inputs,
)
from loss_memory import extra_bytes

from fpl.files import write_atomic
from fpl.losses import kernels
from fpl.losses.kernels import build

COLUMNS = (
    *("measure", "device", "shape", "dtype", "regime", "input", "case", "implementation"),
    *("against", "value", "target", "met", "ms", "k1", "mean_k", "machine"),
)
SLOW_ROUNDS = 3
# A GPU is asked for this many repetitions at once, so that it and not Python decides.
GPU_REPETITIONS = 20
FUSED = ("cpu", "triton")
Row = dict[str, object]


def shape_name(shape: Shape) -> str:
    """A shape in one word."""
    return "x".join(map(str, shape))


def target_of(row: Row) -> float | None:
    """What a row should not exceed, where anything was asked for."""
    measure, device, against = row["measure"], row["device"], row["against"]
    small = str(row["shape"]) in map(shape_name, SMALL)
    if measure == "error":
        return 3e-6 if row["dtype"] == "float32" else None
    if small or row["case"] != "fpl" or row["implementation"] not in FUSED:
        return None
    enlarged, cpu = row["input"] == "enlarged", device == "cpu"
    if measure == "memory":
        if against == "logits":
            return (0.12 if enlarged else 1.4) if cpu else None
        return 0.1 if enlarged and not cpu else None
    if against == "released":
        return 0.02 if cpu and not enlarged else None
    if enlarged:
        return 0.25 if cpu else 0.5
    if row["dtype"] == "bfloat16":
        return 0.6 if cpu else None
    return (0.7 if row["regime"] == "noise" else 0.5) if cpu else 0.65


def finish(row: Row) -> Row:
    """Add the target and whether it is met, and print the row."""
    target = target_of(row)
    row["target"] = "" if target is None else target
    row["met"] = "" if target is None else ("yes" if float(str(row["value"])) <= target else "no")
    beside = "" if target is None else f"  target {target:g}: {'met' if row['met'] == 'yes' else 'NOT MET'}"
    milliseconds = f"{row['ms']:>9} ms" if row.get("ms") else " " * 12
    name = f"{row['case']} ({row['implementation']})"
    print(f"  {name:26} {milliseconds}  {row['value']:>10} {row['against']:<10}{beside}", flush=True)
    return row


def seconds(case: Case, inputs: Inputs, device: str, threads: int) -> float:
    """Time of one forward and backward."""
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        repetitions = 1 if case.slow else GPU_REPETITIONS
        torch.cuda.synchronize()
        start.record()
        for _ in range(repetitions):
            case.run(inputs)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / repetitions
    clock = time.process_time if threads == 1 else time.perf_counter
    began = clock()
    case.run(inputs)
    return clock() - began


def alternate(cases: list[Case], inputs: Inputs, rounds: int, device: str, threads: int) -> dict[int, list[float]]:
    """Seconds of each contestant by round; in a round they take turns, in changing order."""
    taken: dict[int, list[float]] = {number: [] for number in range(len(cases))}
    for number in range(-1, rounds):
        # The round before the first warms up.
        turn = [i for i, case in enumerate(cases) if not case.slow or 0 <= number < SLOW_ROUNDS]
        shift = number % len(turn)
        for index in turn[shift:] + turn[:shift]:
            spent = seconds(cases[index], inputs, device, threads)
            if number >= 0:
                taken[index].append(spent)
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return taken


def time_group(common: Row, inputs: Inputs, cases: list[Case], rounds: int, threads: int) -> list[Row]:
    """Rows of one shape, dtype, regime and kind of input: each contestant against vanilla and against released."""
    k1, mean_k = k_shares(inputs)
    what = " ".join(str(common[key]) for key in ("shape", "dtype", "regime", "input"))
    print(f"\n{what}: K = 1 in {k1:.1%}, mean K {mean_k:.2f}", flush=True)
    taken = alternate(cases, inputs, rounds, str(common["device"]), threads)
    baselines = {case.name: taken[i] for i, case in enumerate(cases) if case.name in ("vanilla", "released")}
    rows = []
    for index, case in enumerate(cases):
        for against, baseline in baselines.items():
            if against == "released" and case.name != "fpl":
                continue
            # Slow ones have fewer rounds: the pairs end with the shorter.
            ratio = statistics.median(mine / theirs for mine, theirs in zip(taken[index], baseline, strict=False))
            row = common | {"measure": "time", "case": case.name, "implementation": case.implementation}
            row |= {"against": against, "value": f"{ratio:.4f}", "ms": f"{statistics.median(taken[index]) * 1e3:.2f}"}
            rows.append(finish(row | {"k1": f"{k1:.4f}", "mean_k": f"{mean_k:.3f}"}))
    return rows


def measure_time(device: str, shapes: tuple[Shape, ...], rounds: int, threads: int) -> list[Row]:
    """All ratios, then all differences from float64."""
    warm_up(device)
    rows = []
    for shape in shapes:
        for name, dtype in DTYPES.items():
            for enlarged in (False, True):
                for regime in REGIMES[: 2 if enlarged else 3]:
                    common = describe(device, shape, name, regime, enlarged)
                    inputs = make_inputs(shape, regime, dtype, device, enlarged)
                    rows += time_group(common, inputs, make_cases(device, enlarged), rounds, threads)
    print("\nlargest difference from float64")
    for name, dtype in DTYPES.items():
        for regime in (*REGIMES, "huge"):
            common = describe(device, SMALL[0], name, regime, False)
            print(f"{name} {regime}")
            for implementation in implementations(device):
                for what, value in errors(implementation, SMALL[0], regime, dtype, device).items():
                    row = common | {"measure": "error", "case": what, "implementation": implementation}
                    rows.append(finish(row | {"against": "float64", "value": f"{value:.2e}"}))
    return rows


def describe(device: str, shape: Shape, dtype: str, regime: str, enlarged: bool) -> Row:
    """Columns that the rows of a group share."""
    kind = "enlarged" if enlarged else "full"
    return {"device": device, "shape": shape_name(shape), "dtype": dtype, "regime": regime, "input": kind}


def warm_up(device: str) -> None:
    """Build and load whatever is made on first use."""
    for enlarged in (False, True):
        for dtype in DTYPES.values():
            inputs = make_inputs(SMALL[0], "late", dtype, device, enlarged)
            for case in make_cases(device, enlarged):
                case.run(inputs)


def measure_memory(device: str, shapes: tuple[Shape, ...]) -> list[Row]:
    """Peak of every contestant, the inputs float32 and those of a teacher late in training."""
    warm_up(device)
    rows = []
    spawn = multiprocessing.get_context("spawn")
    for shape in shapes:
        unit = 4 * math.prod(shape)
        for enlarged in (False, True):
            common = describe(device, shape, "float32", "late", enlarged) | {"measure": "memory"}
            print(f"\n{common['shape']} {common['input']}: one logit tensor is {unit / 2**20:.1f} MiB", flush=True)
            vanilla = 0
            for index, case in enumerate(make_cases(device, enlarged)):
                with ProcessPoolExecutor(1, spawn) as fresh:
                    extra = fresh.submit(extra_bytes, device, shape, enlarged, index).result()
                vanilla = vanilla if index else extra
                row = common | {"case": case.name, "implementation": case.implementation}
                rows.append(finish(row | {"against": "logits", "value": f"{extra / unit:.3f}"}))
                if case.name == "fpl":
                    rows.append(finish(row | {"against": "vanilla", "value": f"{extra / vanilla:.3f}"}))
    return rows


def machine(device: str, threads: int) -> str:
    """Processor, libraries, compiler and what computes our loss."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    if device == "cuda":
        name = f"{torch.cuda.get_device_name()} ({name})"
    try:
        version = subprocess.run([*build.find_compiler(), "--version"], capture_output=True, text=True, check=True)
        compiler = version.stdout.splitlines()[0]
    except build.BuildError as error:
        compiler = str(error)
    pages = os.environ.get("THP_MEM_ALLOC_ENABLE", "unset")
    return (
        f"{name}, {os.cpu_count()} cores, {threads} thread(s), {torch.backends.cpu.get_cpu_capability()}, "
        f"torch {torch.__version__}, {compiler}, THP_MEM_ALLOC_ENABLE {pages}, "
        f"implementations {' and '.join(implementations(device))}"
    )


def write(path: Path, rows: list[Row], device: str) -> None:
    """Write the rows; those of other measures and devices stay."""
    kept: list[dict[str, str]] = []
    if path.is_file():
        with path.open(newline="") as file:
            kept = list(csv.DictReader(file))
    new = {row["measure"] for row in rows}
    kept = [row for row in kept if row["measure"] not in new or row["device"] != device]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows([*kept, *rows])
    write_atomic(path, text.getvalue().encode())
    print(f"\n{len(rows)} rows written to {path}, {len(kept)} kept")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("time", "memory"))
    parser.add_argument("--rounds", type=int, default=7, help=f"slow contestants: {SLOW_ROUNDS} at most")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="tiny shapes, to see that it works")
    parser.add_argument("--csv", type=Path, help="write the table here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    named = machine(device, options.threads)
    print(f"{named}\nours: {kernels.describe(device)[1]}")
    shapes = SMALL if options.small else SHAPES[device]
    if options.command == "time":
        rows = measure_time(device, shapes, options.rounds, options.threads)
    else:
        rows = measure_memory(device, shapes)
    missed = [row for row in rows if row["met"] == "no"]
    print(f"\n{sum(row['met'] == 'yes' for row in rows)} targets met, {len(missed)} missed")
    if options.csv is not None:
        write(options.csv, [row | {"machine": named} for row in rows], device)


if __name__ == "__main__":
    main()
