"""What a search would do and cost, before it starts: trials, device-hours, wall time, and what is in its way.

Imports neither torch nor Ray, unless a cost is not known yet. What a trial costs is what the varied run costs: the
settings of FPL hardly change it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fpl.config.checks import warnings_of
from fpl.config.defaults import MOST_TRIALS
from fpl.config.identity import recipe_digest
from fpl.config.study import Point, Study
from fpl.store.trials import read_study, read_trials
from fpl.sweep.execution import Execution
from fpl.sweep.places import Places
from fpl.sweep.plan.campaign_plan import LAUNCHER_START, RAY_START, RUN_START, cost_models, misfits, recorded
from fpl.sweep.plan.capacity import Capacity, makespan
from fpl.sweep.plan.costs import silent
from fpl.sweep.plan.memory import needed
from fpl.sweep.plan.needs import Needs
from fpl.sweep.plan.speed import CostModel
from fpl.sweep.search.budget import ROUNDING, Budget, Spent, check_budget, study_budget


@dataclass(frozen=True)
class StudyPlan:
    """One study of the plan.

    Attributes:
        study: What is searched.
        budget: What it may spend, earlier calls included.
        spent: What earlier calls spent.
        states: State -> recorded trials.
        points: The paper's settings that are tried first; of a grid, all that are tried.
        points_done: Of these, those whose runs are all in the store: they cost nothing.
        trial_seconds: Expected wall time of a whole trial.
        trial_hours: Its device-hours.
        to_begin: Trials that the budget lets begin; None where that depends on a capacity not known yet.
        to_continue: Recorded trials that were cut off and go on.
        hours: Device-hours to come; an upper bound, what is stopped early takes less. None as `to_begin`. The best
            setting's training with all labels, after a search on held out images, is part of it but not of the budget.
        jobs: Expected seconds of each trial to come that costs anything, and of these last runs.
    """

    study: Study
    budget: Budget
    spent: Spent
    states: Mapping[str, int]
    points: tuple[Point, ...]
    points_done: int
    trial_seconds: float
    trial_hours: float
    to_begin: int | None
    to_continue: int
    hours: float | None
    jobs: tuple[float, ...]


@dataclass
class SearchPlan:
    """A search, planned.

    Attributes:
        studies: One plan each, in the order in which they are carried out.
        capacity: What there is for runs; None where Ray will say so at start.
        execution: How runs are carried out.
        model: Cost of runs on the device that they use.
        budget: Of all studies together; None: what the search file says for each.
        slots: Trials at once; None without a known capacity.
        blocked: Why the search cannot start, with the remedies behind arrows; empty if it can.
        to_make: Kind -> names of inputs that are not there and are made before the first trial.
        to_download: Networks whose weights are downloaded when the first trial starts.
        warnings: What is allowed in the varied runs but rarely meant.
    """

    studies: list[StudyPlan]
    capacity: Capacity | None
    execution: Execution
    model: CostModel
    budget: Budget | None
    slots: int | None
    blocked: list[str] = field(default_factory=list)
    to_make: dict[str, list[str]] = field(default_factory=dict)
    to_download: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def device_unit(self) -> str:
        """`GPU` or `core`: what device-hours are of."""
        return "GPU" if self.execution.on_gpu else "core"

    @property
    def to_come(self) -> int | None:
        """Trials to begin or to continue, all studies together."""
        counts = [each.to_begin for each in self.studies]
        known = [count for count in counts if count is not None]
        return None if len(known) < len(counts) else sum(known) + sum(each.to_continue for each in self.studies)

    @property
    def hours(self) -> float | None:
        """Device-hours to come, at most."""
        known = [each.hours for each in self.studies if each.hours is not None]
        return None if len(known) < len(self.studies) else sum(known)

    def wall_seconds(self) -> float | None:
        """Expected wall time, at most; None without a known capacity or where nothing is left to do."""
        if not self.slots or not any(each.jobs for each in self.studies):
            return None
        start = RAY_START + LAUNCHER_START[self.execution.launcher]
        return start + sum(makespan(each.jobs, self.slots) for each in self.studies if each.jobs)

    def gpu_bytes(self) -> float:
        """Expected memory of the largest trial on each of its GPUs; 0 where trials use none."""
        if not self.execution.on_gpu:
            return 0.0
        bases, workers = [each.study.base for each in self.studies], self.execution.workers
        return max(needed(self.model.costs.of(base), base, workers).total for base in bases)

    def disk_bytes(self) -> tuple[int, int]:
        """Disk for the trials to come: what stays, and what those running at once need besides."""
        costs = [self.model.costs.of(each.study.base) for each in self.studies]
        runs = [each.study.runs_per_trial * len(each.jobs) for each in self.studies]
        kept = sum(cost.kept_bytes * count for cost, count in zip(costs, runs, strict=True))
        return kept, max(cost.running_bytes for cost in costs) * (self.slots or 1)


def plan_search(
    studies: Sequence[Study],
    places: Places,
    capacity: Capacity | None,
    execution: Execution,
    budget: Budget | None = None,
    say: Callable[[str], None] = silent,
) -> SearchPlan:
    """Plan the studies of a search, which are carried out one after the other.

    Args:
        studies: At least one.
        places: Where the store, the data sets, the split lists and the pretrained weights are.
        capacity: What there is for runs; None leaves the question to Ray, and blocks nothing for it.
        execution: How runs are carried out.
        budget: Of all studies together; None: `trials` of the search file for each.
        say: Told where kinds of runs are counted that no plan beside this store has had before.

    Raises:
        FplError: A damaged store or calibration, or a budget in hours of a device that the runs do not use.
    """
    if budget is not None:
        check_budget(budget, execution.on_gpu)
    gpu_model, cpu_model = cost_models(places, capacity, execution, say)
    cpu_model.costs.learn(config for study in studies for config in (study.base, study.config({})))
    model = gpu_model if execution.on_gpu else cpu_model
    slots = capacity.slots(execution) if capacity is not None else None
    done, needs = recorded(places)[0], Needs(places)
    planned = []
    blocked: Counter[str] = Counter()
    for number, study in enumerate(studies):
        share = study_budget(budget, number, len(studies), _trials(study))
        planned.append(_plan_study(study, places, share, execution, model, slots, done))
        # What a trial needs, whatever its parameters.
        for config in (study.config({}, split=split) for split in range(study.head.splits)):
            blocked.update([*needs.lacking(config), *misfits(config, execution, capacity, model.costs)])
        blocked.update(_too_small(planned[-1], execution, slots != 0))
    warnings = Counter(warning for study in studies for warning in warnings_of(study.base))
    warnings.update(warning for each in planned if (warning := _only_points(each)))
    return SearchPlan(
        planned, capacity, execution, model, budget, slots, [*blocked], needs.to_make, needs.to_download, [*warnings]
    )


def _trials(study: Study) -> int:
    """Trials of a study without a budget: a grid is complete."""
    return len(study.tried_points) if study.head.sampler == "grid" else study.head.trials


def _plan_study(
    study: Study,
    places: Places,
    budget: Budget,
    execution: Execution,
    model: CostModel,
    slots: int | None,
    done: set[str],
) -> StudyPlan:
    recorded_rows = read_trials(places.out, study.identity)
    rows = [row for row in recorded_rows if row.state != "final"]
    points = study.tried_points
    answered = [point for point in points if _recipes(study, point) <= done]
    start = RUN_START[execution.launcher]
    seconds = (model.run_seconds(study.config({}), execution.workers) + start) * study.runs_per_trial
    hours = seconds * execution.devices / 3600
    wall = (read_study(places.out, study.identity) or {}).get("wall_seconds") or 0.0
    spent = Spent.of(recorded_rows, wall / 3600)
    # What a trial that was cut off has done is in its checkpoints.
    rests = [seconds * max(0.0, 1 - row.step / study.steps) for row in rows if row.state == "running"]
    tried = [row.params for row in rows]
    free = sum(point.params not in tried for point in answered)
    to_begin = _affordable(budget, spent, rests, seconds, hours, slots, free)
    if to_begin is not None:
        to_begin = min(to_begin, MOST_TRIALS)
    if study.head.sampler == "grid" and to_begin is not None:
        to_begin = min(to_begin, sum(point.params not in tried for point in points))
    jobs = [*rests, *[seconds] * max(0, (to_begin or 0) - free)]
    if study.head.protocol == "holdout" and (jobs or len(rows) == len(recorded_rows)):
        # The best setting, trained at last with all labels.
        jobs += [model.run_seconds(study.base, execution.workers) + start] * study.head.seeds
    return StudyPlan(
        study=study,
        budget=budget,
        spent=spent,
        states=Counter(row.state for row in rows),
        points=points,
        points_done=len(answered),
        trial_seconds=seconds,
        trial_hours=hours,
        to_begin=to_begin,
        to_continue=len(rests),
        hours=None if to_begin is None else sum(jobs) * execution.devices / 3600,
        jobs=tuple(jobs),
    )


def _recipes(study: Study, point: Point) -> set[str]:
    """Recipe digests of a point's runs."""
    return {recipe_digest(config.model_dump(mode="json")) for config in study.configs(point.params)}


