"""What the tests with Ray share: jobs, a watcher that keeps what it is told, processes of a node and their end."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from fpl.config.schema import RunConfig
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, JobResult
from fpl.sweep.places import Places
from fpl.sweep.prepare import prepare
from fpl.train.checkpoint import load

Hook = Callable[[str, int], None]
# As the kernel writes it: the state of a socket that is listened on; 127.0.0.1, plain and in IPv6.
LISTENING = "0A"
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


def job_of(config: RunConfig, places: Places, *, seed: int = 0, steps: int = 6, lr: float = 0.05) -> Job:
    tree = config.model_dump(mode="json")
    tree["seed"] = seed
    tree["train"] |= {"steps": steps, "evaluate_every": 3}
    tree["optim"]["lr"] = lr
    prepared = prepare(RunConfig.model_validate(tree), places)
    return Job.of(prepared.config, places, Execution(checkpoint_every=2, log_every=1), device="cpu")


def at(job: Job, out: Path) -> Job:
    """The same run in another store."""
    return dataclasses.replace(job, places=dataclasses.replace(job.places, out=out))


def last_weights(job: Job) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = load(job.places.checkpoints(job.run_id) / "last.pt")["method"]
    return weights


def assert_same_weights(one: Job, other: Job) -> None:
    first, second = last_weights(one), last_weights(other)
    assert list(first) == list(second)
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


class Recorder:
    """Keeps what a watcher is told; `on_report` is called with (run id, step), before the run may go on."""

    def __init__(self, on_report: Hook = lambda run_id, step: None) -> None:
        self.on_report = on_report
        self.starts: list[str] = []
        self.reports: list[tuple[str, int, float | None]] = []
        self.ends: list[JobResult] = []
        self.notes: list[str] = []

    def started(self, run_id: str) -> None:
        self.starts.append(run_id)

    def reported(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        self.reports.append((run_id, step, metrics.get("miou")))
        self.on_report(run_id, step)

    def ended(self, result: JobResult) -> None:
        self.ends.append(result)

    def note(self, text: str) -> None:
        self.notes.append(text)


def descendants(pid: int) -> dict[int, str]:
    """Children of a process and theirs, with what they are called."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            number = int(entry.name)
            parents[number] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            names[number] = (entry / "cmdline").read_text().replace("\0", " ").strip()
    found: dict[int, str] = {}
    todo = {pid}
    while todo := {number for number, parent in parents.items() if parent in todo}:
        found |= {number: names[number] for number in todo}
    return found


def listened_on(pids: Iterable[int]) -> set[str]:
    """Addresses, as the kernel writes them, on which any of the processes listens; one that has ended is no error."""
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(str(entry.readlink()))
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].partition(":")[0])
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true in time."""
    ends = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < ends:
        time.sleep(0.05)
    return met
