"""How long a large store takes to read, file by file and compacted, and how much memory.

Writes a store of real configurations with made-up numbers, then asks for it in a process of its own each time:
`fpl.load_results` (runs and history), `fpl results`, `fpl tables`, `fpl plan`.

    python benchmarks/store.py [--runs 10000] [--history 100] [--out FOLDER] [--csv results/benchmarks/store.csv]

Most of its time goes into reading them file by file. A store that is there is used again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rounds import write_rows
from store_writer import AGE, SCALE, seeds_of, write_store

from fpl.store.compact import FOLDER, compact
from fpl.store.parts import files_of
from fpl.store.schema import RUNS
from fpl.sweep.plan.capacity import processor_name
from fpl.text import table

LOAD = "import sys, fpl; r = fpl.load_results(sys.argv[1]); print(len(r.runs), len(r.history))"
# Runs that ended since the store was compacted.
NEWER = 50


def main() -> None:
    """Write, read, print, and write the table if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=10_000, help="A few more, for whole seeds.")
    parser.add_argument("--history", type=int, default=100, help="Rows of a run.")
    parser.add_argument("--rounds", type=int, default=3, help="Of which the median is taken; one file by file.")
    parser.add_argument("--out", type=Path, help="Folder of the store; else one that is removed.")
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = asked.out or Path(temporary) / "store"
        seeds = seeds_of(asked.runs)
        if not (out / RUNS).is_dir():
            write_store(out, seeds, asked.history)
        runs = len(files_of(out, RUNS))
        rows = measure(out, seeds, asked.rounds)
    print(f"{runs} runs with {asked.history} rows of history each; {processor_name()}")
    print(table(rows))
    if asked.csv:
        write_rows(asked.csv, rows)


def measure(out: Path, seeds: int, rounds: int) -> list[Mapping[str, str]]:
    """A row for each state of the store and command."""
    commands = {
        "load_results": ["-c", LOAD, str(out)],
        "fpl results": ["-m", "fpl", "results", "--out", str(out)],
        "fpl tables": ["-m", "fpl", "tables", "--scale", SCALE, "--results", str(out)],
        "fpl plan": ["-m", "fpl", "plan", "--rows", "all", "--seeds", str(seeds), "--out", str(out)],
    }
    rows: list[Mapping[str, str]] = []
    for state in ("file by file", "compacted", f"{NEWER} newer"):
        if state == "file by file":
            shutil.rmtree(out / FOLDER, ignore_errors=True)
        elif state == "compacted":
            began, used = time.perf_counter(), time.process_time()
            compact(out)
            rows.append(_row(state, "(compacting)", [(time.perf_counter() - began, time.process_time() - used, 0)]))
        else:
            for path in [path for folder in out.iterdir() for path in sorted(folder.glob("*.parquet"))[:NEWER]]:
                # Another time is another version.
                os.utime(path, (path.stat().st_mtime - AGE, path.stat().st_mtime - AGE))
        for name, command in commands.items():
            found = [run(command) for _ in range(1 if state == "file by file" else rounds)]
            rows.append(_row(state, name, found))
            print(f"{state}: {name}: {rows[-1]['seconds']} s", file=sys.stderr, flush=True)
    return rows


def run(command: Sequence[str]) -> tuple[float, float, int]:
    """Seconds, seconds of a core and peak bytes of a Python process that has to succeed, without what it prints."""
    began = time.perf_counter()
    with Path(os.devnull).open("wb") as nowhere:
        actions = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)]
        child = os.posix_spawn(sys.executable, [sys.executable, *command], os.environ, file_actions=actions)
        _, status, usage = os.wait4(child, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)}: exit code {code}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def _row(state: str, name: str, found: Sequence[tuple[float, float, int]]) -> Mapping[str, str]:
    """The medians; memory of this process is not told."""
    seconds, cores, peak = (statistics.median(column) for column in zip(*found, strict=True))
    memory = f"{peak / 1e9:.2f}" if peak else "-"
    return {
        "store": state,
        "command": name,
        "seconds": f"{seconds:.2f}",
        "core_seconds": f"{cores:.2f}",
        "peak_gb": memory,
    }


if __name__ == "__main__":
    main()
