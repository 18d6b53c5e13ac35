"""What a launcher adds to a run: the same tiny runs one after the other, with and without Ray.

    serial      in this process, without Ray
    inline      in one reused Tune trial; x2: in two at once
    pair        each on two plain processes that stay, without Ray
    gang        each on two warm Ray Train workers
    train       each on two fresh Ray Train workers; three runs only

The runs are so short (a few steps on twelve drawn images) that the difference to the way without Ray is the launcher's
own. CPU seconds are those of all processes of the way, Ray's own included.

    python benchmarks/launchers.py [--runs 12] [--steps 6] [--ways pair gang]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from fpl.config.schema import RunConfig
from fpl.data.spec import find_root, get_spec
from fpl.data.splits import make_split, split_folder, write_split
from fpl.data.synthetic import draw_city
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, JobResult, run_job, run_serially
from fpl.sweep.launch.tune_driver import run_on_ray
from fpl.sweep.places import Places
from fpl.sweep.prepare import prepare
from fpl.sweep.session import ray_session

CONFIG = {
    "data": {
        "dataset": "synthetic_city",
        "num_classes": 19,
        "split": {"fraction": "1/4"},
        "crop": [40, 40],
        "labeled_batch": 4,
        "unlabeled_batch": 4,
    },
    "model": {
        "backbone": "tiny",
        "pretrained": "none",
        "aspp_rates": [1, 2, 3],
        "head_channels": 16,
        "low_level_channels": 8,
        "tiny_width": 8,
    },
    "method": {"name": "cps", "cutmix": True, "weight": 1.0},
    "loss": {"kind": "fpl"},
    "optim": {"lr": 0.05},
    "eval": {"protocol": "whole"},
}


@dataclass
class Clock:
    """A watcher that keeps when runs ended, and the CPU seconds of all processes at the end."""

    began: float = field(default_factory=time.monotonic)
    ends: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0

    def started(self, run_id: str) -> None:
        """Nothing to keep."""

    def reported(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        """Nothing to keep."""

    def ended(self, result: JobResult) -> None:
        """A run is over."""
        assert result.status == "done", result
        self.ends.append(time.monotonic() - self.began)

    def note(self, text: str) -> None:
        """Something went wrong, and the numbers with it."""
        print(text)


def tiny_jobs(folder: Path, runs: int, steps: int) -> list[Job]:
    """Runs of different seeds on one drawn data set."""
    draw_city(folder / "synthetic_city", train=12, validation=3, size=(45, 60))
    spec = get_spec("synthetic_city")
    split = make_split(spec, find_root(spec, folder), "every-nth", "1/4")
    write_split(split, split_folder(folder / "splits", "synthetic_city", "every-nth", "1/4"))
    places = Places(folder / "unused", folder, folder / "splits")
    jobs = []
    for seed in range(runs):
        tree = {**CONFIG, "seed": seed, "train": {"steps": steps, "evaluate_every": steps}}
        found = prepare(RunConfig.model_validate(tree), places)
        jobs.append(Job.of(found.config, places, Execution(log_every=steps), device="cpu"))
    return jobs


def work_in_pair(rank: int, port: int, jobs: list[Job], ends: Any) -> None:
    """One of two plain processes that share run after run."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for job in jobs:
        run_job(job)
        dist.barrier()
        if rank == 0:
            ends.put(time.monotonic())
    dist.destroy_process_group()


def in_pair(jobs: list[Job], clock: Clock) -> None:
    """The runs in two plain processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    ends = spawn.Queue()
    pair = [spawn.Process(target=work_in_pair, args=(rank, port, jobs, ends)) for rank in range(2)]
    for process in pair:
        process.start()
    clock.ends += [ends.get() - clock.began for _ in jobs]
    for process in pair:
        process.join()


def on_ray(execution: Execution) -> Callable[[list[Job], Clock], None]:
    """The runs on a Ray of two CPUs."""

    def carry_out(jobs: list[Job], clock: Clock) -> None:
        with ray_session(None, cpus=2) as cluster:
            clock.began = time.monotonic()
            run_on_ray(jobs, execution, cluster, clock)
            clock.cpu_seconds = tree_cpu_seconds()

    return carry_out


def tree_cpu_seconds() -> float:
    """CPU seconds of this process and all its descendants, those that ended included."""
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            stats[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    total, todo = 0, {os.getpid()}
    while todo:
        total += sum(stats[pid][1] for pid in todo)
        todo = {pid for pid, (parent, _) in stats.items() if parent in todo}
    return total / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--ways", nargs="+", help="only these")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ways: dict[str, Callable[[list[Job], Clock], object]] = {
        "serial": run_serially,
        "inline": on_ray(Execution(concurrency=1)),
        "inline x2": on_ray(Execution(concurrency=2)),
        "pair": in_pair,
        "gang": on_ray(Execution(launcher="gang", workers=2, concurrency=1)),
        "train": on_ray(Execution(launcher="train", workers=2, concurrency=1)),
    }
    print(f"{options.runs} runs of {options.steps} steps, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'way':<10} {'first run, s':>13} {'each further, s':>16} {'CPU s per run':>14} {'load':>6}")
    with tempfile.TemporaryDirectory() as folder:
        jobs = tiny_jobs(Path(folder), options.runs, options.steps)
        run_serially([replace(jobs[0], places=replace(jobs[0].places, out=Path(folder) / "warm"))], Clock())
        for way in options.ways or ways:
            carry_out = ways[way]
            places = replace(jobs[0].places, out=Path(folder) / way)
            before, clock = tree_cpu_seconds(), Clock()
            chosen = [replace(job, places=places) for job in jobs[: 3 if way == "train" else None]]
            carry_out(chosen, clock)
            spent = (clock.cpu_seconds or tree_cpu_seconds()) - before
            first, last = clock.ends[0], clock.ends[-1]
            further = (last - first) / (len(chosen) - 1)
            load = os.getloadavg()[0]
            print(f"{way:<10} {first:13.2f} {further:16.2f} {spent / len(chosen):14.2f} {load:6.1f}", flush=True)


if __name__ == "__main__":
    main()
