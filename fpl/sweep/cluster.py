"""A Ray cluster: what it holds, and whether all its nodes see what the runs need.

Importing this module does not import Ray.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpl.config.weights import WEIGHTS_VARIABLE
from fpl.errors import FplError
from fpl.sweep.execution import Execution
from fpl.sweep.nodes import differences, look_around, shown
from fpl.sweep.places import Places
from fpl.sweep.plan.capacity import Capacity
from fpl.text import first_line, plural, say

# Seconds within which the next of the nodes says what it sees: many nodes of a busy machine need longer together.
NODE_PATIENCE = 60.0
# Seconds between words about how many have.
NODE_WORDS = 5.0
# As many nodes of a kind as are counted with where an autoscaler has no limit.
NO_LIMIT = 1000


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    node_id: str
    address: str
    cpus: float
    gpus: float


class Cluster:
    """The Ray cluster that this process is connected to.

    Args:
        shared: Whether other machines may belong to it, so that its nodes must be asked what they see.
        left_out: Ids of nodes that cannot do the work.
    """

    def __init__(self, shared: bool, left_out: tuple[str, ...] = ()) -> None:
        self.shared, self.left_out = shared, left_out
        self._checked: set[Places] = set()

    @property
    def nodes(self) -> list[Node]:
        """The nodes that are alive now, without those that are left out."""
        import ray

        return [
            Node(
                node["NodeID"],
                node["NodeManagerAddress"],
                float(node["Resources"].get("CPU", 0)),
                float(node["Resources"].get("GPU", 0)),
            )
            for node in ray.nodes()
            if node["Alive"] and node["NodeID"] not in self.left_out
        ]

    @property
    def to_come(self) -> list[Node]:
        """What the autoscaler may add to the nodes that are alive; nothing where there is none."""
        import ray
        from ray._private.state import state

        config = state.get_cluster_config() if ray.is_initialized() else None
        if config is None:
            return []
        return to_come([(group.resources, group.max_count) for group in config.node_group_configs], self.nodes)

    def describe(self) -> str:
        """For the user: `2 CPUs, 0 GPUs on 1 node`, and what may come to that."""
        more = self.to_come
        return capacity_words(self.nodes) + (f"; more may come, {capacity_words(more)}" if more else "")

    def capacity(self) -> Capacity:
        """For a plan: what the nodes have, and what may come."""
        nodes = tuple((node.cpus, node.gpus) for node in [*self.nodes, *self.to_come])
        cpus, gpus = (int(sum(numbers)) for numbers in zip(*nodes, strict=True))
        return Capacity(cpus, gpus, nodes=nodes, described=self.describe())

    def concurrency(self, execution: Execution) -> int:
        """Runs that fit at once, on the nodes that may come too: what waits for them is what lets them come.

        Raises:
            FplError: Not even one does.
        """
        return runs_at_once([*self.nodes, *self.to_come], execution)

    def check(self, execution: Execution, places: Places, say: Callable[[str], None] = say) -> None:
        """Refuse at once what could only fail or wait for ever; leave out nodes that cannot do the work if others can.

        Args:
            execution: How a run is carried out.
            places: Folders.
            say: Takes a line for each node that is left out.

        Raises:
            FplError: Not one run fits on the nodes that see the same folders and software as this process.
        """
        self.concurrency(execution)
        nodes, places = self.nodes, absolute(places)
        if self.asked and places not in self._checked:
            self._leave_out(nodes, self._problems(nodes, places, say), execution, say)
            self._checked.add(places)

    @property
    def asked(self) -> bool:
        """Whether processes elsewhere may see something else than this one."""
        return self.shared or len(self.nodes) > 1

    def leave_out(self, node_id: str, problem: str, execution: Execution, say: Callable[[str], None]) -> None:
        """Go on without a node on which a run could not be carried out.

        Raises:
            FplError: Not one run fits on the others.
        """
        if node_id not in self.left_out:
            nodes = self.nodes
            name = next((node.address for node in nodes if node.node_id == node_id), node_id)
            self._leave_out(nodes, {node_id: [f"node {name}: {problem}"]}, execution, say)

    def _leave_out(
        self, nodes: list[Node], problems: Mapping[str, list[str]], execution: Execution, say: Callable[[str], None]
    ) -> None:
        """Go on without the nodes that have problems, by id, if a run fits on the others."""
        told = [problem for found in problems.values() for problem in found]
        try:
            runs_at_once([*(node for node in nodes if node.node_id not in problems), *self.to_come], execution)
        except FplError:
            if not told:
                raise
            raise FplError(
                "\n".join(told),
                where="nodes of the cluster",
                hint="all nodes need the same package, and the folders of results, data, splits and weights on a file "
                "system that they share, under the same paths",
            ) from None
        for problem in told:
            say(f"left out: {problem}")
        self.left_out += tuple(problems)

    def _problems(self, nodes: list[Node], places: Places, say: Callable[[str], None]) -> dict[str, list[str]]:
        """What keeps nodes from carrying runs out, by the ids of those that have anything; all are asked at once."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        problems: dict[str, list[str]] = {}
        with shown(places) as sight:
            look = ray.remote(num_cpus=0, max_retries=0)(look_around)
            answers = [
                look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False)).remote(
                    node.address, places, sight.marker
                )
                for node in nodes
            ]
            _await(answers, say)
            for node, answer in zip(nodes, answers, strict=True):
                try:
                    found = differences(sight.expected, ray.get(answer, timeout=0), places)
                except ray.exceptions.RayError as error:
                    # One that died meanwhile is told of too: no run will be sent there.
                    found = [f"node {node.address}: no answer ({first_line(error)})"]
                if found:
                    problems[node.node_id] = found
        return problems


