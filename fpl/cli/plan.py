"""`fpl plan`: parse, call, print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fpl.cli.groups import grouped
from fpl.cli.option_groups import Asked, Folders, Launch, Searching
from fpl.cli.options import Address, Local, SearchSplits, Store
from fpl.cli.planning import Machine, calibrate_runs, hours_text, plan_console, print_table
from fpl.config.defaults import CITED, CITED_HERE, MOST_DEVICES, MOST_STEPS, REPEATS
from fpl.errors import FplError
from fpl.mirrors import name_of
from fpl.text import duration, plural, say, size_text

if TYPE_CHECKING:
    from rich.table import Table

    from fpl.sweep.plan.campaign_plan import Plan, TableCount
    from fpl.sweep.plan.wanted import Wanted

# Failed and pending things are named up to this many, then counted.
NAMED = 5


@grouped
def plan(
    asked: Asked,
    *,
    out: Store = None,
    folders: Folders,
    address: Address = None,
    local: Local = False,
    launch: Launch,
    cores: Annotated[
        int | None, typer.Option(min=1, max=MOST_DEVICES, help="Plan for so many cores.", show_default="found here")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=0, max=MOST_DEVICES, help="Plan for so many GPUs.", show_default="found here")
    ] = None,
    gpu_memory: Annotated[
        str | None,
        typer.Option(help="Plan for GPUs of so much memory, such as 24GB or 32GiB.", show_default="found here"),
    ] = None,
    gpu_name: Annotated[
        str | None,
        typer.Option(
            help="Plan for GPUs of this name, such as A100: measured runs on it count, else what is assumed of it.",
            show_default="found here, else a V100",
        ),
    ] = None,
    calibrate: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_STEPS, help="First time so many steps of the costliest kinds of runs on this machine."
        ),
    ] = 0,
    search: Annotated[
        str | None, typer.Option(help="Plan this search: experiments/search/NAME.toml, or a path.")
    ] = None,
    searching: Searching,
    trial_splits: SearchSplits = None,
) -> None:
    """Say what `fpl reproduce` (or `fpl search`) with the same arguments would train, what that costs, what hinders."""
    from fpl.cli.search_plan_text import plan_a_search
    from fpl.config.campaign import scale_file
    from fpl.sweep.plan.capacity import known_capacity
    from fpl.sweep.plan.memory import parse_memory

    scale = scale_file(asked.experiments, asked.scale)
    if search is not None and local:
        raise FplError("a search needs Ray", where="--search with --local", hint="leave out --local")
    execution = launch.over(scale, local=local, address=address)
    has = known_capacity(execution, cores, gpus, parse_memory(gpu_memory) if gpu_memory else None, gpu_name)
    if has is None:
        if cores is not None or gpus is not None or gpu_memory or gpu_name:
            where, hint = "--cores, --gpus, --gpu-memory, --gpu-name", "leave them out, or --address and RAY_ADDRESS"
            raise FplError("a cluster says itself what it has", where=where, hint=hint)
        from fpl.sweep.session import ray_session

        with ray_session(execution.address) as cluster:
            has = cluster.capacity()
    machine = Machine(folders, out or Path("runs") / scale.name, execution, has, calibrate)
    if search is not None:
        if asked.cells or asked.rows != "paper":
            raise FplError("a search names its cells itself", where="--search", hint="leave out tables and --rows")
        counts = {"seeds": asked.seeds, "splits": trial_splits}
        studies = searching.studies(asked.experiments, search, asked.scale, asked.overrides, **counts)
        plan_a_search(machine, studies, searching.budget)
    elif trial_splits is not None or searching != Searching():
        raise FplError("budget, sampler and the like belong to a search", hint="name it: fpl plan --search NAME")
    else:
        _plan_tables(machine, asked)


def _plan_tables(machine: Machine, asked: Asked) -> None:
    from fpl.sweep.plan.campaign_plan import make_plan

    campaign = asked.campaign(asked.cells)
    places = machine.places([config for cell in campaign.all_cells for config in cell.configs])
    found = make_plan(campaign, places, machine.has, machine.execution, say)
    found.count_costs()
    if machine.calibrate:
        calibrate_runs(machine, [(run.config, found.seconds(run)) for run in found.to_come or found.wanted])
        found = make_plan(campaign, places, machine.has, machine.execution, say)
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
    # Without padding at its edges it fits into a file of 120 columns.
    table = Table(box=SIMPLE_HEAD, show_footer=len(plan.tables) > 1, pad_edge=False)
    columns = ["table", "printed", "measured", "cited", "pending", "settings", "runs", *states, *_units(plan)]
    for name in columns:
        table.add_column(name, justify="left" if name == "table" else "right")
    counts: list[list[str]] = []
    for each in plan.tables:
        runs_ahead = [ahead[recipe] for recipe in each.recipes if recipe in ahead]
        cells = [each.printed, each.measured, _cited(each), _waiting(each), _settings(each)]
        runs = [len(each.recipes), *(len(each.recipes & recipes) for recipes in states.values())]
        counts.append([each.name, *map(str, [*cells, *runs]), *_device(plan, runs_ahead)])
        table.add_row(*counts[-1])
    # Cells add up over the tables, runs do not: tables share them.
    for number in range(1, 6):
        table.columns[number].footer = str(sum(int(row[number]) for row in counts))
    for number, recipes in enumerate([{run.recipe for run in plan.wanted}, *states.values()], start=6):
        table.columns[number].footer = str(len(recipes))
    table.columns[0].footer = "distinct"
    for column, total in zip(table.columns[-len(_units(plan)) :], _device(plan, plan.to_come), strict=True):
        column.footer = total
    return table


def _units(plan: Plan) -> list[str]:
    """What the last columns are: hours, and the most memory on a GPU. At no scale do some runs use GPUs, others not."""
    return ["GPU-h", "memory"] if any(plan.layout(run).on_gpu for run in plan.wanted) else ["core-h"]


def _device(plan: Plan, runs: list[Wanted]) -> list[str]:
    """Hours of runs together, and the memory of the largest."""
    found = [hours_text(sum(plan.device_hours(runs)))]
    if len(_units(plan)) > 1:
        found.append(size_text(max(map(plan.gpu_bytes, runs))) if runs else "")
    return found


def _waiting(table: TableCount) -> int:
    return sum(count for reason, count in table.others.items() if reason in table.pending)


def _cited(table: TableCount) -> int:
    return table.others.get(CITED, 0) + table.others.get(CITED_HERE, 0)


def _settings(table: TableCount) -> int:
    """Cells that are neither measured, cited nor pending: settings of other tables, dashes of the paper."""
    return sum(table.others.values()) - _waiting(table) - _cited(table)


def _pending(plan: Plan) -> Iterator[str]:
    rows: dict[str, list[str]] = {}
    for table in plan.tables:
        for reason, keys in table.pending.items():
            rows.setdefault(reason, []).extend(f"{table.name}.{key}" for key in keys)
    for reason, keys in rows.items():
        yield f"pending: {', '.join(keys)}: {reason}"
    if here := sum(table.others.get(CITED_HERE, 0) for table in plan.tables):
        yield f"{here} of the cited cells are of systems that this suite trains too: --rows all"


def _states(plan: Plan, out: Path) -> Iterator[str]:
    seeds = len(plan.campaign.seeds)
    each = "1 seed" if seeds == 1 else f"{seeds} seeds"
    yield f"{len(plan.wanted)} distinct runs serve {plan.cells_served} cells with {each} each; store: {name_of(out)}"
    for number, (run, reason) in enumerate(plan.failed):
        if number < NAMED:
            yield f"failed: {_name(run)}: {reason}"
    if len(plan.failed) > NAMED:
        yield f"failed: {len(plan.failed) - NAMED} more"
    if plan.failed:
        yield "failed runs are tried again with fpl reproduce --retry-failed"
    for reason, count in plan.obstacles.most_common():
        yield f"blocked: {plural(count, 'run', spec='d')}: {reason}"
    yield from plan.warnings
    if plan.to_make:
        listed = [f"{len(names)} {kind} ({_some(names)})" for kind, names in plan.to_make.items()]
        yield f"fpl reproduce makes first: {', '.join(listed)}"
    if plan.to_download:
        yield f"downloaded when the first run starts: weights of {', '.join(plan.to_download)}"


def _costs(plan: Plan) -> Iterator[str]:
    gpu, cpu = plan.device_hours(plan.to_come)
    if gpu:
        yield f"GPU-hours to come: {hours_text(gpu)} ({plan.gpu_model.source})"
    if cpu:
        yield f"core-hours to come: {hours_text(cpu)} ({plan.cpu_model.source})"
    yield from _memory(plan)
    if plan.to_come:
        kept, running = plan.disk_bytes()
        yield f"disk for the runs to come: {size_text(kept)}, and {size_text(running)} besides while they are trained"
    assert plan.capacity is not None  # a cluster was asked
    wall = plan.wall_seconds()
    until = f"; wall time of what is ready: about {duration(wall)}" if wall else ""
    yield f"capacity: {plan.capacity.words()}{until}"


def _memory(plan: Plan) -> Iterator[str]:
    """Which run fills a GPU most, and which may not fit."""
    largest = max(plan.to_come, key=plan.gpu_bytes, default=None)
    if largest is None or not (most := plan.gpu_bytes(largest)):
        return
    workers = plan.layout(largest).workers
    where = f"each of the {workers} GPUs of a run" if workers > 1 else "a GPU"
    yield f"memory on {where}: at most {size_text(most)} ({_name(largest)})"
    if tight := plan.tight():
        runs = plural(len(tight), "run", spec="d")
        yield f"warning: {runs} may not fit into the memory of the GPUs, such as {_name(tight[0])}"


def _noise(plan: Plan) -> Iterator[str]:
    cell = plan.campaign.scale.shown.get("noise")
    # Of several seeds one is repeated.
    for run in [run for run in plan.wanted if cell in run.cells][:1]:
        yield f"beside these, for the noise floor: {cell} {REPEATS} times, {duration(plan.seconds(run))} each"


def _result(plan: Plan) -> str:
    gpu, cpu = plan.device_hours(plan.to_come)
    hours = [f"{hours_text(value)} {unit}" for value, unit in ((gpu, "GPU-hours"), (cpu, "core-hours")) if value]
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
