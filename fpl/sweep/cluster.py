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
from fpl.files import remove, write_atomic
from fpl.sweep.execution import Execution, count_words
from fpl.sweep.nodes import differences, look_around
from fpl.sweep.places import Places

# Seconds for one node to look at its folders.
NODE_PATIENCE = 60.0


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    node_id: str
    address: str
    cpus: float
    gpus: float

    def room(self, execution: Execution) -> int:
        """Workers that fit onto it."""
        return execution.room(self.cpus, self.gpus)


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

    def concurrency(self, execution: Execution) -> int:
        """Runs that fit at once.

        Raises:
            FplError: Not even one does.
        """
        return runs_at_once(self.nodes, execution)

    def check(self, execution: Execution, places: Places) -> None:
        """Refuse at once what could only fail or wait for ever.

        Raises:
            FplError: Not one run fits, or a node sees other folders or software than this process.
        """
        self.concurrency(execution)
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
            remove(path)
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
    return f"{count_words(cpus, 'CPU')}, {count_words(gpus, 'GPU')} on {count_words(len(nodes), 'node')}"


def runs_at_once(nodes: list[Node], execution: Execution) -> int:
    """Runs that fit onto the nodes at once; the workers of a run may lie on several nodes.

    Raises:
        FplError: Not even one does.
    """
    room = sum(node.room(execution) for node in nodes)
    if room < execution.workers:
        raise FplError(
            f"asked for {execution.words()}; available: {capacity_words(nodes)}, "
            f"room for {count_words(room, 'such worker')}",
            where="--workers, --cpus-per-worker, --gpus-per-worker",
            hint="ask for less, or add nodes",
        )
    return room // execution.workers


def absolute(places: Places) -> Places:
    """The same folders for processes that have another working folder and another environment."""
    weights = places.weights_dir or os.environ.get(WEIGHTS_VARIABLE)
    return Places(
        places.out.absolute(),
        places.data_root.absolute(),
        places.splits_root.absolute(),
        Path(weights).absolute() if weights else None,
        places.url,
    )


def first_line(error: BaseException) -> str:
    """What an error says first, or of which kind it is where it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
