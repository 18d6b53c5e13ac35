"""Tables on a terminal, as wide as it is: columns that do not fit go into a further block below."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fpl.config.defaults import FILE_WIDTH
from fpl.config.experiment import Column
from fpl.report.tables.entry import Entry, Grid, Line
from fpl.report.tables.head_to_head import CAVEAT
from fpl.report.tables.numbers import show
from fpl.report.tables.remarks import gaps, head, legend, notes, scale_notes, title, warnings
from fpl.report.tables.summary import Summary

# Between two columns: what the box puts around each cell.
GAP = 2
STYLES = {"up": "green", "down": "red"}
LABEL_WIDTH = (12, 34)


def console_text(grids: Sequence[Grid], summary: Summary | None = None, width: int = FILE_WIDTH) -> str:
    """The tables as plain text of at most `width` columns."""
    stream = io.StringIO()
    print_grids(Console(file=stream, width=width, highlight=False, markup=False), grids, summary)
    # A table's last column is padded; nobody wants the blanks in a file.
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def print_grids(console: Console, grids: Sequence[Grid], summary: Summary | None = None) -> None:
    """Print tables with everything around them; the summary last, where a reader of a terminal looks first."""
    for grid in grids[:1]:
        for note in scale_notes(grid.scale):
            console.print(note)
    for grid in grids:
        _print_grid(console, grid)
    if signs := legend(grids):
        console.print("signs: " + "; ".join(signs), style="dim")
    if summary is not None:
        console.print()
        for line in summary.lines:
            console.print(line, style="bold")
        if any(duel.pairs for duel in summary.duels):
            console.print(CAVEAT, style="dim")
        for warning in summary.warnings:
            console.print(f"warning: {warning}", style="yellow")


def _print_grid(console: Console, grid: Grid) -> None:
    console.print()
    console.print(f"{title(grid)}  [{grid.name}]", style="bold")
    for line in head(grid):
        console.print(line, style="dim")
    texts, marks = notes(grid)
    for block in blocks(grid, console.width):
        console.print(_table(grid, block, marks))
    for number, note in enumerate(texts, start=1):
        console.print(Padding(f"[{number}] {note}", (0, 0, 0, 2)), style="dim")
    for gap in gaps(grid):
        console.print(Padding(gap, (0, 0, 0, 2)))
    for warning in warnings(grid):
        console.print(Padding(f"warning: {warning}", (0, 0, 0, 2)), style="yellow")


def blocks(grid: Grid, width: int) -> list[range]:
    """Numbers of the columns that stand side by side, per block; groups stay whole where they fit.

    Args:
        grid: The table.
        width: Columns of the terminal.
    """
    cell_width = max((len(line) for entry in grid.entries for line in show(entry).lines), default=1)
    room = max(1, (width - _label_width(grid) - 2 * GAP) // (cell_width + GAP))
    if len(grid.columns) <= room:
        return [range(len(grid.columns))]
    found = []
    for begin, end in _groups(grid.columns):
        count = math.ceil((end - begin) / room)
        # As many columns in each block, not full blocks and a remainder of one.
        size = math.ceil((end - begin) / count)
        found += [range(start, min(start + size, end)) for start in range(begin, end, size)]
    return found


def _groups(columns: Sequence[Column]) -> Iterator[tuple[int, int]]:
    begin = 0
    for _, group in groupby(columns, key=lambda column: column.group):
        end = begin + len(list(group))
        yield begin, end
        begin = end


def _label_width(grid: Grid) -> int:
    widest = max(len(line.row.label) + 5 for line in grid.lines)
    return min(max(widest, LABEL_WIDTH[0]), LABEL_WIDTH[1])


def _table(grid: Grid, block: range, marks: dict[str, list[int]]) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", padding=(0, GAP, 0, 0), pad_edge=False)
    table.add_column("", max_width=_label_width(grid))
    for number in block:
        column = grid.columns[number]
        header = "\n".join(filter(None, (column.group, column.header)))
        # Numbers are never broken: a terminal too narrow for one column is too narrow.
        table.add_column(Text(header), no_wrap=True)
    for line in grid.lines:
        table.add_row(_label(line, marks), *(_cell(line.entries[number]) for number in block))
    return table


def _label(line: Line, marks: dict[str, list[int]]) -> Text:
    numbers = "".join(f"[{number}]" for number in marks.get(line.row.key, []))
    label = Text(line.row.label, style="italic dim" if line.row.role == "cited" else "")
    return label.append(f" {numbers}" if numbers else "", style="dim")


def _cell(entry: Entry) -> Text:
    """Ours on the first line, the paper's below it."""
    shown = show(entry)
    cell = Text()
    if shown.ours:
        cell.append(shown.ours, style="bold")
        cell.append(f" {shown.spread}" if shown.spread else "")
        if shown.arrow:
            cell.append(f" {shown.arrow}", style=STYLES.get(shown.way, ""))
        cell.append(f" {shown.mark}" if shown.mark else "")
    rest = shown.lines[1:] if shown.ours else shown.lines
    for number, text in enumerate(rest):
        style = "yellow" if text == shown.word else "italic dim" if shown.cited else "dim"
        cell.append(("\n" if shown.ours or number else "") + text, style=style)
    return cell
