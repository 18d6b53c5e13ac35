"""What docs/camvid.md says of the length of runs is what the committed runs give."""

from __future__ import annotations

import re
from pathlib import Path

import fpl
from fpl.report.tables.shown import load_shown

ROOT = Path(__file__).parents[2]


def test_mious_over_the_length_are_those_of_the_committed_runs() -> None:
    """`| row | mIoU of the first length | ... |`; `-` where there is no run."""
    results = fpl.load_results(ROOT / "results" / "camvid_length")
    (grid,) = load_shown(ROOT / "experiments", "camvid", results, ["length"], rows="all").grids
    text = (ROOT / "docs" / "camvid.md").read_text()
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
