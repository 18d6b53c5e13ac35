"""`fpl search` with real Ray and Optuna: killed in the middle, continued, and ended with a number of its own images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import optuna
import pyarrow.parquet as pq
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import fpl
from fpl.store.read import Results
from fpl.store.trials import TrialRow, read_trials
from fpl.store.write import run_path
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job, run_job
from fpl.sweep.places import Places
from tests.signals import popen
from tests.sweep.ray_support import assert_same_weights, at, kill, wait_until
from tests.sweep.search_world import write_experiments

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1500)]

HEAD = 'protocol = "holdout"\nholdout = 3\nseeds = 2\nstop = "median"'
# Two of three trials diverge, but for those that are points of the table.
DIVERGING = """
[[space]]
key = "optim.lr"
choices = [0.05, 1e29, 1e30]
"""


@dataclass
class Made:
    """What is there: trials and runs when the search was killed, and its files in the end."""

    out: Path
    before: dict[int, TrialRow]
    done: dict[Path, int]
    tracked: Path
    journal: Path


@pytest.fixture
def start(tmp_path: Path, data_places: Places) -> Callable[..., subprocess.Popen[str]]:
    def call(*arguments: str) -> subprocess.Popen[str]:
        experiments = str(tmp_path / "experiments")
        places = ["--data-root", str(data_places.data_root), "--splits", str(data_places.splits_root)]
        command = [sys.executable, "-m", "fpl", "search", "tiny", "--scale", "little", "--experiments", experiments]
        return popen(
            [*command, *places, "--out", str(tmp_path / "out"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    return call


def rows_in(out: Path) -> list[TrialRow]:
    studies = Results(out).studies["study"] if (out / "studies").is_dir() else []
    return [row for study in studies for row in read_trials(out, study)]


@pytest.fixture
def made(tmp_path: Path, start: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch) -> Made:
    """A search of five trials, killed when two are over and others at work, and what became of it."""
    write_experiments(tmp_path, steps=8, head=HEAD, more=DIVERGING)
    out, most = tmp_path / "out", 0

    def half_way() -> bool:
        nonlocal most
        rows = rows_in(out)
        most = max(most, sum(row.state == "running" for row in rows))
        ended = sum(row.state != "running" for row in rows)
        return ended >= 2 and any(row.state == "running" and row.step for row in rows)

    asked = ["--budget", "5trials", "--cpus-per-worker", "1", "--tensorboard"]
    # Held there: a run of eight steps is sooner over than anybody looks.
    first = start(*asked, "--callback", "tests.sweep.tracker:Holding")
    assert wait_until(lambda: half_way() or first.poll() is not None, 600) and half_way(), first.communicate()[0]
    kill([first.pid])
    first.wait()
    before = {row.number: row for row in rows_in(out)}
    done = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("*.parquet")}
    tracked, journal = tmp_path / "tracked.jsonl", tmp_path / "journal.log"
    monkeypatch.setenv("TRACKED", str(tracked))
    second = start(*asked, "--callback", "tests.sweep.tracker:Tracker", "--export", str(journal))
    printed = second.communicate()[0]
    assert second.returncode == 0, printed
    assert most <= (os.cpu_count() or 1)
    return Made(out, before, done, tracked, journal)


def test_a_killed_search_is_continued_without_repeating_what_is_done(made: Made, data_places: Places) -> None:
    *rows, final = rows_in(made.out)
    assert [row.number for row in rows] == list(range(5))
    for number, row in made.before.items():
        assert rows[number].params == row.params
        if row.state != "running":
            assert rows[number] == row
    assert {path: path.stat().st_mtime_ns for path in made.done} == made.done
    runs = fpl.load_results(made.out).runs.set_index("run_id")
    for row in rows:
        if row.params["optim.lr"] > 1:
            assert row.state == "failed"
        elif row.state == "complete":
            assert row.run_scores == list(runs.loc[row.run_ids, "miou_whole_best"])
        else:
            assert row.state == "pruned"
    assert {row.state for row in rows} >= {"failed", "complete"}
    frame = fpl.load_results(made.out).search("tiny")
    assert frame["score"].idxmax() in frame.index[frame["state"] == "complete"]
    _the_continued_are_as_undisturbed(made, data_places)
    _the_final_number_is_of_images_that_nothing_was_chosen_by(made, final, rows)
    _others_were_told(made, final, rows)


def _the_continued_are_as_undisturbed(made: Made, data_places: Places) -> None:
    continued = [path.stem for path in (made.out / "logs").glob("*.log") if "continuing at step" in path.read_text()]
    assert continued
    run_id = continued[0]
    config = json.loads(pq.read_table(run_path(made.out, run_id))["config"][0].as_py())
    del config["arithmetic"]
    there = Job(run_id, config, Places(made.out, data_places.data_root, data_places.splits_root), Execution())
    alone = at(there, made.out.parent / "alone")
    assert run_job(alone).status == "done"
    assert_same_weights(there, alone)


def _the_final_number_is_of_images_that_nothing_was_chosen_by(
    made: Made, final: TrialRow, rows: list[TrialRow]
) -> None:
    complete = [row for row in rows if row.state == "complete"]
    assert {len(row.run_scores) for row in complete} == {2}
    best = max(complete, key=lambda row: row.score or 0.0)
    assert (final.state, final.params, final.origin) == ("final", best.params, f"trial {best.number}")
    runs = fpl.load_results(made.out).runs.set_index("run_id")
    assert set(runs.loc[final.run_ids, "validation_images"]) == {3}
    assert set(runs.loc[best.run_ids, "validation_images"]) == {1}
    # The best step of a run is chosen by the images of validation: the final number is of the last step.
    assert final.score == pytest.approx(runs.loc[final.run_ids, "miou_whole_last"].mean())


def _others_were_told(made: Made, final: TrialRow, rows: list[TrialRow]) -> None:
    """TensorBoard's files, a callback of the user's, and an export for Optuna's dashboard."""
    runs = fpl.load_results(made.out).runs.set_index("run_id")
    written = {path.parent.name for path in (made.out / "tensorboard").rglob("events*")}
    assert written >= set(runs.index)
    said = [json.loads(line) for line in made.tracked.read_text().splitlines()]
    began = {line["began"]: line["settings"] for line in said if "began" in line}
    later = [row for row in rows if row.number not in made.before or made.before[row.number].state == "running"]
    assert set(began) == {*(f"{row.study}-{row.number}" for row in later), *final.run_ids}
    assert [began[f"{row.study}-{row.number}"] for row in later] == [row.params for row in later]
    settings = began[final.run_ids[1]]
    assert (settings["seed"], settings["loss"]["strategy"]) == (1, final.params["loss.strategy"])
    assert {line["run"] for line in said if line.get("miou") is not None} >= set(final.run_ids)
    storage = JournalStorage(JournalFileBackend(str(made.journal)))
    exported = optuna.load_study(study_name=final.study, storage=storage).trials
    assert [trial.value for trial in exported if trial.state.name == "COMPLETE"] == [
        row.score for row in rows if row.state == "complete"
    ]
