"""`fpl reproduce`: parse, call, print."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fpl.cli_data import DATA, SPLITS, DataRoot, Splits, interruptible
from fpl.cli_options import (
    EXPERIMENTS,
    Address,
    Concurrency,
    Controls,
    CpusPerWorker,
    Experiments,
    GpusPerWorker,
    Launcher,
    Local,
    Names,
    Scale,
    Seeds,
    Store,
    WeightsFolder,
    Workers,
    WorkerThreads,
    split_names,
)
from fpl.errors import FplError

if TYPE_CHECKING:
    from fpl.config.campaign import Campaign
    from fpl.sweep.execution import Execution
    from fpl.sweep.places import Places
    from fpl.sweep.plan import Plan
    from fpl.sweep.reproduce import Account

NOISE = "noise"


def reproduce(
    names: Names = None,
    scale: Scale = "mini",
    seeds: Seeds = None,
    controls: Controls = None,
    out: Store = None,
    publish: Annotated[
        Path | None,
        typer.Option(help="Where tables, page and compact Parquet go.", show_default="results/SCALE for all tables"),
    ] = None,
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
    loader_workers: Annotated[int | None, typer.Option(min=0, help="Processes that read images.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(min=1, help="Steps between checkpoints.")] = None,
    diagnose_every: Annotated[
        int | None,
        typer.Option(min=0, help="Steps between diagnostics, which read labels of unlabeled images; 0: never."),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed runs again.")] = False,
    repeats: Annotated[int, typer.Option(min=2, help="Of `noise`: repetitions of the one run.")] = 3,
    experiments: Experiments = EXPERIMENTS,
) -> None:
    """Train what the tables lack and print them beside the paper; the same command continues after a kill."""
    # Read when torch is loaded: one core belongs to one run, which is told its threads.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    from fpl.config.campaign import load_campaign
    from fpl.config.weights import default_folder
    from fpl.sweep.execution import Execution
    from fpl.sweep.places import Places

    tables, overrides = split_names(names)
    noise = NOISE in tables
    if noise and len(tables) > 1:
        raise FplError("noise goes alone: the scale says which run is repeated", where=" ".join(tables))
    campaign = load_campaign(experiments, scale, [] if noise else tables, seeds, controls, overrides)
    if noise:
        campaign = load_campaign(experiments, scale, [_noise_cell(campaign)], 1, controls, overrides)
    # Only the whole campaign in its usual place replaces what has been published of it.
    if publish is None and out is None and not (tables or overrides or seeds or controls is not None):
        publish = Path("results") / campaign.scale_name
    out = out or Path("runs") / campaign.scale_name
    configs = [config for cell in campaign.all_cells for config in cell.configs]
    weights = weights or default_folder(data_root, configs)
    places = Places(out.resolve(), data_root.resolve(), splits.resolve(), weights.resolve() if weights else None)
    execution = Execution.of_scale(
        campaign.scale.launch,
        local=local or None,
        address=address,
        launcher=launcher,
        workers=workers,
        gpus_per_worker=gpus_per_worker,
        cpus_per_worker=cpus_per_worker,
        concurrency=concurrency,
        threads=threads,
        loader_workers=loader_workers,
        checkpoint_every=checkpoint_every,
        diagnose_every=diagnose_every,
    )
    plan = _plan(campaign, places, execution)
    with interruptible("nothing is lost: the same command continues"):
        if noise:
            account = _noise(plan, places, execution, repeats)
        else:
            account = _carry_out(plan, places, execution, retry_failed)
    code = _say_what_failed(account, out)
    if overrides:
        print(f"with {' '.join(overrides)} in the cells asked for:")
    if not noise:
        _show(campaign, account, places, publish, experiments)
    if code:
        raise typer.Exit(code)


def _plan(campaign: Campaign, places: Places, execution: Execution) -> Plan:
    """What there is to do; refuses before anything is trained if a part of it cannot start.

    Raises:
        FplError: Every reason why runs cannot start, with the number of runs.
    """
    from fpl.sweep.capacity import capacity
    from fpl.sweep.plan import make_plan

    # What a cluster holds is known when it has been joined: `Cluster.check` asks it.
    has = None if execution.address or os.environ.get("RAY_ADDRESS") else capacity()
    plan = make_plan(campaign, places, has, asdict(execution))
    if plan.blocked:
        listed = [f"{count} runs: {reason}" for reason, count in plan.obstacles.items()]
        raise FplError(
            f"{len(plan.blocked)} of {len(plan.wanted)} runs cannot start\n  " + "\n  ".join(listed),
            hint="`fpl plan` with the same arguments shows the whole campaign; name tables or rows to run a part of it",
        )
    for warning in plan.warnings:
        _say(warning)
    return plan


def _carry_out(plan: Plan, places: Places, execution: Execution, retry_failed: bool) -> Account:
    from fpl.sweep.inputs import make_inputs
    from fpl.sweep.reproduce import carry_out

    if not plan.wanted:
        print("no cell of these needs a run")
    make_inputs([run.config for run in plan.wanted], places, _say)
    return carry_out(plan.wanted, places, execution, estimate=plan.seconds, retry_failed=retry_failed, say=_say)


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
    make_inputs([run.config], places, _say)
    return measure_noise(run, repeats, places, execution, estimate=plan.seconds, say=_say)


def _say_what_failed(account: Account, out: Path) -> int:
    """Name the runs that failed or were left, now or before; 1 if one failed, 2 if one was left, 0 otherwise."""
    for result in account.unfinished:
        print(f"not finished: {result.run_id}: {result.reason or 'stopped'}", file=sys.stderr)
    for result in account.failed:
        print(f"failed: {result.run_id}: {result.reason} (log: {out / 'logs' / result.run_id}.log)", file=sys.stderr)
    if account.failed_before:
        print(
            f"{len(account.failed_before)} runs failed in an earlier call and were not tried again; --retry-failed "
            f"tries them: {', '.join(account.failed_before)}",
            file=sys.stderr,
        )
    return 1 if account.failed or account.failed_before else 2 if account.unfinished else 0


def _show(campaign: Campaign, account: Account, places: Places, publish: Path | None, experiments: Path) -> None:
    """Print the tables; with `publish` also write them, the page and the compacted store."""
    from fpl.cli_tables import print_tables
    from fpl.report.figure_page import figure_extra
    from fpl.report.grid import build_grids
    from fpl.report.page import write_page, write_tables
    from fpl.report.search_page import search_extra
    from fpl.report.summary import summarize
    from fpl.store.read import Results

    store = Results(places.out)
    grids = build_grids(campaign, store)
    summary = summarize(grids, store)
    print_tables(grids, summary)
    done = len(account.before)
    trained = len(account.done) - done
    print(f"{done} runs were done before, {trained} trained now; store: {places.out}")
    if publish is None:
        return
    text = _publish(account, places, publish)
    write_tables(publish, grids, summary)
    published = Results(publish)
    extra = [*figure_extra(published, campaign, experiments), *search_extra(published)]
    page = write_page(publish, grids, summary, text, extra)
    print(f"tables, Parquet and page in {publish}: open {page}")


def _publish(account: Account, places: Places, publish: Path) -> str:
    """Compact the store into `publish` and say how it compares with what was there; the text of ENVIRONMENT."""
    import torch

    from fpl.files import write_atomic
    from fpl.store.compact import compact
    from fpl.store.read import Results
    from fpl.sweep.environment import environment

    place = publish / "ENVIRONMENT"
    ours = {(run, when) for run, when in Results(places.out).runs[["run_id", "finished_at"]].itertuples(index=False)}
    theirs = {(run, when) for run, when in Results(publish).runs[["run_id", "finished_at"]].itertuples(index=False)}
    if not place.exists() or not theirs <= ours or account.results:
        for line in _compare(places.out, publish):
            print(line)
        command = " ".join(["fpl", *sys.argv[1:]])
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        write_atomic(place, environment(command, account.seconds, len(account.results), device).encode())
    failed = [*account.failed_before, *(result.run_id for result in account.failed)]
    compact(places.out, publish, keep={*account.done, *failed})
    return place.read_text(encoding="utf-8")


def _compare(out: Path, publish: Path) -> list[str]:
    """One line per metric about how far the new results are from those that were published before."""
    from fpl.store.compact import compare
    from fpl.store.read import Results
    from fpl.store.schema import METRICS

    before, now = Results(publish).runs, Results(out).runs
    lines = []
    for metric in METRICS:
        if metric.startswith("miou") and not before.empty:
            difference = compare(now, before, metric)
            if len(difference):
                equal = int((difference == 0).sum())
                lines.append(
                    f"{metric}: {equal} of {len(difference)} runs equal the results published before to the last "
                    f"bit, the largest difference is {difference.max():.2f} points"
                )
    return lines


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
