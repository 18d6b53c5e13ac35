"""Between a trial and its group of workers: the job, its reports, the verdicts, the end.

Imports nothing large: the process that holds a mailbox is up in a second, and small.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["go", "stop"]
# What a group without a job is told.
Order = Literal["wait", "leave"]


@dataclass(frozen=True)
class Report:
    """A run validated or saved and waits for a verdict."""

    step: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Entered:
    """A group of workers is there.

    Attributes:
        placement_group: Hex id of what reserves its resources.
        again: Whether it takes up a job that an earlier group left unfinished.
    """

    placement_group: str
    again: bool = False


@dataclass(frozen=True)
class Ended:
    """The job is over: a `JobResult` as plain values."""

    result: dict[str, Any]


Event = Report | Entered | Ended


def stopped(run_id: str, reason: str = "") -> Ended:
    """The end of a job that this module knows of by itself; with a reason it is one that lost its workers."""
    return Ended({"run_id": run_id, "status": "stopped", "reason": reason, "lacked": bool(reason)})


class Mailbox:
    """One job at a time, handed to whichever group of workers is the newest, a limited number of times.

    Runs in an actor of its own with several threads. Every call that waits ends after `patience` seconds, so that
    callers who died hold no thread for long; and a group that has been replaced is told to leave, whatever it asks.

    Args:
        attempts: How often a job may be handed out without getting further than before.
    """

    def __init__(self, attempts: int) -> None:
        self.attempts = attempts
        self._changed = threading.Condition()
        self._events: deque[Event] = deque()
        self._group = 0
        self._job: bytes | None = None
        self._run_id = ""
        self._handed = self._furthest = 0
        self._lost = ""
        self._asked = self._withdrawn = self._closed = False
        self._verdict: Verdict | None = None

    def post(self, run_id: str, job: bytes) -> None:
        """The trial has a job, pickled."""
        with self._changed:
            self._events.clear()
            self._run_id, self._job, self._handed, self._furthest, self._lost = run_id, job, 0, 0, ""
            self._asked = self._withdrawn = self._closed = False
            self._changed.notify_all()

    def next_event(self, patience: float) -> Event | None:
        """What the trial has to know next; None after `patience` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._events), patience)
            return self._events.popleft() if self._events else None

    def answer(self, verdict: Verdict) -> None:
        """How the run goes on from the report at which it waits."""
        with self._changed:
            if self._asked:
                self._verdict, self._asked = verdict, False
                self._changed.notify_all()

    def withdraw(self) -> None:
        """The job is to end at its report, and not to be handed out again."""
        with self._changed:
            self._withdrawn = True
            self._changed.notify_all()
        self.answer("stop")

    def close(self) -> None:
        """There are no more jobs: the workers may leave."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def enter(self, placement_group: str) -> int:
        """A group of workers is there and replaces any earlier one; its number.

        Args:
            placement_group: Hex id of what reserves its resources.
        """
        with self._changed:
            self._group += 1
            self._asked, self._verdict = False, None
            self._events.append(Entered(placement_group, again=self._job is not None and self._handed > 0))
            self._changed.notify_all()
            return self._group

    def fetch(self, group: int, patience: float) -> bytes | Order:
        """The job for a group, or what it is to do instead."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or group != self._group or self._job is not None, patience)
            if group != self._group or (self._closed and self._job is None):
                return "leave"
            if self._job is None:
                return "wait"
            if self._withdrawn:
                self._finish(stopped(self._run_id))
                return "wait"
            if self._handed == self.attempts:
                reason = times("its workers died", self._handed) + (f": {self._lost}" if self._lost else "")
                self._finish(stopped(self._run_id, reason))
                return "wait"
            self._handed += 1
            return self._job

    def report(self, group: int, step: int, metrics: dict[str, float]) -> None:
        """The run validated or saved; its verdict is to be asked for."""
        with self._changed:
            if group != self._group:
                return
            if step > self._furthest:
                # Groups that were lost before are no sign that this one will be.
                self._furthest, self._handed = step, 1
            self._verdict = "stop" if self._withdrawn else None
            if not self._withdrawn:
                self._asked = True
                self._events.append(Report(step, metrics))
            self._changed.notify_all()

    def verdict(self, group: int, patience: float) -> Verdict | None:
        """How the run goes on from its report; None if that is not known after `patience` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._verdict is not None or group != self._group, patience)
            return self._verdict if group == self._group else "stop"

    def end(self, group: int, result: dict[str, Any]) -> None:
        """The job is over; the first who says so counts."""
        with self._changed:
            if group == self._group and self._job is not None and self._run_id == result["run_id"]:
                self._finish(Ended(result))

    def lost(self, group: int, reason: str) -> None:
        """A worker is without its peers; what it knows about it."""
        with self._changed:
            if group == self._group:
                self._lost = reason

    def _finish(self, result: Ended) -> None:
        self._job = None
        self._events.append(result)
        self._changed.notify_all()


def times(what: str, number: int) -> str:
    """`it died`, or `it died 3 times`."""
    return what if number == 1 else f"{what} {number} times"
