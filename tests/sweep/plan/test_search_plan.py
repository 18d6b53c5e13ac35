"""The plan of a search against sums worked out from the cost model's pieces."""

from __future__ import annotations

import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fpl.cli import options as cli_options
from fpl.cli.plan import plan as command
from fpl.config import search as searches
from fpl.config.identity import canonical
from fpl.config.schema import RunConfig
from fpl.config.study import Study, load_studies
from fpl.errors import FplError
from fpl.store.trials import TrialRow, write_trial
from fpl.store.write import write_run
from fpl.sweep.execution import Execution
from fpl.sweep.places import Places
from fpl.sweep.plan.campaign_plan import LAUNCHER_START, RAY_START, RUN_START
from fpl.sweep.plan.capacity import Capacity
from fpl.sweep.plan.costs import Costs
from fpl.sweep.plan.search_plan import SearchPlan, plan_search
from fpl.sweep.plan.speed import CPU_CORE, V100, CostModel
from fpl.sweep.search.budget import parse_budget
from tests.conftest import RUN
from tests.report.world_search import T_ONLY
from tests.report.world_search import study as write_study_row
from tests.store.test_store import named_run

TABLE = """
[about]
order = 1
[table]
recipe = "cps"
name = "wide"
number = "Table 1"
caption = "T in two splits."
dataset = "synthetic_city"
[[columns]]
key = "a"
header = "1/4"
[[columns]]
key = "b"
header = "1/4, longer"
set.train.steps = 12
[[rows]]
key = "t07"
label = "0.7"
role = "ablation"
threshold = 0.7
values = [50.0, 51.0]
[[rows]]
key = "t08"
label = "0.8"
role = "ablation"
threshold = 0.8
values = [50.0, "-"]
[[rows]]
key = "t09"
label = "0.9"
role = "ablation"
threshold = 0.9
values = [52.0, 53.0]
"""
SEARCH = """
[search]
name = "small"
caption = "Which T?"
on = ["wide.t09.a", "wide.t09.b"]
points = ["wide.*.*"]
trials = 7
[[space]]
key = "loss.threshold"
low = 0.5
high = 0.99
"""
TWO = Capacity(cores=2)

Make = Callable[..., list[Study]]
CPU = CostModel(CPU_CORE)


