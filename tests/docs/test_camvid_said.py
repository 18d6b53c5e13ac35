"""What docs/camvid.md says of the length of runs is what the committed runs give."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import fpl
from fpl.report.tables.gains import Gain, RowGains, row_gains
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


@pytest.fixture(scope="module")
def declared() -> fpl.Results:
    return fpl.load_results(ROOT / "results" / "camvid")


def found(results: fpl.Results) -> tuple[RowGains, ...]:
    (grid,) = load_shown(EXPERIMENTS, "camvid", results, names=["table1"], rows="all").grids
    return row_gains([grid], single=True)


def line(gains: RowGains) -> str:
    controls = [gain.text for gain in gains.controls] or ["no such row", "no such row"]
    labeled = gains.labeled[0].text if gains.labeled else "no such row"
    cells = [gains.baseline.ours, gains.baseline.text, *controls, labeled, f"**{gains.verdict}**"]
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("page", ["README.md", "docs/camvid.md"])
def test_what_fpl_gains_is_what_the_committed_runs_give(declared: fpl.Results, page: str) -> None:
    """`| row | baseline | half | K = 1 | labels alone | **verdict** |`: intervals and words of one rule."""
    text = (ROOT / page).read_text()
    assert found(declared)
    for gains in found(declared):
        assert line(gains) in text
        for gain in gains.labeled[1:] if page.startswith("docs") else ():
            assert f"{gain.ours} has {gain.text}" in flowing(text) or f"{gain.ours} {gain.text}" in flowing(text)


def test_the_declared_nine_are_those_of_the_runs(declared: fpl.Results) -> None:
    """Each difference by itself, as `What would count` has it, though those of a seed belong together."""
    text = DOC.read_text()
    keys = {row.label: row.key for row in load_shown(EXPERIMENTS, "camvid", None, ["table1"]).grids[0].experiment.rows}

    def nine(gain: Gain) -> Gain:
        values = declared.gains("table1", keys[gain.ours], keys[gain.other])["gain"]
        assert len(values) == 9
        return replace(gain, values=tuple(values))

    for gains in found(declared):
        wide = {name: tuple(map(nine, getattr(gains, name))) for name in ("controls", "labeled")}
        assert line(replace(gains, baseline=nine(gains.baseline), **wide)) in text


def flowing(text: str) -> str:
    return " ".join(text.split())


def test_what_all_cells_say_is_what_the_tables_print() -> None:
    text = flowing(DOC.read_text())
    tables = (ROOT / "results" / "camvid_tables" / "tables.md").read_text()
    (line,) = [line for line in tables.splitlines() if line.startswith("- FPL against its baseline: ")]
    counts, mean, _, paper = line.removeprefix("- ").split("; ")
    assert f"{counts}; {mean.removesuffix(')')}, which knows nothing of other seeds)" in text
    assert f"{paper.split(', ')[0]}." in text
    runs, all_runs = (
        set(fpl.load_results(ROOT / "results" / name).runs["run_id"]) for name in ("camvid", "camvid_tables")
    )
    assert (
        f"{len(all_runs)} runs of the same commit" in text
        and f"{len(runs & all_runs)} of them runs of the comparison" in text
    )
    (found,) = re.findall(
        r"(\d+) are found to hold here, (\d+) not, (\d+) hold by their formula, and (\d+) need pictures", text
    )
    said = "at scale camvid {} found to hold, {} not, {} by their formula, {} not run"
    assert said.format(*found) in flowing((ROOT / "docs" / "figures.md").read_text())
