"""Trials and studies: written, read as they were, as a frame per search, and published."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

import fpl
from fpl.config.search import Parameter
from fpl.errors import FplError
from fpl.report.results import print_results
from fpl.store.publish import publish_runs, publish_searches
from fpl.store.read import Results
from fpl.store.trials import TrialRow, read_study, read_trials, write_trial
from fpl.store.write import write_run
from tests.report.world_search import EIGHTH, QUARTER, SPACE, study, trial, write_world
from tests.store.test_store import named_run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return write_world(tmp_path / "store")


def test_a_row_survives_the_file(tmp_path: Path) -> None:
    row = TrialRow("s", 3, {"loss.fixed_k": 2, "loss.ratio": 0.5, "loss.strategy": "n"}, "tpe", ["a", "b"])
    row.run_scores, row.state = [40.0, 42.0], "complete"
    row.report(10, 20.0)
    row.report(20, math.nan)
    # Goes on from a checkpoint: what it repeats replaces what it had said.
    row.report(20, 21.0)
    write_trial(tmp_path, row)
    (read,) = read_trials(tmp_path, "s")
    assert read == row
    assert (read.steps, read.values, read.score, read.score_std) == ([10, 20], [20.0, 21.0], 41.0, math.sqrt(2))
    assert read_trials(tmp_path, "t") == [] and read_study(tmp_path, "s") is None


def test_the_last_report_of_a_stopped_trial_is_its_score(out: Path) -> None:
    stopped = read_trials(out, EIGHTH)[5]
    assert stopped.state == "pruned" and stopped.score == 30.0
    assert math.isnan(stopped.values[0]) and stopped.values[1:] == [30.0]
    assert Results(out).trials.query("study == @EIGHTH and number == 5")["score"].item() == 30.0


def test_a_search_is_a_frame(out: Path) -> None:
    frame = fpl.load_results(out).search("demo")
    assert list(frame["study"]) == [EIGHTH] * 9 + [QUARTER] * 3
    assert list(frame["number"]) == [*range(9), *range(3)]
    keys = [parameter.key for parameter in SPACE]
    at = list(frame.columns).index("origin") + 1
    assert list(frame.columns[at : at + 4]) == keys
    assert [str(frame[key].dtype) for key in keys] == ["str", "float64", "float64", "Int64"]
    # A parameter that means nothing is missing, never a number.
    assert frame["loss.fixed_k"].notna().sum() == 3 and frame.loc[3, "loss.fixed_k"] == 2
    assert list(frame["loss.threshold"].isna()) == [key == "fixed" for key in frame["loss.strategy"]]
    assert list(frame["data.split.fraction"].unique()) == ["1/8", "1/4"]
    assert list(frame["labeled_images"].unique()) == [40, 80]
    assert frame.loc[4, ["score", "runs_scored", "cost", "objectives", "metric"]].to_list() == [
        *(42.5, 1, 0.5),
        *("miou", "miou_whole_best"),
    ]
    # Steps used of 100: stopped at 20, failed at 50, unfinished at 30.
    assert list(frame["share"]) == [1, 1, 1, 1, 1, 0.2, 0.5, 1, 0.3, 1, 1, 1]
    assert frame.loc[6, "reason"] == "the loss is no <number>" and pd.isna(frame.loc[6, "score"])
    assert frame.loc[4, "run_ids"] == ("demo-aaaa0001-run-4-0",)


def test_what_the_store_answered_has_used_all_its_steps(tmp_path: Path) -> None:
    study(tmp_path, seeds=2, steps=200)
    trial(tmp_path, 0, {"loss.strategy": "fixed", "loss.fixed_k": 1}, 40.0, 41.0, step=0)
    trial(tmp_path, 1, {"loss.strategy": "fixed", "loss.fixed_k": 2}, step=50, run_ids=["a", "b"])
    assert list(Results(tmp_path).search("demo")["share"]) == [1.0, 0.25]


def test_columns_do_not_depend_on_what_was_tried(tmp_path: Path) -> None:
    space = [
        Parameter(key="a.int", choices=[1, 2]),
        Parameter(key="a.flag", choices=[True, False]),
        Parameter(key="a.float", choices=[1, 2.5]),
        Parameter(key="a.mixed", choices=["x", 1]),
        Parameter(key="a.none", low=1, high=2, when={"a.int": [2]}),
    ]
    study(tmp_path, space=space)
    kinds = ["Int64", "boolean", "float64", "object", "Int64"]
    keys = [parameter.key for parameter in space]
    empty = Results(tmp_path).search("demo")
    assert len(empty) == 0 and [str(empty[key].dtype) for key in keys] == kinds
    trial(tmp_path, 0, {"a.int": 1, "a.flag": True, "a.float": 1, "a.mixed": 1}, 40.0, 42.0)
    frame = Results(tmp_path).search("demo")
    assert [str(frame[key].dtype) for key in keys] == kinds and frame["a.none"].isna().all()
    # Mean and standard deviation of 40 and 42.
    assert frame.loc[0, ["score", "score_std", "runs_scored"]].to_list() == [41.0, pytest.approx(math.sqrt(2)), 2]


def test_an_unknown_search_is_named_with_those_there_are(out: Path) -> None:
    with pytest.raises(FplError) as caught:
        fpl.load_results(out).search("jiont")
    assert "jiont" in caught.value.what and "demo" in caught.value.hint
    assert fpl.load_results(out).searches == ["demo"]


def test_searches_alone_are_results_without_runs(out: Path) -> None:
    results = fpl.load_results(out)
    assert len(results.runs) == 0 and len(results.studies) == 2 and len(results.trials) == 12
    with pytest.raises(FplError, match="no finished run here"):
        print_results(out, None, None, None)


def test_publishing_replaces_a_study_and_leaves_the_others(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "published"
    assert publish_searches(out, target, [QUARTER]).new == 1
    trial(out, 3, {"loss.strategy": "fixed", "loss.fixed_k": 3}, 53.0, name=QUARTER)
    assert list(fpl.load_results(target).search("demo")["study"]) == [QUARTER] * 3
    done = publish_searches(out, target)
    assert (done.same, done.new, done.gone) == (0, 2, 0)
    assert sorted(path.name for path in target.rglob("*.parquet")) == ["all.parquet"] * 2
    pd.testing.assert_frame_equal(Results(target).search("demo"), Results(out).search("demo"))
    assert len(Results(target).search("demo")) == 13
    # A store without this study, and one without any, take nothing away.
    other = tmp_path / "other"
    study(other, "other-cccc0003", search="other")
    assert publish_searches(other, target).new == 1
    assert not publish_searches(tmp_path / "empty", target).changed
    assert fpl.load_results(target).searches == ["demo", "other"]
    with pytest.raises(FplError, match="their own store"):
        publish_searches(out, out)


def test_publishing_runs_leaves_published_searches(out: Path, tmp_path: Path) -> None:
    target, runs = tmp_path / "published", tmp_path / "runs"
    publish_searches(out, target)
    row = named_run("a")
    write_run(runs, row, [], [], [])
    before = {path: path.read_bytes() for path in target.rglob("*.parquet")}
    assert publish_runs(runs, target, {row["run_id"]}, whole=True).new == 1
    assert before.items() <= {path: path.read_bytes() for path in target.rglob("*.parquet")}.items()
    # Nor does it take along those of the store that it is given.
    publish_runs(out, tmp_path / "third", {"a"})
    assert not list((tmp_path / "third").rglob("*.parquet"))
