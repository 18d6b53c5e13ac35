"""`fpl tables`: parse, call, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fpl.cli.option_groups import Asked
from fpl.cli.options import A_STORE, EXPERIMENTS, Experiments, Names, RowsShown, Scale, Scratch, Seeds, file_to_write
from fpl.config.defaults import FILE_WIDTH
from fpl.text import answer, plural, say

if TYPE_CHECKING:
    from fpl.report.tables.entry import Grid
    from fpl.report.tables.summary import Summary
    from fpl.store.read import Results

Format = Literal["terminal", "md", "tex", "html", "csv"]


def tables(
    names: Names = None,
    scale: Scale = "mini",
    results: Annotated[
        Path | None,
        typer.Option(help="Folder of the results.", show_default="results/SCALE, if it is there", **A_STORE),
    ] = None,
    seeds: Seeds = None,
    rows: RowsShown = None,
    format: Annotated[Format, typer.Option(help="How they are written.")] = "terminal",
    to: Annotated[
        Path | None, typer.Option(help="File to write.", show_default="standard output", callback=file_to_write)
    ] = None,
    experiments: Experiments = EXPERIMENTS,
    scratch: Scratch = None,
) -> None:
    """Show the paper's tables, its numbers beside ours, with what is missing and why."""
    from fpl.config.campaign import scale_name
    from fpl.report.tables.shown import load_shown

    asked = Asked(names)
    store = _store(results, scale_name(experiments, scale))
    shown = load_shown(experiments, scale, store, asked.cells, seeds, rows, asked.overrides)
    grids, summary = shown.grids, shown.summary
    say(f"results: {store.folder if store else 'none yet'}")
    if to is None and format == "terminal":
        print_tables(grids, summary)
        return
    text = _render(format, grids, summary)
    if to is None:
        sys.stdout.write(text)
        return
    from fpl.files import write_atomic

    write_atomic(to, text.encode())
    answer(f"{plural(len(grids), 'table')} in {to}")


def _store(folder: Path | None, scale: str) -> Results | None:
    """The results, or None where nothing has been run; a folder that was named must hold some."""
    from fpl.store.read import Results, load_results
    from fpl.store.remote import open_store

    path = open_store(folder if folder is not None else Path("results") / scale)
    if any((path / table).is_dir() for table in ("runs", "failures")):
        return Results(path)
    return load_results(path) if folder is not None else None


def print_tables(grids: list[Grid], summary: Summary) -> None:
    """Print tables on the terminal, or as text of a fixed width where there is none."""
    import shutil

    from rich.console import Console

    from fpl.report.tables.console import console_text, print_grids

    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        print_grids(console, grids, summary)
    else:
        # A pipe has no width of its own; COLUMNS gives it one.
        sys.stdout.write(console_text(grids, summary, shutil.get_terminal_size((FILE_WIDTH, 0)).columns))


def _render(format: Format, grids: list[Grid], summary: Summary) -> str:
    if format == "md":
        from fpl.report.tables.markdown import markdown

        return markdown(grids, summary)
    if format == "tex":
        from fpl.report.tables.latex import latex

        return latex(grids)
    if format == "csv":
        from fpl.report.tables.longform import longform

        return longform(grids)
    if format == "html":
        from fpl.report.page import page

        return page(grids, summary)
    from fpl.report.tables.console import console_text

    return console_text(grids, summary)
