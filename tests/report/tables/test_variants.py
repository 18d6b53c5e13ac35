"""A table of this suite whose columns are variants of its rows: gains over another column, K, and who has no cell."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fpl.config.campaign import load_campaign
from fpl.report.tables.console import console_text
from fpl.report.tables.entry import Entry, Grid
from fpl.report.tables.gains import column_gains
from fpl.report.tables.grid import build_grids
from fpl.report.tables.html import section
from fpl.report.tables.latex import latex
from fpl.report.tables.markdown import markdown
from fpl.report.tables.numbers import show
from fpl.report.tables.remarks import head
from fpl.report.tables.shown import load_shown
from fpl.store.write import write_table
from tests.report.world import World

OURS = """
[table]
name = "ours"
number = "Ours"
caption = "What stands in the place of the loss"
dataset = "city"
printed = false
show_k = true
[[columns]]
key = "own"
header = "own"
[[columns]]
key = "ce"
header = "CE"
over = "own"
set.loss.kind = "ce"
[[columns]]
key = "fpl"
header = "FPL"
over = "ce"
set.loss.kind = "fpl"
[[columns]]
key = "k1"
header = "K = 1"
over = "ce"
set.loss = { kind = "fpl", strategy = "fixed", fixed_k = 1 }
[[rows]]
key = "cps"
label = "CPS"
role = "control"
recipe = "cps"
[[rows]]
key = "soft"
label = "Soft CPS"
role = "control"
recipe = "cps"
set.method.weight = 1.0
threshold = 0.5
without = { k1 = "no such thing" }
[[rows]]
key = "log"
label = "A log"
role = "cited"
source = "somebody"
values = [70.0, "-", "-", "-"]
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path, "little")
    (found.experiments / "tables" / "ours.toml").write_text(OURS)
    found.campaign = load_campaign(found.experiments, "little", ["ours"], rows="all", seeds=2)
    return found


def teach(world: World, run: str, steps: list[tuple[int, float]]) -> None:
    """Rows of `fuzziness`: pixels that taught and their share of K = 1, of one direction at each step."""
    rows = [
        {"run_id": run, "step": step, "direction": "12", "pixels": pixels, "share_k1": share}
        for step, (pixels, share) in enumerate(steps)
    ]
    write_table(world.out / "fuzziness" / f"{run}.parquet", "fuzziness", rows)


def grid(world: World) -> Grid:
    return build_grids(world.campaign, world.results)[0]


def entry(world: World, name: str) -> Entry:
    return grid(world).every[f"ours.{name}"]


def test_gains_are_over_another_column_with_an_interval_over_seeds(world: World) -> None:
    for seed, (ce, fpl) in enumerate([(20.0, 21.0), (22.0, 22.6)]):
        world.run("ours.cps.ce", ce, seed)
        world.run("ours.cps.fpl", fpl, seed)
    found = entry(world, "cps.fpl")
    assert found.gains == pytest.approx((1.0, 0.6))
    # Mean 0.8, deviation 0.2828, over the root of 2 it is 0.2; 12.706 of it is 2.541.
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((0.8 - 2.5412, 0.8 + 2.5412), abs=1e-4)
    assert show(found).lines == ["21.80 ±1.13 ↑0.80", "-1.74 to +3.34"]
    # The own loss is cross-entropy: the same runs stand in both columns, and gain nothing over themselves.
    own, ce = entry(world, "cps.own"), entry(world, "cps.ce")
    assert own.runs == ce.runs and own.values == ce.values and ce.gains == ()


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        # 100 * 0.5 + 300 * 0.25 of 400 pixels.
        ([(100, 0.5), (300, 0.75)], "K > 1: 31.2 %"),
        ([(300, 0.0)], "K > 1: 100 %"),
        ([(100, 1.0), (300, 1.0)], "K = 1 everywhere"),
        ([(0, math.nan), (300, 1.0)], "K = 1 everywhere"),
        ([(0, math.nan), (0, math.nan)], "no pixel teaches"),
    ],
)
def test_cells_of_fpl_say_how_often_k_was_above_1(world: World, steps: list[tuple[int, float]], said: str) -> None:
    for name in ("cps.fpl", "cps.ce", "cps.k1"):
        teach(world, world.run(f"ours.{name}", 20.0), steps)
    assert show(entry(world, "cps.fpl")).notes == (said,)
    # K of cross-entropy means nothing, and one that is fixed is no news.
    assert show(entry(world, "cps.ce")).notes == show(entry(world, "cps.k1")).notes == ()
    grids = [grid(world)]
    # Each format writes > in its own way.
    texts = markdown(grids), latex(grids).replace(r"\%", "%"), section(grids[0]), console_text(grids)
    assert all(said.removeprefix("K > 1: ") in text for text in texts)


def test_a_seed_in_which_no_pixel_taught_is_left_out_beside_another(world: World) -> None:
    teach(world, world.run("ours.cps.fpl", 20.0, 0), [(0, math.nan)])
    teach(world, world.run("ours.cps.fpl", 20.0, 1), [(100, 0.5)])
    assert show(entry(world, "cps.fpl")).notes == ("K > 1: 50 %",)


def test_all_rows_together_gain_with_an_interval_over_seeds(world: World) -> None:
    values = {"cps": [(20.0, 21.0), (22.0, 22.6)], "soft": [(30.0, 32.0), (30.0, 30.4)]}
    for row, pairs in values.items():
        for seed, pair in enumerate(pairs):
            for column, value in zip(("ce", "fpl"), pair, strict=True):
                world.run(f"ours.{row}.{column}", value, seed)
    (gain,) = column_gains(grid(world))
    # Seed 0: 1 and 2; seed 1: 0.6 and 0.4. Mean 1, half their distance 0.5; 12.706 of it is 6.353.
    assert gain.values == pytest.approx((1.5, 0.5))
    said = "FPL (2 rows) over CE: +1.00 (-5.35 to +7.35, n = 2)"
    assert f"{gain.ours} over {gain}" == said
    assert head(grid(world))[-1] == f"points gained, of each seed the mean over rows: {said}"


def test_who_has_no_cell_says_why_and_is_not_run(world: World) -> None:
    found = entry(world, "soft.k1")
    assert (found.state, found.wanted, show(found).lines) == ("dash", 0, ["no such thing"])
    grids = [grid(world)]
    texts = markdown(grids), latex(grids), str(section(grids[0])), console_text(grids)
    assert all("no such thing" in text for text in texts)
    assert show(entry(world, "log.own")).lines == ["cited 70.00"]


def test_numbers_of_others_alone_make_no_table_of_ours(world: World) -> None:
    world.repeat("none", {1: 20.0})
    assert "ours" not in {each.name for each in load_shown(world.experiments, "little", world.results).grids}
    world.run("ours.soft.ce", 20.0)
    (found,) = (each for each in load_shown(world.experiments, "little", world.results).grids if each.name == "ours")
    assert [line.row.key for line in found.lines] == ["soft", "log"]
