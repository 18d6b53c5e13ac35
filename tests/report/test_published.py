"""What is said about runs beside published ones."""

from __future__ import annotations

from pathlib import Path

from fpl.report.published import compare_lines
from fpl.store.read import Results
from tests.report.world import World


def test_runs_on_other_inputs_are_told_from_those_of_another_machine(tmp_path: Path) -> None:
    ours, theirs = World(tmp_path / "ours", "little"), World(tmp_path / "theirs", "little")
    for world, device in ((ours, "cpu"), (theirs, "other cpu")):
        world.run("main.cps.small_8", 60.0)
        world.run("main.cps.small_16", 60.0, device=device)
    assert compare_lines(ours.results, theirs.results) == [
        f"2 of 2 runs equal the published ones in {theirs.out} to the last bit"
    ]
    theirs.run("main.cps.small_16", 60.25, device="other cpu")
    run = theirs.run("main.fpl_cps.small_8", 61.0, pins={"labeled": "f" * 16})
    mine = ours.run("main.fpl_cps.small_8", 60.0)
    lines = compare_lines(ours.results, Results(theirs.out))
    assert run != mine
    assert lines == [
        f"1 of 3 runs equal the published ones in {theirs.out} to the last bit; 2 differ, by up to 1.00 points of mIoU",
        f"  most: {mine}",
        "  1 of them: trained on other inputs: data.split.labeled",
        f"    data.split.labeled: 0123456789abcdef here, {'f' * 16} there",
        "  device: cpu here, other cpu there",
    ]


def test_nothing_to_compare_with_says_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    world.run("main.cps.small_8", 60.0)
    assert compare_lines(world.results, Results(tmp_path / "nowhere")) == []


def test_no_recorded_reason_is_said(tmp_path: Path) -> None:
    ours, theirs = World(tmp_path / "ours", "little"), World(tmp_path / "theirs", "little")
    ours.run("main.cps.small_8", 60.0)
    theirs.run("main.cps.small_8", 60.5)
    assert compare_lines(ours.results, theirs.results)[-1].startswith("  nothing recorded of them differs")
