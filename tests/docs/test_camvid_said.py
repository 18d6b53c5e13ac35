"""What README and docs/camvid.md say of CamVid is what the committed runs give by the stated rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fpl
from fpl.report.tables.gains import row_gains
from fpl.report.tables.shown import load_shown

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/camvid.md"])
def test_gains_on_camvid_are_those_of_the_committed_runs(page: str) -> None:
    """`| row | baseline | half | K = 1 | labels alone | verdict |`; AEL has its baseline alone."""
    shown = load_shown(ROOT / "experiments", "camvid", fpl.load_results(ROOT / "results" / "camvid"), names=["table1"])
    found = {row.baseline.ours: row for row in row_gains(shown.grids)}
    said = re.findall(r"^\| ((?:FPL\+).+?) \| (.+) \| \*\*(.+?)\*\* \|$", (ROOT / page).read_text(), re.MULTILINE)
    assert [label for label, *_ in said] == list(found)
    for label, cells, verdict in said:
        row = found[label]
        labeled = [gain for gain in row.labeled if gain.ours == label]
        gains = [row.baseline, *row.controls, *labeled]
        expected = [gain.text for gain in gains] + ["–"] * (4 - len(gains))
        assert cells.split(" | ") == expected
        assert verdict == row.verdict
