"""What docs/frameworks.md and README say that FPL does in each framework is what the committed runs give."""

from __future__ import annotations

from pathlib import Path

import pytest

import fpl
from fpl.report.statistics import mean_interval
from fpl.report.tables.entry import Grid
from fpl.report.tables.gains import Gain, RowGains, column_gains
from fpl.report.tables.shown import load_shown

ROOT = Path(__file__).parents[2]


def grid_of(scale: str, seeds: int) -> Grid:
    results = fpl.load_results(ROOT / "results" / f"{scale}_frameworks")
    (found,) = load_shown(ROOT / "experiments", scale, results, ["frameworks"], seeds=seeds, rows="all").grids
    return found


@pytest.fixture(scope="module")
def grid() -> Grid:
    return grid_of("mini", 3)


@pytest.fixture(scope="module")
def camvid() -> Grid:
    return grid_of("camvid", 1)


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


COLUMNS = ("own", "ce", "fpl", "half", "k1", "ce_open", "fpl_open")


def values_of(grid: Grid, row: str) -> str:
    """`| framework | mIoU of each column | K > 1 |`."""
    entries = [grid.every[f"{grid.name}.{row}.{column}"] for column in COLUMNS]
    share = grid.every[f"{grid.name}.{row}.fpl"].fuzzy_share
    assert share is not None
    cells = ["-" if entry.ours is None else f"{entry.ours:.2f}" for entry in entries]
    return f"| {' | '.join([grid.experiment.row(row).label, *cells])} | {100 * share:.1f} % |"


def over_rows(grid: Grid, column: str, other: str) -> str:
    """`+0.42 (-0.31 to +1.15; 8 : 5)`: mean, interval over frameworks, and in how many which is above."""
    rows = [row.key for row in grid.experiment.rows if row.role == "control"]
    values = [value for row in rows for value in pair(grid, row, column, other).values]
    interval = mean_interval(values)
    assert interval is not None
    above, below = (sum(sign * value > 0 for value in values) for sign in (1, -1))
    return f"{sum(values) / len(values):+.2f} ({interval.low:+.2f} to {interval.high:+.2f}; {above} : {below})"


PAIRS = {
    "cross-entropy on the own loss": ("ce", "own"),
    "FPL on cross-entropy": ("fpl", "ce"),
    "half the weight on cross-entropy": ("half", "ce"),
    "K = 1 on cross-entropy": ("k1", "ce"),
    "FPL on half the weight": ("fpl", "half"),
    "FPL on K = 1": ("fpl", "k1"),
    "without the gate: FPL on cross-entropy": ("fpl_open", "ce_open"),
}


def test_what_one_seed_of_real_images_gives(camvid: Grid) -> None:
    text = (ROOT / "docs" / "frameworks.md").read_text()
    rows = [row.key for row in camvid.experiment.rows if row.role == "control"]
    assert all(values_of(camvid, row) in text for row in rows) and len(rows) == 13
    for words, columns in PAIRS.items():
        assert f"| {words} | {over_rows(camvid, *columns)} |" in text
    readme = " ".join((ROOT / "README.md").read_text().split())
    fpl_gain, half = (over_rows(camvid, column, "ce") for column in ("fpl", "half"))
    assert f"FPL gives {fpl_gain} over cross-entropy there, and half the weight {half}" in readme


def test_how_far_the_same_run_on_another_processor_is(camvid: Grid) -> None:
    """Runs that stand in two published folders, by processor."""
    ours, *others = (
        fpl.load_results(ROOT / "results" / name).runs.set_index("run_id")
        for name in ("camvid_frameworks", "camvid", "camvid_tables")
    )
    apart: dict[bool, dict[str, float]] = {True: {}, False: {}}
    for other in others:
        for run in ours.index.intersection(other.index):
            same = ours["device"][run] == other["device"][run]
            apart[same][run] = abs(ours["miou_whole_best"][run] - other["miou_whole_best"][run])
    text = " ".join((ROOT / "docs" / "frameworks.md").read_text().split())
    numbers = {7: "seven", 11: "eleven"}
    assert f"{numbers[len(apart[False])]} of these runs also stand in `results/camvid`" in text
    assert f"differs by {min(apart[False].values()):.2f} to {max(apart[False].values()):.2f} points" in text
    assert f"the {numbers[len(apart[True])]} that stand in `results/camvid_tables` too" in text
    assert set(apart[True].values()) == {0.0}
