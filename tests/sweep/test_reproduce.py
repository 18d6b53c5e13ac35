from __future__ import annotations

import io
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from fpl import load_results
from fpl.config.compose import validate
from fpl.config.figure import load_figures
from fpl.config.identity import recipe_digest, run_id
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.store.compare import difference
from fpl.store.done import is_done, run_row
from fpl.store.publish import Published, publish_runs
from fpl.store.read import Results
from fpl.store.schema import RUNS
from fpl.store.write import failure_path, run_path, write_table
from fpl.sweep.execution import Execution
from fpl.sweep.inputs import make_inputs
from fpl.sweep.job import Job, JobResult, run_job
from fpl.sweep.local import StoppedError
from fpl.sweep.noise import measure_noise
from fpl.sweep.places import Places
from fpl.sweep.plan.wanted import Wanted
from fpl.sweep.prepare import pin
from fpl.sweep.reproduce import EXAMPLES, Account, carry_out
from fpl.sweep.view import View


def changed(config: RunConfig, **sections: dict[str, object]) -> RunConfig:
    tree = config.model_dump(mode="json")
    for section, values in sections.items():
        tree[section] |= values
    return validate(tree)


def wanted(config: RunConfig, *cells: str) -> Wanted:
    return Wanted(recipe_digest(config.model_dump(mode="json")), config, list(cells))


def reproduce(runs: list[Wanted], places: Places, *, retry_failed: bool = False) -> Account:
    execution = Execution(local=True)
    return carry_out(
        runs, places, execution, estimate=lambda run: 1.0, retry_failed=retry_failed, say=lambda text: None
    )


def test_a_run_in_the_store_is_never_trained_again(config: RunConfig, places: Places) -> None:
    runs = [wanted(config), wanted(changed(config, loss={"threshold": 0.8}))]
    first = reproduce(runs[:1], places)
    written = run_path(places.out, first.done[0]).stat().st_mtime_ns
    second = reproduce(runs, places)
    assert second.before == first.done and len(second.results) == 1
    assert run_path(places.out, first.done[0]).stat().st_mtime_ns == written
    third = reproduce(runs, places)
    assert sorted(third.before) == sorted(second.done) and not third.results


@pytest.mark.parametrize("damage", ["empty", "half", "another run's", "folder"])
def test_a_run_whose_row_cannot_be_read_is_trained_again(config: RunConfig, places: Places, damage: str) -> None:
    run = wanted(config)
    (identity,) = reproduce([run], places).done
    path, miou = run_path(places.out, identity), load_results(places.out).runs["miou_whole_best"].item()
    content = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    elif damage == "another run's":
        (row,) = pq.read_table(path).to_pylist()
        write_table(path, RUNS, [{**row, "run_id": "another"}])
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "half" else b"")
    # The table and whoever trains agree on what is done.
    assert len(Results(places.out).runs) == 0
    again = reproduce([run], places)
    assert not again.before and again.done == [identity]
    assert load_results(places.out).runs["miou_whole_best"].item() == miou
    assert path.with_name(f"{path.name}.damaged").exists() and not Results(places.out).left_out
    assert "put aside as" in (places.out / "logs" / f"{identity}.log").read_text()


def test_the_store_answers_by_recipe(config: RunConfig, places: Places) -> None:
    run = wanted(config)
    reproduce([run], places)
    frame = load_results(places.out).runs
    assert list(frame["recipe"]) == [run.recipe]
    assert frame["run_id"][0] == run_id(pin(config, places)[0])


def test_a_failed_run_is_reported_and_the_others_go_on(config: RunConfig, places: Places) -> None:
    diverging = wanted(changed(config, optim={"lr": 1e30}))
    runs = [diverging, wanted(config)]
    account = reproduce(runs, places)
    assert len(account.done) == 1
    failed = account.failed[0]
    assert "diverged" in failed.reason and "step 2" in failed.reason
    recorded = Results(places.out).failures
    assert list(recorded["recipe"]) == [diverging.recipe] and list(recorded["reason"]) == [failed.reason]
    assert "Traceback" in Path(recorded["log"][0]).read_text()
    again = reproduce(runs, places)
    assert again.failed_before == [failed.run_id] and not again.results
    retried = reproduce(runs, places, retry_failed=True)
    assert [result.run_id for result in retried.failed] == [failed.run_id]


def test_behind_a_run_that_lacked_something_no_other_is_begun(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fpl.sweep import job

    begun: list[str] = []

    def full(asked: Job, on_report: object) -> JobResult:
        begun.append(asked.run_id)
        if len(begun) == 2:
            return job.lacking(asked.run_id, "no space is left")
        return run_job(asked)

    monkeypatch.setattr(job, "run_job", full)
    account = reproduce([wanted(changed(config, loss={"threshold": 0.1 * n})) for n in range(4, 8)], places)
    assert len(begun) == 2 and account.done == begun[:1] and not account.failed
    left = [result for result in account.results.values() if result.lacked]
    assert len(left) == 3 and {result.reason for result in left} == {"no space is left"}
    assert not len(Results(places.out).failures)


def test_success_takes_the_failure_off_the_record(config: RunConfig, places: Places) -> None:
    pinned, *_ = pin(config, places)
    path = failure_path(places.out, run_id(pinned))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"anything")
    account = reproduce([wanted(config)], places, retry_failed=True)
    assert len(account.done) == 1 and not path.exists()


