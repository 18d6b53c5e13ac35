"""Two batches of jobs under Ray Tune at the same time: runs on cores, and gangs beside them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from fpl.sweep.cluster import Cluster
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, JobResult, Watcher
from fpl.sweep.launch.tune_driver import SETTINGS, only_what_matters, run_on_ray
from fpl.sweep.session import environment

# Seconds for a thread to hand back its trials after Ctrl-C.
HAND_BACK = 10.0


def run_side_by_side(
    batches: Sequence[tuple[list[Job], Execution]], cluster: Cluster, watcher: Watcher, **more: Any
) -> dict[str, JobResult]:
    """Carry out batches of jobs at the same time, all but the first in threads of their own.

    Args:
        batches: Jobs and how each of them is carried out. What Ray sets aside for them must fit together.
        cluster: Where.
        watcher: Told what happens, by one thread at a time.
        more: See `run_on_ray`.

    Returns:
        The result of every job, by run id.

    Raises:
        FplError: As `run_on_ray`, once the other batches are over.
        KeyboardInterrupt: As `run_on_ray`; the other batches have been left, too.
    """
    one_at_a_time, over = _OneAtATime(watcher), threading.Event()
    results: dict[str, JobResult] = {}
    errors: list[BaseException] = []

    def carry_out(jobs: list[Job], execution: Execution) -> None:
        try:
            results.update(run_on_ray(jobs, execution, cluster, one_at_a_time, over=over, **more))
        except BaseException as error:  # whatever it is, the caller must hear of it
            errors.append(error)

    # Held around all of them: each puts back what it finds, and they end in any order.
    with environment(SETTINGS), only_what_matters():
        threads = [threading.Thread(target=carry_out, args=batch, name="batch", daemon=True) for batch in batches[1:]]
        for thread in threads:
            thread.start()
        try:
            results |= run_on_ray(*batches[0], cluster, one_at_a_time, **more)
            for thread in threads:
                thread.join()
        except BaseException:
            # The end of the session would look to them like the death of their processes, which they would record.
            over.set()
            for thread in threads:
                thread.join(HAND_BACK)
            raise
    if errors:
        raise errors[0]
    return results


class _OneAtATime:
    """A watcher that several threads may tell."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher, self._lock = watcher, threading.Lock()

    def started(self, run_id: str) -> None:
        with self._lock:
            self._watcher.started(run_id)

    def reported(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        with self._lock:
            self._watcher.reported(run_id, step, metrics)

    def ended(self, result: JobResult) -> None:
        with self._lock:
            self._watcher.ended(result)

    def note(self, text: str) -> None:
        with self._lock:
            self._watcher.note(text)
