"""`fpl search`: parse, call, print."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fpl.cli.data import interruptible
from fpl.cli.groups import grouped
from fpl.cli.option_groups import Folders, RunLaunch, Searching
from fpl.cli.options import EXPERIMENTS, Address, Experiments, Publish, Scale, SearchSplits, Store, file_to_write
from fpl.cli.planning import check_publish, compact_store
from fpl.config.defaults import MOST_RUNS
from fpl.errors import FplError
from fpl.text import answer, say

if TYPE_CHECKING:
    from fpl.config.study import Study
    from fpl.sweep.execution import Execution
    from fpl.sweep.places import Places
    from fpl.sweep.plan.search_plan import SearchPlan
    from fpl.sweep.search.trials import Book


@grouped
def search(
    name: Annotated[str, typer.Argument(help="experiments/search/NAME.toml, or the path of such a file.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.key=value, for the varied runs.")] = None,
    *,
    scale: Scale = "mini",
    searching: Searching,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=MOST_RUNS, help="Runs per trial and split.", show_default="search file")
    ] = None,
    trial_splits: SearchSplits = None,
    out: Store = None,
    publish: Publish = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="At the end, all trials as a journal of Optuna, for optuna-dashboard.",
            show_default="none",
            callback=file_to_write,
        ),
    ] = None,
    folders: Folders,
    address: Address = None,
    launch: RunLaunch,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed trials again.")] = False,
    experiments: Experiments = EXPERIMENTS,
) -> None:
    """Search T, the adaptive weight or the rule for K; the same command continues after a kill."""
    # Read when torch is loaded: one core belongs to one run, which is told its threads.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    from fpl.config.campaign import scale_file

    if export is not None:
        from fpl.store.journal import check_journal

        check_journal(export)
    studies = searching.studies(experiments, name, scale, overrides or [], seeds=seeds, splits=trial_splits)
    out = out or Path("runs") / studies[0].scale
    check_publish(out, publish)
    places = folders.places(out, [study.base for study in studies], whole=True).resolved
    execution = launch.over(scale_file(experiments, scale), address=address)
    compact_store(places.out)
    plan = _plan(studies, places, execution, searching.budget)
    if execution.tensorboard:
        say(f"the runs while they train: tensorboard --logdir {places.events}")
    with interruptible("nothing is lost: the same command continues"):
        books = _carry_out(plan, places, execution, retry_failed)
        _show(studies[0].search.name, books, out, publish, experiments, scale)
        if export is not None:
            _export(books, out, export)
    codes = set(map(_exit_code, books))
    if code := 1 if 1 in codes else max(codes):
        raise typer.Exit(code)


def _exit_code(book: Book) -> int:
    """1: there is nothing to show for it, or its trials fail; 2: the same command continues; 0 otherwise.

    A trial that failed is a result like any other.
    """
    if book.streak.halt is not None:
        return book.streak.halt.exit_code
    if book.unfinished and not book.exhausted:
        return 2
    ended = book.best is not None and (book.study.head.protocol != "holdout" or book.final is not None)
    return 0 if ended else 1


def _plan(studies: list[Study], places: Places, execution: Execution, budget: str | None) -> SearchPlan:
    """The plan, printed; an error if the search cannot start."""
    from fpl.cli.search_plan_text import print_search_plan
    from fpl.sweep.plan.capacity import known_capacity
    from fpl.sweep.plan.search_plan import plan_search
    from fpl.sweep.search.budget import parse_budget

    has, allowed = known_capacity(execution), parse_budget(budget) if budget else None
    plan = plan_search(studies, places, has, execution, allowed, say)
    print_search_plan(plan, places.out)
    if plan.blocked:
        raise FplError("the search cannot start\n  " + "\n  ".join(plan.blocked), where=studies[0].search.name)
    return plan


def _carry_out(plan: SearchPlan, places: Places, execution: Execution, retry_failed: bool) -> list[Book]:
    from fpl.sweep.inputs import make_inputs
    from fpl.sweep.search.carry_out import run_search

    configs = [
        study.config({}, split=number)
        for study in (each.study for each in plan.studies)
        for number in range(study.head.splits)
    ]
    make_inputs(configs, places, say)
    return run_search(plan.studies, places, execution, retry_failed=retry_failed, say=say)


def _export(books: list[Book], out: Path, export: Path) -> None:
    """Write the studies with all their trials as one journal of Optuna."""
    from fpl.store.journal import write_journal
    from fpl.store.read import Results

    results, names = Results(out), [book.study.identity for book in books]
    write_journal(export, {name: results.study(name) for name in names})
    answer(f"all trials as Optuna has them: optuna-dashboard {export}")


def _show(name: str, books: list[Book], out: Path, publish: Path | None, experiments: Path, scale: str) -> None:
    """Say what was learnt, write its page and mend the main page; with `publish` do so there with the trials too."""
    from fpl.cli.report import on_all_cores
    from fpl.report.folder import write_report
    from fpl.report.search.words import search_summary_lines
    from fpl.report.tables.shown import load_shown
    from fpl.store.publish import publish_searches
    from fpl.store.read import Results

    compact_store(out)
    studies = [book.study.identity for book in books]
    if publish is not None:
        publish_searches(out, publish, studies)
    for place in [out, *([publish] if publish is not None else [])]:
        shown = load_shown(experiments, scale, Results(place))
        (page,) = write_report(place, shown, experiments, [name], run=on_all_cores).searches
    for line in search_summary_lines(Results(place), name, studies):
        answer(line)
    for book in books:
        if book.streak.halt is not None:
            answer(f"no more trials of {book.study.cell} were begun: {book.streak.halt.reason}")
        if book.unfinished:
            why = "the budget is spent, a larger one continues" if book.exhausted else "the same command continues"
            numbers = ", ".join(str(row.number) for row in book.unfinished)
            answer(f"not finished: trials {numbers} of {book.study.cell}: {why}")
    answer(f"trials, page and CSV in {place}: open {page}")
