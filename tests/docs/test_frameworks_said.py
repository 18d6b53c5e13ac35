"""What docs/frameworks.md and README say that FPL does in each framework is what the committed runs give."""

from __future__ import annotations

from pathlib import Path

import pytest

import fpl
from fpl.report.tables.entry import Grid
from fpl.report.tables.gains import Gain, RowGains, column_gains
from fpl.report.tables.shown import load_shown

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def grid() -> Grid:
    results = fpl.load_results(ROOT / "results" / "mini_frameworks")
    (found,) = load_shown(ROOT / "experiments", "mini", results, ["frameworks"], seeds=3, rows="all").grids
    return found


def pair(grid: Grid, row: str, column: str, other: str) -> Gain:
    """One column over another in a row, seed by seed."""
    ours, theirs = (grid.every[f"{grid.name}.{row}.{name}"] for name in (column, other))
    seeds = sorted({*ours.values} & {*theirs.values}) if ours.runs != theirs.runs else []
    label = {"half": "half the weight", "k1": "K = 1"}.get(other, other)
    return Gain(column, label, tuple(ours.values[seed] - theirs.values[seed] for seed in seeds))


def said(gain: Gain) -> str:
    return gain.text if gain.values else "-"


def line_of(grid: Grid, row: str) -> str:
    """`| framework | cross-entropy | FPL over it, half, K = 1 | without a gate | verdict |`."""
    over_own = pair(grid, row, "ce", "own")
    gains = [pair(grid, row, "fpl", other) for other in ("ce", "half", "k1")]
    verdict = RowGains("", gains[0], tuple(gains[1:]), ()).verdict
    cells = [over_own, *gains, pair(grid, row, "fpl_open", "ce_open")]
    return f"| {grid.experiment.row(row).label} | {' | '.join(map(said, cells))} | **{verdict}** |"


def test_what_fpl_does_in_each_framework(grid: Grid) -> None:
    text = (ROOT / "docs" / "frameworks.md").read_text()
    rows = [row.key for row in grid.experiment.rows if row.role == "control"]
    assert len(rows) == 13
    for row in rows:
        assert line_of(grid, row) in text


def test_how_many_intervals_leave_0_is_said(grid: Grid) -> None:
    rows = [row.key for row in grid.experiment.rows if row.role == "control"]
    signs = [pair(grid, row, "fpl", other).sign for row in rows for other in ("ce", "half", "k1")]
    text = " ".join((ROOT / "docs" / "frameworks.md").read_text().split())
    assert (
        f"Of the {len(signs)} intervals of FPL in the table {signs.count(1)} lie above 0 and {signs.count(-1)} below"
        in text
    )


TOGETHER = {
    "README.md": "FPL gives {fpl} points over cross-entropy, all together, and half the weight {half};",
    "docs/frameworks.md": (
        "FPL is {fpl} on cross-entropy, half the weight {half} and K = 1 with the adaptive weight {k1}: of the three"
    ),
}


@pytest.mark.parametrize("page", TOGETHER)
def test_what_all_frameworks_say_together(grid: Grid, page: str) -> None:
    names = {column.key: column.name for column in grid.columns if column.over == "ce"}
    gains = column_gains(grid)
    texts = {key: next(gain.text for gain in gains if gain.ours.startswith(f"{name} (")) for key, name in names.items()}
    rows = [row.key for row in grid.experiment.rows if row.role == "control"]
    helped = sum("**FPL helps**" in line_of(grid, row) for row in rows)
    text = " ".join((ROOT / page).read_text().split())
    assert TOGETHER[page].format(**texts) in text
    assert f"helps {helped} of {len(rows)} frameworks" in text
