"""Runs and scores as tables on the terminal or as CSV."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from fpl.errors import FplError
from fpl.files import write_atomic
from fpl.mirrors import name_of
from fpl.report.query import near, rows_of
from fpl.report.spreadsheet import csv_bytes
from fpl.store.read import load_results
from fpl.store.schema import METRICS
from fpl.text import answer, duration, plural, printable

# Rows of a table.
MANY = 200
DEFAULT_COLUMNS = ("run_id", "data.split.fraction", "seed", "train.steps")


def print_results(out: Path, query: str | None, columns: str | None, csv: Path | None) -> None:
    """Print the runs in a store, or write them as CSV.

    Args:
        out: Folder of the store.
        query: pandas expression over the columns of `Results.runs`; dotted names go in backticks.
        columns: Names separated by commas, `all`, or None for a choice.
        csv: File to write instead of printing.

    Raises:
        FplError: No results or no finished run, a query that pandas refuses, or an unknown column.
    """
    results = load_results(out)
    frame = results.runs
    if frame.empty:
        lost = "".join(f"{damage}\n     " for damage in results.left_out)
        hint = f"{lost}`fpl report` shows searches, `fpl tables` says what failed"
        raise FplError("no finished run here", where=str(out), hint=hint)
    if query:
        frame = rows_of(frame, query)
    chosen = frame[_columns(frame, columns, everything=csv is not None)]
    if csv:
        write_atomic(csv, csv_bytes(chosen))
        answer(f"{plural(len(chosen), 'run', spec='d')} in {csv}")
        return
    console = _console()
    fitting = _fitting(chosen, console)
    _print_table(console, chosen[fitting])
    if hidden := [str(name) for name in chosen if name not in fitting]:
        console.print(f"no room here for {', '.join(hidden)}: --columns, --csv or a wider terminal")
    console.print(f"{len(chosen)} of {len(results.runs)} runs in {name_of(out)}; mIoU in percent")
    for warning in results.warnings():
        console.print(f"warning: {warning}")


def _columns(frame: pd.DataFrame, columns: str | None, *, everything: bool) -> list[str]:
    if columns == "all" or (columns is None and everything):
        return list(frame.columns)
    if columns is None:
        measured = [name for name in METRICS if name.startswith("miou") and frame[name].notna().any()]
        # Ids say split and seed: what comes last is what a narrow terminal leaves out.
        others = [name for name in DEFAULT_COLUMNS[1:] if name in frame]
        return [DEFAULT_COLUMNS[0], *measured, *others, "constant_miou", "train_seconds"]
    wanted = list(dict.fromkeys(name.strip() for name in columns.split(",")))
    if unknown := [name for name in wanted if name not in frame]:
        guess = near(frame, unknown[0])
        raise FplError(
            f"no column {', '.join(unknown)}", where="--columns", hint=f"{guess}`--columns all` shows every column"
        )
    return wanted


def print_run(out: Path, run_id: str) -> None:
    """Print what one finished run reached, beside what predicting one class everywhere would have."""
    results = load_results(out)
    run = results.runs.query("run_id == @run_id").to_dict("records")[0]
    reached = [f"{name} {run[name]:.2f} %" for name in METRICS if name.startswith("miou") and pd.notna(run[name])]
    console = _console()
    console.print(f"{run_id}: {', '.join(reached)} (best at step {run['best_step']})")
    console.print(
        f"a constant prediction ({run['constant_class']}) would reach {run['constant_miou']:.2f} %; "
        f"trained for {duration(run['train_seconds'])} on {run['device']}; results in {name_of(out)}"
    )


def print_scores(
    title: str, miou: float, pixel_accuracy: float, iou: Mapping[str, float], csv: Path | None = None
) -> None:
    """Print mIoU, pixel accuracy and the IoU of every class (all in percent); also as CSV if asked."""
    frame = pd.DataFrame({"class": list(iou), "iou": list(iou.values())})
    console = _console()
    console.print(_table(frame))
    console.print(f"mIoU {miou:.2f} %, pixel accuracy {pixel_accuracy:.2f} %: {title}")
    if csv:
        write_atomic(csv, csv_bytes(frame))


def _fitting(frame: pd.DataFrame, console: Console) -> list[str]:
    """The columns that fit into the terminal side by side with every cell whole, from the left; one at least."""
    names: list[str] = []
    room = console.width - 1
    for name in map(str, frame):
        # Two blanks and a line for each.
        room -= _width(frame, name) + 3
        if names and room < 0:
            break
        names.append(name)
    return names


def _width(frame: pd.DataFrame, name: str) -> int:
    """Letters of the longest cell or line of the header: names are broken before a dot or an underscore."""
    return max(map(len, (*_header(name).split("\n"), *map(_cell, frame[name]))))


def _header(name: str) -> str:
    return re.sub(r"(?<=\w)(?=[._])", "\n", name)


def _print_table(console: Console, frame: pd.DataFrame) -> None:
    """Print a frame as `_table`, whose rows take rich a millisecond each: of many it draws the first alone."""
    folded = console.is_terminal
    if len(frame) > MANY:
        headers = [_header(str(name)) if folded else str(name) for name in frame]
        columns = [[_cell(value) for value in frame[name]] for name in frame]
        widths = [
            max(map(cell_len, (*header.split("\n"), *cells))) for header, cells in zip(headers, columns, strict=True)
        ]
        with console.capture() as capture:
            console.print(_table(frame.head(1), folded=folded, widths=widths))
        *head, first, foot = capture.get().splitlines()
        padded = [_padded(frame[name], width, cells) for name, width, cells in zip(frame, widths, columns, strict=True)]
        bar = first[:1]
        lines = [f"{bar} {f' {bar} '.join(cells)} {bar}" for cells in zip(*padded, strict=True)]
        # Where the terminal is too narrow, or a text has lines of its own, only rich knows how it looks.
        if lines[0] == first and all(line.isprintable() for line in lines):
            print("\n".join([*head, *lines, foot]), file=console.file)
            return
    console.print(_table(frame, folded=folded))


def _padded(column: pd.Series, width: int, cells: Sequence[str]) -> list[str]:
    """The cells of a column as wide as it."""
    adjust = str.rjust if _is_right(column) else str.ljust
    # Letters may be two places wide, or none.
    return [adjust(cell, width + len(cell) - cell_len(cell)) for cell in cells]


def _is_right(column: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column))


def _table(frame: pd.DataFrame, *, folded: bool = False, widths: Sequence[int] | None = None) -> Table:
    """A frame with its cells whole, since half a run id is none.

    Args:
        frame: What is shown.
        folded: Names of columns in several lines.
        widths: Of the columns at least.
    """
    table = Table(header_style="bold")
    for number, name in enumerate(frame.columns):
        justify: Literal["left", "right"] = "right" if _is_right(frame[name]) else "left"
        header = _header(str(name)) if folded else str(name)
        table.add_column(header, justify=justify, no_wrap=True, min_width=widths[number] if widths else None)
    for row in frame.itertuples(index=False):
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if pd.isna(value) else f"{value:.2f}"
    if isinstance(value, tuple):
        return ", ".join(map(_cell, value)) or "-"
    return "-" if value is None or value is pd.NA else printable(str(value))


def _console() -> Console:
    # A pipe or file has no width: let the lines be as long as they are.
    console = Console(highlight=False, markup=False, soft_wrap=True)
    return console if console.is_terminal else Console(highlight=False, markup=False, soft_wrap=True, width=400)
