"""A report that is written again while its runs are carried out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

# Seconds between two reports at least, and how often the time that one takes: it works beside the runs.
PAUSE, SHARE = 30.0, 20.0
# Seconds that the last one is waited for: at the end, and where the command is told to end.
PATIENCE, FAREWELL = 600.0, 10.0


@dataclass
class LiveReport:
    """Writes a report now and then when runs end, in a thread of its own: nobody waits for it.

    Use as a context manager. A report that cannot be written does not end the runs: the reason is kept.

    Args:
        write: Writes it.
        pause: Seconds between two at least.
        clock: Gives the seconds.
    """

    write: Callable[[], object]
    pause: float = PAUSE
    clock: Callable[[], float] = time.monotonic
    problem: Exception | None = None
    _next: float = 0.0
    _thread: threading.Thread | None = field(default=None, repr=False)

    def __enter__(self) -> LiveReport:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.join(PATIENCE if kind is None else FAREWELL)

    def ended(self) -> None:
        """A run has ended, or the first is about to begin."""
        if self.clock() < self._next or (self._thread is not None and self._thread.is_alive()):
            return
        thread = threading.Thread(target=self._work, name="report", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no memory, or too many processes: the runs need them more
            self.problem = error
        else:
            self._thread = thread

    def join(self, patience: float = PATIENCE) -> None:
        """Wait so many seconds for the report that is being written, if one is."""
        if self._thread is not None:
            self._thread.join(patience)
            if self._thread.is_alive():
                self.problem = TimeoutError(f"it took more than {patience:.0f} s")

    def _work(self) -> None:
        began = self.clock()
        try:
            self.write()
            self.problem = None
        except Exception as error:
            self.problem = error
        took = self.clock() - began
        self._next = self.clock() + max(self.pause, SHARE * took)
