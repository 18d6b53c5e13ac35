"""What docs/loss.md and README say of a T from labeled images is what the committed runs give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fpl
from fpl.report.tables.entry import Grid
from fpl.report.tables.gains import Gain
from fpl.report.tables.shown import load_shown
from fpl.store.read import Results

ROOT = Path(__file__).parents[2]
ROWS = ("cps", "cps_cutmix", "ael")
# What is held against what, by the endings of the rows' keys.
PAIRS = (("fpl_{}", "{}"), ("fpl_{}_labeled", "{}"), ("fpl_{}_labeled", "fpl_{}"))


@pytest.fixture(scope="module")
def results() -> Results:
    return fpl.load_results(ROOT / "results" / "mini_thresholds")


@pytest.fixture(scope="module")
def grid(results: Results) -> Grid:
    (found,) = load_shown(ROOT / "experiments", "mini", results, ["thresholds"], seeds=3, rows="all").grids
    return found


def differences(grid: Grid, ours: str, other: str) -> np.ndarray:
    """[columns, seeds], points of mIoU."""
    found = [[grid.every[f"{grid.name}.{row}.{column.key}"].values for row in (ours, other)] for column in grid.columns]
    return np.array([[one[seed] - two[seed] for seed in range(3)] for one, two in found])


def text_of(values: np.ndarray) -> str:
    return Gain("", "", tuple(map(float, values.ravel()))).text


def test_each_framework(grid: Grid, results: Results) -> None:
    """`| framework | hand over CE | labeled over CE | labeled over hand | last T of each column |`."""
    text = (ROOT / "docs" / "loss.md").read_text()
    last = results.history.dropna(subset="threshold").groupby("run_id")["threshold"].last()
    for row in ROWS:
        gains = [text_of(differences(grid, *(name.format(row) for name in pair)).mean(0)) for pair in PAIRS]
        entries = [grid.every[f"{grid.name}.fpl_{row}_labeled.{column.key}"] for column in grid.columns]
        thresholds = ", ".join(f"{last[list(entry.runs)].mean():.2f}" for entry in entries)
        assert f"| {grid.experiment.row(row).label} | {' | '.join(gains)} | {thresholds} |" in text


@pytest.mark.parametrize("page", ["README.md", "docs/loss.md"])
def test_all_together(grid: Grid, page: str) -> None:
    """Of each seed the mean over frameworks and columns, and the interval over seeds."""
    text = " ".join((ROOT / page).read_text().split())
    for pair in PAIRS[page == "README.md" :]:
        every = np.array([differences(grid, *(name.format(row) for name in pair)) for row in ROWS])
        assert text_of(every.mean((0, 1))) in text
