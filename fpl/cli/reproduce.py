"""`fpl reproduce`: parse, call, print."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fpl.cli.data import interruptible
from fpl.cli.groups import grouped
from fpl.cli.option_groups import Asked, Folders, RunLaunch
from fpl.cli.options import DIAGNOSE, Address, Local, Publish, Store
from fpl.cli.planning import check_publish, compact_store
from fpl.cli.reproduced import show, write_live
from fpl.config.defaults import MOST_RUNS, REPEATS
from fpl.errors import FplError
from fpl.text import answer, say

if TYPE_CHECKING:
    from fpl.config.campaign import Campaign
    from fpl.sweep.execution import Execution
    from fpl.sweep.places import Places
    from fpl.sweep.plan.campaign_plan import Plan
    from fpl.sweep.reproduce import Account

NOISE = "noise"


@grouped
def reproduce(
    asked: Asked,
    *,
    out: Store = None,
    publish: Publish = None,
    folders: Folders,
    address: Address = None,
    local: Local = False,
    launch: RunLaunch,
    diagnose_every: Annotated[int | None, DIAGNOSE] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed runs again.")] = False,
    repeats: Annotated[
        int | None,
        typer.Option(min=2, max=MOST_RUNS, help="Of `noise`: repetitions of the one run.", show_default=str(REPEATS)),
    ] = None,
) -> None:
    """Train what the tables lack and print them beside the paper; the same command continues after a kill."""
    # Read when torch is loaded: one core belongs to one run, which is told its threads.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    noise = NOISE in asked.cells
    _check_asked(asked, noise, publish)
    campaign = asked.campaign([] if noise else asked.cells)
    # Of the whole campaign with the suite's own rows, the noise floor is a part.
    floor = asked.whole and bool(campaign.scale.shown.get(NOISE))
    if repeats is not None and not (noise or floor):
        what = "nothing is repeated: that is `noise`, and all tables with --rows all where the scale names a run"
        raise FplError(what, where=f"--repeats {repeats}", hint="leave it out, or fpl reproduce noise")
    times = repeats or REPEATS
    if noise:
        campaign = asked.campaign([_noise_cell(campaign)], seeds=1)
    out = out or Path("runs") / campaign.scale_name
    check_publish(out, publish)
    places = folders.places(
        out, [config for cell in campaign.all_cells for config in cell.configs], whole=True
    ).resolved
    execution = launch.over(campaign.scale, local=local, address=address, diagnose_every=diagnose_every)
    compact_store(places.out)
    plan = _plan(campaign, places, execution)
    if execution.tensorboard:
        say(f"the runs while they train: tensorboard --logdir {places.events}")
    with interruptible("nothing is lost: the same command continues"):
        if noise:
            account = _noise(plan, places, execution, times)
        else:
            account = _carry_out(plan, places, execution, retry_failed, asked)
            if floor:
                one = _plan(asked.campaign([_noise_cell(campaign)], seeds=1), places, execution)
                account.add(_noise(one, places, execution, times))
        code = _say_what_failed(account, out)
        if not noise:
            show(asked, account, places.out, publish)
    if code:
        raise typer.Exit(code)


def _check_asked(asked: Asked, noise: bool, publish: Path | None) -> None:
    """Refuse what does not go together, before anything is read."""
    if noise and len(asked.cells) > 1:
        raise FplError("noise goes alone: the scale says which run is repeated", where=" ".join(asked.cells))
    if noise and asked.seeds not in (None, 1):
        what = "noise repeats one run with one seed"
        raise FplError(what, where=f"--seeds {asked.seeds}", hint="leave it out; --repeats says how often")
    if noise and publish is not None:
        hint = "leave it out: the next fpl reproduce --publish takes the repetitions along"
        raise FplError(
            "repetitions are published with the runs of their store", where=f"--publish {publish}", hint=hint
        )
    if publish is not None and asked.overrides:
        raise FplError(
            "what is published are the tables as they stand in experiments/",
            where=f"--publish with {' '.join(asked.overrides)}",
            hint="leave out the overrides, or --publish: tables and page are in the store's own folder",
        )


def _plan(campaign: Campaign, places: Places, execution: Execution) -> Plan:
    """What there is to do; refuses before anything is trained if a part of it cannot start.

    Raises:
        FplError: Every reason why runs cannot start, with the number of runs.
    """
    from fpl.sweep.plan.campaign_plan import make_plan
    from fpl.sweep.plan.capacity import known_capacity

    plan = make_plan(campaign, places, known_capacity(execution), execution, say)
    if plan.blocked:
        listed = [f"{count} runs: {reason}" for reason, count in plan.obstacles.items()]
        raise FplError(
            f"{len(plan.blocked)} of {len(plan.wanted)} runs cannot start\n  " + "\n  ".join(listed),
            hint="`fpl plan` with the same arguments shows the whole campaign; name tables or rows to run a part of it",
        )
    for warning in plan.warnings:
        say(warning)
    plan.count_costs()
    return plan


def _carry_out(plan: Plan, places: Places, execution: Execution, retry_failed: bool, asked: Asked) -> Account:
    from fpl.report.live import LiveReport
    from fpl.sweep.inputs import make_inputs
    from fpl.sweep.reproduce import carry_out

    if not plan.wanted:
        answer("no cell of these needs a run")
    make_inputs([run.config for run in plan.wanted], places, say)
    if plan.to_come:
        say(f"tables and page, while it works and after a kill: {places.out / 'index.html'}")
    with LiveReport(lambda: write_live(asked, places.out)) as live:
        if plan.to_come:
            live.ended()
        account = carry_out(
            plan.wanted,
            places,
            execution,
            estimate=plan.seconds,
            retry_failed=retry_failed,
            say=say,
            after=live.ended,
        )
    if live.problem is not None:
        say(f"the page was not written again while the runs were carried out: {live.problem}")
    return account


def _noise_cell(campaign: Campaign) -> str:
    cell = str(campaign.scale.shown.get(NOISE, ""))
    if not cell:
        where = str(campaign.scale.path)
        raise FplError("the scale names no run to repeat", where=where, hint='[scale] noise = "TABLE.ROW.COLUMN"')
    return cell


def _noise(plan: Plan, places: Places, execution: Execution, repeats: int) -> Account:
    from fpl.sweep.inputs import make_inputs
    from fpl.sweep.noise import measure_noise

    (run,) = plan.wanted
    make_inputs([run.config], places, say)
    return measure_noise(run, repeats, places, execution, estimate=plan.seconds, say=say)


def _say_what_failed(account: Account, out: Path) -> int:
    """Name the runs that failed or were left, now or before; 1 if one failed, 2 if one was left, 0 otherwise."""
    for result in account.unfinished:
        say(f"not finished: {result.run_id}: {result.reason or 'stopped'}")
    for result in account.failed:
        log = result.log or out / "logs" / f"{result.run_id}.log"
        say(f"failed: {result.run_id}: {result.reason} (log: {log})")
    if account.failed_before:
        say(
            f"{len(account.failed_before)} runs failed in an earlier call and were not tried again; --retry-failed "
            f"tries them: {', '.join(account.failed_before)}"
        )
    return 1 if account.failed or account.failed_before else 2 if account.unfinished else 0