def test_a_worker_that_sees_other_data_refuses(config: RunConfig, places: Places) -> None:
    pinned, *_ = pin(config, places)
    other = changed(config, loss={"threshold": 0.8})
    job = Job(run_id(pinned), other.model_dump(mode="json"), places, Execution())
    result = run_job(job)
    assert (result.status, result.lacked) == ("stopped", True) and "planned as" in result.reason
    assert not run_path(places.out, run_id(pinned)).exists()


@pytest.mark.parametrize(("gpus", "device"), [(0, "cpu"), (1, "auto")])
def test_a_run_to_which_no_gpu_was_given_takes_none(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch, gpus: int, device: str
) -> None:
    taken: list[str] = []

    def run_local(*_: object, device: str, **__: object) -> None:
        taken.append(device)
        raise StoppedError("enough is known")

    monkeypatch.setattr("fpl.sweep.job.run_local", run_local)
    assert run_job(Job.pinned(config, places, Execution(gpus_per_worker=gpus))).status == "stopped"
    assert taken == [device]


def test_noise_of_a_deterministic_machine_is_zero(config: RunConfig, places: Places) -> None:
    run = wanted(config, "table.row.column")
    account = measure_noise(run, 2, places, Execution(local=True), estimate=lambda run: 1.0, say=lambda text: None)
    assert len(account.results) == 2
    noise = Results(places.out).noise
    assert list(noise["repeat"]) == [0, 1] and set(noise["recipe"]) == {run.recipe}
    assert noise["miou_whole_last"].nunique() == 1 and noise["miou_whole_last"].notna().all()
    # The repetitions answer for no cell.
    assert not run_path(places.out, noise["run_id"][0]).exists()
    target, taken = places.out.with_name("published"), set(noise["run_id"])
    assert publish_runs(places.out, target, taken) == Published(same=0, new=0, gone=0, repeated=True)
    again = publish_runs(places.out, target, taken)
    assert (again, again.changed) == (Published(same=0, new=0, gone=0), False)


def test_published_store_reads_the_same(config: RunConfig, places: Places, tmp_path: Path) -> None:
    reproduce([wanted(config), wanted(changed(config, loss={"threshold": 0.8}))], places)
    before = Results(places.out)
    assert publish_runs(places.out, tmp_path / "published", set(before.runs["run_id"])).new == 2
    after = Results(tmp_path / "published")
    for name in ("runs", "history", "classes", "fuzziness", "failures", "noise"):
        pd.testing.assert_frame_equal(getattr(before, name), getattr(after, name))
    found = difference(before.runs, after.runs)
    assert found.both == 2 and found.differ.empty
    shifted = after.runs.assign(miou_whole_last=after.runs["miou_whole_last"] + [0.5, 0.0])
    found = difference(before.runs, shifted)
    assert list(found.differ["run_id_ours"]) == [after.runs["run_id"][0]] == [found.run_id]
    assert found.points == pytest.approx(0.5)


def test_work_goes_on_in_what_was_published(config: RunConfig, places: Places, tmp_path: Path) -> None:
    runs = [wanted(config), wanted(changed(config, loss={"threshold": 0.8}))]
    (done,) = reproduce(runs[:1], places).done
    published = replace(places, out=tmp_path / "published")
    assert not is_done(published.out, done)
    publish_runs(places.out, published.out, {done})
    found = reproduce(runs, published)
    assert found.before == [done] and len(found.results) == 1
    # The published run gets no file of its own.
    assert {path.stem for path in (published.out / "runs").glob("*.parquet")} == {"all", *found.results}
    assert run_row(run_path(published.out, done)) == run_row(run_path(places.out, done))
    assert len(Results(published.out).runs) == 2


def test_inputs_are_made_once(config: RunConfig, places: Places, tmp_path: Path) -> None:
    fresh = replace(places, splits_root=tmp_path / "lists", weights_dir=tmp_path / "weights")
    said: list[str] = []
    thirds = changed(config, data={"split": {"fraction": "1/3"}})
    make_inputs([config, thirds], fresh, said.append)
    assert len(said) == 1 and "2 splits" in said[0]
    assert pin(config, fresh)[0] == pin(config, places)[0]
    make_inputs([config, thirds], fresh, said.append)
    assert len(said) == 1


