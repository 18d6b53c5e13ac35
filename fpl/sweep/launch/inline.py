"""World size 1: the run lives in a thread of the trial's own process, which is reused for the next."""

from __future__ import annotations

import contextlib
import ctypes
import queue
import threading

from fpl.sweep.job import Job, lacking, reason_of, run_job
from fpl.sweep.launch.mailbox import Ended, Event, Report, Verdict
from fpl.sweep.launch.trial import JobTrial, own_node
from fpl.train import runtime

# Seconds between two looks at the thread of a run, and for it to end after its last word.
LOOK, FAREWELL = 10.0, 60.0


class InlineTrial(JobTrial):
    """Carries jobs out in this process."""

    def begin(self, job: Job) -> None:
        """Start the thread."""
        self._events: queue.Queue[Event | BaseException] = queue.Queue()
        self._verdicts: queue.Queue[Verdict] = queue.Queue()
        self._thread = threading.Thread(target=self._carry_out, args=(job,), name=job.run_id, daemon=True)
        self._thread.start()

    def _carry_out(self, job: Job) -> None:
        try:
            result = run_job(job, self._report)
            if result.lacked:
                result = lacking(job.run_id, result.reason, own_node())
            give_memory_back()
            self._events.put(Ended(result.plain()))
        except BaseException as error:  # whatever it is, the trial's own thread must hear of it
            self._events.put(error)

    def _report(self, step: int, metrics: dict[str, float]) -> runtime.Verdict:
        self._events.put(Report(step, metrics))
        return runtime.Verdict(self._verdicts.get())

    def next_event(self) -> Event:
        """Wait for what comes next.

        Raises:
            RuntimeError: The run could not even say how it failed; the process is not to be used again.
        """
        event = self._wait()
        if not isinstance(event, Report):
            self._thread.join(FAREWELL)
        if isinstance(event, BaseException):
            self._over = True
            raise RuntimeError(reason_of(event)) from event
        return event

    def _wait(self) -> Event | BaseException:
        while True:
            # First: whatever a thread has to say, it says before it ends.
            alive = self._thread.is_alive()
            try:
                return self._events.get(timeout=LOOK)
            except queue.Empty:
                if not alive:
                    return RuntimeError("the thread of the run ended without a word")

    def answer(self, verdict: Verdict) -> None:
        """Let the run go on from its report, or end there."""
        self._verdicts.put(verdict)

    def withdraw(self) -> None:
        """End at the report where the run waits, or at the next one."""
        if self._waiting:
            self.answer("stop")

    def close(self) -> None:
        """Nothing is held."""


def give_memory_back() -> None:
    """Give the system what runs have freed.

    The threads of a process have up to eight heaps a core in glibc, which keep it: run after run, each in a thread of
    its own, a process would grow by what a run takes, until all heaps have had one.
    """
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
