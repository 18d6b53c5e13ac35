"""Carrying out a search: Ray Tune schedules trials, Optuna proposes them, the store remembers them.

The same call continues after any kill. Trials are ordinary runs; one whose runs are done is answered from the store.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import fpl
from fpl.config.identity import canonical
from fpl.config.search import Value
from fpl.config.study import Study
from fpl.errors import FplError
from fpl.mirrors import name_of, refresh
from fpl.store.collect import look_over
from fpl.store.done import run_row
from fpl.store.lease import alone
from fpl.store.schema import STUDIES, TRIALS
from fpl.store.trials import TrialRow, read_study, write_study, write_trial
from fpl.store.write import run_path
from fpl.sweep.cluster import Cluster, absolute
from fpl.sweep.execution import Execution
from fpl.sweep.job import LOCK_PATIENCE, Job, JobResult
from fpl.sweep.launch.tune_driver import run_on_ray, search_on_ray
from fpl.sweep.places import Places
from fpl.sweep.plan.search_plan import StudyPlan
from fpl.sweep.prepare import pin
from fpl.sweep.search.searcher import StudySearch
from fpl.sweep.search.stopping import EarlyStopping
from fpl.sweep.search.study_view import SearchView
from fpl.sweep.search.trials import Book
from fpl.sweep.session import ray_session
from fpl.text import answer

Say = Callable[[str], None]
# Raises an error if another machine has the study by now.
Check = Callable[[], None]


def run_search(
    plans: Sequence[StudyPlan],
    places: Places,
    execution: Execution,
    *,
    retry_failed: bool = False,
    say: Say = answer,
) -> list[Book]:
    """Carry out the studies of a search, one after the other, as far as their budgets go.

    Args:
        plans: Studies with their budgets and expected costs.
        places: Folders.
        execution: How runs are carried out.
        retry_failed: Whether trials that failed in an earlier call are tried again.
        say: Takes lines for the user.

    Returns:
        The book of each study that was begun: where one was halted, others would be.

    Raises:
        FplError: An input is missing, the cluster has no room, or parameters mean nothing where they are varied.
    """
    places = absolute(places)
    books = []
    for table in (STUDIES, TRIALS):
        for damage in look_over(places.out, table):
            say(str(damage))
    with ray_session(execution.address) as cluster:
        say(f"Ray: {cluster.describe()}")
        cluster.check(execution, places, say)
        for plan in plans:
            with _alone(plan.study, places.out, say) as check:
                driver = StudyDriver(plan, places, execution, cluster, retry_failed, say, check)
                driver.carry_out()
            books.append(driver.book)
            if driver.book.streak.halt is not None:
                break
    return books


@contextlib.contextmanager
def _alone(study: Study, out: Path, say: Say) -> Iterator[Check]:
    """Keep a second process off the same study: both would number their trials alike."""
    lock = out / STUDIES / f".{study.identity}.lock"
    doing = "carries this search out: several machines at once are what a Ray cluster is for"
    with alone(lock, study.identity, doing, say, LOCK_PATIENCE) as check:
        # Only now: another machine may have gone on with it.
        for table in (STUDIES, TRIALS):
            refresh(out / table)
        yield check


class StudyDriver:
    """One study, carried out: a watcher of its runs that keeps its book and its row."""

    def __init__(
        self,
        plan: StudyPlan,
        places: Places,
        execution: Execution,
        cluster: Cluster,
        retry_failed: bool,
        say: Say,
        check: Check,
    ) -> None:
        self.plan, self.study, self.places, self.execution = plan, plan.study, places, execution
        self.cluster, self.say, self.check = cluster, say, check
        before = read_study(places.out, self.study.identity)
        self.book = Book(
            self.study,
            places.out,
            plan.budget,
            self.make_jobs,
            devices=execution.devices,
            trial_hours=plan.trial_hours,
            wall_before=float(before["wall_seconds"]) / 3600 if before else 0.0,
            retry_failed=retry_failed,
            at_once=min(room := cluster.concurrency(execution), execution.concurrency or room),
            check=check,
        )
        over = sum(row.state in ("complete", "pruned", "failed") for row in self.book.rows)
        counted = plan.budget.kind == "trials" and plan.to_begin is not None
        trials = plan.spent.trials + (plan.to_begin or 0) if counted else None
        self.view = SearchView({}, {}, total=trials, ended_before=over, run_steps=self.study.base.train.steps)
        self.base, *_, split = pin(self.study.base, places)
        if before and before["base"] != canonical(self.base):
            raise FplError(
                "its earlier trials had other data, splits or weights",
                where=f"{self.study.identity} in {name_of(places.out)}",
                hint="give another --out: scores on other inputs cannot be compared",
            )
        self.labeled_images = len(split.labeled)
        self.device: str | None = before["device"] if before else None

    def carry_out(self) -> None:
        """Go through the trials that the budget allows; after a holdout search, train the best with all labels."""
        study = self.study
        self.say(f"study {study.identity}: {study.cell} at scale {study.scale}, {self.plan.budget.words}")
        self._save()
        with self.view:
            search_on_ray(
                StudySearch(self.book, self._trial_ended),
                EarlyStopping(self.book),
                self.execution,
                self.cluster,
                self.places,
                self,
                take_up=self.book.take_up,
            )
            self.book.close()
            self._save()
            if study.head.protocol == "holdout" and self.book.best is not None and self.book.streak.halt is None:
                self._final(self.book.best)

    def make_jobs(self, params: Mapping[str, Value]) -> list[Job]:
        """The runs of a setting."""
        return [Job.pinned(config, self.places, self.execution) for config in self.study.configs(params)]

    def _final(self, best: TrialRow) -> None:
        """Train the best setting with all labels and score its last weights on the validation part.

        That is the number to report: neither the setting nor the weights were chosen by these images.
        """
        if self.book.final is not None:
            return
        configs = [self.study.final_config(best.params, seed) for seed in range(self.study.head.seeds)]
        jobs = [Job.pinned(config, self.places, self.execution) for config in configs]
        self.say(f"trial {best.number} is the best; its setting is trained with all labels and scored on val")
        results = run_on_ray(
            jobs,
            self.execution,
            self.cluster,
            self.view,
        )
        for result in (each for each in results.values() if each.lacked):
            self.book.streak.lacked(f"{result.run_id}: {result.reason}")
        done = [results[job.run_id].metrics or {} for job in jobs if results[job.run_id].status == "done"]
        scores = [metrics.get(self.study.final_metric, math.nan) for metrics in done]
        if len(done) < len(jobs) or not all(map(math.isfinite, scores)):
            why = "it did not come to its end" if len(done) < len(jobs) else f"it has no {self.study.final_metric}"
            self.say(f"{why}; the same command tries again")
            return
        row = TrialRow(
            self.study.identity,
            self.book.next_number,
            dict(best.params),
            f"trial {best.number}",
            [job.run_id for job in jobs],
            state="final",
            run_scores=scores,
            step=self.study.base.train.steps * len(jobs),
        )
        self.book.rows.append(row)
        self.check()
        write_trial(self.places.out, row)
        self.say(f"final: mIoU {row.score:.2f} on val, with a setting chosen on held-out labeled images")

    def started(self, run_id: str) -> None:
        """A run has a process."""
        self.book.started(run_id)
        self.view.started(run_id)

    def reported(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        """A run reported; the scheduler has it in the book already."""
        self.view.reported(run_id, step, metrics)
        self._save()

    def ended(self, result: JobResult) -> None:
        """A run is over."""
        self.book.run_ended(result)
        self.view.ended(result)
        if self.device is None and result.status == "done":
            # Of the machine that trained it, which need not be this one.
            self.device = run_row(run_path(self.places.out, result.run_id))["device"]

    def note(self, text: str) -> None:
        """A line for the user."""
        self.view.note(text)

    def _trial_ended(self, row: TrialRow) -> None:
        self.view.trial_ended(row, self.book.best)
        self._save()

    def _save(self) -> None:
        study, head = self.study, self.study.head
        self.check()
        write_study(
            self.places.out,
            {
                "study": study.identity,
                "search": study.search.name,
                "caption": head.caption,
                "cell": study.cell,
                "scale": study.scale,
                "base": canonical(self.base),
                "space": json.dumps([parameter.model_dump(mode="json") for parameter in study.search.space]),
                "labeled_images": self.labeled_images,
                "seeds": head.seeds,
                "splits": head.splits,
                "steps": study.steps,
                "metric": study.metric,
                "objectives": list(head.objectives),
                "protocol": head.protocol,
                "holdout": head.holdout if head.protocol == "holdout" else None,
                "sampler": head.sampler,
                "sampler_seed": study.seed,
                "stop": head.stop,
                "budget": self.plan.budget.words,
                "device": self.device,
                "device_unit": "gpu" if self.execution.gpus_per_worker else "core",
                "wall_seconds": self.book.wall_hours * 3600,
                "fpl_version": fpl.__version__,
            },
        )
