"""`fpl plan`: parse, call, print."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fpl.cli.data import DATA, SPLITS, DataRoot, Splits
from fpl.cli.options import (
    EXPERIMENTS,
    Address,
    Budget,
    Concurrency,
    CpusPerWorker,
    Experiments,
    GpusPerWorker,
    Launcher,
    Local,
    Names,
    Objectives,
    Protocol,
    RowsRun,
    Sampler,
    SamplerSeed,
    Scale,
    SearchSplits,
    Seeds,
    Stop,
    Store,
    WeightsFolder,
    Workers,
    WorkerThreads,
    split_names,
)
from fpl.cli.planning import Machine, calibrate_runs, plan_console, print_table, say, size_text
from fpl.cli.show import Asked
from fpl.config.defaults import REPEATS
from fpl.errors import FplError
from fpl.text import duration

if TYPE_CHECKING:
    from rich.table import Table

    from fpl.config.defaults import Rows
    from fpl.sweep.plan.campaign_plan import Plan, TableCount
    from fpl.sweep.plan.wanted import Wanted

# Failed and pending things are named up to this many, then counted.
NAMED = 5


def plan(
    names: Names = None,
    scale: Scale = "mini",
    seeds: Seeds = None,
    rows: RowsRun = "paper",
    out: Store = None,
    data_root: DataRoot = DATA,
    splits: Splits = SPLITS,
    weights: WeightsFolder = None,
    address: Address = None,
    local: Local = False,
    launcher: Launcher = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = None,
    cpus_per_worker: CpusPerWorker = None,
    concurrency: Concurrency = None,
    threads: WorkerThreads = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Plan for so many cores.", show_default="found here")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="Plan for so many GPUs.", show_default="found here")] = None,
    calibrate: Annotated[
        int, typer.Option(min=0, help="First time so many steps of the costliest kinds of runs on this machine.")
    ] = 0,
    search: Annotated[
        str | None, typer.Option(help="Plan this search: experiments/search/NAME.toml, or a path.")
    ] = None,
    budget: Budget = None,
    sampler: Sampler = None,
    sampler_seed: SamplerSeed = 0,
    stop: Stop = None,
    protocol: Protocol = None,
    objectives: Objectives = None,
    trial_splits: SearchSplits = None,
    experiments: Experiments = EXPERIMENTS,
) -> None:
    """Say what `fpl reproduce` (or `fpl search`) with the same arguments would train, what that costs, what hinders."""
    from fpl.cli.search_plan_text import plan_a_search
    from fpl.sweep.plan.capacity import capacity

    tables, overrides = split_names(names)
    execution = {
        "local": local or None,
        "launcher": launcher,
        "workers": workers,
        "gpus_per_worker": gpus_per_worker,
        "cpus_per_worker": cpus_per_worker,
        "concurrency": concurrency,
        "threads": threads,
    }
    changes = {"sampler": sampler, "stop": stop, "protocol": protocol, "objectives": objectives, "splits": trial_splits}
    # Where Ray would be joined and not started, this machine says nothing about what there is.
    has = None if address or os.environ.get("RAY_ADDRESS") else capacity(cores, gpus)
    machine = Machine(experiments, scale, execution, out, data_root, splits, weights, has, calibrate)
    if search is not None:
        if tables or rows != "paper":
            raise FplError("a search names its cells itself", where="--search", hint="leave out tables and --rows")
        plan_a_search(machine, search, budget, sampler_seed, overrides, {**changes, "seeds": seeds})
    elif budget or sampler_seed or any(value is not None for value in changes.values()):
        raise FplError("budget, sampler and the like belong to a search", hint="name it: fpl plan --search NAME")
    else:
        _plan_tables(machine, tables, seeds, rows, overrides)


def _plan_tables(machine: Machine, tables: list[str], seeds: int | None, rows: Rows, overrides: list[str]) -> None:
    from fpl.config.campaign import load_campaign
    from fpl.sweep.plan.campaign_plan import make_plan

    asked = Asked(machine.experiments, machine.scale, tuple(tables), seeds, rows, tuple(overrides))
    campaign = load_campaign(machine.experiments, machine.scale, tables, seeds, rows, overrides)
    launch = machine.launch(campaign.scale)
    places = machine.places(campaign.scale_name, [config for cell in campaign.all_cells for config in cell.configs])
    found = make_plan(campaign, places, machine.has, launch, say)
    if machine.calibrate:
        runs = found.to_come or found.wanted
        timed = [(run.config, found.seconds(run)) for run in runs]
        workers = max((found.layout(run).workers for run in runs if not run.gang), default=1)
        on_gpu = any(found.layout(run).on_gpu for run in runs)
        calibrate_runs(timed, places.out, machine.calibrate, launch, on_gpu=on_gpu, workers=workers)
        found = make_plan(campaign, places, machine.has, launch, say)
    print_plan(found, places.out, noise=asked.whole)


def print_plan(plan: Plan, out: Path, noise: bool = False) -> None:
    """Print a plan: a table, what is in the way, the cost, and the result in one line at the end.

    Args:
        plan: What to print.
        out: The store.
        noise: Whether `fpl reproduce` would measure the noise floor too.
    """
    console = plan_console()
    print_table(console, _table(plan))
    for line in (*_pending(plan), *_states(plan, out), *_costs(plan), *(_noise(plan) if noise else [])):
        console.print(line)
    console.print(_result(plan), style="bold")


def _table(plan: Plan) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    states = {
        "done": {run.recipe for run in plan.done},
        "failed": {run.recipe for run, _ in plan.failed},
        "blocked": {run.recipe for run, _ in plan.blocked},
        "missing": {run.recipe for run in plan.missing},
    }
    ahead = {run.recipe: run for run in plan.to_come}
    table = Table(box=SIMPLE_HEAD, show_footer=len(plan.tables) > 1)
    columns = ["table", "printed", "measured", "cited", "pending", "settings", "runs", *states, _unit(plan)]
    for name in columns:
        table.add_column(name, justify="left" if name == "table" else "right")
    counts: list[list[str]] = []
    for each in plan.tables:
        hours = sum(plan.device_hours([ahead[recipe] for recipe in each.recipes if recipe in ahead]))
        cells = [each.printed, each.measured, each.others.get("cited", 0), _waiting(each), _settings(each)]
        runs = [len(each.recipes), *(len(each.recipes & recipes) for recipes in states.values())]
        counts.append([each.name, *map(str, [*cells, *runs]), _hours(hours)])
        table.add_row(*counts[-1])
    # Cells add up over the tables, runs do not: tables share them.
    for number in range(1, 6):
        table.columns[number].footer = str(sum(int(row[number]) for row in counts))
    for number, recipes in enumerate([{run.recipe for run in plan.wanted}, *states.values()], start=6):
        table.columns[number].footer = str(len(recipes))
    table.columns[0].footer = "distinct"
    table.columns[-1].footer = _hours(sum(plan.device_hours(plan.to_come)))
    return table


def _unit(plan: Plan) -> str:
    """What the hours of the table are; at no scale do some runs use GPUs and others not."""
    return "GPU-h" if any(plan.layout(run).on_gpu for run in plan.wanted) else "core-h"


def _waiting(table: TableCount) -> int:
    return sum(count for reason, count in table.others.items() if reason in table.pending)


def _settings(table: TableCount) -> int:
    """Cells that are neither measured, cited nor pending: settings of other tables, dashes of the paper."""
    return sum(table.others.values()) - _waiting(table) - table.others.get("cited", 0)


def _pending(plan: Plan) -> Iterator[str]:
    rows: dict[str, list[str]] = {}
    for table in plan.tables:
        for reason, keys in table.pending.items():
            rows.setdefault(reason, []).extend(f"{table.name}.{key}" for key in keys)
    for reason, keys in rows.items():
        yield f"pending: {', '.join(keys)}: {reason}"


def _states(plan: Plan, out: Path) -> Iterator[str]:
    seeds = len(plan.campaign.seeds)
    each = "1 seed" if seeds == 1 else f"{seeds} seeds"
    yield f"{len(plan.wanted)} distinct runs serve {plan.cells_served} cells with {each} each; store: {out}"
    for number, (run, reason) in enumerate(plan.failed):
        if number < NAMED:
            yield f"failed: {_name(run)}: {reason}"
    if len(plan.failed) > NAMED:
        yield f"failed: {len(plan.failed) - NAMED} more"
    if plan.failed:
        yield "failed runs are tried again with fpl reproduce --retry-failed"
    for reason, count in plan.obstacles.most_common():
        yield f"blocked: {_runs(count)}: {reason}"
    yield from plan.warnings
    if plan.to_make:
        listed = [f"{len(names)} {kind} ({_some(names)})" for kind, names in plan.to_make.items()]
        yield f"fpl reproduce makes first: {', '.join(listed)}"
    if plan.to_download:
        yield f"downloaded when the first run starts: weights of {', '.join(plan.to_download)}"


def _costs(plan: Plan) -> Iterator[str]:
    gpu, cpu = plan.device_hours(plan.to_come)
    if gpu:
        yield f"GPU-hours to come: {_hours(gpu)} ({plan.gpu_model.source})"
    if cpu:
        yield f"core-hours to come: {_hours(cpu)} ({plan.cpu_model.source})"
    if plan.to_come:
        kept, running = plan.disk_bytes()
        yield f"disk for the runs to come: {size_text(kept)}, and {size_text(running)} besides while they are trained"
    where = plan.capacity.words() if plan.capacity else "read from Ray at start"
    wall = plan.wall_seconds()
    yield f"capacity: {where}" + (f"; wall time of what is ready: about {duration(wall)}" if wall else "")


def _noise(plan: Plan) -> Iterator[str]:
    cell = plan.campaign.scale.shown.get("noise")
    # Of several seeds one is repeated.
    for run in [run for run in plan.wanted if cell in run.cells][:1]:
        yield f"beside these, for the noise floor: {cell} {REPEATS} times, {duration(plan.seconds(run))} each"


def _result(plan: Plan) -> str:
    gpu, cpu = plan.device_hours(plan.to_come)
    hours = [f"{_hours(value)} {unit}" for value, unit in ((gpu, "GPU-hours"), (cpu, "core-hours")) if value]
    wall = plan.wall_seconds()
    states: dict[str, list[Any]] = {"done": plan.done, "failed": plan.failed, "blocked": plan.blocked}
    words = [f"{len(runs)} {state}" for state, runs in states.items()]
    words += [f"{len(plan.missing)} missing", *hours, *([f"about {duration(wall)}"] if wall else [])]
    return f"{plan.campaign.scale_name}: {len(plan.wanted)} runs: " + ", ".join(words)


def _name(run: Wanted) -> str:
    rest = f" (and {len(run.cells) - 1} more cells)" if len(run.cells) > 1 else ""
    return f"{run.cells[0]} seed {run.config.seed}{rest}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:2]) + (", ..." if len(names) > 2 else "")


def _runs(count: int) -> str:
    return f"{count} run" + ("s" if count != 1 else "")


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 1 or hours == 0 else f"{hours:.2f}"
