"""What FPL is held against over all tables: its baseline, the best control, labeled images alone. One rule for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fpl.config.experiment import Row
from fpl.report.statistics import (
    CONFIDENCE,
    FEW,
    RESAMPLES,
    Interval,
    SignTest,
    bootstrap_interval,
    mean_interval,
    sign_test,
)
from fpl.report.tables.entry import Entry, Grid
from fpl.report.tables.numbers import probability_text
from fpl.text import plural

CAVEAT = (
    "Comparisons of one column share its images and often a run: they are not independent, so p is a guide, no proof."
)
RULE = (
    "FPL against its baseline and the controls: mIoU, column by column, each pair of runs once in whatever tables it "
    "stands. p is that of the sign test, ties left out: how surprising so one-sided a result would be if each "
    f"comparison were a fair coin's. {CAVEAT} The {100 * CONFIDENCE:.0f} % interval of the mean difference is "
    "Student's t over seeds where all comparisons have several, of each the mean over all of them; with one seed it is "
    f"a bootstrap (percentiles of {RESAMPLES:,} draws, seed 0) over whole columns with all comparisons in them, which "
    "knows nothing of other seeds. The best control of a column is the one that FPL gains least over, of those that "
    "train on the unlabeled images too but without fuzzy positives: it is chosen by the numbers that it is compared "
    "with, which favors the controls."
)
LEFT_OUT = "control rows left out: --rows all shows those that were run; "
HOW_TO_RUN = "`make reproduce ROWS=all`, or `fpl reproduce --rows all`, trains them"


@dataclass(frozen=True)
class Pair:
    """One comparison.

    Attributes:
        gains: FPL's mIoU - the other's in points, of each seed that both have.
        column: `TABLE.COLUMN`, whose comparisons belong together.
        other: Label of the other row.
        dataset: Data set of the runs.
        printed: What the paper's numbers give for it, or None.
    """

    gains: Mapping[int, float]
    column: str
    other: str
    dataset: str = ""
    printed: float | None = None

    @property
    def gain(self) -> float:
        """Mean over seeds."""
        return float(np.mean(list(self.gains.values())))


@dataclass(frozen=True)
class Duel:
    """FPL against one kind of opponent.

    Attributes:
        opponent: What it is held against, in words.
        pairs: All comparisons, each pair of runs once.
        waiting: Runs of FPL whose opponents are in the tables but have not been run.
        without: Label of a row of FPL -> its columns for which the tables have no such opponent.
        asked: Whether the opponents' rows are among those of the campaign.
        absent: What is missing where there is no opponent at all.
    """

    opponent: str
    pairs: tuple[Pair, ...] = ()
    waiting: int = 0
    without: Counter[str] = field(default_factory=Counter)
    asked: bool = True
    absent: str = "no comparison measured yet"

    @property
    def signs(self) -> SignTest:
        """Wins, losses and ties."""
        return sign_test(pair.gain for pair in self.pairs)

    @property
    def printed(self) -> SignTest:
        """Those of the paper's numbers, of the same comparisons."""
        return sign_test(pair.printed for pair in self.pairs if pair.printed is not None)

    @property
    def line(self) -> str:
        """All of it in one sentence, or why there is nothing."""
        head = f"FPL against {self.opponent}: "
        if not self.pairs:
            return head + (self._waiting if self.waiting else self.absent)
        signs = self.signs
        parts = [f"{_counts(signs)} (n = {signs.n})", self._mean, f"p = {probability_text(signs.p)}"]
        if self.printed.n:
            parts.append(f"the paper's numbers of the same comparisons: {_counts(self.printed)}")
        if len(apart := self.by_dataset) > 1:
            parts.append("apart: " + "; ".join(f"{name} {duel.short}" for name, duel in apart.items()))
        if self.best:
            parts.append(
                "the best was " + ", ".join(f"{label} ({plural(n, 'time')})" for label, n in self.best.most_common())
            )
        if self.without:
            listed = ", ".join(f"{label} ({plural(count, 'column')})" for label, count in self.without.items())
            parts.append(f"the tables have no such row for {listed}")
        if self.waiting:
            parts.append(f"{self.waiting} more {'waits' if self.waiting == 1 else 'wait'} for runs")
        return head + "; ".join(parts)

    @property
    def short(self) -> str:
        """`+0.64 points (+0.26 to +1.05; 13 wins, 3 losses, 0 ties)`."""
        interval = self.interval
        spread = "one column: no interval" if interval is None else f"{interval.low:+.2f} to {interval.high:+.2f}"
        return f"{self.mean:+.2f} points ({spread}; {_counts(self.signs)})"

    @property
    def by_dataset(self) -> dict[str, Duel]:
        """The comparisons on each data set: what differs between sets is no mean's business."""
        names = dict.fromkeys(pair.dataset for pair in self.pairs)
        return {name: Duel(self.opponent, tuple(pair for pair in self.pairs if pair.dataset == name)) for name in names}

    @property
    def best(self) -> Counter[str]:
        """How often each opponent was the best; nothing where all are of one kind."""
        found = Counter(_what(pair.other) for pair in self.pairs)
        return found if self.opponent == CONTROLS else Counter()

    @property
    def mean(self) -> float:
        """Mean difference over all comparisons, in points, of the seeds that all have if any; NaN for none."""
        values = self._by_seed or [pair.gain for pair in self.pairs]
        return float(np.mean(values)) if values else float("nan")

    @property
    def _by_seed(self) -> list[float]:
        """The mean of all comparisons, of each seed that all of them have."""
        seeds = set.intersection(*({*pair.gains} for pair in self.pairs)) if self.pairs else set()
        return [float(np.mean([pair.gains[seed] for pair in self.pairs])) for seed in sorted(seeds)]

    @property
    def interval(self) -> Interval | None:
        """Of the mean difference: over seeds where there are several, else over columns; None for one of both."""
        if len(values := self._by_seed) > 1:
            return mean_interval(values)
        return bootstrap_interval([pair.gain for pair in self.pairs], [pair.column for pair in self.pairs])

    @property
    def _mean(self) -> str:
        interval = self.interval
        if interval is None:
            return f"mean difference {self.mean:+.2f} points (one column: no interval)"
        if len(self._by_seed) > 1:
            rough = f" over {interval.n} seeds"
        else:
            rough = f" over {interval.n} columns" + (" only: rough" if interval.n < FEW else "")
        return (
            f"mean difference {self.mean:+.2f} points "
            f"(95 % interval {interval.low:+.2f} to {interval.high:+.2f}{rough})"
        )

    @property
    def _waiting(self) -> str:
        if self.opponent == BASELINES:
            return "no comparison measured yet"
        return f"{'not run: ' if self.asked else LEFT_OUT}{HOW_TO_RUN}"


