"""All tables in a few lines: what was run, and how FPL does against its baseline and against the controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fpl.config.scale import ScaleFile
from fpl.report.tables import gains
from fpl.report.tables.entry import Grid
from fpl.report.tables.head_to_head import Duel, duels, duels_by_control
from fpl.store.lookup import number
from fpl.store.read import Results
from fpl.text import duration, plural


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
        duels: FPL against its baseline, the best control, and labeled images alone.
        controls: FPL against each kind of control by itself.
        rows: Each row of FPL by itself, where cells have several seeds.
        warnings: What a reader of the whole store should know.
        notes: What else is to be said: rows that are left out.
    """

    scale: ScaleFile
    wanted: int
    done: int
    failed: int
    pending: int
    train_seconds: float
    duels: tuple[Duel, ...]
    controls: tuple[Duel, ...] = ()
    rows: tuple[gains.RowGains, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The comparisons in one sentence, and whether they measure what the paper's do."""
        found = [
            f"{duel.opponent} in {duel.signs.wins} of {plural(len(duel.pairs), 'comparison')} "
            f"(mean difference {duel.mean:+.2f} points)"
            for duel in self.duels
            if duel.pairs
        ]
        if not found:
            return f"No comparison of FPL is measured yet at scale {self.scale.name}."
        limits = "" if self.scale.comparable else "; no number of this scale measures what the paper's do"
        return f"At scale {self.scale.name} FPL beats {', '.join(found)}{limits}."

    @property
    def lines(self) -> list[str]:
        """The summary in sentences."""
        rule = [gains.RULE] if self.rows else []
        return [
            self.runs_line,
            *(duel.line for duel in (*self.duels, *self.controls)),
            *(row.line for row in self.rows),
            *rule,
            *self.notes,
        ]

    @property
    def runs_line(self) -> str:
        """How many runs there are."""
        line = f"{self.done} of {self.wanted} runs done"
        if self.failed:
            line += f", {self.failed} failed"
        line += f"; {duration(self.train_seconds)} of training in total"
        if self.pending:
            line += f"; {plural(self.pending, 'cell', spec='d')} pending"
        return line


def summarize(grids: Sequence[Grid], results: Results | None) -> Summary:
    """Count runs and comparisons over tables of one scale.

    Args:
        grids: At least one.
        results: The store they were filled from.
    """
    entries = [entry for grid in grids for entry in grid.entries]
    lookup = grids[0].lookup
    recipes = {recipe for entry in entries for recipe in entry.cell.recipes}
    runs = [lookup.runs[recipe] for recipe in recipes & lookup.runs.keys()]
    return Summary(
        grids[0].scale,
        len(recipes),
        len(runs),
        len(recipes & lookup.failures.keys()),
        sum(entry.state == "pending" for entry in entries),
        sum(number(record, "train_seconds") or 0.0 for record in runs),
        duels(grids),
        duels_by_control(grids),
        gains.row_gains(grids),
        tuple(results.warnings()) if results is not None else (),
    )