def _affordable(
    budget: Budget, spent: Spent, rests: Sequence[float], seconds: float, hours: float, slots: int | None, free: int
) -> int | None:
    """Trials that a budget lets begin; None where that depends on how many run at once and nobody knows yet.

    Args:
        budget: Of the study.
        spent: What earlier calls spent.
        rests: Seconds that trials which were cut off still take.
        seconds: Wall time of a trial.
        hours: Its device-hours.
        slots: Trials at once.
        free: Trials that the store answers: they take nothing, but begin only where a whole one would fit.
    """
    if budget.kind == "trials":
        return max(0, int(budget.amount) - spent.trials)
    if budget.kind == "device":
        left = budget.amount - spent.device_hours - sum(rests) * hours / seconds
        paid = max(0, int(left / hours + ROUNDING))
    elif slots is None:
        return None
    else:
        # Trials that go on come first, each on a slot of its own.
        left = (budget.amount - spent.wall_hours) * 3600
        busy = sorted(rests, reverse=True)[:slots] + [0.0] * (slots - len(rests))
        paid = sum(max(0, int((left - end) / seconds + ROUNDING)) for end in busy)
    return free + paid if paid else 0


def _only_points(plan: StudyPlan) -> str:
    """That a budget of trials ends before anything but the paper's settings is tried, or before all of them are."""
    if plan.budget.kind != "trials" or (plan.study.head.sampler == "grid" and plan.budget.amount >= len(plan.points)):
        return ""
    trials, points = int(plan.budget.amount), len(plan.points)
    if trials > points or not points:
        return ""
    rest = "nothing else" if trials == points else f"not the other {points - trials}, and nothing else"
    return f"{plan.study.cell}: {plan.budget.words} try {trials} of the paper's {points} settings, {rest}"


def _too_small(plan: StudyPlan, execution: Execution, room: bool) -> list[str]:
    """That a budget does not pay for a single trial of a study."""
    if plan.to_begin != 0 or plan.to_continue or plan.spent.trials or not room:
        return []
    if plan.study.head.sampler == "grid" and not plan.points:
        what = f"a grid tries the paper's own runs, and none of its cells is {plan.study.cell} as it is varied here"
        return [f"{what} -> leave the overrides out, or take another --sampler"]
    unit = "GPU" if execution.on_gpu else "core"
    costs = {
        "trials": "every study needs one at least",
        "device": f"one takes {plan.trial_hours:.3g} {unit}-hours",
        "wall": f"one takes {plan.trial_seconds / 3600:.3g} hours",
    }
    where = f"the share of {plan.study.cell}, {plan.budget.words}, is not enough for a trial"
    return [f"{where}: {costs[plan.budget.kind]} -> a larger --budget, or a search of fewer cells"]
