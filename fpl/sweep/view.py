"""What the driver shows while runs are carried out: one live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fpl.sweep.job import JobResult
from fpl.text import duration, printable, shortened

# Columns of the live table beside the run ids.
OTHERS = 40


@dataclass
class _Running:
    began: float
    step: int = 0
    last: float | None = None
    best: float | None = None


@dataclass
class View:
    """Runs done, running and to go, the time left, and best and last mIoU of every running one.

    Use as a context manager; it is a `Watcher`.

    Args:
        estimates: Run id -> expected seconds, for all runs to be carried out: their proportions give the time left.
        steps: Run id -> steps of the run.
        before: Runs of the campaign that were done before.
        stream: Where to write.
        after: Called whenever a run is over.
    """

    estimates: Mapping[str, float]
    steps: Mapping[str, int]
    before: int = 0
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    after: Callable[[], None] | None = None
    _began: float = field(default_factory=time.monotonic)
    _running: dict[str, _Running] = field(default_factory=dict)
    _ended: dict[str, JobResult] = field(default_factory=dict)
    _live: Live | None = None

    def __enter__(self) -> View:
        self._began = time.monotonic()
        if self.stream.isatty():
            console = Console(file=self.stream, highlight=False, markup=False)
            self._live = Live(get_renderable=self._render, console=console, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def started(self, run_id: str) -> None:
        """A run begins."""
        self._running[run_id] = _Running(time.monotonic())

    def reported(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        """A run validated or saved."""
        running = self._running.setdefault(run_id, _Running(time.monotonic()))
        running.step = step
        if (miou := metrics.get("miou")) is not None:
            running.last = miou
            running.best = miou if running.best is None else max(running.best, miou)

    def ended(self, result: JobResult) -> None:
        """A run is over: a line that stays."""
        running = self._running.pop(result.run_id, None)
        self._ended[result.run_id] = result
        total = self.before + len(self.estimates)
        place = f"[{self.before + len(self._ended):{len(str(total))}}/{total}]"
        words = [_outcome(result)]
        if running is not None and result.status == "done":
            words.append(f"{time.monotonic() - running.began:.0f} s")
        rest = " ".join([*words, self._left()]).rstrip()
        if result.status == "done":
            # The end of an id is what tells runs apart: its middle goes where the line would wrap.
            self._line(f"{place} {shortened(result.run_id, self._width() - len(place) - len(rest) - 2)} {rest}")
        else:
            self._line(f"{place} {result.run_id} {rest}")
        if self.after is not None:
            self.after()

    def note(self, text: str) -> None:
        """A line that stays."""
        self._line(text)

    def remaining(self) -> float | None:
        """Seconds until all runs are over, or None before the first has ended.

        What the ended runs took in wall time over what was expected of them scales what is expected of the others.
        """
        passed = sum(self.estimates.get(run_id, 0.0) for run_id in self._ended)
        for run_id, running in self._running.items():
            share = running.step / self.steps[run_id] if self.steps.get(run_id) else 0.0
            passed += share * self.estimates.get(run_id, 0.0)
        if not self._ended or passed <= 0:
            return None
        whole = sum(self.estimates.values())
        return (time.monotonic() - self._began) * max(0.0, whole - passed) / passed

    def _width(self) -> int:
        """Columns of a line; a file has as many as it takes."""
        return self._live.console.width if self._live is not None else shutil.get_terminal_size((10_000, 0)).columns

    def _left(self) -> str:
        remaining = self.remaining()
        if remaining is None or len(self._ended) == len(self.estimates):
            return ""
        return f"left {duration(remaining)}"

    def _line(self, text: str) -> None:
        text = printable(text)
        if self._live is not None:
            self._live.console.print(Text(text))
            return
        self.stream.write(text + "\n")
        self.stream.flush()

    def _render(self) -> RenderableType:
        failed = sum(result.status == "failed" for result in self._ended.values())
        to_go = len(self.estimates) - len(self._ended) - len(self._running)
        done = self.before + len(self._ended) - failed
        words = [f"{done} done", f"{len(self._running)} running", f"{to_go} to go"]
        if failed:
            words.append(f"{failed} failed")
        words.append(f"{duration(time.monotonic() - self._began)} so far")
        return Group(Text(", ".join(words) + ("  " + self._left()).rstrip(), style="bold"), self._table())

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
        for name, justify in (("running", "left"), ("step", "right"), ("last mIoU", "right"), ("best mIoU", "right")):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        for run_id, running in self._running.items():
            step = f"{running.step}/{self.steps.get(run_id, 0)}"
            table.add_row(
                shortened(run_id, self._width() - OTHERS), step, _percent(running.last), _percent(running.best)
            )
        return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _outcome(result: JobResult) -> str:
    if result.status != "done":
        return f"{result.status.upper()}: {result.reason}" if result.reason else result.status
    found = result.metrics or {}
    last, best = ([v for k, v in found.items() if k.startswith("miou") and k.endswith(end)] for end in ("last", "best"))
    return f"mIoU {_percent(last[0] if last else None)} (best {_percent(best[0] if best else None)})"