@pytest.fixture
def experiments(tmp_path: Path) -> Path:
    folder = tmp_path / "experiments"
    for name, text in (
        ("base/synthetic_city_cps.toml", RUN),
        ("tables/wide.toml", TABLE),
        ("scale/test.toml", '[scale]\nname = "test"\n[launch]\nlauncher = "inline"'),
        ("search/small.toml", SEARCH),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def make(experiments: Path) -> Make:
    def made(**changes: Any) -> list[Study]:
        return load_studies(experiments, "small", "test", **changes)

    return made


def planned(studies: list[Study], places: Places, budget: str | None = None, has: Capacity | None = TWO) -> SearchPlan:
    return plan_search(studies, places, has, Execution(), parse_budget(budget) if budget else None)


def record_run(out: Path, config: RunConfig) -> None:
    write_run(out, {**named_run("run", canonical(config)), "miou_whole_best": 40.0}, [], [], [])


def record_trial(out: Path, study: Study, number: int, **values: Any) -> None:
    runs = [f"run-{number}-{run}" for run in range(study.runs_per_trial)]
    given = {"params": {"loss.threshold": 0.5 + number / 100}, "origin": "tpe", "run_ids": runs, **values}
    write_trial(out, TrialRow(study.identity, number, **given))


def seconds(config: RunConfig) -> float:
    """A run, from its start to its row in the store."""
    return CPU.run_seconds(config) + RUN_START["inline"]


# --- trials and costs -----------------------------------------------------------------------------------------------


def test_without_a_budget_the_files_trials_are_those_of_each_study(make: Make, places: Places) -> None:
    plan = planned(make(), places)
    assert [(each.to_begin, each.to_continue, dict(each.states)) for each in plan.studies] == [(7, 0, {})] * 2
    # Three of its own and of the longer column's two none besides; the other way round the 0.8 of the first.
    assert [len(each.points) for each in plan.studies] == [3, 3] and plan.to_come == 14
    first, second = (seconds(study.base) for study in make())
    assert second > 1.5 * first
    assert [each.trial_seconds for each in plan.studies] == pytest.approx([first, second])
    assert [each.hours for each in plan.studies] == pytest.approx([7 * first / 3600, 7 * second / 3600])
    assert plan.hours == pytest.approx(7 * (first + second) / 3600) and plan.device_unit == "core"
    # Seven on two slots: four, one after the other; the studies follow each other.
    assert plan.slots == 2
    assert plan.wall_seconds() == pytest.approx(RAY_START + LAUNCHER_START["inline"] + 4 * first + 4 * second)
    assert plan.disk_bytes()[0] == 14 * Costs().of(make()[0].base).kept_bytes
    assert not plan.blocked


def test_a_trial_is_all_of_its_runs_on_all_devices_of_each(make: Make, places: Places) -> None:
    studies = make(seeds=3, splits=2)
    assert planned(studies, places).studies[0].trial_seconds == pytest.approx(6 * seconds(studies[0].base))
    execution = Execution(launcher="train", workers=2, gpus_per_worker=1, cpus_per_worker=4)
    plan = plan_search(studies, places, Capacity(cores=64, gpus=4), execution, parse_budget("1gpuh"))
    run = CostModel(V100).run_seconds(studies[0].base, 2) + RUN_START["train"]
    assert plan.studies[0].trial_seconds == pytest.approx(6 * run)
    assert plan.studies[0].trial_hours == pytest.approx(2 * 6 * run / 3600)
    assert (plan.slots, plan.device_unit) == (2, "GPU")


def test_budgets_become_trials(make: Make, places: Places) -> None:
    studies = make()
    first, second = (seconds(study.base) for study in studies)

    def begun(budget: str, has: Capacity | None = TWO) -> list[int | None]:
        return [each.to_begin for each in planned(studies, places, budget, has).studies]

    assert begun("9trials") == [5, 4]
    # Each study has half of the hours.
    hours = 2 * 5.5 * first / 3600
    assert begun(f"{hours:.9f}coreh") == [5, int(5.5 * first / second)]
    # Wall time counts on each of the two slots.
    assert begun(f"{hours:.9f}h") == [10, 2 * int(5.5 * first / second)]
    assert begun(f"{60 * hours:.9f}min", Capacity(cores=3)) == [15, 3 * int(5.5 * first / second)]
    # How many run at once on a cluster is known once it has been joined.
    assert begun("6h", None) == [None, None] and begun("9trials", None) == [5, 4]
    plan = planned(studies, places, "6h", None)
    assert (plan.to_come, plan.hours, plan.wall_seconds(), plan.slots) == (None, None, None, None)


def test_hours_of_the_wrong_device_are_refused(make: Make, places: Places) -> None:
    with pytest.raises(FplError, match="use no GPU"):
        planned(make(), places, "3gpuh")
    with pytest.raises(FplError, match="use GPUs"):
        plan_search(make(), places, Capacity(8, 8), Execution(gpus_per_worker=1), parse_budget("3coreh"))


# --- what the store has ---------------------------------------------------------------------------------------------


def test_settings_whose_runs_are_in_the_store_cost_nothing(make: Make, places: Places) -> None:
    study = make()[0]
    record_run(places.out, study.config({"loss.threshold": 0.7}))
    plan = planned(make(), places, "10trials")
    run = seconds(study.base)
    assert [each.points_done for each in plan.studies] == [1, 0]
    assert plan.studies[0].to_begin == 5 and plan.studies[0].hours == pytest.approx(4 * run / 3600)
    # With two seeds, one run of two is not enough.
    assert planned(make(seeds=2), places).studies[0].points_done == 0
    record_run(places.out, study.config({"loss.threshold": 0.7}, seed=1))
    assert planned(make(seeds=2), places).studies[0].points_done == 1
    # On held out images it is another run.
    assert planned(make(protocol="holdout"), places).studies[0].points_done == 0
    # Hours buy as many trials as before, and the free one besides.
    hours = 2 * 3.5 * run / 3600
    assert planned(make(), places, f"{hours:.9f}coreh").studies[0].to_begin == 4


def test_recorded_trials_count(make: Make, places: Places) -> None:
    study = make()[0]
    run = seconds(study.base)
    for number, state in enumerate(["complete", "complete", "pruned", "failed"]):
        record_trial(places.out, study, number, state=state, run_scores=[40.0], device_hours=0.25)
    record_trial(places.out, study, 4, step=2, device_hours=0.5)
    plan = planned(make(), places)
    own, other = plan.studies
    assert dict(own.states) == {"complete": 2, "pruned": 1, "failed": 1, "running": 1} and not other.states
    assert (own.spent.trials, own.spent.device_hours) == (5, 1.5)
    # Two of seven are left; the one that was cut off has four of its six steps to go.
    assert (own.to_begin, own.to_continue, other.to_begin, plan.to_come) == (2, 1, 7, 10)
    assert own.hours == pytest.approx((2 + 4 / 6) * run / 3600)
    assert own.jobs == pytest.approx([4 / 6 * run, run, run])
    # Device-hours: what was spent is gone, what is cut off comes first.
    hours = 2 * (1.5 + (4 / 6 + 3.5) * run / 3600)
    assert planned(make(), places, f"{hours:.9f}coreh").studies[0].to_begin == 3
    # Spent is spent: nothing is left, and that is no obstacle.
    record_trial(places.out, study, 4, state="complete", run_scores=[40.0], device_hours=0.5)
    over = planned(make(), places, "2coreh")
    assert over.studies[0].to_begin == 0 and not over.blocked
    # Another sampler is another study.
    assert not planned(make(sampler="random"), places).studies[0].states


def test_wall_time_of_earlier_calls_counts(make: Make, places: Places) -> None:
    study = make()[0]
    run = seconds(study.base)
    write_study_row(places.out, study.identity, space=T_ONLY, wall_seconds=3600.0)
    record_trial(places.out, study, 0, step=3)
    hours = 2 * (1 + 2.6 * run / 3600)
    plan = planned(make(), places, f"{hours:.9f}h").studies[0]
    assert plan.spent.wall_hours == 1
    # One slot goes on for half a trial and has room for two more, as the other slot has.
    assert plan.to_begin == 2 + 2
    hours = 2 * (1 + 2.4 * run / 3600)
    assert planned(make(), places, f"{hours:.9f}h").studies[0].to_begin == 1 + 2


def test_a_grid_is_complete_and_no_longer(make: Make, places: Places) -> None:
    plan = planned(make(sampler="grid", trials=1), places)
    # Of the longer column 0.8 is a dash in the paper.
    assert [(each.to_begin, len(each.points)) for each in plan.studies] == [(3, 3), (2, 2)]
    assert [each.to_begin for each in planned(make(sampler="grid"), places, "3trials").studies] == [2, 1]
    assert [each.to_begin for each in planned(make(sampler="grid"), places, "99h").studies] == [3, 2]
    study = make(sampler="grid")[0]
    record_trial(places.out, study, 0, params={"loss.threshold": 0.9}, state="complete", run_scores=[40.0])
    assert [each.to_begin for each in planned(make(sampler="grid"), places).studies] == [2, 2]


def test_a_search_on_held_out_images_ends_with_a_whole_run(make: Make, places: Places) -> None:
    study = make(protocol="holdout", trials=1, seeds=2)[0]
    held_out = 2 * seconds(study.config({}))
    plan = planned(make(protocol="holdout", trials=1, seeds=2), places).studies[0]
    whole = seconds(study.base)
    assert plan.jobs == pytest.approx([held_out, whole, whole]) and plan.trial_seconds == pytest.approx(held_out)
    record_trial(places.out, study, 0, state="complete", run_scores=[40.0])
    assert planned(make(protocol="holdout", trials=1, seeds=2), places).studies[0].jobs == pytest.approx([whole] * 2)
    record_trial(places.out, study, 1, state="final", run_scores=[41.0], device_hours=0.5)
    done = planned(make(protocol="holdout", trials=1, seeds=2), places).studies[0]
    # The last one is no trial, but its hours were spent.
    assert not done.jobs and done.hours == 0 and done.spent.trials == 1 and done.spent.device_hours == 0.5


# --- what is in the way ---------------------------------------------------------------------------------------------


def test_obstacles_are_told_once_with_their_remedies(make: Make, places: Places, tmp_path: Path) -> None:
    elsewhere = Places(places.out, tmp_path / "nothing", tmp_path / "splits")
    # What can be made is made.
    plan = planned(make(), elsewhere)
    assert not plan.blocked
    assert plan.to_make == {"drawn data sets": ["synthetic_city"], "splits": ["synthetic_city every-nth 1/4"]}
    plan = planned(make(overrides=["data.dataset=cityscapes"]), elsewhere)
    (reason,) = plan.blocked
    assert reason.startswith(f"data set cityscapes not found in {tmp_path / 'nothing'} -> make it of the archives")
    # The cost is there all the same.
    assert plan.hours is not None and plan.hours > 0


def test_workers_and_devices_that_do_not_fit_block(make: Make, places: Places) -> None:
    execution = Execution(launcher="train", workers=3, gpus_per_worker=1)
    plan = plan_search(make(), places, Capacity(cores=8, gpus=2), execution)
    assert len(plan.blocked) == 2 and plan.slots == 0 and plan.wall_seconds() is None
    assert "labeled_batch = 4 cannot be shared equally by 3 workers" in plan.blocked[0]
    assert "3 GPUs needed for a run with 3 workers, 2 here" in plan.blocked[1]


@pytest.mark.parametrize(
    ("budget", "blocked", "text"),
    [
        ("1trial", 1, "the share of wide.t09.b, 0 trials, is not enough"),
        ("0.000001coreh", 2, "is not enough for a trial: one takes "),
        ("0.000001h", 2, "the share of wide.t09.a"),
    ],
)
def test_a_budget_without_a_single_trial_blocks(
    make: Make, places: Places, budget: str, blocked: int, text: str
) -> None:
    found = planned(make(), places, budget).blocked
    assert len(found) == blocked and any(text in reason for reason in found)
    assert all(" -> a larger --budget" in reason for reason in found)


def test_doubtful_settings_are_warned_of(make: Make, places: Places) -> None:
    (warning,) = planned(make(overrides=["method.weight=0.0"]), places).warnings
    assert warning.startswith("method.weight = 0")


# --- command --------------------------------------------------------------------------------------------------------


def call(experiments: Path, places: Places, *more: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(command)
    folders = ["--out", str(places.out), "--data-root", str(places.data_root), "--splits", str(places.splits_root)]
    shared = ["--scale", "test", "--experiments", str(experiments), "--cores", "2", "--gpus", "0"]
    result = CliRunner(env={"RAY_ADDRESS": None}).invoke(app, [*shared, *folders, *more])
    return result.exit_code, result.output or str(result.exception)


def test_command_prints_everything(experiments: Path, places: Places, make: Make) -> None:
    record_run(places.out, make()[0].config({"loss.threshold": 0.7}))
    record_trial(places.out, make()[0], 0, state="complete", run_scores=[40.0], device_hours=0.25)
    code, text = call(experiments, places, "--search", "small", "--budget", "9trials")
    assert code == 0, text
    lines = text.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.strip().startswith(("wide", "all"))}
    # Settings, in store; done, early, failed, cut off; next.
    assert rows["wide.t09.a"][:7] == ["3", "1", "1", "0", "0", "0", "4"]
    assert rows["wide.t09.b"][:7] == ["3", "0", "0", "0", "0", "0", "4"]
    assert rows["all"][:5] == ["1", "0", "0", "0", "8"]
    assert "varied: loss.threshold: 0.5 to 0.99" in lines
    assert any(line.startswith("sampler tpe, seed 0; asha stops trials early; a trial is 1 seed on") for line in lines)
    assert f"budget: 9 trials, 0.25 core-hours used so far; store: {places.out}" in lines
    assert any(line.startswith("core-hours to come, at most: ") and "(assumed: " in line for line in lines)
    assert any(line.startswith("capacity: 2 cores") and "; 2 trials at once; wall time about" in line for line in lines)
    assert lines[-1].startswith("test: search small, 2 studies: 1 trial recorded, 8 to come, at most ")


def test_command_passes_its_options_on(experiments: Path, places: Places) -> None:
    options = ["--sampler", "random", "--sampler-seed", "5", "--stop", "none", "--protocol", "holdout", "--seeds", "2"]
    options += ["--trial-splits", "3", "--objective", "miou", "--objective", "cost", "train.steps=9"]
    code, text = call(experiments, places, "--search", "small", *options)
    assert code == 0, text
    assert (
        "sampler random, seed 5; no trial is stopped early; a trial is 2 seeds on 3 splits, scored on one in 4" in text
    )
    assert "beside the budget" in text
    # Nine steps in either column: one study.
    assert "test: search small, 1 study: 0 trials recorded, 7 to come" in text


def test_command_calibrates(experiments: Path, places: Places) -> None:
    code, text = call(experiments, places, "--search", "small", "--calibrate", "1")
    assert code == 0 and "calibration of 1 kinds of steps in" in text and "(measured on " in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--search", "smal"], "no search 'smal'"),
        (["--search", "small", "--budget", "5x"], "'5x' is no budget"),
        (["--search", "small", "wide"], "a search names its cells itself"),
        (["--search", "small", "--objective", "speed"], "search.objectives: 0: Input should be 'miou' or 'cost'"),
        (["--search", "small", "--local"], "--search with --local: a search needs Ray"),
        (["--budget", "3h"], "belong to a search"),
        (["--stop", "none"], "belong to a search"),
    ],
)
def test_command_refuses(experiments: Path, places: Places, arguments: list[str], text: str) -> None:
    code, output = call(experiments, places, *arguments)
    assert code != 0 and text in output


def test_choices_of_the_command_line_are_those_of_the_files() -> None:
    for option, known in (
        (cli_options.Sampler, searches.Sampler),
        (cli_options.Stop, searches.Stop),
        (cli_options.Protocol, searches.Images),
    ):
        (literal, _none) = typing.get_args(typing.get_args(option)[0])
        assert set(typing.get_args(literal)) == set(typing.get_args(known))


def test_a_plan_is_made_without_torch_ray_and_optuna(experiments: Path, places: Places, make: Make) -> None:
    record_trial(places.out, make()[0], 0, state="complete", run_scores=[40.0])
    # What runs cost is counted with torch by the first plan beside a store.
    Costs(places.out).learn([make()[0].base, make()[0].config({})])
    folders = ", ".join(
        f"{name}=Path({str(path)!r})"
        for name, path in (
            ("out", places.out),
            ("data_root", places.data_root),
            ("splits", places.splits_root),
            ("experiments", experiments),
        )
    )
    program = (
        "import sys\nfrom pathlib import Path\nfrom fpl.cli.plan import plan\n"
        f"plan(search='small', scale='test', budget='9trials', {folders})\n"
        "print(sorted({'torch', 'ray', 'optuna'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[]" and "1 trial recorded" in printed
