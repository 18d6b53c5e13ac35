"""Many nodes: what the driver takes for a run, and how long it takes until all nodes have said what they see.

    python benchmarks/nodes.py [--nodes 8 ...] [--runs 1000] [--per-node 1] [--csv FILE]

Clusters of so many nodes, simulated on this machine by Ray, and runs that do nothing: what is left is the driver's
scheduling. CPU milliseconds are those of the driver's process alone, a row for each quarter of the runs: they should
not grow. The seconds of the preflight are of this machine's cores, which start a process for every node; real nodes
each start their own, which takes each what is said of one: CPU seconds of the whole machine over the nodes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster as RayNodes
from rounds import write_rows

from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, JobResult
from fpl.sweep.launch import tune_driver
from fpl.sweep.launch.inline import InlineTrial
from fpl.sweep.launch.mailbox import Ended
from fpl.sweep.places import Places
from fpl.sweep.plan.capacity import processor_name
from fpl.sweep.session import authentication, environment, ray_session
from fpl.text import table

STORE_BYTES = 100 * 2**20
QUARTERS = 4


class NoWork(InlineTrial):
    """Its jobs are over when they begin."""

    def _carry_out(self, job: Job) -> None:
        self._events.put(Ended(JobResult(job.run_id, "done", metrics={}).plain()))


class Stopwatch:
    """Notes the driver's CPU seconds at the end of every run."""

    def __init__(self) -> None:
        self.ends = [time.process_time()]

    def started(self, run_id: str) -> None:
        """Nothing."""

    def reported(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        """Nothing."""

    def ended(self, result: JobResult) -> None:
        """One more."""
        self.ends.append(time.process_time())
        print(f"\r{len(self.ends) - 1} runs  ", end="", flush=True)

    def note(self, text: str) -> None:
        """What else is said."""
        print(text)


def main() -> None:
    """Measure, print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, nargs="+", default=[8])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--per-node", type=int, default=1, help="runs at once on a node")
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    rows = []
    for count in asked.nodes:
        with (
            tempfile.TemporaryDirectory(prefix="fpl-nodes-") as folder,
            environment(authentication() | {"RAY_USAGE_STATS_ENABLED": "0"}),
        ):
            rows += measured(Path(folder), count, asked.runs, asked.per_node)
    print(f"\n{processor_name()}, ray {ray.__version__}\n{table(rows)}")
    if asked.csv:
        write_rows(asked.csv, rows)


def measured(folder: Path, count: int, runs: int, per_node: int) -> list[dict[str, str]]:
    """A row for the preflight and one for each quarter of the runs."""
    places = Places(folder / "out", folder, folder)
    places.out.mkdir()
    tune_driver.TRIALS["inline"] = NoWork
    ray._raylet.Config.initialize("")
    size: dict[str, Any] = {"num_cpus": per_node, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    nodes = RayNodes(initialize_head=True, head_node_args=size)
    try:
        for number in range(1, count):
            print(f"\r{number + 1} nodes  ", end="", flush=True)
            nodes.add_node(num_cpus=per_node, object_store_memory=STORE_BYTES)
        with ray_session(nodes.address) as cluster:
            execution, began, busy = Execution(), time.monotonic(), busy_seconds()
            cluster.check(execution, places)
            rows = [row(count, "preflight of all nodes", f"{time.monotonic() - began:.1f} s")]
            rows.append(row(count, "of it, a node", f"{(busy_seconds() - busy) / count:.2f} s of CPU"))
            jobs = [Job(f"no-work-{number:06d}", {}, places, execution) for number in range(runs)]
            watch = Stopwatch()
            tune_driver.run_on_ray(jobs, execution, cluster, watch)
    finally:
        nodes.shutdown()
    for quarter in range(QUARTERS):
        first, last = quarter * runs // QUARTERS, (quarter + 1) * runs // QUARTERS
        each = (watch.ends[last] - watch.ends[first]) / (last - first)
        rows.append(row(count, f"a run, {first + 1} to {last}", f"{1000 * each:.1f} ms of the driver"))
    return rows


def busy_seconds() -> float:
    """CPU seconds that all processes of this machine have taken since it started."""
    user, nice, system = Path("/proc/stat").read_text().split(maxsplit=4)[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def row(nodes: int, what: str, takes: str) -> dict[str, str]:
    """Of the table."""
    return {"nodes": str(nodes), "what": what, "takes": takes}


if __name__ == "__main__":
    main()
