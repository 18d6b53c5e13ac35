"""What the driver shows while a study is carried out: a line per trial, and the runs that are under way."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.text import Text

from fpl.store.trials import TrialRow
from fpl.sweep.job import JobResult
from fpl.sweep.view import View
from fpl.text import duration


@dataclass
class SearchView(View):
    """Trials ended and to come, the best so far and the time left.

    Args:
        total: Trials that the budget lets begin, those of earlier calls included; None if time limits it.
        ended_before: Trials of earlier calls that are over.
        run_steps: Steps of a run.
    """

    total: int | None = None
    ended_before: int = 0
    run_steps: int = 0
    _trials: list[TrialRow] = field(default_factory=list)
    _best: TrialRow | None = None

    def started(self, run_id: str) -> None:
        """A run begins."""
        self.steps = {**self.steps, run_id: self.run_steps}
        super().started(run_id)

    def ended(self, result: JobResult) -> None:
        """A run is over; what it means is said of its trial."""
        self._running.pop(result.run_id, None)

    def trial_ended(self, row: TrialRow, best: TrialRow | None) -> None:
        """A trial is over: a line that stays."""
        if row.state != "running":
            self._trials.append(row)
        self._best = best
        count = self.ended_before + len(self._trials)
        of = f"/{self.total}" if self.total else ""
        lead = f", best {best.score:.2f} of trial {best.number}" if best is not None else ""
        left = self.remaining()
        self._line(
            f"[{count}{of}] trial {row.number}: {trial_outcome(row)}{lead}  {setting_words(row.params)}"
            + (f"  left {duration(left)}" if left else "")
        )

    def remaining(self) -> float | None:
        """Seconds until the last trial of the study ends; None before the first has, or if time limits it."""
        if not self._trials or self.total is None:
            return None
        to_come = self.total - self.ended_before - len(self._trials)
        return (time.monotonic() - self._began) / len(self._trials) * max(0, to_come)

    def _left(self) -> str:
        left = self.remaining()
        return "" if not left else f"left {duration(left)}"

    def _render(self) -> RenderableType:
        count = self.ended_before + len(self._trials)
        words = [
            f"{count}{f' of {self.total}' if self.total else ''} trials over",
            f"{len(self._running)} runs at work",
        ]
        if self._best is not None:
            words.append(f"best {self._best.score:.2f}")
        words.append(f"{duration(time.monotonic() - self._began)} so far")
        return Group(Text(", ".join(words) + ("  " + self._left()).rstrip(), style="bold"), self._table())


def trial_outcome(row: TrialRow) -> str:
    """How a trial ended, in a few words."""
    if row.state == "complete":
        spread = f" ± {row.score_std:.2f}" if row.score_std is not None else ""
        return f"mIoU {row.score:.2f}{spread}"
    if row.state == "failed":
        return f"FAILED: {row.reason}"
    if row.state == "pruned":
        return f"{row.reason}, mIoU {row.score:.2f}"
    return f"cut off at step {row.step}, the same command continues it"


def setting_words(params: Mapping[str, object]) -> str:
    """`strategy=n-1 threshold=0.85`: the last part of each key, numbers short."""
    return " ".join(
        f"{key.rpartition('.')[2]}={value:.3g}" if isinstance(value, float) else f"{key.rpartition('.')[2]}={value}"
        for key, value in params.items()
    )
