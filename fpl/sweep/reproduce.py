"""Carrying out what a campaign lacks: from wanted runs to rows in the store. The same call continues after any kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fpl.config.identity import recipe_digest, run_id
from fpl.config.schema import RunConfig
from fpl.store.done import has_failed, is_done
from fpl.store.read import Results
from fpl.sweep.execution import Execution
from fpl.sweep.places import Places
from fpl.sweep.plan.wanted import Wanted
from fpl.sweep.prepare import pin
from fpl.text import answer

if TYPE_CHECKING:
    from fpl.sweep.job import Job, JobResult
    from fpl.sweep.view import View

# Images of which a run that a figure shows keeps pictures: as many as any figure shows.
EXAMPLES = 8


@dataclass
class Account:
    """What a call found and did.

    Attributes:
        before: Runs that were done already.
        results: Result of every run that this call carried out, by run id.
        failed_before: Runs that failed in an earlier call and were not tried again.
        seconds: Wall time of carrying out.
    """

    before: list[str] = field(default_factory=list)
    results: dict[str, JobResult] = field(default_factory=dict)
    failed_before: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: Account) -> None:
        """Take over what another call found and did."""
        self.before += other.before
        self.results |= other.results
        self.failed_before += other.failed_before
        self.seconds += other.seconds

    @property
    def done(self) -> list[str]:
        """Ids of all runs that are in the store."""
        return [*self.before, *(key for key, result in self.results.items() if result.status == "done")]

    @property
    def unfinished(self) -> list[JobResult]:
        """Runs that another process has, or that were stopped."""
        return [result for result in self.results.values() if result.status == "stopped"]

    @property
    def failed(self) -> list[JobResult]:
        """Runs that failed now."""
        return [result for result in self.results.values() if result.status == "failed"]


def carry_out(
    wanted: Sequence[Wanted],
    places: Places,
    execution: Execution,
    *,
    estimate: Callable[[Wanted], float],
    retry_failed: bool = False,
    say: Callable[[str], None] = answer,
    after: Callable[[], None] | None = None,
) -> Account:
    """Train every wanted run that the store lacks.

    Args:
        wanted: The runs, without pins.
        places: Folders.
        execution: How.
        estimate: Expected seconds of a run, for the time left.
        retry_failed: Try runs again that failed in an earlier call.
        say: Takes lines for the user.
        after: Called in this process whenever a run is over; the next one waits for it.

    Raises:
        FplError: An input is missing, or the runs ask for more than there is.
    """
    account = Account()
    pending: list[tuple[Wanted, RunConfig]] = []
    for run in wanted:
        # Once: it looks at every label and image that the run reads.
        pinned, *_ = pin(run.config, places)
        identity = run_id(pinned)
        if is_done(places.out, identity):
            account.before.append(identity)
        elif has_failed(places.out, identity) and not retry_failed:
            account.failed_before.append(identity)
        else:
            pending.append((run, pinned))
    if not pending:
        return account
    # Only now: a call with nothing to do need not wait until all that trains is loaded.
    from fpl.sweep.job import Job, run_serially
    from fpl.sweep.view import View

    gangs: list[Job] = []
    others: list[Job] = []
    estimates: dict[str, float] = {}
    for run, pinned in pending:
        job = Job.of(pinned, places, replace(execution, examples=EXAMPLES) if run.pictured else execution)
        (gangs if run.gang else others).append(job)
        # A gang's run holds the cores of several others.
        estimates[job.run_id] = estimate(run) * (execution.gang_workers if run.gang else 1)
    if other := _done_on_other_inputs([*gangs, *others], places):
        say(f"{other} of these runs are in the store with other data, splits or weights: they are trained anew")
    # Long runs first: at the end no core waits for one of them.
    for jobs in (gangs, others):
        jobs.sort(key=lambda job: -estimates[job.run_id])
    steps = {job.run_id: int(job.config["train"]["steps"]) for job in [*gangs, *others]}
    began = time.monotonic()
    with View(estimates, steps, before=len(account.before), after=after) as view:
        if execution.local:
            account.results = run_serially([*gangs, *others], view)
        else:
            account.results = _on_ray(gangs, others, places, execution, view, say)
    account.seconds = time.monotonic() - began
    return account


def _done_on_other_inputs(jobs: list[Job], places: Places) -> int:
    """How many of the runs to be trained the store already has under other pins."""
    done = set(Results(places.out).runs["recipe"])
    return sum(recipe_digest(job.config) in done for job in jobs)


def _on_ray(
    gangs: list[Job],
    others: list[Job],
    places: Places,
    execution: Execution,
    view: View,
    say: Callable[[str], None],
) -> dict[str, JobResult]:
    from fpl.sweep.launch.side_by_side import run_side_by_side
    from fpl.sweep.launch.tune_driver import run_on_ray
    from fpl.sweep.session import ray_session

    both = ((others, execution.of_run(gang=False)), (gangs, execution.of_run(gang=True)))
    batches = [(jobs, how) for jobs, how in both if jobs]
    with ray_session(execution.address) as cluster:
        say(f"Ray: {cluster.describe()}")
        for _, how in batches:
            cluster.check(how, places, say)
        if len(batches) == 2 and execution.gang_cpus_per_worker == 0:
            return run_side_by_side(batches, cluster, view)
        results: dict[str, JobResult] = {}
        for jobs, how in batches:
            results |= run_on_ray(jobs, how, cluster, view)
    return results
