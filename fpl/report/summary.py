"""All tables in a few lines: what was run, and how often FPL beats its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fpl.report.entry import Entry, Grid, Scale
from fpl.report.lookup import number
from fpl.report.numbers import probability_text
from fpl.report.statistics import SignTest, sign_test
from fpl.store.read import Results
from fpl.text import duration

SIGN_TEST_RULE = (
    "The sign test asks how surprising so many wins would be if each comparison were a fair coin's; comparisons that "
    "share a run or images are not independent, so its p is a guide, no proof."
)


@dataclass(frozen=True)
class Summary:
    """What stands at the top of a report.

    Attributes:
        scale: The scale of the runs.
        wanted: Distinct runs behind the cells.
        done: Those that are finished.
        failed: Those that ended with an error.
        pending: Cells whose method is not there yet.
        train_seconds: Training time of the finished runs, added up.
        ours: Signs of our improvements, each distinct comparison once.
        paper: Signs of the paper's, of the same comparisons.
        warnings: What a reader of the whole store should know.
        wall_seconds: How long the command that ran them took; None if unknown.
        notes: What else is to be said: rows that are left out.
    """

    scale: Scale
    wanted: int
    done: int
    failed: int
    pending: int
    train_seconds: float
    ours: SignTest
    paper: SignTest
    warnings: tuple[str, ...] = ()
    wall_seconds: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The summary in sentences."""
        return [self.runs_line, self.test_line, *self.notes]

    @property
    def runs_line(self) -> str:
        """How many runs there are."""
        line = f"{self.done} of {self.wanted} runs done"
        if self.failed:
            line += f", {self.failed} failed"
        line += f"; {duration(self.train_seconds)} of training in total"
        if self.wall_seconds is not None:
            line += f", {duration(self.wall_seconds)} on the clock"
        if self.pending:
            line += f"; {self.pending} cell{'s' if self.pending > 1 else ''} pending"
        return line

    @property
    def test_line(self) -> str:
        """The sign test, ours beside the paper's."""
        if not self.ours.wins + self.ours.losses + self.ours.ties:
            return "FPL against its baselines: no comparison measured yet"
        return (
            f"FPL against its baselines, each comparison once: {_outcome(self.ours)}; "
            f"the paper's numbers of the same comparisons: {_outcome(self.paper)}"
        )


def summarize(grids: Sequence[Grid], results: Results | None, wall_seconds: float | None = None) -> Summary:
    """Count runs and comparisons over tables of one scale.

    Args:
        grids: At least one.
        results: The store they were filled from.
        wall_seconds: How long the command that ran them took, if it says so.
    """
    entries = [entry for grid in grids for entry in grid.entries]
    lookup = grids[0].lookup
    recipes = {recipe for entry in entries for recipe in entry.cell.recipes}
    runs = [lookup.runs[recipe] for recipe in recipes & lookup.runs.keys()]
    pairs = comparisons(grids)
    return Summary(
        grids[0].scale,
        len(recipes),
        len(runs),
        len(recipes & lookup.failures.keys()),
        sum(entry.state == "pending" for entry in entries),
        sum(number(record, "train_seconds") or 0.0 for record in runs),
        sign_test(entry.arrow for entry in pairs if entry.arrow is not None),
        sign_test(entry.printed_gain for entry in pairs if entry.printed_gain is not None),
        tuple(results.warnings()) if results is not None else (),
        wall_seconds,
    )


def comparisons(grids: Sequence[Grid]) -> list[Entry]:
    """Cells of mIoU in which FPL meets its baseline, both measured: each pair of runs once, in whatever tables."""
    found: dict[tuple[tuple[str, str], ...], Entry] = {}
    for grid in grids:
        if grid.experiment.table.metric != "miou":
            continue
        for entry in grid.entries:
            different = entry.compared and all(ours != baseline for ours, baseline in entry.compared)
            if entry.cell.row.role == "proposed" and entry.arrow is not None and different:
                found.setdefault(entry.compared, entry)
    return list(found.values())


def _outcome(test: SignTest) -> str:
    """`20 wins, 9 losses, 1 tie (sign test: p = 0.061 two-sided, 0.031 one-sided)`."""
    counts = ((test.wins, "win", "wins"), (test.losses, "loss", "losses"), (test.ties, "tie", "ties"))
    listed = ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in counts)
    two, one = probability_text(test.two_sided), probability_text(test.one_sided)
    return f"{listed} (sign test: p = {two} two-sided, {one} one-sided)"
