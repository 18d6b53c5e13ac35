"""The plan of a search as text: what `fpl plan --search` prints, and `fpl search` before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fpl.cli.planning import Machine, calibrate_runs, hours_text, plan_console, print_table
from fpl.mirrors import name_of
from fpl.text import duration, say, size_text

if TYPE_CHECKING:
    from rich.table import Table

    from fpl.config.search import Parameter
    from fpl.config.study import Study
    from fpl.sweep.plan.search_plan import SearchPlan

STATES = {"complete": "done", "pruned": "early", "failed": "failed", "running": "cut"}


def plan_a_search(machine: Machine, studies: Sequence[Study], budget: str | None) -> None:
    """`fpl plan --search`: plan the studies, print the plan."""
    from fpl.sweep.plan.search_plan import plan_search
    from fpl.sweep.search.budget import parse_budget

    allowed = parse_budget(budget) if budget else None
    places = machine.places([study.base for study in studies])
    found = plan_search(studies, places, machine.has, machine.execution, allowed, say)
    if machine.calibrate:
        calibrate_runs(machine, [(each.study.base, each.trial_seconds) for each in found.studies])
        found = plan_search(studies, places, machine.has, machine.execution, allowed, say)
    print_search_plan(found, places.out)


def print_search_plan(plan: SearchPlan, out: Path) -> None:
    """Print a plan: a table of studies, what is varied, what is in the way, the cost, the result in one line.

    The table: settings of the paper that come first and those of them that the store answers; trials recorded (done,
    stopped early, failed, cut off), trials that the budget lets begin; wall time and device-hours of one, and of all.
    """
    console = plan_console()
    print_table(console, _table(plan))
    for line in (*_space(plan), *_obstacles(plan), *_costs(plan, out)):
        console.print(line)
    console.print(_result(plan), style="bold")


def _table(plan: SearchPlan) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_footer=len(plan.studies) > 1)
    unit = f"{plan.device_unit}-h"
    table.add_column("study", no_wrap=True, min_width=max(len(each.study.cell) for each in plan.studies))
    for name in ["paper", "stored", *STATES.values(), "next", "each", f"{unit} each", unit]:
        table.add_column(name, justify="right", no_wrap=True)
    for each in plan.studies:
        counts = [len(each.points), each.points_done, *(each.states.get(state, 0) for state in STATES)]
        table.add_row(
            each.study.cell,
            *map(str, counts),
            _count(each.to_begin),
            duration(each.trial_seconds),
            hours_text(each.trial_hours),
            "?" if each.hours is None else hours_text(each.hours),
        )
    table.columns[0].footer = "all"
    for number, state in enumerate(STATES, start=3):
        table.columns[number].footer = str(sum(each.states.get(state, 0) for each in plan.studies))
    begin = [each.to_begin for each in plan.studies if each.to_begin is not None]
    table.columns[7].footer = str(sum(begin)) if len(begin) == len(plan.studies) else "?"
    table.columns[-1].footer = "?" if plan.hours is None else hours_text(plan.hours)
    return table


def _count(number: int | None) -> str:
    return "?" if number is None else str(number)


def _space(plan: SearchPlan) -> Iterator[str]:
    search = plan.studies[0].study.search
    for parameter in search.space:
        yield f"varied: {_parameter(parameter)}"
    head = plan.studies[0].study.head
    trial = f"{head.seeds} seed{'s' * (head.seeds > 1)} on {head.splits} split{'s' * (head.splits > 1)}"
    kept = f"one in {head.holdout} labeled images, kept from training"
    images = kept if head.protocol == "holdout" else "the validation images"
    early = "no trial is stopped early" if head.stop == "none" else f"{head.stop} stops trials early"
    yield (
        f"sampler {head.sampler}, seed {plan.studies[0].study.seed}; {early}; a trial is {trial}, scored on {images} "
        f"({plan.studies[0].study.metric})"
    )


def _parameter(parameter: Parameter) -> str:
    if parameter.choices:
        values = f"one of {', '.join(map(str, parameter.choices))}"
    else:
        values = f"{parameter.low:g} to {parameter.high:g}" + (", logarithmic" if parameter.log else "")
    conditions = [f"{key} = {' or '.join(map(str, allowed))}" for key, allowed in parameter.when.items()]
    return f"{parameter.key}: {values}" + (f"; only with {' and '.join(conditions)}" if conditions else "")


def _obstacles(plan: SearchPlan) -> Iterator[str]:
    for reason in plan.blocked:
        yield f"blocked: {reason}"
    for warning in plan.warnings:
        yield f"warning: {warning}"
    if plan.to_make:
        listed = [f"{len(names)} {kind} ({', '.join(names)})" for kind, names in plan.to_make.items()]
        yield f"fpl search makes first: {', '.join(listed)}"
    if plan.to_download:
        yield f"downloaded when the first trial starts: weights of {', '.join(plan.to_download)}"


def _costs(plan: SearchPlan, out: Path) -> Iterator[str]:
    head = plan.studies[0].study.head
    file = "the paper's settings" if head.sampler == "grid" else f"{plan.studies[0].budget.words} a study"
    budget = plan.budget.words if plan.budget else f"none given: {file}"
    # `--budget` counts what earlier calls spent.
    spent = sum(each.spent.device_hours for each in plan.studies)
    used = f", {hours_text(spent)} {plan.device_unit}-hours used so far" if spent else ""
    if plan.to_come == 0:
        used += ", nothing left to begin"
    yield f"budget: {budget}{used}; store: {name_of(out)}"
    if plan.hours:
        last = "; the best setting's last training, with all labels, is beside the budget"
        final = last if head.protocol == "holdout" else ""
        yield f"{plan.device_unit}-hours to come, at most: {hours_text(plan.hours)} ({plan.model.source}){final}"
    elif plan.hours is None:
        yield f"{plan.device_unit}-hours of a trial: {hours_text(plan.studies[0].trial_hours)} ({plan.model.source})"
    if most := plan.gpu_bytes():
        yield f"memory of a trial: at most {size_text(most)} on each of its GPUs"
    if plan.to_come:
        kept, running = plan.disk_bytes()
        yield f"disk for the trials to come: {size_text(kept)}, and {size_text(running)} besides while they are trained"
    where = plan.capacity.words() if plan.capacity else "read from Ray at start"
    at_once = "" if plan.slots is None else f"; {plan.slots} trial{'s' * (plan.slots != 1)} at once"
    wall = plan.wall_seconds()
    yield f"capacity: {where}{at_once}" + (f"; wall time about {duration(wall)}" if wall else "")


def _result(plan: SearchPlan) -> str:
    study = plan.studies[0].study
    recorded = sum(sum(each.states.values()) for each in plan.studies)
    count = f"{len(plan.studies)} stud{'ies' if len(plan.studies) > 1 else 'y'}"
    words = [f"{recorded} trial{'s' * (recorded != 1)} recorded", f"{_count(plan.to_come)} to come"]
    if plan.blocked:
        words.append(f"blocked for {len(plan.blocked)} reason{'s' * (len(plan.blocked) > 1)}")
    if plan.hours:
        words.append(f"at most {hours_text(plan.hours)} {plan.device_unit}-hours")
    if wall := plan.wall_seconds():
        words.append(f"about {duration(wall)}")
    return f"{study.scale}: search {study.search.name}, {count}: " + ", ".join(words)
