"""Gains of FPL's rows over columns and seeds: intervals by hand, and the verdict that follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fpl.config.campaign import load_campaign
from fpl.report.tables.gains import HELPS, HURTS, NOT_ITS_OWN, NOTHING, RULE, Gain, RowGains, row_gains
from fpl.report.tables.grid import build_grids
from fpl.report.tables.shown import load_shown
from fpl.report.tables.summary import summarize
from tests.report.tables.test_head_to_head import CONTROL_ROWS
from tests.report.world import MAIN, World

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
# Student's t, 97.5 %, of 1 degree of freedom, as printed in tables.
T_1 = 12.706205


def make_world(folder: Path) -> World:
    world = World(folder, "little", {"tables/main.toml": (MAIN, MAIN + CONTROL_ROWS)})
    world.campaign = load_campaign(world.experiments, "little", rows="all", seeds=2)
    return world


def test_a_number_a_seed_whose_interval_is_students(tmp_path: Path) -> None:
    """By hand: of seeds 0 and 1 the means of two columns, (1 + 3) / 2 and (2 + 4) / 2."""
    world = make_world(tmp_path)
    places = (("small_16", 0), ("small_16", 1), ("small_8", 0), ("small_8", 1))
    for row, values in {
        "cps": (20.0, 24.0, 30.0, 31.0),
        "fpl_cps": (21.0, 26.0, 33.0, 35.0),
        "supervised": (22.0, 22.0, 22.0, 22.0),
    }.items():
        for (column, seed), value in zip(places, values, strict=True):
            world.run(f"main.{row}.{column}", value, seed=seed)
    grids = build_grids(world.campaign, world.results)
    found = row_gains(grids)[0]
    assert found.table == grids[0].experiment.table.number
    assert found.baseline.values == (2.0, 3.0)
    interval = found.baseline.interval
    assert interval is not None and interval.n == 2
    assert (interval.low, interval.high) == pytest.approx((2.5 - T_1 / 2, 2.5 + T_1 / 2), abs=1e-5)
    assert [gain.values for gain in found.labeled] == [(5.0, 8.5), (3.0, 5.5)]
    assert [gain.interval for gain in found.controls] == [None, None]
    assert found.verdict == NOTHING
    lines = summarize(grids, world.results).lines
    assert lines[-1] == RULE
    assert any("+2.50 (-3.85 to +8.85, n = 2)" in line and line.count("not run") == 2 for line in lines)


def test_a_seed_that_lacks_a_column_waits(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    for column, seed, gain in (("small_16", 0, 1.0), ("small_8", 0, 3.0), ("small_16", 1, 50.0)):
        for row, value in (("cps", 20.0), ("fpl_cps", 20.0 + gain)):
            world.run(f"main.{row}.{column}", value, seed=seed)
    # Without a partner of its seed it is no difference.
    world.run("main.fpl_cps.small_8", 90.0, seed=1)
    assert row_gains(build_grids(world.campaign, world.results))[0].baseline.values == (1.0, 3.0)


def test_one_seed_a_cell_says_nothing_here(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    for row in ("cps", "fpl_cps"):
        for column in ("small_16", "small_8"):
            world.run(f"main.{row}.{column}", 20.0)
    assert row_gains(build_grids(world.campaign, world.results)) == ()


@pytest.mark.parametrize(
    ("baseline", "controls", "verdict"),
    [
        ((1.0, 1.1), [(1.0, 1.1), (2.0, 2.1)], HELPS),
        ((1.0, 1.1), [], HELPS),
        ((1.0, 1.1), [(1.0, 1.1), (-1.0, 2.0)], NOT_ITS_OWN),
        ((1.0, 1.1), [(-1.0, -1.1)], f"{NOT_ITS_OWN}; less than control 0"),
        ((-1.0, -1.1), [(1.0, 1.1)], HURTS),
        ((-1.0, 2.0), [(1.0, 1.1)], NOTHING),
        ((-1.0, 2.0), [(1.0, 1.1), (-1.0, -1.1)], f"{NOTHING}; less than control 1"),
        ((1.0,), [(1.0, 1.1)], NOTHING),
        ((1.0, 1.1), [()], "more than its baseline; a control is not run"),
        (
            (1.0, 1.1),
            [(1.0,)],
            "more than its baseline; of a control there is one difference, which has no interval",
        ),
    ],
)
def test_the_verdict_is_that_of_the_rule(
    baseline: tuple[float, ...], controls: list[tuple[float, ...]], verdict: str
) -> None:
    # (1.0, 1.1): mean 1.05, deviation 0.0707, half the interval 12.7 * 0.0707 / sqrt(2) = 0.635: above 0.
    gains = tuple(Gain("FPL", f"control {number}", values) for number, values in enumerate(controls))
    row = RowGains("Table 1", Gain("FPL", "CPS", baseline), gains, ())
    assert row.verdict == verdict
    assert row.line.endswith(verdict)
    if len(baseline) == 2:
        low = sum(baseline) / 2 - T_1 * abs(baseline[0] - baseline[1]) / 2
        interval = row.baseline.interval
        assert interval is not None and interval.low == pytest.approx(low, abs=1e-5)


def test_as_many_seeds_are_shown_as_the_store_holds(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.campaign = load_campaign(world.experiments, "little", rows="all", seeds=5)
    scale = "little"
    least = load_campaign(world.experiments, scale).seeds
    for seed in (*least, len(least), 4):
        world.run("main.cps.small_16", 20.0, seed=seed)
    shown = load_shown(world.experiments, scale, world.results)
    # A run of seed 4 alone, without one of the seeds before it, is somebody's trial.
    assert shown.campaign.seeds == (*least, len(least))
    assert load_shown(world.experiments, scale, world.results, seeds=1).campaign.seeds == (0,)
    assert load_shown(world.experiments, scale, None).campaign.seeds == least


def test_a_table_whose_rows_are_all_ours_is_left_out_where_nothing_is_known_of_it() -> None:
    assert "length" not in {grid.name for grid in load_shown(EXPERIMENTS, "mini", None).grids}
    assert [grid.name for grid in load_shown(EXPERIMENTS, "mini", None, ["length"]).grids] == ["length"]


def test_a_row_that_is_over_nothing_has_no_gain(tmp_path: Path) -> None:
    lines = [line for line in MAIN.splitlines() if not line.startswith(("over", "arrows"))]
    world = World(tmp_path, "little", {"tables/main.toml": (MAIN, "\n".join(lines) + "\n")})
    world.campaign = load_campaign(world.experiments, "little", seeds=2)
    for row in ("cps", "fpl_cps"):
        for seed in (0, 1):
            world.run(f"main.{row}.small_16", 20.0, seed=seed)
    main = [grid for grid in build_grids(world.campaign, world.results) if grid.name == "main"]
    assert any(row.role == "proposed" for row in main[0].experiment.rows)
    assert row_gains(main) == ()
