"""What a search found, against numbers reckoned by hand from the rows of `world_search`."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd
import pytest

from fpl.config.search import Parameter
from fpl.report.search.findings import (
    best,
    contours,
    early_stopping,
    failures,
    history,
    margin_between,
    parallel,
    pareto,
    slices,
)
from fpl.report.search.importance import conditions, importances
from fpl.report.search.studies import SearchView, StudyView, read_search, short
from fpl.report.search.threshold_claim import checks, thresholds
from fpl.report.search.words import difference_line, importance_line, search_summary_lines, stopping_line, warnings
from fpl.store.read import Results
from fpl.store.write import write_table
from tests.report.world_search import CELL, EIGHTH, T_ONLY, study, trial, write_world

NAN = pytest.approx(math.nan, nan_ok=True)


def view(out: Path) -> SearchView:
    return read_search(Results(out), "demo")


@pytest.fixture
def eighth(tmp_path: Path) -> StudyView:
    return view(write_world(tmp_path)).studies[0]


def test_studies_are_told_apart_fewest_labels_first(tmp_path: Path) -> None:
    write_world(tmp_path)
    study(tmp_path, "demo-cccc0003", sampler="random")
    study(tmp_path, "demo-dddd0004", sampler="random", sampler_seed=7)
    assert [each.title for each in view(tmp_path).studies] == [
        "1/8 labeled (40 images), table5.t090.c1_8, sampler random, sampler seed 0",
        "1/8 labeled (40 images), table5.t090.c1_8, sampler random, sampler seed 7",
        "1/8 labeled (40 images), table5.t090.c1_8, sampler tpe, sampler seed 0",
        "1/4 labeled (80 images), table5.t090.c1_4, sampler tpe, sampler seed 0",
    ]


def test_best_settings_beside_the_papers(eighth: StudyView) -> None:
    frame = best(eighth)
    # Complete: 42.5 (4), 41 (1), 40 (0), 39.5 (3), 39 (7), 38 (2); the paper's best is trial 1.
    assert list(frame["number"]) == [4, 1, 0, 3, 7] and list(frame["rank"]) == [1, 2, 3, 4, 5]
    assert list(frame["difference"]) == [1.5, 0.0, -1.0, -1.5, -2.0]
    # One run each and no measured noise: nothing is known about chance.
    assert frame["margin"].isna().all()
    assert list(frame["setting"][:1]) == ["strategy n-1, threshold 0.8"] and frame["setting"][3].endswith("fixed_k 2")
    assert list(eighth.paper["number"]) == [1, 0]
    said = difference_line(eighth)
    assert "+1.50 points" in said and "nothing is known of its spread" in said and "best of 6" in said


def test_a_difference_is_weighed_by_the_spread(tmp_path: Path) -> None:
    study(tmp_path, seeds=3, steps=300)
    trial(tmp_path, 0, {"loss.strategy": "n-1", "loss.threshold": 0.9}, 39.0, 40.0, 41.0, origin=CELL)
    trial(tmp_path, 1, {"loss.strategy": "n-1", "loss.threshold": 0.8}, 40.0, 42.0, 44.0)
    (one,) = view(tmp_path).studies
    frame = best(one)
    # Variances 4 and 1 over 3 runs each: 2 sqrt(5 / 3).
    assert list(frame["margin"]) == pytest.approx([2 * math.sqrt(5 / 3), 2 * math.sqrt(2 / 3)])
    assert "+2.00 points of mIoU, within noise (two standard errors: 2.58)" in difference_line(one)
    low, high = one.complete.iloc[1], one.complete.iloc[0]
    assert margin_between(low, high, 5.0) == margin_between(low, high, None)


def test_noise_of_repeats_stands_in_for_single_runs(tmp_path: Path) -> None:
    write_world(tmp_path)
    for number, miou in enumerate((40.0, 41.0, 42.0)):
        row = {"run_id": "r", "recipe": "r", "cell": "c", "repeat": number, "miou_whole_best": miou}
        write_table(tmp_path / "noise" / f"r-{number}.parquet", "noise", [row])
    one = view(tmp_path).studies[0]
    # A standard deviation of 1 in each of two single runs: 2 sqrt(2).
    assert best(one)["margin"].iloc[0] == pytest.approx(2 * math.sqrt(2))
    assert "within noise (twice the error of repeating a run with the same seed: 2.83)" in difference_line(one)


def test_history_and_early_stopping(eighth: StudyView) -> None:
    frame = history(eighth)
    assert list(frame["best"]) == [40.0, 41.0, 41.0, 41.0, 42.5, 42.5, 42.5, 42.5, 42.5]
    assert list(frame["score"]) == [40.0, 41.0, 38.0, 39.5, 42.5, 30.0, NAN, 39.0, NAN]
    row = early_stopping(eighth).iloc[0]
    # Six whole trials of 100 steps and one of 20; the failed and the unfinished one say nothing about stopping.
    assert row[["complete", "pruned", "failed", "running"]].to_list() == [6, 1, 1, 1]
    assert (row["steps_spent"], row["steps_whole"]) == (620, 700)
    assert row["share_saved"] == pytest.approx(80 / 700)
    assert row["device_hours"] == pytest.approx(6 * 0.5 + 0.1 + 0.25)
    assert stopping_line(eighth).endswith("1 of 7 trials stopped; 620 steps in place of 700, 11 % saved")


def test_slice_contour_and_parallel_hold_what_means_something(eighth: StudyView) -> None:
    frame = slices(eighth)
    by = {key: list(zip(part["value"], part["number"], strict=True)) for key, part in frame.groupby("parameter")}
    assert by["loss.fixed_k"] == [(2, 3), (4, 5)]
    assert by["loss.ratio"] == [(0.5, 2)]
    assert by["loss.threshold"] == [(0.9, 0), (0.85, 1), (0.7, 2), (0.8, 4), (0.95, 7)]
    assert [number for _, number in by["loss.strategy"]] == [0, 1, 2, 3, 4, 5, 7]
    assert frame.query("number == 5")["state"].unique().tolist() == ["pruned"]
    pairs = contours(eighth).groupby(["x", "y"])["number"].apply(list).to_dict()
    assert pairs == {
        ("loss.strategy", "loss.threshold"): [0, 1, 2, 4, 7],
        ("loss.strategy", "loss.ratio"): [2],
        ("loss.strategy", "loss.fixed_k"): [3],
        ("loss.threshold", "loss.ratio"): [2],
    }
    lines = parallel(eighth)
    assert list(lines["number"]) == [2, 7, 3, 0, 1, 4]
    assert list(lines["loss.threshold"].isna()) == [False, False, True, False, False, False]


def test_failures_keep_their_reason(eighth: StudyView) -> None:
    (row,) = failures(eighth).to_dict("records")
    assert (row["number"], row["reason"]) == (6, "the loss is no <number>")
    assert row["setting"] == "strategy ratio, threshold 0.99, ratio 0.9"


def test_pareto_front(tmp_path: Path) -> None:
    study(tmp_path, objectives=["miou", "cost"], space=T_ONLY)
    # Score and cost: 1 loses to 2, 4 to 3 in both; 5 costs as much as 3 for less, 6 gives what 2 does for more.
    for number, (score, cost) in enumerate([(50, 9), (44, 5), (45, 4), (40, 1), (39, 2), (39.5, 1), (45, 6)]):
        trial(tmp_path, number, {"loss.threshold": 0.6 + number / 100}, float(score), cost=float(cost))
    trial(tmp_path, 7, {"loss.threshold": 0.9}, state="pruned", step=10, steps=[10], values=[60.0])
    (one,) = view(tmp_path).studies
    assert list(pareto(one)["number"]) == [3, 2, 0]


def test_one_objective_has_no_front(eighth: StudyView) -> None:
    assert pareto(eighth).empty


def test_importance_finds_what_decides(tmp_path: Path) -> None:
    space = [
        Parameter(key="a.kind", choices=["x", "y"]),
        Parameter(key="a.decides", low=0.0, high=1.0),
        Parameter(key="a.idle", low=0.0, high=1.0),
        Parameter(key="a.part", low=0.0, high=1.0, when={"a.kind": ["y"]}),
    ]
    study(tmp_path, space=space)
    for number in range(40):
        kind, decides = "xy"[number % 2], (number * 7 % 40) / 40
        params = {"a.kind": kind, "a.decides": decides, "a.idle": (number * 11 % 40) / 40}
        trial(tmp_path, number, params | ({"a.part": (number * 13 % 40) / 40} if kind == "y" else {}), 100 * decides)
    before = importances(view(tmp_path).studies[0])
    assert before["parameter"].iloc[0] == "a.decides" and before["importance"].iloc[0] > 0.5
    assert before["importance"].sum() == pytest.approx(1)
    # A conditional parameter is judged among the trials that have it.
    assert dict(zip(before["parameter"], before["trials"], strict=True)) == {
        "a.kind": 40,
        "a.decides": 40,
        "a.idle": 40,
        "a.part": 20,
    }
    assert before["reliable"].all()
    # What was stopped or failed has no part in it.
    stopped = {"state": "pruned", "step": 10, "steps": [10], "values": [99.0]}
    trial(tmp_path, 40, {"a.kind": "x", "a.decides": 0.0, "a.idle": 0.9}, **stopped)
    trial(tmp_path, 41, {"a.kind": "x", "a.decides": 0.0, "a.idle": 0.9}, state="failed")
    (one,) = view(tmp_path).studies
    pd.testing.assert_frame_equal(importances(one), before)
    assert conditions(one) == {"a.part": "kind y"}
    assert "(4 of 40 complete trials)" in importance_line(one) and "5 or more among the best" in importance_line(one)


def test_few_trials_are_called_unreliable(eighth: StudyView) -> None:
    frame = importances(eighth)
    assert not frame["reliable"].any() and (frame["of"] == 6).all()
    assert "fewer than 20 trials it is unreliable" in importance_line(eighth)


@pytest.mark.parametrize(
    ("best_of", "verdict"),
    [
        # One of the six orders of three values falls, and two of them where two values are equal.
        ([0.9, 0.8, 0.7], "holds (an order that chance alone gives once in 6)"),
        ([0.9, 0.9, 0.7], "holds (an order that chance alone gives once in 3)"),
        ([0.9, 0.9, 0.9], "does not hold"),
        ([0.9, 0.7, 0.8], "does not hold"),
        ([0.7, 0.8, 0.9], "does not hold"),
        ([0.9], "not run"),
    ],
)
def test_more_labels_lower_t(tmp_path: Path, best_of: list[float], verdict: str) -> None:
    # Written in an order that is neither that of the labels nor that of the text.
    for number, (fraction, labeled, t) in enumerate(zip(["1/16", "1/8", "1/2"], [20, 40, 160], best_of, strict=False)):
        name = f"demo-{9 - number}"
        study(tmp_path, name, fraction=fraction, labeled_images=labeled, space=T_ONLY)
        trial(tmp_path, 0, {"loss.threshold": t}, 50.0, name=name)
        trial(tmp_path, 1, {"loss.threshold": 0.6}, 49.0, name=name)
        trial(tmp_path, 2, {"loss.threshold": 0.5}, name=name, state="pruned", step=10, steps=[10], values=[60.0])
    (check,) = checks(view(tmp_path))
    assert check.verdict == verdict.partition(" (")[0]
    assert list(check.rows["best_threshold"]) == best_of and set(check.rows["trials"]) == {2}
    assert list(check.rows["labeled_images"]) == [20, 40, 160][: len(best_of)]
    assert check.sentence.startswith(f"the more labels, the lower the best T: {verdict}")
    assert f"1/16 labeled: best T {best_of[0]:g} of 2 trials (50.00 %)" in check.sentence


def test_the_claim_compares_like_with_like(tmp_path: Path) -> None:
    for number, (sampler, fraction, labeled, t) in enumerate(
        [("tpe", "1/8", 40, 0.9), ("tpe", "1/4", 80, 0.8), ("random", "1/8", 40, 0.7), ("random", "1/4", 80, 0.8)]
    ):
        study(tmp_path, f"demo-{number}", fraction=fraction, labeled_images=labeled, space=T_ONLY, sampler=sampler)
        trial(tmp_path, 0, {"loss.threshold": t}, 50.0, name=f"demo-{number}")
    assert [check.verdict for check in checks(view(tmp_path))] == ["does not hold", "holds"]
    # Another network, more steps or CutMix are not other labels.
    for number, changes in enumerate([{}, {"depth": 2}, {"cutmix": True}, {"steps": 400}]):
        name, fraction, labeled = f"apart-{number}", ("1/8", "1/4", "1/2", "1/16")[number], 40 + number
        study(tmp_path, name, search="apart", fraction=fraction, labeled_images=labeled, space=T_ONLY, **changes)
        trial(tmp_path, 0, {"loss.threshold": 0.9}, 50.0, name=name)
    assert [check.verdict for check in checks(read_search(Results(tmp_path), "apart"))] == ["not run"] * 4
    study(tmp_path, "other-0", search="other", space=[Parameter(key="loss.fixed_k", low=1, high=4)])
    other = read_search(Results(tmp_path), "other")
    assert checks(other) == [] and thresholds(other).empty


def test_conditional_t_counts_where_it_means_something(tmp_path: Path) -> None:
    (check,) = checks(view(write_world(tmp_path)))
    # The best trial of 1/4 has no T: the best with one is at 0.7.
    assert (check.verdict, list(check.rows["best_threshold"]), list(check.rows["trials"])) == (
        "holds",
        [0.8, 0.7],
        [5, 2],
    )


def test_warnings_say_what_was_selected_on_what(tmp_path: Path) -> None:
    one = view(write_world(tmp_path / "val")).studies[0]
    told = warnings(one)
    assert "selected on the very images that they are measured on (9 trials): they are optimistic" in told[0]
    assert told[1].startswith("1 trial unfinished")
    out = tmp_path / "holdout"
    study(out, protocol="holdout", labeled_images=30)
    trial(out, 0, {"loss.strategy": "n-1", "loss.threshold": 0.8}, 45.0)
    (early,) = view(out).studies
    assert "no number to report yet" in warnings(early)[0]
    trial(out, 1, {"loss.strategy": "n-1", "loss.threshold": 0.8}, 41.0, 43.0, state="final", origin="tpe")
    (late,) = view(out).studies
    assert warnings(late) == []
    # The final row is no trial of the search: not the best, not counted.
    assert list(best(late)["number"]) == [0]
    text = " ".join(line.strip() for line in search_summary_lines(Results(out), "demo"))
    assert "1 trial: 1 complete" in text
    assert (
        "to report: 42.00 ±1.41 % (n = 2) for strategy n-1, threshold 0.8; the setting was selected on every 4th"
        in text
    )


def test_summary_for_the_terminal(tmp_path: Path) -> None:
    lines = search_summary_lines(Results(write_world(tmp_path)), "demo")
    assert all(len(line) < 120 for line in lines)
    assert "1/8 labeled (40 images): 9 trials: 6 complete, 1 stopped early, 1 failed, 1 unfinished" in lines
    ranks = [line.split()[0] for line in lines if "trial " in line and "%" in line and line.startswith("  ")]
    assert ranks[:3] == ["1.", "2.", "3."]
    first = next(line for line in lines if line.startswith("  1."))
    assert re.sub(" +", " ", first) == " 1. 42.50 % (n = 1) trial 4 (tpe): strategy n-1, threshold 0.8"
    text = "\n".join(lines)
    assert "11 % saved" in text and "1 trial failed, first trial 6: the loss is no <number>" in text
    assert "optimistic" in text and "lower the best T: holds" in text
    assert EIGHTH not in text


def test_the_papers_settings_are_shown_even_if_bad(tmp_path: Path) -> None:
    study(tmp_path, space=T_ONLY)
    trial(tmp_path, 0, {"loss.threshold": 0.9}, 10.0, origin=CELL)
    for number in range(1, 5):
        trial(tmp_path, number, {"loss.threshold": 0.6 + number / 20}, 20.0 + number)
    lines = search_summary_lines(Results(tmp_path), "demo")
    assert [line.split()[0] for line in lines if line.endswith(tuple("0123456789")) and "(n = 1)" in line] == [
        *("1.", "2.", "3."),
        "-",
    ]


def test_short_names_stay_unmistakable() -> None:
    keys = ["loss.weight", "method.weight", "loss.threshold"]
    assert [short(key, keys) for key in keys] == ["loss.weight", "method.weight", "threshold"]
    assert short("loss.strategy", keys) == "strategy"