BASELINES, CONTROLS, LABELED = "its baseline", "the best control of the column", "labeled images alone"


def duels(grids: Sequence[Grid]) -> tuple[Duel, ...]:
    """FPL's rows of tables of mIoU against their baselines, the best of their controls, and labeled images alone.

    Args:
        grids: Tables of one scale. Rows that are not shown serve all the same.
    """
    return (
        _duel(grids, BASELINES, lambda grid, entry: [_row(grid, entry.cell.row.over)]),
        _duel(grids, CONTROLS, lambda grid, entry: [row for row in _controls(grid, entry) if not row.labeled_only]),
        _duel(grids, LABELED, lambda grid, entry: [row for row in _controls(grid, entry) if row.labeled_only]),
    )


def duels_by_control(grids: Sequence[Grid]) -> tuple[Duel, ...]:
    """The same against each kind of control by itself, which no number chose."""
    kinds = dict.fromkeys(
        _what(row.label)
        for places in _proposed(grids)
        for grid, entry in places
        for row in _controls(grid, entry)
        if not row.labeled_only
    )

    def against(kind: str) -> Duel:
        def rows(grid: Grid, entry: Entry) -> list[Row]:
            return [row for row in _controls(grid, entry) if _what(row.label) == kind]

        # Which rows have no such control says nothing: each kind is made for some.
        return replace(_duel(grids, kind, rows), without=Counter())

    return tuple(duel for duel in map(against, kinds) if duel.pairs)


