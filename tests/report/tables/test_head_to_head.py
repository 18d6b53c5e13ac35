"""FPL against its baseline, the best control and labeled images alone: by hand, and where runs are missing."""

from __future__ import annotations

import html
from collections import Counter
from pathlib import Path

import pytest

from fpl.config.campaign import load_campaign
from fpl.errors import FplError
from fpl.report.page import page
from fpl.report.statistics import SignTest
from fpl.report.tables.console import console_text
from fpl.report.tables.grid import build_grids
from fpl.report.tables.head_to_head import (
    BASELINES,
    CONTROLS,
    HOW_TO_RUN,
    LABELED,
    LEFT_OUT,
    Duel,
    Pair,
    duels,
    duels_by_control,
)
from fpl.report.tables.markdown import markdown
from fpl.report.tables.summary import summarize
from tests.report.world import MAIN, World

EXPERIMENTS = Path(__file__).parents[3] / "experiments"

CONTROL_ROWS = """control_of = ["fpl_cps"]
[[rows]]
key = "half"
label = "CPS, half the weight"
role = "control"
set = { method = { weight = 0.75 } }
over = "cps"
control_of = ["fpl_cps"]
[[rows]]
key = "one"
label = "CPS, K = 1"
role = "control"
set = { loss = { kind = "fpl", strategy = "fixed", fixed_k = 1 } }
over = "cps"
control_of = ["fpl_cps"]
[[rows]]
key = "released"
label = "FPL+CPS, as released"
role = "control"
set = { loss = { kind = "fpl", fidelity = "released" } }
over = "cps"
"""


def make_world(folder: Path, controls: str = "true", rows: str = CONTROL_ROWS) -> World:
    """The small paper with controls of each kind."""
    edits = {"tables/main.toml": (MAIN, MAIN + rows)}
    world = World(folder, "little", edits)
    if controls == "false":
        world.campaign = load_campaign(world.experiments, "little", rows="paper")
    return world


def fill(world: World) -> None:
    for row, values in {
        "cps": (20.0, 25.0, 30.0),
        "fpl_cps": (21.0, 24.0, 30.0),
        "supervised": (23.0, 23.0, 33.0),
        "half": (21.5, 20.0, 29.0),
        "one": (20.5, 24.5, 29.5),
        "released": (99.0, 99.0, 99.0),
    }.items():
        for column, value in zip(("small_16", "small_8", "large_8"), values, strict=True):
            world.run(f"main.{row}.{column}", value)


