"""Frames as users work with them: sorted, grouped and filtered as their columns mean it, and explained."""

from __future__ import annotations

import copy
import csv
import json
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest

import fpl
from fpl.errors import FplError
from fpl.report.statistics import mean_interval
from fpl.report.tables.gains import row_gains
from fpl.report.tables.shown import load_shown
from fpl.store.columns import CELLS, COLUMNS
from fpl.store.frames import fractions, in_order, latest
from fpl.store.read import Results
from fpl.store.write import write_run
from tests.report.world import World
from tests.store.test_store import named_run

MINI = Path(__file__).parents[2] / "results" / "mini"


@pytest.fixture(scope="module")
def mini() -> Results:
    return fpl.load_results(MINI)


def test_fractions_are_sorted_by_size() -> None:
    found = fractions(pd.Series(["1/4", "662", "1/16", None, "1/8", "92", "weird"]))
    assert list(found.sort_values().dropna()) == ["1/16", "1/8", "1/4", "92", "662", "weird"]
    assert found.isna().sum() == 1 and (found == "1/8").sum() == 1


def test_pivots_and_groups_are_in_the_papers_order(mini: Results) -> None:
    columns = mini.runs.pivot_table(columns="data.split.fraction", values="miou_whole_best", index="method.name")
    assert list(columns) == ["1/32", "1/16", "1/8", "1/4", "1/2"]
    table = mini.cells.query("table == 'table1'").pivot_table(columns="column", index="row", values="printed")
    assert list(table) == [f"{backbone}_1_{n}" for backbone in ("r50", "r101") for n in (32, 16, 8, 4)]
    assert list(table.index[:2]) == ["mt", "cct"]


def test_times_are_utc(mini: Results, tmp_path: Path) -> None:
    for frame, name in ((mini.runs, "finished_at"), (mini.search("joint"), "started_at"), (mini.noise, "finished_at")):
        assert str(frame[name].dtype) == "datetime64[us, UTC]" and frame[name].notna().all()
    times = ("2026-01-01T01:30:00+02:00", "2025-12-31T23:45:00+00:00", "yesterday", None)
    for name, time in zip("abcd", times, strict=True):
        write_run(tmp_path, {**named_run(name), "finished_at": time}, [], [], [])
    found = latest(Results(tmp_path).runs)
    # Half past one in the east is before a quarter to midnight; what is no time is older than any.
    assert list(found["run_id"].str[0]) == ["c", "d", "a", "b"]
    assert found["finished_at"].iloc[2] == pd.Timestamp("2025-12-31T23:30", tz="UTC")


def test_what_the_second_reader_tried(mini: Results) -> None:
    runs = mini.runs
    assert set(runs[runs["method.cutmix"]]["method.name"]) == {"cps"}
    assert len(runs.drop_duplicates()) == len(runs) == runs.groupby("data.scales").size().sum()
    trials = mini.search("threshold")
    assert trials.explode("run_ids")["run_ids"].str.startswith("synthetic_city-").all()


def test_columns_are_explained_where_they_are(mini: Results) -> None:
    for table in ("runs", "history", "classes", "fuzziness", "failures", "noise", "studies", "trials"):
        frame = getattr(mini, table)
        said = frame.attrs["columns"]
        assert said.keys() <= set(frame) and {name for name in frame if name in COLUMNS[table]} <= said.keys()
    assert mini.runs.attrs["columns"]["train_seconds"].unit == "s"
    assert mini.cells.attrs["columns"].keys() == CELLS.keys() == set(mini.cells)
    # What is made of it keeps it, without a copy for each; and it can be written.
    part = mini.runs[mini.runs["seed"] == 0]
    assert part.attrs["columns"] is mini.runs.attrs["columns"] is copy.deepcopy(mini.runs.attrs)["columns"]
    assert json.loads(json.dumps(part.attrs))["columns"]["train_seconds"][0] == "s"


def test_order_of_several_tables() -> None:
    assert in_order([["a", "c", "e"], ["c", "d", "e"], ["b", "c"]]) == ["a", "b", "c", "d", "e"]
    assert in_order([["a", "b"], ["b", "c", "a"]]) == ["a", "b", "c"]
    assert in_order([[], ["x"]]) == ["x"]


def test_cells_are_those_of_the_published_tables(mini: Results) -> None:
    """`tables.csv` is filled by other code (`fpl.report.tables`)."""
    ours: dict[tuple[str, ...], list[float]] = defaultdict(list)
    runs: dict[tuple[str, ...], list[str]] = defaultdict(list)
    printed: dict[tuple[str, ...], float] = {}
    for row in mini.cells.to_dict("records"):
        key = (row["table"], row["row"], row["column"])
        printed[key] = row["printed"]
        if isinstance(row["run_id"], str):
            ours[key].append(row["ours"])
            runs[key].append(row["run_id"])
        else:
            assert row["reason"]
    with (MINI / "tables.csv").open() as file:
        listed = list(csv.DictReader(file))
    for line in listed:
        key = (line["table"], line["row"], line["column"])
        assert line["run_ids"].split() == runs[key]
        if runs[key]:
            assert sum(ours[key]) / len(ours[key]) == pytest.approx(float(line["ours"]), abs=1e-6)
        assert printed[key] == pytest.approx(float(line["printed"] or "nan"), nan_ok=True)
    assert len(listed) > 300 and sum(map(len, runs.values())) == mini.cells["run_id"].notna().sum()