def _row(grid: Grid, key: str) -> Row | None:
    return next((row for row in grid.experiment.rows if row.key == key), None)


def _controls(grid: Grid, entry: Entry) -> list[Row]:
    return grid.experiment.controls(entry.cell.row)


def _duel(grids: Sequence[Grid], opponent: str, rows: Callable[[Grid, Entry], Sequence[Row | None]]) -> Duel:
    found: dict[tuple[tuple[str, str], ...], Pair] = {}
    waiting, without, asked = 0, Counter[str](), False
    for places in _proposed(grids):
        pairs: dict[tuple[tuple[str, str], ...], Pair] = {}
        listed = False
        for grid, entry in places:
            others = [row.key for row in rows(grid, entry) if row is not None]
            listed |= bool(others)
            asked |= any(f"{grid.name}.{key}.{entry.cell.column.key}" in grid.every for key in others)
            # The first table that shows a pair says what it is called there.
            pairs = _best(grid, entry, others) | pairs
        for key, pair in pairs.items():
            found.setdefault(key, pair)
        if listed and not pairs:
            waiting += 1
        elif not listed:
            without[places[0][1].cell.row.label] += 1
    possible = any(row for grid, entry in _of_fpl(grids) for row in rows(grid, entry))
    absent = Duel.absent if possible else "these tables have no such row"
    return Duel(opponent, tuple(found.values()), waiting, without, asked, absent)


def _proposed(grids: Sequence[Grid]) -> list[list[tuple[Grid, Entry]]]:
    """Measured cells of FPL's rows; those of the same runs, which several tables may show, together."""
    found: dict[tuple[str, ...], list[tuple[Grid, Entry]]] = {}
    for grid, entry in _of_fpl(grids):
        if entry.records:
            found.setdefault(entry.cell.recipes, []).append((grid, entry))
    return list(found.values())


def _of_fpl(grids: Sequence[Grid]) -> Iterator[tuple[Grid, Entry]]:
    """Cells of FPL's rows, measured or not."""
    for grid in grids:
        if grid.experiment.table.metric == "miou":
            yield from ((grid, entry) for entry in grid.entries if entry.cell.row.role == "proposed")


def _best(grid: Grid, entry: Entry, rows: Sequence[str]) -> dict[tuple[tuple[str, str], ...], Pair]:
    """Recipes of the pairs of runs -> the comparison with that row that the cell gains least over; empty for none."""
    column = entry.cell.column.key
    found = []
    for key in rows:
        other = grid.every.get(f"{grid.name}.{key}.{column}")
        seeds = sorted(entry.values.keys() & other.values) if other is not None else []
        if other is not None and seeds:
            gains = {seed: entry.values[seed] - other.values[seed] for seed in seeds}
            recipes = tuple((entry.recipe_of[seed], other.recipe_of[seed]) for seed in seeds)
            # A row that turns out to be the same run is no comparison.
            if all(ours != theirs for ours, theirs in recipes):
                printed = entry.printed_gain if key == entry.cell.row.over else None
                dataset = entry.cell.configs[0].data.dataset
                pair = Pair(gains, f"{grid.name}.{column}", other.cell.row.label, dataset, printed)
                found.append((pair.gain, recipes, pair))
    if not found:
        return {}
    _, recipes, pair = min(found, key=lambda item: item[0])
    return {recipes: pair}


def _counts(test: SignTest) -> str:
    """`20 wins, 9 losses, 1 tie`."""
    return ", ".join([plural(test.wins, "win"), plural(test.losses, "loss", "losses"), plural(test.ties, "tie")])


def _what(label: str) -> str:
    """What a control does, without the method it does it to: labels are `METHOD, WHAT`."""
    return label.partition(", ")[2] or label