def test_three_opponents_by_hand(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    fill(world)
    baseline, controls, labeled = duels(build_grids(world.campaign, world.results))
    # The same pair of runs in the table `again` is not counted a second time.
    assert [pair.gain for pair in baseline.pairs] == [1.0, -1.0, 0.0]
    assert [pair.column for pair in baseline.pairs] == ["main.small_16", "main.small_8", "main.large_8"]
    assert (baseline.signs, baseline.printed) == (SignTest(1, 1, 1), SignTest(3, 0, 0))
    # The best of each column: half 21.5, K = 1 24.5, K = 1 29.5; as released is FPL, and no control of it.
    assert [(pair.gain, pair.other) for pair in controls.pairs] == [
        (-0.5, "CPS, half the weight"),
        (-0.5, "CPS, K = 1"),
        (0.5, "CPS, K = 1"),
    ]
    assert controls.best == Counter({"K = 1": 2, "half the weight": 1}) and not labeled.best
    assert [pair.gain for pair in labeled.pairs] == [-2.0, 1.0, -3.0]
    assert "1 win, 1 loss, 1 tie (n = 3); mean difference +0.00 points (95 % interval -1.00 to +1.00" in baseline.line
    assert baseline.line.endswith("p = 1; the paper's numbers of the same comparisons: 3 wins, 0 losses, 0 ties")
    assert controls.line.startswith("FPL against the best control of the column: 1 win, 2 losses, 0 ties (n = 3); ")
    assert "over 3 columns only: rough); p = 1; the best was K = 1 (2 times), half the weight (1 time)" in controls.line
    assert "1 win, 2 losses, 0 ties (n = 3); mean difference -1.33 points" in labeled.line


def test_each_control_by_itself_by_hand(tmp_path: Path) -> None:
    """Whatever the best of a column is: neither is chosen by its numbers."""
    world = make_world(tmp_path)
    fill(world)
    found = {duel.opponent: duel for duel in duels_by_control(build_grids(world.campaign, world.results))}
    assert [pair.gain for pair in found["half the weight"].pairs] == [-0.5, 4.0, 1.0]
    assert [pair.gain for pair in found["K = 1"].pairs] == [0.5, -0.5, 0.5]
    assert list(found) == ["half the weight", "K = 1"]
    assert found["K = 1"].line.startswith("FPL against K = 1: 2 wins, 1 loss, 0 ties (n = 3); ")


def test_what_data_sets_say_apart_is_not_hidden_in_a_mean() -> None:
    signs = {"city": 1, "voc": -1}
    pairs = [Pair({0: signs[name] * gain}, f"t.{name}{gain}", "x", name) for name in signs for gain in (1.0, 3.0)]
    duel = Duel(BASELINES, tuple(pairs))
    assert duel.mean == 0
    assert (
        "; apart: city +2.00 points (+1.00 to +3.00; 2 wins, 0 losses, 0 ties); "
        "voc -2.00 points (-3.00 to -1.00; 0 wins, 2 losses, 0 ties)"
    ) in duel.line
    assert "apart" not in duel.by_dataset["city"].line


def test_the_interval_is_over_seeds_where_there_are_several() -> None:
    """By hand: means of two columns 1.5, 3 and 1.5; t of 2 degrees of freedom is 4.302653, the deviation 0.866025."""
    one, other = {0: 1.0, 1: 2.0, 2: 3.0}, {0: 2.0, 1: 4.0, 2: 0.0}
    duel = Duel(BASELINES, (Pair(one, "t.a", "x"), Pair(other, "t.b", "x")))
    half = 4.302653 * 0.8660254 / 3**0.5
    assert duel.interval is not None
    assert (duel.mean, duel.interval.low, duel.interval.high) == pytest.approx((2.0, 2 - half, 2 + half), abs=1e-6)
    assert "mean difference +2.00 points (95 % interval -0.15 to +4.15 over 3 seeds)" in duel.line
    # A seed that one of them lacks says nothing of the mean of both.
    waits = Duel(BASELINES, (Pair(one, "t.a", "x"), Pair(dict(list(other.items())[:2]), "t.b", "x")))
    assert (waits.mean, waits.interval and waits.interval.n) == (2.25, 2)


def test_the_same_sentences_stand_everywhere(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    fill(world)
    grids = build_grids(world.campaign, world.results)
    summary = summarize(grids, world.results)
    texts = console_text(grids, summary, 10_000), markdown(grids, summary), html.unescape(page(grids, summary))
    assert len(summary.lines) == 6
    for line in summary.lines[1:]:
        subject, _, rest = line.partition(": ")
        assert all(subject in text and rest in text for text in texts)


def test_what_was_not_run_is_said(tmp_path: Path) -> None:
    for controls in ("true", "false"):
        world = make_world(tmp_path / controls, controls)
        for column in ("small_16", "small_8"):
            world.run(f"main.cps.{column}", 20.0)
            world.run(f"main.fpl_cps.{column}", 21.0)
        found = duels(build_grids(world.campaign, world.results))
        assert found[0].line.startswith("FPL against its baseline: 2 wins, 0 losses, 0 ties (n = 2); ")
        assert [duel.line for duel in found[1:]] == [
            f"FPL against {opponent}: {'not run: ' if controls == 'true' else LEFT_OUT}{HOW_TO_RUN}"
            for opponent in (CONTROLS, LABELED)
        ]
    world = make_world(tmp_path / "some")
    world.run("main.fpl_cps.small_16", 21.0)
    world.run("main.fpl_cps.small_8", 21.0)
    world.run("main.half.small_8", 20.0)
    baseline, best, labeled = duels(build_grids(world.campaign, world.results))
    assert baseline.line == "FPL against its baseline: no comparison measured yet"
    assert best.line == (
        "FPL against the best control of the column: 1 win, 0 losses, 0 ties (n = 1); mean difference +1.00 points "
        "(one column: no interval); p = 1; the best was half the weight (1 time); 1 more waits for runs"
    )
    assert labeled.waiting == 2


def test_tables_without_controls_say_so(tmp_path: Path) -> None:
    world = World(tmp_path, "little")
    world.run("main.fpl_cps.small_8", 21.0)
    assert [duel.line.partition(": ")[2] for duel in duels(build_grids(world.campaign, world.results))] == [
        "no comparison measured yet",
        "these tables have no such row",
        "these tables have no such row",
    ]


@pytest.mark.parametrize("state", ["nothing", "one run", "all failed"])
def test_stores_with_next_to_nothing(tmp_path: Path, state: str) -> None:
    world = make_world(tmp_path)
    results = None
    if state == "one run":
        world.run("main.cps.small_8", 25.0)
    if state == "all failed":
        for row in ("cps", "fpl_cps", "half", "one", "supervised"):
            for column in ("small_16", "small_8", "large_8"):
                world.fail(f"main.{row}.{column}", "killed")
    if state != "nothing":
        results = world.results
    grids = build_grids(world.campaign, results)
    summary = summarize(grids, results)
    for text in (console_text(grids, summary, 200), markdown(grids, summary), page(grids, summary)):
        for opponent in (BASELINES, CONTROLS, LABELED):
            assert f"FPL against {opponent}" in text
        assert "no comparison measured yet" in text
    assert ("25.00" in console_text(grids, summary)) == (state == "one run")


def test_pairs_are_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.campaign = load_campaign(world.experiments, "little", seeds=3, rows="all")
    for seed, (fpl, half, one) in enumerate([(20.0, 19.0, 18.0), (22.0, None, 21.0), (24.0, 22.0, 24.0)]):
        world.run("main.fpl_cps.small_8", fpl, seed)
        world.run("main.one.small_8", one, seed)
        if half is not None:
            world.run("main.half.small_8", half, seed)
    _, best, _ = duels(build_grids(world.campaign, world.results))
    # Over half: 1 and 2; over K = 1: 2, 1 and 0.
    assert [(pair.gain, pair.other) for pair in best.pairs] == [(1.0, "CPS, K = 1")]


def test_sentences_follow_the_numbers() -> None:
    def lost(count: int) -> Duel:
        return Duel(LABELED, tuple(Pair({0: -1.0 - number}, f"t.c{number}", "x") for number in range(count)))

    assert "0 wins, 12 losses, 0 ties (n = 12); mean difference -6.50 points" in lost(12).line
    assert "over 12 columns); p = 0.00049" in lost(12).line
    assert "over 4 columns only: rough); p = 0.12" in lost(4).line


def test_a_control_names_proposed_rows(tmp_path: Path) -> None:
    with pytest.raises(FplError, match="row half is control_of cps, which is no proposed row"):
        make_world(
            tmp_path,
            rows=CONTROL_ROWS.replace(
                'weight = 0.75 } }\nover = "cps"\ncontrol_of = ["fpl_cps"]',
                'weight = 0.75 } }\nover = "cps"\ncontrol_of = ["cps"]',
            ),
        )
    with pytest.raises(FplError, match="row fpl_cps has control_of, but is no control"):
        made = MAIN.replace('label = "FPL+CPS"\n', 'label = "FPL+CPS"\ncontrol_of = ["fpl_cps"]\n')
        World(tmp_path / "other", "little", {"tables/main.toml": (MAIN, made)})


def test_controls_of_the_paper_differ_from_fpl_in_the_method_alone() -> None:
    campaign = load_campaign(EXPERIMENTS, "paper", rows="all")
    cells = {cell.name: cell for found in campaign.tables.values() for cell in found}
    counts: Counter[str] = Counter()
    for table in campaign.experiments:
        for row in table.rows:
            for key in row.control_of:
                for column in table.columns:
                    control, ours = (cells[f"{table.name}.{name}.{column.key}"].configs[0] for name in (row.key, key))
                    # Same images, network and schedule: else the difference would be theirs.
                    data = control.data.model_copy(update={"unlabeled_batch": ours.data.unlabeled_batch})
                    assert (data, control.model, control.train) == (ours.data, ours.model, ours.train)
                    assert ours.loss.kind == "fpl"
                    if row.labeled_only:
                        assert control.method.name == "supervised"
                    else:
                        assert control.method.name == ours.method.name
                        assert control.loss.kind != "fpl" or control.loss.fixed_k == 1
                    counts[f"{key} against {row.key}"] += 1
    assert counts["fpl_cps against supervised"] == 14 == counts["fpl_cps against cps_half"]
    assert counts["fpl_cps_cutmix against supervised"] == 18
    assert counts["fpl_ael against ael_ungated"] == 6
    # FPL+AEL has no control without unlabeled images: AEL's network is another than that of `supervised`.
    assert cells["table1.fpl_ael.r50_1_8"].configs[0].model != cells["table1.supervised.r50_1_8"].configs[0].model


def test_columns_of_the_paper_share_no_run() -> None:
    # What the bootstrap draws: a run in two of them would make them depend on each other.
    campaign = load_campaign(EXPERIMENTS, "mini", rows="all")
    places: dict[str, set[str]] = {}
    counted = {"table1", "table2", "table3"}
    for name, cells in campaign.tables.items():
        if name in counted:
            for cell in cells:
                for recipe in cell.recipes:
                    places.setdefault(recipe, set()).add(f"{name}.{cell.column.key}")
    assert places and all(len(columns) == 1 for columns in places.values())
