"""Numbers of a table as short texts, the same in every format."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fpl.config.experiment import Metric
from fpl.report.statistics import TIE
from fpl.report.tables.entry import Entry, State

# Of a cell of FPL in which it is nothing but weighted cross-entropy.
NO_K = "K = 1 everywhere"
# What stands where our number would.
WORDS: dict[State, str] = {"missing": "not run", "failed": "failed", "pending": "pending"}


@dataclass(frozen=True)
class Shown:
    """The texts of one cell; each may be empty.

    Attributes:
        ours: Our mean.
        spread: Its standard deviation over seeds, with `±`.
        arrow: Our difference from the baseline, with `↑` or `↓`.
        way: `up` or `down` where that is better or worse, for its color; empty where it is neither (seconds).
        mark: The verdict's sign, with `*` if it is provisional.
        word: What is wrong: `not run`, `2 of 3 seeds` ...
        notes: What else is known: the interval of the difference, how often K is above 1.
        paper: The paper's number.
        paper_arrow: The paper's printed difference.
        cited: Whether the paper's number is cited there from others.
        bold: Whether the paper prints its number bold.
    """

    ours: str = ""
    spread: str = ""
    arrow: str = ""
    way: str = ""
    mark: str = ""
    word: str = ""
    notes: tuple[str, ...] = ()
    paper: str = ""
    paper_arrow: str = ""
    cited: bool = False
    bold: bool = False

    @property
    def own_line(self) -> str:
        """Ours in one line: `23.41 ±0.31 ↑0.52 ✓`, or what is wrong."""
        return " ".join(filter(None, (self.ours, self.spread, self.arrow, self.mark))) or self.word

    @property
    def paper_line(self) -> str:
        """The paper's in one line: `paper 69.71 ↑1.03`, or `cited 66.14`."""
        if not self.paper:
            return ""
        return " ".join(filter(None, ("cited" if self.cited else "paper", self.paper, self.paper_arrow)))

    @property
    def lines(self) -> list[str]:
        """All that the cell says, ours first; a dash where that is nothing."""
        partial = self.word if self.ours else ""
        return list(filter(None, (self.own_line, partial, *self.notes, self.paper_line))) or ["-"]


def show(entry: Entry) -> Shown:
    """The texts of a cell."""
    cell, metric = entry.cell, entry.cell.experiment.table.metric
    return Shown(
        ours="" if entry.ours is None else number_text(entry.ours, metric),
        spread="" if entry.std is None else f"±{number_text(entry.std, metric)}",
        arrow="" if entry.arrow is None else arrow_text(entry.arrow, metric),
        way=_way(entry.arrow) if entry.arrow is not None and metric == "miou" else "",
        mark=entry.verdict.mark + ("*" if entry.verdict.provisional else ""),
        word=_word(entry),
        notes=_notes(entry),
        paper="" if cell.printed is None else number_text(cell.printed, metric),
        paper_arrow="" if cell.arrow is None else arrow_text(cell.arrow, metric),
        cited=cell.row.role == "cited",
        bold=entry.bold,
    )


def _way(difference: float) -> str:
    return "" if abs(difference) <= TIE else "up" if difference > 0 else "down"


def _notes(entry: Entry) -> tuple[str, ...]:
    interval, share = entry.interval, entry.fuzzy_share
    found = [] if interval is None else [f"{interval.low:+.2f} to {interval.high:+.2f}"]
    if share is not None:
        found.append("no pixel teaches" if math.isnan(share) else f"K > 1: {100 * share:.3g} %" if share else NO_K)
    return tuple(found)


def _word(entry: Entry) -> str:
    """What is wrong with the cell; no mean over fewer seeds than wanted goes unmarked."""
    words = [WORDS.get(entry.state, entry.cell.row.without.get(entry.cell.column.key, ""))]
    if entry.state == "partial":
        words.append(f"{entry.measured} of {entry.wanted} seeds")
    if entry.arrow is not None and len(entry.gains) < entry.measured:
        words.append(f"arrow: {len(entry.gains)} of {entry.wanted} seeds")
    return ", ".join(filter(None, words))


def number_text(value: float, metric: Metric) -> str:
    """Two decimals for percent, three digits or more for seconds, as written for T."""
    if metric == "threshold":
        return f"{value:g}"
    if metric == "seconds_per_epoch":
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return f"{value:.2f}"


def arrow_text(value: float, metric: Metric) -> str:
    """`↑0.52`, `↓0.52`, or `→0` for exactly nothing."""
    way = _way(value)
    return {"up": "↑", "down": "↓"}[way] + number_text(abs(value), metric) if way else "→0"


def probability_text(value: float) -> str:
    """Two significant digits: `0.035`, `6.1e-05`."""
    return f"{value:.2g}"
