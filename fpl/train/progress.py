"""One line that says what a command does, how far it is and when it will end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TextIO

from fpl.text import duration, printable


@dataclass
class Progress:
    """Shows how far a command is: a line that renews itself on a terminal, plain lines with pauses elsewhere.

    Args:
        total: Units of the whole work.
        unit: What is counted.
        quiet: Show nothing (ranks above 0).
        stream: Where to write.
        pause: Seconds between two plain lines.
    """

    total: int
    unit: str = "step"
    quiet: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    pause: float = 10.0
    _start: int = 0
    _began: float = field(default_factory=lambda: time.monotonic())
    _shown: float = field(default_factory=lambda: time.monotonic())
    _width: int = 0

    def begin(self, done: int) -> None:
        """Work begins, or continues, after `done` units."""
        self._start, self._began = done, time.monotonic()

    def rate(self, done: int) -> float:
        """Units per second so far, time passed to `validated` not counted; 0 before the first unit."""
        elapsed = time.monotonic() - self._began
        return (done - self._start) / elapsed if done > self._start and elapsed > 0 else 0.0

    def show(self, done: int, values: Mapping[str, str] | None = None) -> None:
        """Show the state after `done` units: ten times a second at most on a terminal, else after each pause."""
        now = time.monotonic()
        terminal = self.stream.isatty()
        if self.quiet or now - self._shown < (0.1 if terminal else self.pause):
            return
        self._shown = now
        words = [f"{self.unit} {done}/{self.total}", *(f"{name} {value}" for name, value in (values or {}).items())]
        if rate := self.rate(done):
            words.append(f"{rate:.2f} {self.unit}s/s" if rate >= 0.1 else f"{1 / rate:.1f} s/{self.unit}")
            words.append(f"left {duration((self.total - done) / rate)}")
        self._write("  ".join(words), terminal)

    def of(self, done: int, total: int) -> None:
        """`show` for work that only learns on its way how much it is."""
        self.total = total
        self.show(done)

    def note(self, text: str = "") -> None:
        """A line that stays; without text it only ends the line that renews itself."""
        if self.quiet:
            return
        if self._width:
            self.stream.write("\r" + " " * self._width + "\r")
            self._width = 0
        if text:
            self.stream.write(printable(text) + "\n")
        self.stream.flush()

    def validating(self, step: int, done: int, total: int) -> None:
        """Progress within a validation, on a terminal."""
        if not self.quiet and self.stream.isatty():
            self._write(f"step {step}/{self.total}  validating {done}/{total}", True)

    def validated(self, seconds: float, text: str) -> None:
        """End of a validation: a line that stays; its time does not count against the rate."""
        self._began += seconds
        self.note(text)

    def _write(self, line: str, terminal: bool) -> None:
        if terminal:
            self.stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self.stream.write(line + "\n")
        self.stream.flush()
