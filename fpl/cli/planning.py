"""What the plans of tables and of a search have in common: folders, the machine, calibration, printing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fpl.cli.data import interruptible
from fpl.config.defaults import FILE_WIDTH
from fpl.errors import FplError
from fpl.text import answer, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fpl.cli.option_groups import Folders
    from fpl.config.schema import RunConfig
    from fpl.sweep.execution import Execution
    from fpl.sweep.places import Places
    from fpl.sweep.plan.capacity import Capacity


@dataclass(frozen=True)
class Machine:
    """What is planned for.

    Attributes:
        folders: What runs read.
        out: The store.
        execution: How runs are carried out.
        has: What there is for runs; None: Ray will say so.
        calibrate: Steps to time first; 0: none.
    """

    folders: Folders
    out: Path
    execution: Execution
    has: Capacity | None
    calibrate: int

    def places(self, configs: Sequence[RunConfig]) -> Places:
        """The folders of some runs."""
        return self.folders.places(self.out, configs)


def calibrate_runs(machine: Machine, timed: Sequence[tuple[RunConfig, float]]) -> None:
    """Time the kinds of steps that most of the time to come goes into, and write what was found.

    `timed` are the runs with their expected seconds.
    """
    from fpl.sweep.plan.calibrate import calibrate, representatives
    from fpl.sweep.plan.speed import write_calibration

    execution = machine.execution
    with interruptible("what was measured is lost; the same command measures again"):
        measured = calibrate(
            representatives(timed),
            machine.calibrate,
            device="auto" if execution.on_gpu else "cpu",
            threads=execution.threads,
            workers=execution.workers,
            say=lambda text: answer(text, flush=True),
        )
    answer(f"calibration of {len(measured)} kinds of steps in {write_calibration(machine.out, measured)}")


def check_publish(out: Path, publish: Path | None) -> None:
    """Before any work: what it makes can be published.

    Raises:
        FplError: It is to go into the store itself, or onto object storage that cannot be written.
    """
    from fpl.files import check_folder
    from fpl.store.publish import check_apart
    from fpl.store.remote import check_writable

    if publish is not None:
        check_folder(publish, f"--publish {publish}", "name a folder, which need not exist")
        check_apart(out, publish)
    check_writable(publish)


def compact_store(out: Path) -> None:
    """Make a store quick to read for all who only look at it; where that fails, say so: nothing depends on it."""
    from fpl.store.compact import compact
    from fpl.train.progress import Progress

    progress = Progress(0, unit="file")
    try:
        compact(out, progress.of)
    except FplError as error:
        say(f"warning: the store stays slow to read: {error.message}")
    progress.note()


def plan_console() -> Console:
    """Where plans are printed: as wide as the terminal, in a file as wide as `FILE_WIDTH`."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    if console.is_terminal:
        return console
    return Console(highlight=False, markup=False, soft_wrap=True, width=FILE_WIDTH)


def hours_text(hours: float) -> str:
    """Hours with as many digits as an estimate is worth."""
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 1 or hours == 0 else f"{hours:.2g}"


def print_table(console: Console, table: Table) -> None:
    """Print a table without its empty lines; where it is wider than the terminal, a paragraph for each row instead."""
    # Only a terminal folds: what goes into a file keeps its columns.
    unbounded = console.options.update(width=10 * FILE_WIDTH)
    if console.is_terminal and console.measure(table, options=unbounded).maximum > console.width:
        for line in _paragraphs(table, console.width):
            answer(line)
        return
    with console.capture() as capture:
        console.print(table)
    # The padding of the last column is of no use to anybody either.
    lines = [line.rstrip() for line in capture.get().splitlines()]
    answer("\n".join(line for line in lines if line))


def _paragraphs(table: Table, width: int) -> Iterator[str]:
    """Each row of a table as its first cell and, behind it, what the others are called and hold."""
    columns = [
        (str(column.header), [*column.cells, *([column.footer] if table.show_footer else [])])
        for column in table.columns
    ]
    for row in zip(*(cells for _, cells in columns), strict=True):
        said = [f"{name} {cell}" for (name, _), cell in zip(columns[1:], row[1:], strict=True) if str(cell)]
        yield textwrap.fill(f"{row[0]}: {', '.join(said)}", width, subsequent_indent="  ", break_on_hyphens=False)
