"""A Ray cluster: what it holds, and whether all its nodes see what the runs need.

Importing this module does not import Ray.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from fpl.config.weights import WEIGHTS_VARIABLE
from fpl.errors import FplError
from fpl.files import write_atomic
from fpl.sweep.execution import Execution, Launcher
from fpl.sweep.nodes import differences, look_around
from fpl.sweep.places import Places

# Seconds for one node to look at its folders.
NODE_PATIENCE = 60.0


@dataclass(frozen=True)
class Slots:
    """What one run needs.

    Attributes:
        launcher: `inline`: one process, reused; `gang`: a warm group of workers that takes run after run; `train`: a
            fresh group of workers for every run.
        workers: Processes that share a run; 1 with `inline`.
        cpus_per_worker: CPUs that Ray sets aside for each; 0, which `inline` does not allow, shares those of others.
        gpus_per_worker: GPUs that Ray sets aside for each.
    """

    launcher: Launcher
    workers: int = 1
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0

    def __post_init__(self) -> None:
        some = self.cpus_per_worker > 0 or (self.launcher != "inline" and self.cpus_per_worker == 0)
        if self.workers < 1 or not some or self.gpus_per_worker < 0:
            raise FplError(f"a run needs workers and CPUs, asked for {self.words()}", where="--workers")
        if self.launcher == "inline" and self.workers > 1:
            raise FplError(
                f"{self.workers} workers cannot share a run in one process",
                where="--launcher inline",
                hint="use the launcher gang or train",
            )
        if self.workers > 1 and self.gpus_per_worker % 1:
            raise FplError(
                f"{self.gpus_per_worker:g} GPUs for each of {self.workers} workers",
                where="--gpus-per-worker",
                hint="workers that share a run need whole GPUs; a single one may do with a part",
            )

    @classmethod
    def of(cls, execution: Execution, gang: bool = False) -> Slots:
        """What a run gets; with `gang`, one that the scale wants in a gang."""
        launcher: Launcher = "gang" if gang else execution.launcher
        workers = execution.gang_workers if gang else 1 if launcher == "inline" else execution.workers
        cpus = execution.gang_cpus_per_worker if gang else None
        return cls(launcher, workers, execution.cpus_per_worker if cpus is None else cpus, execution.gpus_per_worker)

    @property
    def held(self) -> dict[str, float]:
        """What Ray sets aside for a worker, by its names. It has to be something: a byte of memory then."""
        named = {"CPU": self.cpus_per_worker, "GPU": self.gpus_per_worker}
        return {name: number for name, number in named.items() if number} or {"memory": 1}

    def words(self) -> str:
        """For messages: `2 workers with 1 CPU and 0 GPUs each`."""
        shares = f"{_count(self.cpus_per_worker, 'CPU')} and {_count(self.gpus_per_worker, 'GPU')}"
        return f"1 worker with {shares}" if self.workers == 1 else f"{self.workers} workers with {shares} each"


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    node_id: str
    address: str
    cpus: float
    gpus: float

    def room(self, slots: Slots) -> int:
        """Workers that fit onto it."""
        rooms = []
        if slots.cpus_per_worker:
            rooms.append(self.cpus / slots.cpus_per_worker)
        if slots.gpus_per_worker:
            rooms.append(self.gpus / slots.gpus_per_worker)
        # Shares such as 0.1 are not exact. Workers that hold nothing share the cores of others: one run a node.
        return int(min(rooms) + 1e-6) if rooms else slots.workers


class Cluster:
    """The Ray cluster that this process is connected to.

    Args:
        shared: Whether other machines may belong to it, so that its nodes must be asked what they see.
    """

    def __init__(self, shared: bool) -> None:
        self.shared = shared
        self._checked: set[Places] = set()

    @property
    def nodes(self) -> list[Node]:
        """The nodes that are alive now."""
        import ray

        return [
            Node(
                node["NodeID"],
                node["NodeManagerAddress"],
                float(node["Resources"].get("CPU", 0)),
                float(node["Resources"].get("GPU", 0)),
            )
            for node in ray.nodes()
            if node["Alive"]
        ]

    def describe(self) -> str:
        """For the user: `2 CPUs, 0 GPUs on 1 node`."""
        return capacity_words(self.nodes)

    def concurrency(self, slots: Slots) -> int:
        """Runs that fit at once.

        Raises:
            FplError: Not even one does.
        """
        return runs_at_once(self.nodes, slots)

    def check(self, slots: Slots, places: Places) -> None:
        """Refuse at once what could only fail or wait for ever.

        Raises:
            FplError: Not one run fits, or a node sees other folders or software than this process.
        """
        self.concurrency(slots)
        nodes, places = self.nodes, absolute(places)
        if (self.shared or len(nodes) > 1) and places not in self._checked:
            self._check_folders(nodes, places)
            self._checked.add(places)

    def _check_folders(self, nodes: list[Node], places: Places) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        marker = f".fpl-check-{secrets.token_hex(8)}"
        path = places.out / marker
        write_atomic(path, secrets.token_hex(16).encode())
        try:
            expected = look_around("this process", places, marker)
            look = ray.remote(num_cpus=0, max_retries=0)(look_around)
            answers = [
                look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False)).remote(
                    node.address, places, marker
                )
                for node in nodes
            ]
            ray.wait(answers, num_returns=len(answers), timeout=NODE_PATIENCE)
            views, problems = [], []
            for node, answer in zip(nodes, answers, strict=True):
                try:
                    views.append(ray.get(answer, timeout=0))
                except ray.exceptions.RayError as error:
                    if node in self.nodes:  # otherwise it died meanwhile, and no run will be sent there
                        problems.append(f"node {node.address}: no answer ({first_line(error)})")
        finally:
            path.unlink(missing_ok=True)
        problems += [problem for view in views for problem in differences(expected, view, places)]
        if problems:
            raise FplError(
                "\n".join(problems),
                where="nodes of the cluster",
                hint="all nodes need the same package, and the folders of results, data, splits and weights on a file "
                "system that they share, under the same paths",
            )


def capacity_words(nodes: list[Node]) -> str:
    """For messages: `2 CPUs, 0 GPUs on 1 node`."""
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    return f"{_count(cpus, 'CPU')}, {_count(gpus, 'GPU')} on {_count(len(nodes), 'node')}"


def runs_at_once(nodes: list[Node], slots: Slots) -> int:
    """Runs that fit onto the nodes at once; the workers of a run may lie on several nodes.

    Raises:
        FplError: Not even one does.
    """
    room = sum(node.room(slots) for node in nodes)
    if room < slots.workers:
        raise FplError(
            f"asked for {slots.words()}; available: {capacity_words(nodes)}, room for {_count(room, 'such worker')}",
            where="--workers, --cpus-per-worker, --gpus-per-worker",
            hint="ask for less, or add nodes",
        )
    return room // slots.workers


def absolute(places: Places) -> Places:
    """The same folders for processes that have another working folder and another environment."""
    weights = places.weights_dir or os.environ.get(WEIGHTS_VARIABLE)
    return Places(
        places.out.absolute(),
        places.data_root.absolute(),
        places.splits_root.absolute(),
        Path(weights).absolute() if weights else None,
    )


def _count(number: float, word: str) -> str:
    return f"{number:g} {word}" if number == 1 else f"{number:g} {word}s"


def first_line(error: BaseException) -> str:
    """What an error says first, or of which kind it is where it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
