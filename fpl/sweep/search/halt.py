"""When a search begins no more trials though its budget admits them: all that it begins fails, or lacks something.

Such trials cost next to nothing of a budget in hours: thousands of them would meet the same.
"""

from __future__ import annotations

from dataclasses import dataclass

# Trials that fail one after the other, or twice as many as are at work at once if that is more.
FAILURES_IN_A_ROW = 5


@dataclass(frozen=True)
class Halt:
    """Why no more trials are begun.

    Attributes:
        reason: In one line.
        exit_code: Of the command: 1 where trials failed, 2 where something was lacking and the same command continues.
    """

    reason: str
    exit_code: int


class Streak:
    """How the trials of this call end, one after the other.

    Args:
        at_once: Trials that may be at work at once.
    """

    def __init__(self, at_once: int) -> None:
        # Set once: those at work end, no more are begun.
        self.halt: Halt | None = None
        self._most, self._failures = max(FAILURES_IN_A_ROW, 2 * at_once), 0

    def succeeded(self) -> None:
        """A trial came to its end, or to where its rule gave it up."""
        self._failures = 0

    def failed(self, reason: str) -> None:
        """A trial failed by itself."""
        self._failures += 1
        if self._failures >= self._most:
            self._end(f"{self._failures} trials failed in a row, the last for this reason: {reason}", 1)

    def lacked(self, reason: str) -> None:
        """A trial was stopped for want of something that the next one will not have either."""
        self._end(reason, 2)

    def _end(self, reason: str, exit_code: int) -> None:
        if self.halt is None:
            self.halt = Halt(reason, exit_code)
