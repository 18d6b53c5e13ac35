"""The book of a study while it is carried out: which trial is next, what each reported, how it ended. Without Ray.

Every entry is a row of the store at once, so the book of a process that was killed is read back from there.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fpl.config.search import Value
from fpl.config.study import Point, Study
from fpl.errors import FplError
from fpl.store.lease import nobody_else
from fpl.store.trials import TrialRow, read_trials, validations, write_trial
from fpl.sweep.job import Job, JobResult
from fpl.sweep.search.budget import Budget, Spent
from fpl.sweep.search.halt import Streak
from fpl.sweep.search.sampling import ATTEMPTS, BLIND_ATTEMPTS, Proposals


@dataclass(frozen=True)
class Proposal:
    """A trial that may begin.

    Attributes:
        row: Its row.
        jobs: Its runs, to be carried out one after the other.
    """

    row: TrialRow
    jobs: list[Job]


@dataclass
class _Running:
    row: TrialRow
    # When its process began or said something last; None while it has none.
    clock: float | None = None


class Book:
    """Trials of one study: those of earlier calls, those that run, and what is still to come.

    Args:
        study: What is searched.
        out: The store.
        budget: What may be spent on this study, earlier calls included.
        make_jobs: The runs of some parameters, ready to be carried out.
        devices: GPUs, or cores, that a run holds.
        trial_hours: Expected device-hours of a trial, until some have shown what they take.
        wall_before: Hours that earlier calls took.
        retry_failed: Whether trials that failed in an earlier call are tried again.
        at_once: Trials that may be at work at once.
        check: Called before a trial is written; raises an error if another process has the study by now.
    """

    def __init__(
        self,
        study: Study,
        out: Path,
        budget: Budget,
        make_jobs: Callable[[Mapping[str, Value]], list[Job]],
        *,
        devices: float,
        trial_hours: float,
        wall_before: float = 0.0,
        retry_failed: bool = False,
        at_once: int = 1,
        check: Callable[[], None] = nobody_else,
    ) -> None:
        self.study, self.out, self.budget, self.make_jobs, self.check = study, out, budget, make_jobs, check
        self.devices, self.expected_hours, self.wall_before = devices, trial_hours, wall_before
        self.rows = read_trials(out, study.identity)
        for row in self.rows:
            if row.state == "failed" and retry_failed:
                row.state, row.reason = "running", ""
        self.running: dict[int, _Running] = {}
        self.streak = Streak(at_once)
        self._proposals = Proposals(study)
        self.began = time.monotonic()
        self._ended: float | None = None
        tried = [row.params for row in self.rows]
        # Those that were cut off, or are for another node.
        self.again = deque(self.unfinished)
        self._points: deque[Point] = deque(point for point in study.tried_points if point.params not in tried)

    @property
    def spent(self) -> Spent:
        """What this and earlier calls used up."""
        return Spent.of(self.rows, self.wall_hours)

    @property
    def wall_hours(self) -> float:
        """Wall time of this and earlier calls."""
        now = self._ended if self._ended is not None else time.monotonic()
        return self.wall_before + (now - self.began) / 3600

    @property
    def trial_hours(self) -> float:
        """Device-hours that a whole trial takes: the mean of those that are complete, or what was expected."""
        complete = [row for row in self.rows if row.state == "complete"]
        # One that the store answered took next to nothing, but says nothing about the next.
        known = [row.device_hours for row in complete if row.device_hours > row.cost / 2]
        return statistics.fmean(known) if known else self.expected_hours

    @property
    def over(self) -> bool:
        """Whether running trials have to stop for the budget."""
        return self.budget.over(self.spent)

    @property
    def best(self) -> TrialRow | None:
        """The complete trial of the highest score."""
        done = [row for row in self.rows if row.state == "complete"]
        return max(done, key=lambda row: row.score or 0.0, default=None)

    @property
    def final(self) -> TrialRow | None:
        """The best setting, trained with all labels after a holdout search; None if that is still to do."""
        best = self.best
        return next((row for row in self.rows if row.state == "final" and best and row.params == best.params), None)

    @property
    def next_number(self) -> int:
        """Number of the next trial."""
        return 1 + max((row.number for row in self.rows), default=-1)

    @property
    def unfinished(self) -> list[TrialRow]:
        """Trials that were cut off, by the end of the budget or of a process."""
        return [row for row in self.rows if row.state == "running" and row.number not in self.running]

    @property
    def exhausted(self) -> bool:
        """Whether it is the budget that leaves trials unfinished."""
        return bool(self.unfinished) and not self._may_begin()

    def close(self) -> None:
        """No more is done: the wall time stands."""
        self._ended = time.monotonic()

    def next(self) -> Proposal | None:
        """The next trial; None if that has to wait for one that runs.

        Raises:
            StopIteration: There is none: the budget is spent, a grid is done, there is nothing new to try, or all that
                is begun fails or lacks something.
        """
        proposal = None
        if self.streak.halt is None and self._may_begin():
            proposal = self._continued() if self.again else self._new()
        if proposal is None:
            if not self.running:
                raise StopIteration
            return None  # what ends may make room, or teach the sampler something new
        self.running[proposal.row.number] = _Running(proposal.row)
        self._write(proposal.row)
        return proposal

    def _may_begin(self) -> bool:
        """Whether the budget admits the trial that is next: one that was cut off, or a new one."""
        spent, hours = self.spent, self.trial_hours
        rest = max(0.0, hours - self.again[0].device_hours) if self.again else hours
        running = sum(max(0.0, hours - entry.row.device_hours) for entry in self.running.values())
        # Those that were cut off were counted when they were proposed.
        spent = replace(spent, trials=spent.trials - len(self.again))
        return self.budget.admits(spent, running, rest, rest / self.devices)

    def _continued(self) -> Proposal:
        """The first trial that was cut off."""
        row = self.again.popleft()
        # Its runs are gone through again: those that are done answer at once.
        row.run_scores, row.cost = [], 0.0
        jobs = self.make_jobs(row.params)
        if [job.run_id for job in jobs] != row.run_ids:
            raise FplError(
                f"trial {row.number} was begun as {', '.join(row.run_ids)}, its runs are now others",
                where=f"search {self.study.search.name}",
                hint="its data, splits or weights have changed; give another --out",
            )
        return Proposal(row, jobs)

    def _new(self) -> Proposal | None:
        """A setting of the paper, then what the sampler proposes; None if that is nothing new."""
        number = self.next_number
        if self._points:
            point = self._points.popleft()
            params, origin = self._proposals.propose(self.rows, number, point.params), point.cell
            if params != point.params:
                raise FplError(f"asked for {point.params}, Optuna gave {params}", where=self.study.search.name)
        elif self.study.head.sampler == "grid" or (new := self._untried(number)) is None:
            return None
        else:
            params, origin = new, self.study.head.sampler
        jobs = self.make_jobs(params)
        row = TrialRow(self.study.identity, number, params, origin, [job.run_id for job in jobs])
        self.rows.append(row)
        return Proposal(row, jobs)

    def _untried(self, number: int) -> dict[str, Value] | None:
        """What the sampler proposes and no trial has been: another would be the same runs and the same score."""
        known = list(self.rows)
        for attempt in range(ATTEMPTS + BLIND_ATTEMPTS):
            params = self._proposals.propose(known, number, attempt=attempt)
            twin = next((row for row in self.rows if row.params == params), None)
            if twin is None:
                return params
            # Told the known result once more, a sampler that is drawn there moves on.
            known.append(twin)
        return None

    def started(self, run_id: str) -> None:
        """A run has its process; its trial's clock runs."""
        if entry := self._entry(run_id):
            self._tick(entry)  # what a process took that was lost
            entry.clock = time.monotonic()

    def report(self, run_id: str, step: int, metrics: Mapping[str, float]) -> tuple[int, float] | None:
        """A run reported: the trial's step and mean over its runs so far, or None if it did not validate.

        All trials carry their runs out in the same order: at the same step they have seen the same seeds and splits.
        """
        entry = self._entry(run_id)
        if entry is None:
            return None
        self._tick(entry)
        miou = metrics.get("miou")
        if miou is None:
            self._write(entry.row)
            return None
        row = entry.row
        done = row.run_scores[: row.run_ids.index(run_id)]
        row.report(len(done) * self.study.base.train.steps + step, statistics.fmean([*done, miou]))
        self._write(row)
        return row.step, row.values[-1]

    def run_ended(self, result: JobResult) -> None:
        """A run is over: its score, or the end of its trial."""
        entry = self._entry(result.run_id)
        if entry is not None:
            self._tick(entry)
        # A run that died too often is known to have failed when its trial is no longer under way.
        rows = [entry.row] if entry else [row for row in self.unfinished if result.run_id in row.run_ids]
        for row in rows:
            if result.status == "failed":
                row.state, row.reason = "failed", f"{result.run_id}: {result.reason}"
                self.streak.failed(row.reason)
            elif entry is not None and result.status == "done" and result.metrics is not None:
                self._score(row, result.run_id, result.metrics)
            self._write(row)
        if result.lacked:
            self.streak.lacked(f"{result.run_id}: {result.reason}")

    def _score(self, row: TrialRow, run_id: str, metrics: Mapping[str, float]) -> None:
        steps = self.study.base.train.steps
        if row.run_ids.index(run_id) < len(row.run_scores):
            return  # a process that died is replaced by one that goes through all runs again
        score = metrics.get(self.study.metric, math.nan)
        if not math.isfinite(score):
            row.state, row.reason = "failed", f"{run_id}: its {self.study.metric} is no number"
            self.streak.failed(row.reason)
            return
        before = len(row.run_scores) * steps
        if row.step < before + steps:  # answered from the store, without all reports
            for step, miou in validations(self.out, run_id):
                row.report(before + step, statistics.fmean([*row.run_scores, miou]))
        row.run_scores.append(score)
        row.cost += metrics.get("train_seconds", 0.0) * self.devices / 3600
        if len(row.run_scores) == self.study.runs_per_trial:
            row.state = "complete"
            self.streak.succeeded()

    def prune(self, number: int) -> None:
        """The trial was stopped as hopeless."""
        row = self.running[number].row
        row.state = "pruned"
        self.streak.succeeded()
        row.reason = f"stopped by {self.study.head.stop} at step {row.step} of {self.study.steps}"
        self._write(row)

    def end(self, number: int) -> TrialRow:
        """The trial has no process any more. If it is neither complete, pruned nor failed, it will be continued."""
        return self.running.pop(number).row

    def take_up(self) -> bool:
        """Put trials that lost their processes in line again; whether there are any and the budget allows them."""
        self.again = deque(self.unfinished)
        return bool(self.again) and not self.over and self.streak.halt is None

    def _entry(self, run_id: str) -> _Running | None:
        return next((entry for entry in self.running.values() if run_id in entry.row.run_ids), None)

    def _write(self, row: TrialRow) -> None:
        self.check()
        write_trial(self.out, row)

    def _tick(self, entry: _Running) -> None:
        now = time.monotonic()
        if entry.clock is not None:
            entry.row.device_hours += (now - entry.clock) * self.devices / 3600
            entry.clock = now