@pytest.mark.parametrize("columns", [70, 80, 200])
def test_lines_of_the_view_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "synthetic_city-cps-cutmix-fpl-tiny-every-nth-1_16-s0-879315a6"
    stream = io.StringIO()
    with View({name: 10.0, "b": 3e5}, {name: 5, "b": 5}, before=196, stream=stream) as view:
        view.started(name)
        view._began -= 20.0
        view.ended(JobResult(name, "done", metrics={"miou_whole_last": 12.5, "miou_whole_best": 13.0}))
    (line,) = stream.getvalue().splitlines()
    assert len(line) <= columns and "879315a6 mIoU 12.50 (best 13.00)" in line and "left " in line
    assert (name in line) == (columns == 200)


def test_view_prints_a_line_per_run_with_the_time_left() -> None:
    stream = io.StringIO()
    with View({"a": 10.0, "b": 30.0, "c": 60.0}, {"a": 5, "b": 5, "c": 5}, before=7, stream=stream) as view:
        assert view.remaining() is None
        view.started("a")
        view.reported("a", 5, {"miou": 12.5})
        view._began -= 20.0  # twenty seconds for a tenth of the work
        view.ended(JobResult("a", "done", metrics={"miou_whole_last": 12.5, "miou_whole_best": 13.0}))
        assert view.remaining() == pytest.approx(180.0, rel=0.01)
        view.started("b")
        view.ended(JobResult("b", "failed", "out of memory"))
    first, second = stream.getvalue().splitlines()
    assert first.startswith("[ 8/10] a mIoU 12.50 (best 13.00)") and first.endswith("left 3:00")
    assert "FAILED: out of memory" in second


def test_runs_keep_as_many_pictures_as_figures_show() -> None:
    figures = load_figures(Path(__file__).parents[2] / "experiments")
    assert max(figure.figure.options.get("images", 0) for figure in figures) == EXAMPLES


def test_unknown_launch_key_is_refused() -> None:
    with pytest.raises(FplError, match="worker"):
        Execution.of_scale({"worker": 3})
    assert Execution.of_scale({"gang": ["a.b"], "gang_workers": 4}, threads=None) == Execution(gang_workers=4)
    # Never is a wish of its own.
    assert Execution.of_scale({"diagnose_every": 10}, diagnose_every=0).diagnose_every == 0


@pytest.mark.parametrize(
    ("launch", "hint"),
    [
        ({"launcher": "foo"}, "'inline', 'gang' or 'train'"),
        ({"checkpoint_every": 0}, "greater than or equal to 1"),
        ({"checkpoint_every": "x"}, "a valid integer"),
        ({"gang_workers": "x"}, "a valid integer"),
        ({"max_failures": -1}, "greater than or equal to 0"),
        ({"workers": "two"}, "a valid integer"),
        ({"threads": True}, "a valid integer"),
        ({"gpus_per_worker": float("nan")}, "a finite number"),
        ({"gang": "table1"}, "a valid list"),
    ],
    ids=str,
)
def test_what_a_scale_may_not_say(launch: dict[str, object], hint: str) -> None:
    ((key, value),) = launch.items()
    told = "true" if value is True else repr(value)
    with pytest.raises(FplError) as raised:
        Execution.of_scale(launch, "scale/x.toml")
    assert raised.value.message.startswith(f"scale/x.toml: [launch] {key} = {told} is not allowed\n  -> ")
    assert hint in raised.value.hint


def test_the_keys_of_launch_are_those_of_an_execution() -> None:
    own = {field.name for field in fields(Execution)} - {"left_out"}
    with pytest.raises(FplError) as raised:
        Execution.of_scale({"left_out": []})
    assert set(raised.value.hint.removeprefix("known: ").split(", ")) == own | {"gang"}


def test_hours_are_of_what_a_run_keeps_busy() -> None:
    assert Execution(cpus_per_worker=2).devices == 2
    assert Execution(launcher="gang", workers=3, gpus_per_worker=1, cpus_per_worker=4).devices == 3
    assert Execution(launcher="gang", workers=2, cpus_per_worker=0).devices == 2


def test_workers_where_runs_have_one_process_are_refused() -> None:
    with pytest.raises(FplError, match="--workers: 3 workers per run"):
        Execution.of_scale({}, workers=3)
    with pytest.raises(FplError, match="--local"):
        Execution.of_scale({"launcher": "train"}, workers=3, local=True)
    assert Execution.of_scale({}, workers=3, launcher="gang").workers == 3
    # What the scale has for its own launcher is no wish.
    assert Execution.of_scale({"launcher": "train", "workers": 8}, launcher="inline").workers == 1
    assert Execution.of_scale({"launcher": "train", "workers": 8, "cpus_per_worker": 0}, local=True).workers == 1


@pytest.mark.parametrize(("name", "value"), [("address", "auto"), ("launcher", "gang"), ("concurrency", 2)])
def test_what_is_rays_is_refused_without_ray(name: str, value: Any) -> None:
    with pytest.raises(FplError, match=f"--local with --{name} {value}: runs without Ray"):
        Execution.of_scale({}, local=True, **{name: value})
    # What the scale says is no wish, and what comes to the same is none either.
    assert Execution.of_scale({"launcher": "gang", "concurrency": 2}, local=True).local
    assert Execution.of_scale({}, local=True, launcher="inline", concurrency=1).local
