"""What docs/camvid.md says of the length of runs is what the committed runs give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fpl
from fpl.report.tables.gains import row_gains
from fpl.report.tables.shown import load_shown

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
DOC = ROOT / "docs" / "camvid.md"
# The runs that chose the length of the scale's runs: the shortest of the curve had half of it.
SHORTEST = ["train.steps=160", "train.evaluate_every=40"]


def test_mious_over_the_length_are_those_of_the_committed_runs() -> None:
    """`| row | mIoU of the first length | ... |`; `-` where there is no run."""
    results = fpl.load_results(ROOT / "results" / "camvid_length")
    (grid,) = load_shown(EXPERIMENTS, "camvid", results, ["length"], rows="all", overrides=SHORTEST).grids
    text = DOC.read_text()
    head = re.search(r"^\| row \| (.+) steps \|$", text, re.MULTILINE)
    assert head
    (steps, *_) = [[entry.cell.configs[0].train.steps for entry in line.entries] for line in grid.lines]
    assert head[1].split(" | ") == [str(count) for count in steps]
    for line in grid.lines:
        values = ["-" if entry.ours is None else f"{entry.ours:.2f}" for entry in line.entries]
        assert f"| {line.row.label} | {' | '.join(values)} |" in text


def test_the_picture_of_the_page_is_that_of_the_runs() -> None:
    drawn = ROOT / "results" / "camvid_length" / "figures" / "length_curve.png"
    assert (ROOT / "docs" / "length.png").read_bytes() == drawn.read_bytes()


@pytest.mark.parametrize("page", ["README.md", "docs/camvid.md"])
def test_what_fpl_gains_is_what_the_committed_runs_give(page: str) -> None:
    """`| row | baseline | half | K = 1 | labels alone | **verdict** |`: intervals and words of one rule."""
    results = fpl.load_results(ROOT / "results" / "camvid")
    (grid,) = load_shown(EXPERIMENTS, "camvid", results, names=["table1"], rows="all").grids
    gains = row_gains([grid], single=True)
    assert gains
    text = (ROOT / page).read_text()
    for found in gains:
        controls = [gain.text for gain in found.controls] or ["no such row", "no such row"]
        labeled = found.labeled[0].text if found.labeled else "no such row"
        cells = [found.baseline.ours, found.baseline.text, *controls, labeled, f"**{found.verdict}**"]
        assert f"| {' | '.join(cells)} |" in text
        for gain in found.labeled[1:] if page.startswith("docs") else ():
            assert f"{gain.ours} {gain.text}" in " ".join(text.split())