def _await(answers: Sequence[Any], say: Callable[[str], None]) -> None:
    """Wait for answers as long as they come, one within every `NODE_PATIENCE` seconds, and say how many have."""
    import ray

    waiting, told = list(answers), time.monotonic()
    while waiting:
        ready, waiting = ray.wait(waiting, timeout=NODE_PATIENCE)
        if not ready:
            return
        if waiting and time.monotonic() - told > NODE_WORDS:
            told = time.monotonic()
            say(f"{len(answers) - len(waiting)} of {plural(len(answers), 'node', spec='g')} have said what they see")


def to_come(groups: Sequence[tuple[Mapping[str, float], int]], nodes: Sequence[Node]) -> list[Node]:
    """Nodes that an autoscaler may add.

    Args:
        groups: For each kind of node its resources, by Ray's names, and how many there may be; -1: no limit.
        nodes: Those that are alive; of a kind are those with as many CPUs and GPUs.
    """
    found = []
    for resources, most in groups:
        cpus, gpus = float(resources.get("CPU", 0)), float(resources.get("GPU", 0))
        alive = sum((node.cpus, node.gpus) == (cpus, gpus) for node in nodes)
        found += [Node("", "to come", cpus, gpus)] * max(0, (NO_LIMIT if most < 0 else most) - alive)
    return found


def capacity_words(nodes: list[Node]) -> str:
    """For messages: `2 CPUs, 0 GPUs on 1 node`."""
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    return f"{plural(cpus, 'CPU', spec='g')}, {plural(gpus, 'GPU', spec='g')} on {plural(len(nodes), 'node', spec='g')}"


def runs_at_once(nodes: list[Node], execution: Execution) -> int:
    """Runs that fit onto the nodes at once; the workers of a run may lie on several nodes.

    Raises:
        FplError: Not even one does.
    """
    room = execution.room((node.cpus, node.gpus) for node in nodes)
    if room < execution.workers:
        raise FplError(
            f"asked for {execution.words()}; available: {capacity_words(nodes)}, "
            f"room for {plural(room, 'such worker', spec='g')}",
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
