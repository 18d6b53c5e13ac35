"""`fpl report`: parse, call, print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from fpl.cli.options import A_STORE, EXPERIMENTS, Experiments, RowsShown, Scale, Scratch, Seeds
from fpl.errors import FplError
from fpl.text import answer

Item = TypeVar("Item")
Result = TypeVar("Result")
# Figures, of about two seconds each: a process needs two for its start.
WORTH = 4


def report(
    names: Annotated[
        list[str] | None, typer.Argument(help="Searches whose pages are written.", show_default="all searches")
    ] = None,
    scale: Scale = "mini",
    results: Annotated[
        Path | None,
        typer.Option(help="Folder of the results, and of what is written.", show_default="results/SCALE", **A_STORE),
    ] = None,
    seeds: Seeds = None,
    rows: RowsShown = None,
    experiments: Experiments = EXPERIMENTS,
    scratch: Scratch = None,
) -> None:
    """Write tables, figures, main page and a page with CSV per search from results that are there."""
    from fpl.config.campaign import scale_name
    from fpl.report.folder import write_report
    from fpl.report.search.words import search_summary_lines
    from fpl.report.tables.shown import load_shown
    from fpl.store.read import load_results

    folder = results if results is not None else Path("results") / scale_name(experiments, scale)
    try:
        store = load_results(folder)
    except FplError as error:
        raise FplError(
            error.what,
            where=error.where,
            hint="`fpl reproduce` or `fpl search` makes some; --results names another folder",
        ) from None
    wanted = names or store.searches
    for name in wanted:
        # An unknown name is said before anything is written.
        store.search(name)
    shown = load_shown(experiments, scale, store, seeds=seeds, rows=rows)
    written = write_report(folder, shown, experiments, wanted, run=on_all_cores)
    for name, page in zip(wanted, written.searches, strict=True):
        answer("\n".join(search_summary_lines(store, name)))
        answer(f"page and CSV of {name}: {page}")
    answer(f"tables, figures and main page in {folder}: open {written.page}")


def on_all_cores(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Draw figures on all cores, where there are enough of them to be worth the start of processes."""
    from fpl.data.parallel import run_parallel

    return run_parallel(function, items, workers=None if len(items) >= WORTH else 1)
