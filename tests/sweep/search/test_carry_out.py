"""What is tried next, what is kept of it, and what is stopped: without Ray's processes."""

from __future__ import annotations

import contextlib
import math
import random
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest

from fpl.cli.search import _exit_code
from fpl.config.search import Value
from fpl.config.study import Study, load_studies
from fpl.errors import FplError
from fpl.store.as_optuna import as_optuna
from fpl.store.lease import TakenError
from fpl.store.trials import TrialRow, read_trials, write_trial
from fpl.store.write import write_run
from fpl.sweep.job import JobResult, lacking
from fpl.sweep.search.budget import Budget
from fpl.sweep.search.halt import Halt
from fpl.sweep.search.stopping import EarlyStopping, is_hopeless
from fpl.sweep.search.trials import Book
from tests.sweep.search_world import Jobs, tiny_study, write_experiments

TRIALS = Budget("trials", 30, "trials")
METRIC = "miou_whole_best"


def book_of(study: Study, out: Path, budget: Budget = TRIALS, **more: Any) -> Book:
    return Book(study, out, budget, Jobs(study, out), **{"devices": 1.0, "trial_hours": 1.0} | more)


def begin(book: Book) -> TrialRow:
    proposal = book.next()
    assert proposal is not None
    return proposal.row


def finish(book: Book, number: int, score: float | None) -> None:
    """Report twice and end, as a run does whose scores are these; None: it fails."""
    for run_id in book.running[number].row.run_ids:
        book.started(run_id)
        if score is None:
            book.run_ended(JobResult(run_id, "failed", "the loss is not finite"))
            break
        book.report(run_id, 2, {"miou": score - 1})
        book.report(run_id, 4, {"miou": score})
        book.run_ended(JobResult(run_id, "done", metrics={METRIC: score, "train_seconds": 3600.0}))
    book.end(number)


def truth(params: Mapping[str, Value]) -> float:
    """A landscape with its peak at n-1, T = 0.7."""
    if "loss.threshold" not in params:
        return 30.0 + float(params.get("loss.fixed_k", 0))
    return 50.0 - 100.0 * (float(params["loss.threshold"]) - 0.7) ** 2


def go(study: Study, out: Path, trials: int, **more: Any) -> Book:
    book = book_of(study, out, Budget("trials", trials, "trials"), **more)
    while True:
        try:
            proposal = book.next()
        except StopIteration:
            return book
        assert proposal is not None
        finish(book, proposal.row.number, truth(proposal.row.params))


@pytest.mark.parametrize("sampler", ["tpe", "random", "gp"])
def test_the_same_seed_gives_the_same_trials_and_another_seed_others(tmp_path: Path, sampler: str) -> None:
    first, again, other = (
        [row.params for row in go(tiny_study(tmp_path, sampler=sampler, seed=seed), tmp_path / name, 14).rows]
        for seed, name in ((3, "a"), (3, "b"), (4, "c"))
    )
    assert first == again
    assert first[:2] == other[:2]  # the paper's settings
    assert not [params for params in first[2:] if params in other[2:] and "loss.threshold" in params]
    assert len({str(params) for params in first if "loss.threshold" in params}) > 5


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_search_cut_off_anywhere_proposes_what_the_whole_one_does(tmp_path: Path, sampler: str) -> None:
    study = tiny_study(tmp_path, sampler=sampler)
    whole = go(study, tmp_path / "whole", 16)
    for cut in (1, 2, 5, 12):
        out = tmp_path / f"cut{cut}"
        go(study, out, cut)
        # Cut off in the middle of the next trial: its row is there, its end is not.
        half = book_of(study, out)
        proposal = half.next()
        assert proposal is not None
        half.report(proposal.row.run_ids[0], 2, {"miou": 1.0})
        continued = go(study, out, 16)
        assert [row.params for row in continued.rows] == [row.params for row in whole.rows]
        assert [row.score for row in continued.rows] == [row.score for row in whole.rows]
        assert continued.rows[cut].steps == [2, 4]


