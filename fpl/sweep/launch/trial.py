"""What the three launchers have in common: a Tune trial that carries out one job after another.

Tune asks for a step, and the trial answers with whatever comes next from the run: a report or the end. The run waits at
each report until Tune asks for the next step, so a stop ends it right there and nothing runs on in the background.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray import tune

from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, lacking
from fpl.sweep.launch.mailbox import Ended, Entered, Event, Report, Verdict
from fpl.sweep.nodes import Sight


class JobTrial(tune.Trainable):  # type: ignore[misc]
    """A reused Tune trial. Its configuration holds a list of `jobs`, and ids of nodes that are `left_out`.

    The jobs are carried out one after the other, until one of them is not done; none where the node of this process
    does not see what runs need.

    Results for the driver: `{"step", **metrics, "run_id", "metrics"}` of a report, `{"placement_group", "again"}` of a
    group of workers, and `{"job"}` with a `JobResult` as plain values of each job that is over, `done` with the last.
    """

    def setup(self, config: dict[str, Any], execution: Execution, folder: Path, sight: Sight | None) -> None:
        """Called by Tune in the trial's process.

        Args:
            config: Holds `jobs`.
            execution: How each of them is carried out.
            folder: For Ray's own files, seen by all nodes.
            sight: What the driver sees, where it is to be asked whether this process does.
        """
        # Of trials with other nodes left out Tune reuses no process: what is held differs.
        self.execution = replace(execution, left_out=tuple(config.get("left_out", ())))
        self.folder, self.sight = folder, sight
        self._looked = sight is None
        # Read when a GPU is first used; a later run of this process may want it.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self._take(config)

    def _take(self, config: dict[str, Any]) -> None:
        self._ahead = deque(config["jobs"])
        # Repeated in every result: schedulers compare the newest values, and not every result brings some.
        self._last: dict[str, Any] = {}
        self._turn()

    def _turn(self) -> None:
        self.job: Job = self._ahead.popleft()
        self._begun = self._over = self._waiting = False

    def step(self) -> dict[str, Any]:
        """The next event of a job; begins it first, or lets it go on from the report where it waits."""
        event: Event | None = None
        if not self._begun:
            self._begun = True
            event = self._not_here()
            if event is None:
                self.begin(self.job)
        elif self._waiting:
            self._waiting = False
            self.answer("go")
        event = event or self.next_event()
        if isinstance(event, Ended):
            if self._ahead and event.result["status"] == "done":
                self._turn()
                return {**self._last, "job": event.result}
            self._over = True
            return {**self._last, "done": True, "job": event.result}
        if isinstance(event, Entered):
            return {**self._last, "placement_group": event.placement_group, "again": event.again}
        self._waiting = True
        self._last = {**self._last, "step": event.step, **event.metrics}
        return {**self._last, "run_id": self.job.run_id, "metrics": event.metrics}

    def _not_here(self) -> Ended | None:
        """The end of a job that is for another node; None once this process has seen what runs need."""
        problems = self.sight.problems() if self.sight is not None and not self._looked else []
        self._looked = not problems
        return Ended(lacking(self.job.run_id, "; ".join(problems), own_node()).plain()) if problems else None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Called by Tune between two jobs: ends the first if Tune stopped it."""
        self.stop_job()
        self._take(new_config)
        return True

    def stop_job(self) -> None:
        """Let a job that is under way end at its report, and wait until it has."""
        if self._begun and not self._over:
            self.withdraw()
            while not isinstance(event := self.next_event(), Ended):
                if isinstance(event, Report):
                    self.answer("stop")
            self._over = True

    def cleanup(self) -> None:
        """Called by Tune before it gives the process up."""
        self.stop_job()
        self.close()

    @abstractmethod
    def begin(self, job: Job) -> None:
        """Start carrying a job out."""

    @abstractmethod
    def next_event(self) -> Event:
        """Wait for what comes next."""

    @abstractmethod
    def answer(self, verdict: Verdict) -> None:
        """Let the run go on from its report, or end there."""

    @abstractmethod
    def withdraw(self) -> None:
        """The job is to end at the report where it waits, or at the next one."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""


def own_node() -> str:
    """Id of the node that this process of Ray is on."""
    return str(ray.get_runtime_context().get_node_id())


def held_by(bundle: dict[str, float], config: dict[str, Any]) -> tune.PlacementGroupFactory:
    """What a trial holds, and where it may be placed: not on the nodes that its configuration leaves out."""
    nodes = Execution(left_out=tuple(config.get("left_out", ()))).nodes
    where = {"bundle_label_selector": [nodes]} if nodes else {}
    return tune.PlacementGroupFactory([{name: number for name, number in bundle.items() if number}], **where)


def with_execution(
    kind: type[JobTrial], execution: Execution, folder: Path, sight: Sight | None = None
) -> type[JobTrial]:
    """A kind of trial that knows how its jobs are carried out, and what is to be seen where they are.

    Not `tune.with_parameters`, which puts that into Ray's object store: a driver that owns objects there is ended by
    Ray the moment the raylet dies, with exit code 1 and no word, before anybody can say that nothing is lost.
    """

    class WithExecution(kind):  # type: ignore[misc, valid-type]
        def setup(self, config: dict[str, Any]) -> None:
            super().setup(config, execution, folder, sight)

    WithExecution.__name__ = kind.__name__  # where Ray names its processes
    return WithExecution
