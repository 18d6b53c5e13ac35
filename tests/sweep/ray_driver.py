"""A driver to be killed: python -m tests.sweep.ray_driver OUT DATA SPLITS RUN_TOML RUNS STEPS

Trains the runs that the store lacks, one at a time, and says on stdout what happens.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fpl.config.compose import load_config
from fpl.store.write import run_path
from fpl.sweep.execution import Execution
from fpl.sweep.job import JobResult
from fpl.sweep.launch.tune_driver import run_on_ray
from fpl.sweep.places import Places
from fpl.sweep.session import ray_session
from tests.sweep.ray_support import Recorder, job_of


class Printer(Recorder):
    def started(self, run_id: str) -> None:
        print("started", run_id, flush=True)

    def reported(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        print("reported", run_id, step, flush=True)

    def ended(self, result: JobResult) -> None:
        print("ended", result.run_id, result.status, flush=True)


def main() -> None:
    out, data, splits, run_file = map(Path, sys.argv[1:5])
    runs, steps = map(int, sys.argv[5:7])
    places = Places(out, data, splits)
    jobs = [job_of(load_config(run_file), places, seed=seed, steps=steps) for seed in range(runs)]
    left = [job for job in jobs if not run_path(out, job.run_id).exists()]
    with ray_session(None, cpus=1) as cluster:
        run_on_ray(left, Execution(), cluster, Printer())


if __name__ == "__main__":
    main()