def test_a_search_that_another_machine_took_over_writes_nothing_more(tmp_path: Path) -> None:
    study, mine = tiny_study(tmp_path), [True]

    def check() -> None:
        if not mine:
            raise TakenError("two took it over")

    lost = book_of(study, tmp_path / "out", check=check)
    run_id = begin(lost).run_ids[0]
    whole = go(study, tmp_path / "out", 3)
    mine.clear()
    for write in (
        lambda: lost.report(run_id, 2, {"miou": 1.0}),
        lambda: lost.run_ended(JobResult(run_id, "failed", "the loss is not finite")),
        lambda: lost.prune(0),
        lost.next,
    ):
        with pytest.raises(TakenError):
            write()
    assert read_trials(tmp_path / "out", study.identity) == whole.rows


def test_tpe_finds_the_peak_that_random_trials_miss(tmp_path: Path) -> None:
    def distances(sampler: str) -> list[float]:
        rows = go(tiny_study(tmp_path, sampler=sampler, seed=1), tmp_path / sampler, 40).rows[20:]
        return [abs(float(row.params["loss.threshold"]) - 0.7) for row in rows if "loss.threshold" in row.params]

    tpe, blind = distances("tpe"), distances("random")
    assert sorted(tpe)[len(tpe) // 2] < 0.7 * sorted(blind)[len(blind) // 2]


def test_the_papers_settings_come_first_and_a_grid_tries_nothing_else(tmp_path: Path) -> None:
    rows = go(tiny_study(tmp_path), tmp_path / "tpe", 5).rows
    paper = [{"loss.strategy": "n-1", "loss.threshold": value} for value in (0.8, 0.9)]
    assert [row.params for row in rows[:2]] == paper
    assert [row.origin for row in rows] == ["small.t08.quarter", "small.t09.quarter", "tpe", "tpe", "tpe"]
    grid = go(tiny_study(tmp_path, sampler="grid"), tmp_path / "grid", 30).rows
    assert [row.params for row in grid] == paper


def test_a_failed_or_nan_trial_never_wins_and_ends_nothing(tmp_path: Path) -> None:
    study = tiny_study(tmp_path)
    book = book_of(study, tmp_path / "out", Budget("trials", 12, "trials"))
    scores = [None, math.nan, 20.0, 25.0, None, math.nan]
    for number in range(12):
        proposal = book.next()
        assert proposal is not None and proposal.row.number == number
        finish(book, number, scores[number % 6])
    rows = read_trials(tmp_path / "out", study.identity)
    assert [row.state for row in rows] == ["failed", "failed", "complete", "complete", "failed", "failed"] * 2
    assert book.best is not None and book.best.score == 25.0
    assert "is no number" in rows[1].reason and "not finite" in rows[0].reason
    known = as_optuna(study.search.space, rows)
    assert known.best_value == 25.0
    states = [trial.state for trial in known.trials]
    assert states.count(optuna.trial.TrialState.FAIL) == 8 and states.count(optuna.trial.TrialState.RUNNING) == 0
    again = book_of(study, tmp_path / "out", Budget("trials", 12, "trials"), retry_failed=True)
    retried = again.next()
    assert retried is not None and retried.row.number == 0


def test_a_score_is_the_mean_over_seeds_and_splits_with_its_spread(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, seeds=2, splits=2)
    book = book_of(study, tmp_path / "out")
    proposal = book.next()
    assert proposal is not None
    asked = [(job.config["seed"], job.config["data"]["split"]["index"]) for job in proposal.jobs]
    assert asked == [(0, 0), (1, 0), (0, 1), (1, 1)]
    for job, score in zip(proposal.jobs, (10.0, 20.0, 30.0, 60.0), strict=True):
        book.report(job.run_id, 2, {"miou": score - 2})
        book.report(job.run_id, 3, {})  # a checkpoint alone
        book.report(job.run_id, 4, {"miou": score})
        book.run_ended(JobResult(job.run_id, "done", metrics={METRIC: score, "train_seconds": 900.0}))
    row = read_trials(tmp_path / "out", study.identity)[0]
    assert (row.state, row.score, len(row.run_scores)) == ("complete", 30.0, 4)
    assert row.score_std == pytest.approx(math.sqrt((400 + 100 + 0 + 900) / 3))
    assert row.cost == pytest.approx(1.0)
    # Steps count on over the runs; values are means over the runs so far.
    assert row.steps == [2, 4, 6, 8, 10, 12, 14, 16]
    assert row.values == pytest.approx([8, 10, 14, 15, 58 / 3, 20, 29.5, 30])


def test_no_setting_is_tried_twice_and_a_space_without_more_ends_the_search(tmp_path: Path) -> None:
    more = """
[[space]]
key = "loss.weight"
choices = ["concave", "linear"]
"""
    text = write_experiments(tmp_path, more=more).joinpath("search/tiny.toml").read_text()
    # Only whole numbers and choices: 4 x 2 settings of fixed K, and n-1 left out.
    few = text.replace('choices = ["n-1", "fixed"]', 'choices = ["fixed", "step"]').replace("points", "# points")
    few = few.replace('when = { loss.strategy = "n-1" }', 'when = { loss.strategy = "n" }')
    kept = [part for part in few.split("[[space]]") if "threshold" not in part]
    (tmp_path / "experiments/search/tiny.toml").write_text("[[space]]".join(kept))
    (study,) = load_studies(tmp_path / "experiments", "tiny", "little", sampler="tpe")
    rows = go(study, tmp_path / "out", 50).rows
    assert len({str(sorted(row.params.items())) for row in rows}) == len(rows) == 4 * 2 + 2


def test_the_budget_of_device_hours_holds_back_what_may_not_end_in_it(tmp_path: Path) -> None:
    study = tiny_study(tmp_path)
    book = book_of(study, tmp_path / "out", Budget("device", 2.5, "coreh"))
    assert book.next() is not None
    assert book.next() is not None
    assert book.next() is None  # two are expected to take 2 of 2.5 hours
    for number in (0, 1):
        book.running[number].row.device_hours = 0.75
        finish(book, number, 40.0)
    # They took 0.75 hours each, and train for longer than half of it: a third fits, a fourth does not.
    assert book.next() is not None
    assert book.next() is None
    book.running[2].row.device_hours = 1.5
    assert book.over
    finish(book, 2, 40.0)
    with pytest.raises(StopIteration):
        book.next()


def feed(stopping: EarlyStopping, number: int, values: list[float], run_id: str, tune_id: str = "") -> list[str]:
    trial = SimpleNamespace(trial_id=tune_id or f"t{number}", config={"trial": number})
    verdicts = []
    for place, value in enumerate(values, start=1):
        result = {"run_id": run_id, "step": 2 * place, "metrics/miou": value}
        verdicts.append(stopping.on_trial_result(None, trial, result))
        if verdicts[-1] == "STOP":
            break
    return verdicts


@pytest.mark.parametrize("stop", ["asha", "median"])
def test_early_stopping_decides_alike_with_and_without_a_kill_in_between(tmp_path: Path, stop: str) -> None:
    study = tiny_study(tmp_path, stop=stop)
    draw = random.Random(0)
    curves = [[draw.uniform(10, 20), draw.uniform(20, 30)] for _ in range(24)]
    curves[1][0] = 9.0  # the worst of all, but a setting of the paper

    def states(out: Path, cuts: tuple[int, ...]) -> list[str]:
        book = book_of(study, out)
        stopping = EarlyStopping(book)
        for number, values in enumerate(curves):
            if number in cuts:
                book = book_of(study, out)
                stopping = EarlyStopping(book)
            proposal = book.next()
            assert proposal is not None
            run_id = proposal.row.run_ids[0]
            if feed(stopping, number, values, run_id)[-1] != "STOP":
                book.run_ended(JobResult(run_id, "done", metrics={METRIC: values[-1]}))
            book.end(number)
        return [row.state for row in read_trials(out, study.identity)]

    whole = states(tmp_path / "whole", ())
    assert states(tmp_path / "cut", (1, 7, 8, 20)) == whole
    stopped = [number for number, state in enumerate(whole) if state == "pruned"]
    assert 5 <= len(stopped) <= 15
    rows = read_trials(tmp_path / "whole", study.identity)
    for number in stopped:  # the history up to there is kept
        assert (rows[number].steps, rows[number].values) == ([2], curves[number][:1])
        assert rows[number].score == curves[number][0]
        assert f"stopped by {stop} at step 2 of 4" in rows[number].reason
    # By hand; the paper's two settings go on in any case.
    for number in range(2, 24):
        own, before = curves[number][0], [values[0] for values in curves[:number]]
        if stop == "asha":  # among the best half of those that have come to the rung, itself included
            hopeless = own < sorted([*before, own], reverse=True)[(number + 1) // 2 - 1]
        else:  # below the median of the complete ones
            complete = [value for value, state in zip(before, whole, strict=False) if state == "complete"]
            hopeless = len(complete) >= 5 and own < statistics.median(complete)
        assert (whole[number] == "pruned") == hopeless, number


def test_a_nan_on_the_way_is_kept_and_stops_nothing(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, stop="asha")
    book = book_of(study, tmp_path / "out")
    stopping = EarlyStopping(book)
    whole = ["CONTINUE", "CONTINUE"]
    for number, values in enumerate(([20.0, 21.0], [20.0, 21.0], [math.nan, 25.0], [10.0, 12.0])):
        proposal = book.next()
        assert proposal is not None
        verdicts = feed(stopping, number, values, proposal.row.run_ids[0])
        assert verdicts == [whole, whole, whole, ["STOP"]][number]


def worst_of_many(study: Study, steps: list[int]) -> tuple[list[TrialRow], TrialRow]:
    """Complete trials, and one that is behind all of them at each of its reports."""
    rows = [TrialRow(study.identity, number, {}, "tpe", []) for number in range(9)]
    for row in rows:
        for step in steps:
            row.report(step, 1.0 if row is rows[-1] else 50.0)
    for row in rows[:-1]:
        row.state, row.run_scores = "complete", [50.0]
    return rows, rows[-1]


@pytest.mark.parametrize("stop", ["asha", "median", "none"])
def test_the_worst_is_stopped_before_its_last_step_unless_the_search_says_otherwise(tmp_path: Path, stop: str) -> None:
    study = tiny_study(tmp_path, stop=stop)
    assert is_hopeless(study, *worst_of_many(study, [2])) == (stop != "none")
    # It ends by itself.
    assert not is_hopeless(study, *worst_of_many(study, [4]))
    # A replaced process repeats the report: nothing has changed.
    assert is_hopeless(study, *worst_of_many(study, [2, 2])) == (stop != "none")


def test_successive_halving_judges_at_rungs_alone(tmp_path: Path) -> None:
    # Four runs of four steps: rungs at or after 2, 4 and 8 of 16.
    study = tiny_study(tmp_path, stop="asha", seeds=4)
    reports = [1, 2, 3, 5, 7, 8, 11, 15]
    judged = [step for step in reports if is_hopeless(study, *worst_of_many(study, reports[: reports.index(step) + 1]))]
    assert judged == [2, 5, 8]
    # Not at a rung that others alone have come to.
    rows, row = worst_of_many(study, [2, 4])
    row.steps, row.values, row.step = [2, 3], [1.0, 1.0], 3
    assert not is_hopeless(study, rows, row)


def test_the_median_rule_looks_at_the_best_report_and_at_complete_trials(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, stop="median", seeds=4)
    rows, row = worst_of_many(study, [2, 4])
    row.values = [60.0, 1.0]
    assert not is_hopeless(study, rows, row)
    row.values = [1.0, 1.0]
    for other in rows[:4]:
        other.state = "pruned"
    assert not is_hopeless(study, rows, row)  # four complete ones are too few
    rows[0].state = "complete"
    assert is_hopeless(study, rows, row)


def test_a_trial_whose_process_died_too_often_is_failed_and_not_taken_up_again(tmp_path: Path) -> None:
    study = tiny_study(tmp_path)
    book = book_of(study, tmp_path / "out")
    proposal = book.next()
    assert proposal is not None
    book.end(0)  # Tune gave its trial up
    assert book.unfinished == [proposal.row]
    book.run_ended(JobResult(proposal.row.run_ids[0], "failed", "its process died 3 times"))
    assert not book.take_up() and not book.unfinished
    assert [row.state for row in read_trials(tmp_path / "out", study.identity)] == ["failed"]


def test_a_process_that_replaces_a_dead_one_counts_no_run_twice(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, seeds=3)
    book = book_of(study, tmp_path / "out")
    proposal = book.next()
    assert proposal is not None
    runs = proposal.row.run_ids

    def carry_out(run_id: str, score: float) -> None:
        book.report(run_id, 2, {"miou": score - 2})
        book.report(run_id, 4, {"miou": score})
        book.run_ended(JobResult(run_id, "done", metrics={METRIC: score, "train_seconds": 3600.0}))

    carry_out(runs[0], 10.0)
    book.report(runs[1], 2, {"miou": 20.0})
    # It dies; the next one finds the first run done, and reports of the second come again.
    book.run_ended(JobResult(runs[0], "done", metrics={METRIC: 10.0, "train_seconds": 3600.0}))
    carry_out(runs[1], 30.0)
    carry_out(runs[2], 50.0)
    row = read_trials(tmp_path / "out", study.identity)[0]
    assert (row.state, row.run_scores, row.cost) == ("complete", [10.0, 30.0, 50.0], pytest.approx(3.0))
    assert row.steps == [2, 4, 6, 8, 10, 12]
    assert row.values == pytest.approx([8, 10, 19, 20, 88 / 3, 30])


@pytest.mark.parametrize("stop", ["asha", "median"])
def test_the_rule_knows_a_trial_that_is_taken_up_under_another_name(tmp_path: Path, stop: str) -> None:
    study = tiny_study(tmp_path, stop=stop)
    book = book_of(study, tmp_path / "out")
    stopping = EarlyStopping(book)
    proposal = book.next()
    assert proposal is not None
    run_id = proposal.row.run_ids[0]
    assert feed(stopping, 0, [20.0], run_id) == ["CONTINUE"]
    book.end(0)
    assert book.take_up()
    again = book.next()
    assert again is not None and again.row.number == 0
    assert feed(stopping, 0, [20.0, 21.0], run_id, "another") == ["CONTINUE", "CONTINUE"]


def test_a_setting_of_the_paper_goes_on_where_the_median_rule_gave_it_up(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, stop="median", seeds=2)
    out = tmp_path / "out"
    for number in range(6):  # what a search before it found
        row = TrialRow(study.identity, number, {"loss.strategy": "fixed", "loss.fixed_k": 1}, "tpe", ["a", "b"])
        row.steps, row.values, row.run_scores, row.state = [2, 4, 6, 8], [50.0] * 4, [50.0, 50.0], "complete"
        write_trial(out, row)
    book = book_of(study, out)
    stopping = EarlyStopping(book)
    proposal = book.next()
    assert proposal is not None and proposal.row.origin == "small.t08.quarter"
    for run_id in proposal.row.run_ids:
        assert feed(stopping, proposal.row.number, [1.0, 2.0], run_id) == ["CONTINUE", "CONTINUE"]
        book.run_ended(JobResult(run_id, "done", metrics={METRIC: 2.0}))
    assert proposal.row.state == "complete"


def test_what_was_cut_off_near_the_end_of_a_budget_is_continued(tmp_path: Path) -> None:
    study = tiny_study(tmp_path)
    hour = Budget("device", 1.0, "coreh")
    book = book_of(study, tmp_path / "out", hour)
    proposal = book.next()
    assert proposal is not None
    proposal.row.device_hours = 0.5
    book.report(proposal.row.run_ids[0], 2, {"miou": 20.0})
    again = book_of(study, tmp_path / "out", hour)
    assert not again.exhausted
    continued = again.next()
    assert continued is not None and continued.row.number == 0
    spent = book_of(study, tmp_path / "out", Budget("device", 0.6, "coreh"))
    assert spent.exhausted
    with pytest.raises(StopIteration):
        spent.next()


def test_fewer_trials_than_were_begun_continue_as_many(tmp_path: Path) -> None:
    study = tiny_study(tmp_path)
    book = book_of(study, tmp_path / "out")
    assert book.next() is not None and book.next() is not None
    again = book_of(study, tmp_path / "out", Budget("trials", 1, "trials"))
    continued = again.next()
    assert continued is not None and continued.row.number == 0
    finish(again, 0, 20.0)
    with pytest.raises(StopIteration):
        again.next()
    assert again.exhausted


def test_trials_answered_from_the_store_say_nothing_about_what_others_take(tmp_path: Path) -> None:
    study = tiny_study(tmp_path)
    book = book_of(study, tmp_path / "out", trial_hours=2.0)
    assert book.next() is not None
    finish(book, 0, 20.0)  # an hour of training in no time
    assert book.trial_hours == 2.0
    assert book.next() is not None
    book.running[1].row.device_hours = 1.5
    finish(book, 1, 20.0)
    assert book.trial_hours == pytest.approx(1.5, abs=0.01)


def test_a_budget_that_ends_with_a_run_lets_it_end(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, stop="none")
    book = book_of(study, tmp_path / "out", Budget("device", 1.0, "coreh"))
    stopping = EarlyStopping(book)
    proposal = book.next()
    assert proposal is not None
    proposal.row.device_hours = 1.0
    trial = SimpleNamespace(trial_id="t", config={"trial": 0})
    report = {"run_id": proposal.row.run_ids[0], "metrics/miou": 20.0}
    assert stopping.on_trial_result(None, trial, {**report, "step": 2}) == "STOP"
    assert stopping.on_trial_result(None, trial, {**report, "step": 4}) == "CONTINUE"


def test_a_run_killed_after_its_last_report_leaves_no_gap_in_the_curve(tmp_path: Path) -> None:
    study = tiny_study(tmp_path)
    out = tmp_path / "out"
    book = book_of(study, out)
    proposal = book.next()
    assert proposal is not None
    run_id = proposal.row.run_ids[0]
    book.report(run_id, 2, {"miou": 19.0})
    history = [{"step": 2, "miou": 19.0}, {"step": 4, "miou": 20.0}]
    write_run(out, {"run_id": run_id}, history, [], [])
    again = book_of(study, out)
    assert again.next() is not None
    again.run_ended(JobResult(run_id, "done", metrics={METRIC: 20.0}))
    row = read_trials(out, study.identity)[0]
    assert (row.state, row.steps, row.values) == ("complete", [2, 4], [19.0, 20.0])


def test_a_trial_begun_on_other_data_is_refused(tmp_path: Path) -> None:
    study = tiny_study(tmp_path)
    book = book_of(study, tmp_path / "out")
    proposal = book.next()
    assert proposal is not None
    proposal.row.run_ids = ["another-run"]
    write_trial(tmp_path / "out", proposal.row)
    with pytest.raises(FplError, match="was begun as another-run"):
        book_of(study, tmp_path / "out").next()


def all_alike(book: Book, result: Callable[[str], JobResult], at_once: int = 1) -> int:
    """Begin trials as long as there are any, all of whose runs end at once as `result` says; how many were begun."""
    begun = 0
    with contextlib.suppress(StopIteration):
        while begun < 200:
            proposals = [proposal for _ in range(at_once) if (proposal := book.next()) is not None]
            for proposal in proposals:
                begun += 1
                book.started(proposal.row.run_ids[0])
                book.run_ended(result(proposal.row.run_ids[0]))
                book.end(proposal.row.number)
    return begun


HOURS = Budget("device", 100.0, "coreh")


@pytest.mark.parametrize(("at_once", "begun"), [(1, 5), (4, 8)])
def test_trials_that_fail_one_after_the_other_end_the_call_and_not_the_search(
    tmp_path: Path, at_once: int, begun: int
) -> None:
    """They cost next to nothing of a budget in hours: it would admit thousands."""
    study, out = tiny_study(tmp_path, sampler="random"), tmp_path / "out"
    book = book_of(study, out, HOURS, at_once=at_once)
    assert all_alike(book, lambda run_id: JobResult(run_id, "failed", "CUDA out of memory"), at_once) == begun
    assert book.streak.halt is not None and book.streak.halt.exit_code == 1
    assert f"{begun} trials failed in a row" in book.streak.halt.reason
    assert "CUDA out of memory" in book.streak.halt.reason
    assert [row.state for row in read_trials(out, study.identity)] == ["failed"] * begun
    again = book_of(study, out, HOURS)
    proposal = again.next()
    assert proposal is not None and proposal.row.number == begun


def test_one_that_comes_to_its_end_in_between_lets_others_fail(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, sampler="random")
    book = book_of(study, tmp_path / "out")
    for number in range(15):
        assert book.next() is not None
        finish(book, number, 20.0 if number % 5 == 4 else None)
    assert book.streak.halt is None and book.next() is not None


def test_what_a_trial_lacks_ends_the_call_and_the_same_command_continues_it(tmp_path: Path) -> None:
    study, out = tiny_study(tmp_path, sampler="random"), tmp_path / "out"
    book = book_of(study, out, HOURS, at_once=4)
    assert all_alike(book, lambda run_id: lacking(run_id, "no space is left in /local")) == 1
    assert book.streak.halt is not None and book.streak.halt.exit_code == 2
    assert "no space is left in /local" in book.streak.halt.reason
    assert not book.take_up()
    again = book_of(study, out, HOURS).next()
    assert again is not None and again.row.number == 0
    # Another process has the run: no want of anything, and the others go on.
    busy = book_of(study, out)
    assert all_alike(busy, lambda run_id: JobResult(run_id, "stopped", "another process is training this run")) > 5


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ({}, 0),
        ({"best": None}, 1),
        ({"unfinished": [1], "exhausted": True}, 0),
        ({"unfinished": [1]}, 2),
        ({"halt": Halt("no space is left", 2), "unfinished": [1], "best": None}, 2),
        ({"halt": Halt("5 trials failed in a row", 1)}, 1),
        ({"protocol": "holdout"}, 1),
        ({"protocol": "holdout", "halt": Halt("no space is left", 2)}, 2),
    ],
)
def test_the_exit_code_of_a_search_says_whether_the_same_command_continues(ends: dict[str, Any], code: int) -> None:
    known = {"best": 1, "final": None, "unfinished": [], "exhausted": False, "halt": None, "protocol": "val"} | ends
    book: Any = SimpleNamespace(**known, streak=SimpleNamespace(halt=known["halt"]))
    book.study = SimpleNamespace(head=SimpleNamespace(protocol=known["protocol"]))
    assert _exit_code(book) == code
