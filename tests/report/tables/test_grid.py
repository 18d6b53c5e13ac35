"""Grids of the small paper against numbers worked out by hand."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest

from fpl.config.campaign import load_campaign
from fpl.errors import FplError
from fpl.report.statistics import SignTest, Spread
from fpl.report.tables.entry import Entry, Grid
from fpl.report.tables.grid import build_grids
from fpl.report.tables.longform import longform
from fpl.report.tables.numbers import show
from fpl.report.tables.remarks import gaps, head, notes, warnings
from fpl.report.tables.summary import summarize
from fpl.store.cells import measure
from fpl.store.lookup import Record
from tests.report.world import BASE, SETTINGS, SPEED, World


def grids(world: World) -> dict[str, Grid]:
    return {grid.name: grid for grid in build_grids(world.campaign, world.results)}


def entry(grid: Grid, row: str, column: str) -> Entry:
    return next(item for item in grid.entries if item.cell.name == f"{grid.name}.{row}.{column}")


def test_one_seed_at_a_small_scale(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    world.run("main.cps.small_16", 23.0)
    world.run("main.fpl_cps.small_16", 23.75)
    world.run("main.cps.small_8", 25.0)
    world.run("main.fpl_cps.small_8", 24.5)
    main = grids(world)["main"]
    better = entry(main, "fpl_cps", "small_16")
    assert (better.ours, better.std, better.measured, better.wanted) == (23.75, None, 1, 1)
    assert better.difference == pytest.approx(23.75 - 61.0)
    assert better.arrow == pytest.approx(0.75)
    assert str(better.verdict) == "same sign as the paper"
    assert str(entry(main, "fpl_cps", "small_8").verdict) == "other sign than the paper"
    # Nothing is judged against the paper's number at this scale.
    assert str(entry(main, "cps", "small_8").verdict) == ""
    assert entry(main, "cps", "large_8").verdict.text == "not run: not yet run"


def test_what_is_not_run_says_why(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    world.run("main.cps.small_8", 25.0)
    world.fail("main.fpl_cps.small_8", "RuntimeError: loss is NaN at step 3\nTraceback ...")
    main = grids(world)["main"]
    cited = entry(main, "teacher", "small_16")
    assert (cited.state, cited.ours, cited.cell.printed, cited.reason) == (
        "cited",
        None,
        66.14,
        "cited, source: tarvainen2017",
    )
    assert entry(main, "teacher", "large_8").state == "dash"
    assert entry(main, "fpl_ael", "small_16").reason == "pending: AEL is not there yet"
    failed = entry(main, "fpl_cps", "small_8")
    assert failed.state == "failed"
    assert failed.reason == "failed: RuntimeError: loss is NaN at step 3 (logs/main.fpl_cps.small_8.txt)"
    assert entry(main, "supervised", "small_8").reason == "not yet run"
    assert gaps(main) == [
        "not yet run: CPS, FPL+CPS (Small 1/16, Large 1/8)",
        "failed: RuntimeError: loss is NaN at step 3 (logs/main.fpl_cps.small_8.txt): FPL+CPS (Small 1/8)",
        "pending: AEL is not there yet: FPL+AEL",
        "not yet run: supervised only",
    ]


def test_an_empty_store_is_one_line(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    main = build_grids(world.campaign, None)[0]
    assert gaps(main) == ["not yet run: every cell", "pending: AEL is not there yet: FPL+AEL"]
    assert summarize([main], None).lines[0].startswith("0 of 9 runs done; 0 s of training in total; 3 cells pending")


def test_mean_std_and_paired_arrow_over_seeds(tmp_path: Path) -> None:
    world = World(tmp_path, "full")
    for seed, (cps, fpl) in enumerate([(60.0, 61.0), (62.0, 62.5), (64.0, 66.5)]):
        world.run("main.cps.small_16", cps, seed)
        world.run("main.fpl_cps.small_16", fpl, seed)
    found = entry(grids(world)["main"], "fpl_cps", "small_16")
    # 61, 62.5, 66.5: mean 63.333, squares 5.444 + 0.694 + 10.028 = 16.167, over 2 is 8.0833.
    assert found.ours == pytest.approx(190 / 3)
    assert found.std == pytest.approx(math.sqrt(8 + 1 / 12))
    assert found.difference == pytest.approx(190 / 3 - 61)
    # 1, 0.5, 2.5: mean 4 / 3, standard error 0.6009; 4.3027 of it is 2.5855.
    assert found.arrow == pytest.approx(4 / 3)
    rows = {
        (row["row"], row["column"]): row for row in csv.DictReader(io.StringIO(longform(list(grids(world).values()))))
    }
    row = rows["fpl_cps", "small_16"]
    assert (float(row["arrow_low"]), float(row["arrow_high"])) == pytest.approx(
        (4 / 3 - 2.5855, 4 / 3 + 2.5855), abs=1e-4
    )
    assert row["arrow_n"] == "3" and rows["cps", "small_16"]["arrow_n"] == ""
    # t = 4.303 of two degrees: 4.303 * 2.843 / sqrt 3 = 7.06 is more than 2.333.
    assert str(found.verdict) == "within noise"


def test_two_of_three_seeds_are_marked(tmp_path: Path) -> None:
    world = World(tmp_path, "full")
    world.run("main.cps.small_16", 60.0, 0)
    world.run("main.cps.small_16", 60.2, 2)
    world.fail("main.cps.small_16", "killed", 1)
    for seed, miou in enumerate([61.0, 99.0, 61.4]):
        world.run("main.fpl_cps.small_16", miou, seed)
    main = grids(world)["main"]
    partial = entry(main, "cps", "small_16")
    assert (partial.state, partial.measured, partial.wanted) == ("partial", 2, 3)
    assert partial.reason == "2 of 3 seeds, the rest failed: killed (logs/main.cps.small_16.txt)"
    assert partial.verdict.provisional
    assert show(partial).lines == ["60.10 ±0.14 ≈*", "2 of 3 seeds", "paper 60.00"]
    full = entry(main, "fpl_cps", "small_16")
    # Seed 1 has no partner: 1.0 and 1.2.
    assert full.gains == (pytest.approx(1.0), pytest.approx(1.2)) and full.arrow == pytest.approx(1.1)
    assert show(full).lines[1] == "arrow: 2 of 3 seeds"


def test_verdict_of_one_seed_needs_a_repeated_run(tmp_path: Path) -> None:
    world = World(tmp_path, "full", seeds=1)
    world.run("main.cps.small_8", 65.9)
    assert str(entry(grids(world)["main"], "cps", "small_8").verdict) == "one run, noise unknown"
    # 64, 65: variance 0.5; margin 2 * 0.707 = 1.414 is more than 0.9.
    world.repeat("some-recipe", {0: 64.0, 1: 65.0})
    main = grids(world)["main"]
    assert main.repeated == Spread(pytest.approx(math.sqrt(0.5)), 1, 2)
    assert str(entry(main, "cps", "small_8").verdict) == "within noise (provisional)"
    assert head(main)[-2:] == [
        "repeating one run with the same seed, 2 times: standard deviation 0.71 points",
        "spread over seeds: unknown, each setting was run with one seed at most",
    ]


def test_the_spread_over_seeds_is_of_all_that_the_store_has(tmp_path: Path) -> None:
    world = World(tmp_path, "full")
    for seed, miou in enumerate([61.0, 63.0]):
        world.run("main.cps.small_16", miou, seed)
    for seed, miou in enumerate([70.0, 71.0, 72.0]):
        world.run("main.cps.small_8", miou, seed)
    world.run("main.cps.large_8", 80.0)
    world.repeat("some-recipe", {0: 64.0, 1: 64.0, 2: 64.0})
    lines = [
        "repeating one run with the same seed, 3 times: standard deviation 0.00 points (equal to the last bit)",
        # Variances 2 of one degree and 1 of two: sqrt(4 / 3).
        "spread over seeds: standard deviation 1.15 points (5 runs of 2 settings)",
    ]
    assert head(grids(world)["main"])[-2:] == lines
    # A campaign of one seed shows one of each cell, and the spread of those that are there.
    world.campaign = load_campaign(world.experiments, "full", seeds=1)
    assert head(grids(world)["main"])[-2:] == lines
    assert grids(world)["speed"].over_seeds is None


def test_selection_names_the_column(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    world.run("main.cps.small_8", 25.0)
    found = grids(world)
    assert entry(found["main"], "cps", "small_8").ours == 25.0
    assert entry(found["again"], "cps", "small_8").ours == 24.0
    assert "whole-image protocol" in head(found["main"])[1] and "best of the evaluated" in head(found["main"])[1]
    assert "last checkpoint" in head(found["again"])[1]


def test_newest_run_of_a_recipe_answers(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    old = world.run("main.cps.small_8", 99.0, pins={"labeled": "a" * 16}, finished_at="2025-12-31T23:59:59+00:00")
    new = world.run("main.cps.small_8", 25.0)
    main = grids(world)["main"]
    assert entry(main, "cps", "small_8").runs == (new,)
    assert any("left out for the newest" in warning and old in warning for warning in warnings(main))


def test_mixed_splits_in_a_column_warn(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    world.run("main.cps.small_8", 25.0)
    world.run("main.fpl_cps.small_8", 26.0, pins={"labeled": "b" * 16})
    world.run("main.cps.small_16", 25.0, pins={"labeled": "c" * 16})
    found = warnings(grids(world)["main"])
    assert found == [
        "column Small 1/8 mixes runs of another labeled list: 0123456789abcdef: CPS; bbbbbbbbbbbbbbbb: FPL+CPS"
    ]


def test_mixed_families_in_a_column_warn(tmp_path: Path) -> None:
    fuzzy = 'set = { loss = { kind = "fpl" }'
    edit = (f"{fuzzy} }}", f'{fuzzy}, data = {{ split = {{ family = "clean-nth" }} }} }}')
    world = World(tmp_path, "little", {"tables/main.toml": edit})
    world.run("main.cps.small_8", 25.0)
    world.run("main.fpl_cps.small_8", 26.0)
    grid = grids(world)["main"]
    assert "column Small 1/8 mixes runs of another split family: every-nth: CPS; clean-nth: FPL+CPS" in warnings(grid)
    assert "splits: synthetic_city every-nth, synthetic_city clean-nth" in head(grid)


def test_other_versions_are_a_footnote(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    world.run("main.cps.small_8", 25.0)
    world.run("main.cps.small_16", 25.5)
    world.run("main.fpl_cps.small_8", 26.0, torch="2.10.0", commit=None)
    found = warnings(grids(world)["main"])
    assert "the runs of this table differ in torch: 2.9.0 (2 runs), 2.10.0 (1 run)" in found
    assert "the runs of this table differ in commit: abc (2 runs), none (1 run)" in found
    assert not warnings(grids(world)["again"])[2:]


def test_sign_test_counts_shared_runs_once(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    for column, cps, fpl in [("small_16", 20.0, 21.0), ("small_8", 25.0, 24.0), ("large_8", 30.0, 30.0)]:
        world.run(f"main.cps.{column}", cps)
        world.run(f"main.fpl_cps.{column}", fpl)
    # A control has an arrow, but is no comparison of FPL; its failure before it succeeded is no failure.
    world.run("main.supervised.small_8", 27.0)
    world.fail("main.supervised.small_8", "killed once")
    found = grids(world)
    assert entry(found["main"], "supervised", "small_8").arrow == pytest.approx(2.0)
    assert entry(found["again"], "fpl_cps", "small_8").arrow == pytest.approx(-1.0)
    summary = summarize(list(found.values()), world.results)
    assert summary.duels[0].signs == SignTest(1, 1, 1)
    assert summary.duels[0].printed == SignTest(3, 0, 0)
    assert (summary.done, summary.wanted, summary.failed) == (7, 9, 0)
    assert summary.train_seconds == 350.0


def test_paper_counts_without_printed_arrows(tmp_path: Path) -> None:
    world = World(tmp_path, "little", names=["again"])
    world.run("again.cps.small_8", 20.0)
    world.run("again.fpl_cps.small_8", 21.0)
    fpl = entry(grids(world)["again"], "fpl_cps", "small_8")
    assert (fpl.cell.arrow, fpl.printed_gain) == (None, pytest.approx(0.5))
    assert summarize(list(grids(world).values()), world.results).duels[0].printed == SignTest(1, 0)


def test_equal_numbers_of_different_runs_reach_the_summary(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    world.run("main.cps.small_8", 25.0)
    world.run("main.cps.small_16", 25.0)
    summary = summarize(list(grids(world).values()), world.results)
    assert len(summary.warnings) == 1 and "to the last bit" in summary.warnings[0]


def test_thresholds_are_those_of_the_runs(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    settings = grids(world)["settings"]
    assert [item.ours for item in settings.entries] == [0.95, 0.9, 0.85]
    assert [str(item.verdict) for item in settings.entries] == ["same T", "same T", "another T"]
    other = World(tmp_path, "little", overrides=["loss.threshold=0.9"])
    assert [item.ours for item in grids(other)["settings"].entries] == [0.9, 0.9, 0.9]
    # Without the other table's cells, its file says.
    alone = World(tmp_path, "little", names=["settings"])
    assert [item.ours for item in grids(alone)["settings"].entries] == [0.95, 0.9, 0.85]


def test_threshold_rows_need_a_counterpart(tmp_path: Path) -> None:
    shorter = SETTINGS.replace('[[columns]]\nkey = "z"\nheader = "1/8"\n', "").replace(", 0.8]", "]")
    world = World(tmp_path, "little", {"tables/settings.toml": (SETTINGS, shorter)}, names=["settings"])
    with pytest.raises(FplError, match=r"settings\.t\.x is of main\.fpl_cps, whose table has no column x"):
        build_grids(world.campaign, None)


def test_seconds_per_pass_over_the_unlabeled_list(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    # 200 steps of 4 images are 2 passes over 400: 50 s / 2 and 60 s / 2.
    world.run("speed.cps.city", 20.0, train_seconds=50.0)
    world.run("speed.fpl_cps.city", 20.5, train_seconds=60.0, workers=2)
    speed = grids(world)["speed"]
    fpl = entry(speed, "fpl_cps", "city")
    assert entry(speed, "cps", "city").ours == pytest.approx(25.0)
    assert (fpl.ours, fpl.arrow) == (pytest.approx(30.0), pytest.approx(5.0))
    assert "on cpu (1 worker, 2 threads) and cpu (2 workers, 2 threads); the paper's on 8 V100" in head(speed)[1]


def test_a_step_of_ael_uses_up_two_images_of_an_epoch(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    recipe = world.experiments / "base" / "city_ael.toml"
    cps = 'name = "cps"\ncutmix = false\nweight = 1.5'
    assert cps in BASE
    recipe.write_text(BASE.replace(cps, 'name = "ael"'))
    table = world.experiments / "tables" / "speed.toml"
    ael = '[[rows]]\nkey = "ael"\nlabel = "AEL"\nrole = "baseline"\nrecipe = "ael"\nvalues = [730]\n'
    table.write_text(SPEED + ael)
    world.campaign = load_campaign(world.experiments, "little", rows="all")
    # As Table A6: 2603 unlabeled images and 8 mixed ones a step are 163 steps (2603 / 16 = 162.7); 4.48 s each, 730 s.
    config = world.cell("speed.ael.city").configs[0]
    config = config.model_copy(update={"data": config.data.model_copy(update={"unlabeled_batch": 8})})
    cell = replace(world.cell("speed.ael.city"), configs=(config,))
    record: Record = {"train_seconds": config.train.steps * 4.48, "unlabeled_images": 2603}
    assert measure(cell, record) == pytest.approx(163 * 4.48, rel=0.003)
    # 200 steps of 4 mixed images are 4 passes over 400; of CPS they are 2.
    assert measure(world.cell("speed.ael.city"), {"train_seconds": 50.0, "unlabeled_images": 400}) == 12.5
    assert measure(world.cell("speed.cps.city"), {"train_seconds": 50.0, "unlabeled_images": 400}) == 25.0
    assert measure(world.cell("speed.ael.city"), {"train_seconds": None, "unlabeled_images": 400}) is None


def test_rows_with_another_protocol_are_named(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    assert head(grids(world)["main"])[1].startswith(
        "mIoU in percent, whole-image protocol, classes that are nowhere in label or prediction left out; "
    )
    fuzzy = 'set = { loss = { kind = "fpl" }'
    row = (f"{fuzzy} }}", f'{fuzzy}, eval = {{ protocol = "center", absent = "zero" }} }}')
    mixed = World(tmp_path / "mixed", "little", {"tables/main.toml": row})
    assert head(grids(mixed)["main"])[1].startswith(
        "mIoU in percent, whole-image protocol (FPL+CPS: center of each image alone), "
        "classes that are nowhere in label or prediction left out (FPL+CPS: absent classes counted as 0); "
    )
    mixed.run("main.fpl_cps.small_8", 20.0, miou_center_best=26.5)
    assert entry(grids(mixed)["main"], "fpl_cps", "small_8").ours == 26.5


def test_seconds_are_not_judged_against_other_hardware(tmp_path: Path) -> None:
    world = World(tmp_path, "full", seeds=1)
    world.run("speed.cps.city", 20.0)
    assert entry(grids(world)["speed"], "cps", "city").verdict.text == ""


def test_notes_are_numbered_by_row(tmp_path: Path) -> None:
    texts, marks = notes(grids(World(tmp_path, "little"))["main"])
    assert texts == [
        "Printed by <nobody>.",
        "cited: tarvainen2017",
        "The method of the paper.",
        "a control of this suite, not in the paper",
    ]
    assert marks == {"teacher": [2], "fpl_cps": [3], "supervised": [4]}


def test_subsets_keep_their_baselines(tmp_path: Path) -> None:
    world = World(tmp_path, "little", names=["main.fpl_cps.small_*", "speed"])
    world.run("main.cps.small_8", 25.0)
    world.run("main.fpl_cps.small_8", 26.0)
    found = grids(world)
    assert list(found) == ["main", "speed"]
    main = found["main"]
    assert [line.row.key for line in main.lines] == ["fpl_cps"]
    assert [column.key for column in main.columns] == ["small_16", "small_8"]
    assert entry(main, "fpl_cps", "small_8").arrow == pytest.approx(1.0)
    assert summarize(list(found.values()), world.results).duels[0].signs == SignTest(1, 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mian", r"no table 'mian'\n.*did you mean main\? there are: main, again, settings, speed"),
        ("main.fpl_csp", r"did you mean fpl_cps\? names are"),
        ("main.fpl_csp.smal_16", r"did you mean fpl_cps.small_16\? names are"),
        ("main.nobody", r"'nobody' fits no cell of main\n.*rows: teacher, cps, fpl_cps"),
        ("main.cps.huge", r"'cps.huge' fits no cell of main\n.*columns: small_16, small_8, large_8"),
    ],
)
def test_unknown_names(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(FplError, match=message):
        World(tmp_path, "little", names=[name])


def test_rows_and_seeds(tmp_path: Path) -> None:
    assert World(tmp_path, "full").campaign.seeds == (0, 1, 2)
    assert not [cell for cell in World(tmp_path, "full").campaign.all_cells if cell.row.role == "control"]
    assert [cell for cell in World(tmp_path, "full", rows="all").campaign.all_cells if cell.row.role == "control"]
    assert World(tmp_path, "full", seeds=2).campaign.seeds == (0, 1)
    full, little = World(tmp_path, "full").campaign.scale, World(tmp_path, "little").campaign.scale
    assert full.comparable and not little.comparable
    with pytest.raises(FplError, match="between 1 and 200"):
        World(tmp_path, "full", seeds=0)
    with pytest.raises(FplError, match="no scale 'huge'"):
        World(tmp_path, "huge")