def test_a_curve_over_t_mixes_nothing_in(mini: Results) -> None:
    """docs/pandas.md draws K and mIoU over T from the cells of Table 4: all other settings of their runs are equal."""
    by_t = mini.cells.query("table == 'table4'").merge(mini.runs, on="run_id", suffixes=("", "_run"))
    settings = [name for name in mini.runs if "." in name]
    assert [name for name in settings if by_t[name].nunique(dropna=False) > 1] == ["loss.threshold"]
    assert by_t["loss.threshold"].is_unique and len(by_t) == 6
    # All runs at T = 0.9 hold others: what a curve over `loss.threshold` of `runs` would mix.
    at = mini.runs[mini.runs["loss.threshold"] == 0.9]
    assert at["loss.strategy"].nunique() > 1 or at["loss.fidelity"].nunique() > 1
    # mean K of the one run after its first step, from its own rows.
    (run,) = by_t.loc[by_t["loss.threshold"] == 0.9, "run_id"]
    k = mini.fuzziness.merge(by_t[["run_id", "loss.threshold"]], on="run_id")
    curve = k.pivot_table(index="step", columns="loss.threshold", values="mean_k")
    own = mini.fuzziness.set_index(["run_id", "step"]).loc[(run, 1), "mean_k"]
    assert curve.loc[1, 0.9] == pytest.approx(own.mean()) and own.mean() == pytest.approx(11.7, abs=0.1)


def test_cells_have_a_row_a_seed(tmp_path: Path) -> None:
    world = World(tmp_path, "little", seeds=4)
    world.run("main.cps.small_8", 60.0, seed=0)
    world.run("main.cps.small_8", 62.0, seed=3)
    cells = Results(world.out, world.experiments).cells.query("scale == 'little'")
    own = cells.query("table == 'main' and row == 'cps' and column == 'small_8'")
    assert list(own["seed"]) == [0, 3] and list(own["ours"]) == [60.0, 62.0] and set(own["printed"]) == {65.0}
    # A seed that is not asked for has a row where it was run alone.
    other = cells.query("table == 'main' and row == 'cps' and column == 'small_16'")
    assert list(other["seed"]) == [0] and list(other["reason"]) == ["not yet run"]
    cited = cells.query("row == 'teacher' and column == 'small_16'").iloc[0]
    assert cited["printed"] == 66.14 and pd.isna(cited["seed"]) and pd.isna(cited["run_id"]) and cited["reason"]
    assert cells["row"].cat.ordered and list(cells["column"].cat.categories[:3]) == ["small_16", "small_8", "large_8"]


def test_a_store_of_no_cell_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, named_run("a"), [], [], [])
    with pytest.raises(FplError, match="none of 1 runs is of a cell"):
        _ = Results(tmp_path).cells


def test_a_study_of_optuna(mini: Results) -> None:
    study = mini.study("joint")
    trials = mini.search("joint").query("state == 'complete'")
    best = trials.loc[trials["score"].idxmax()]
    assert study.best_value == best["score"] and study.best_params["loss.threshold"] == best["loss.threshold"]
    with pytest.raises(FplError, match=r"has 3 studies(.|\n)*threshold-42eed2a9"):
        mini.study("threshold")
    with pytest.raises(FplError, match=r"no study 'none'(.|\n)*joint-ded7f4c3"):
        mini.study("none")
    assert len(mini.study("threshold-42eed2a9").trials) == (mini.trials["study"] == "threshold-42eed2a9").sum()


def test_two_stores_side_by_side(tmp_path: Path) -> None:
    stores = []
    for name, scores in (
        ("one", {"main.cps.small_8": 60.0, "main.cps.small_16": 50.0}),
        ("two", {"main.cps.small_8": 61.5}),
    ):
        world = World(tmp_path / name, "little")
        for cell, score in scores.items():
            world.run(cell, score)
        stores.append(Results(world.out, world.experiments))
    found = stores[0].compare(stores[1]).sort_values("miou_whole_best")
    assert list(found["miou_whole_best"]) == [50.0, 60.0]
    assert found["miou_whole_best_difference"].iloc[1] == -1.5 and pd.isna(found["miou_whole_best_difference"].iloc[0])
    assert pd.isna(found["run_id_other"].iloc[0]) and "miou_center_best" not in found
    assert found.attrs["columns"]["miou_whole_best_difference"].unit == "points"


def test_gains_of_a_row_are_those_that_tables_print() -> None:
    """Columns of a small scale show the same runs: a pair counts once, as it does in the tables' intervals."""
    results = fpl.load_results(MINI.with_name("camvid"))
    (grid,) = load_shown(MINI.parents[1] / "experiments", "camvid", results, names=["table1"], rows="all").grids
    for found in row_gains([grid], single=True):
        row = next(row for row in grid.experiment.rows if row.label == found.baseline.ours)
        gains = results.gains("table1", row.key, row.over)
        by_seed = gains.groupby("seed")["gain"].mean()
        assert list(by_seed) == pytest.approx(list(found.baseline.values))
        ours, printed = mean_interval(by_seed), found.baseline.interval
        assert ours is not None and printed is not None
        assert (ours.low, ours.high, ours.n) == pytest.approx((printed.low, printed.high, printed.n))
    shown = results.cells.query("table == 'table1' and row == 'fpl_cps' and run_id.notna()")
    assert len(shown) > len(results.gains("table1", "fpl_cps", "cps"))
    with pytest.raises(FplError, match=r"no run of table1\.nothing is in the store"):
        results.gains("table1", "nothing", "cps")
    with pytest.raises(FplError, match=r"no table 'tabel1' has runs here\n.*tables with runs: table1, table2"):
        results.gains("tabel1", "fpl_cps", "cps")
    assert repr(results).endswith(f": {len(results.runs)} runs")
