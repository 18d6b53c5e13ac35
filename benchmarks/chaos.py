"""A campaign under fire: something of it is killed every few seconds, and its command given again, until all is done.

What is killed (SIGKILL) is drawn at random: a process that trains, Ray's raylet with all that runs under it (a node),
its global control store, the command itself, or all of it at once. Afterwards every run must be there, equal to the
last bit to the committed one, and no run that was done may have been trained again.

    python benchmarks/chaos.py [--minutes 10] [--seed 0] [--out FOLDER] [--csv FILE] [CELLS...]

Without cells those of Tables 1, 4 and A5 at scale mini. After the minutes it lets the campaign end undisturbed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

import fpl

CELLS = ("table1", "table4", "table_a5")
VICTIMS = ("worker", "node", "control store", "command", "everything")
# Seconds between two blows: from before Ray has started to several runs later.
PAUSES = (3.0, 25.0)
PATIENCE = 3600.0
# How a command that was struck may end: to be given again, or killed itself.
ALLOWED = (2, -signal.SIGKILL)


@dataclass
class Fight:
    """What was struck and what was seen.

    Attributes:
        blows: How often which victim was killed.
        missed: Blows for which there was no such victim at that moment.
        commands: How often the command was given.
        done: When the file of each finished run was first seen, and its time of writing.
        again: Runs whose file was written a second time.
    """

    blows: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    commands: int = 0
    done: dict[str, int] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)

    def look(self, out: Path) -> None:
        """Note the runs that are done."""
        for path in (out / "runs").glob("[!.]*.parquet"):
            with contextlib.suppress(FileNotFoundError):
                written = path.stat().st_mtime_ns
                if self.done.setdefault(path.stem, written) != written:
                    self.again.add(path.stem)


def main() -> None:
    """Fight, then count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("cells", nargs="*", default=list(CELLS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/chaos"))
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    shutil.rmtree(asked.out, ignore_errors=True)
    fight, began = Fight(), time.monotonic()
    command = [sys.executable, "-m", "fpl", "reproduce", *asked.cells, "--scale", "mini", "--out", str(asked.out)]
    carry_on(command, asked.out, fight, random.Random(asked.seed), began + 60 * asked.minutes)
    seconds = time.monotonic() - began
    frame = counted(fight, asked.out, seconds)
    print(frame.to_string(index=False))
    if asked.csv:
        frame.to_csv(asked.csv, index=False)
    if fight.again or frame["differ"].iloc[0]:
        raise SystemExit("some runs were trained twice, or ended otherwise than the committed ones")


def carry_on(command: list[str], out: Path, fight: Fight, chance: random.Random, until: float) -> None:
    """Give the command until it ends by itself with all runs done, striking at random before `until`."""
    ends = until + PATIENCE
    while time.monotonic() < ends:
        fight.commands += 1
        # What a command says, in a file beside the store: a pipe that nobody reads would stop it.
        words = out.with_name(f"{out.name}-{fight.commands}.log")
        words.parent.mkdir(parents=True, exist_ok=True)
        with (
            words.open("w") as said,
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True) as own,
        ):
            while own.poll() is None and time.monotonic() < ends:
                wait(chance.uniform(*PAUSES), own, out, fight)
                if own.poll() is None and time.monotonic() < until:
                    strike(chance.choice(VICTIMS), own.pid, fight)
            sweep(own.pid)
        fight.look(out)
        print(f"{len(fight.done)} runs done, {sum(fight.blows.values())} blows; exit code {own.returncode}", flush=True)
        if own.returncode == 0:
            return
        if own.returncode not in ALLOWED:
            raise SystemExit(f"a blow must not end so; what the command said is in {words}")
    raise SystemExit("the campaign did not end")


def wait(seconds: float, own: subprocess.Popen[bytes], out: Path, fight: Fight) -> None:
    """Let it work, and watch what it finishes."""
    ends = time.monotonic() + seconds
    while own.poll() is None and time.monotonic() < ends:
        fight.look(out)
        time.sleep(0.2)


def strike(victim: str, pid: int, fight: Fight) -> None:
    """Kill one of a kind among the processes below the command."""
    below = descendants(pid)
    found = {
        "worker": [each for each, title in below.items() if title.startswith("ray::")],
        "node": [each for each, title in below.items() if "raylet/raylet" in title],
        "control store": [each for each, title in below.items() if "gcs_server" in title],
        "command": [pid],
        "everything": [pid, *below],
    }[victim]
    if not found:
        fight.missed += 1
        return
    fight.blows[victim] += 1
    for each in found if victim == "everything" else found[:1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def descendants(pid: int) -> dict[int, str]:
    """Processes below one, with their command lines."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    children: dict[int, list[int]] = {}
    titles = {}
    for own, parent, *title in rows:
        children.setdefault(int(parent), []).append(int(own))
        titles[int(own)] = title[0] if title else ""
    found, left = {}, [pid]
    while left:
        for child in children.get(left.pop(), []):
            found[child] = titles[child]
            left.append(child)
    return found


def sweep(session: int) -> None:
    """Wait for what a killed command left behind in its session; Ray's processes end when their parent is gone."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        listed = subprocess.run(["ps", "-eo", "sid=,stat="], capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in listed.splitlines()]
        if not [1 for sid, stat in rows if int(sid) == session and not stat.startswith("Z")]:
            return
        time.sleep(0.5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


def counted(fight: Fight, out: Path, seconds: float) -> pd.DataFrame:
    """One row: what was struck, what came of it, beside the committed runs."""
    stores = [fpl.load_results(folder).runs for folder in (out, Path("results/mini"))]
    runs, known = (dict(zip(frame["run_id"], frame["miou_whole_best"], strict=True)) for frame in stores)
    row = {
        "minutes": round(seconds / 60, 1),
        **{victim: fight.blows[victim] for victim in VICTIMS},
        "missed": fight.missed,
        "commands": fight.commands,
        "runs": len(runs),
        "equal": sum(known.get(name) == value for name, value in runs.items()),
        "differ": sum(name in known and known[name] != value for name, value in runs.items()),
        "trained_twice": len(fight.again),
    }
    return pd.DataFrame([row])


if __name__ == "__main__":
    main()
