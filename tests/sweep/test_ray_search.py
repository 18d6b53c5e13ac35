"""`fpl search` with real Ray and Optuna: killed in the middle and continued, and once more on Ray Train's workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from fpl.store.read import Results
from fpl.store.trials import TrialRow, read_trials
from fpl.sweep.places import Places
from tests.signals import popen
from tests.sweep.ray_support import kill, wait_until
from tests.sweep.search_world import write_experiments

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1500)]

# Half of the trials diverge.
DIVERGING = """
[[space]]
key = "optim.lr"
choices = [0.05, 1e30]
"""


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


def test_a_killed_search_is_continued_without_repeating_what_is_done(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    write_experiments(tmp_path, steps=12, more=DIVERGING)
    out = tmp_path / "out"
    most = 0

    def half_way() -> bool:
        nonlocal most
        rows = rows_in(out)
        most = max(most, sum(row.state == "running" for row in rows))
        ended = sum(row.state != "running" for row in rows)
        return ended >= 2 and any(row.state == "running" and row.step for row in rows)

    first = start("--budget", "8trials", "--cpus-per-worker", "1")
    assert wait_until(half_way, 600), first.communicate()[0]
    kill([first.pid])
    first.wait()
    before = {row.number: row for row in rows_in(out)}
    made = {path: path.stat().st_mtime_ns for path in (out / "runs").glob("*.parquet")}

    second = start("--budget", "8trials", "--cpus-per-worker", "1")
    printed = second.communicate()[0]
    rows = rows_in(out)
    assert [row.number for row in rows] == list(range(8)), printed
    assert {row.state for row in rows} <= {"complete", "pruned", "failed"}, printed
    assert second.returncode == 0, printed
    assert most <= (os.cpu_count() or 1)
    for number, row in before.items():
        assert rows[number].params == row.params
        if row.state != "running":
            assert rows[number] == row
    assert {path: path.stat().st_mtime_ns for path in made} == made
    failed = [row for row in rows if row.params["optim.lr"] == 1e30]
    assert failed and {row.state for row in failed} == {"failed"}
    complete = [row for row in rows if row.state == "complete"]
    runs = Results(out).runs.set_index("run_id")
    for row in complete:
        assert row.score == runs.loc[row.run_ids[0], "miou_whole_best"]
        assert row.params["optim.lr"] == 0.05
    frame = Results(out).search("tiny")
    assert frame["score"].idxmax() in frame.index[frame["state"] == "complete"]


def test_a_holdout_search_on_ray_train_ends_with_a_number_that_nothing_was_chosen_by(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, tracked = tmp_path / "journal.log", tmp_path / "tracked.jsonl"
    monkeypatch.setenv("TRACKED", str(tracked))
    shown = ["--tensorboard", "--callback", "tests.sweep.tracker:Tracker", "--export", str(journal)]
    head = 'protocol = "holdout"\nholdout = 3\nseeds = 2\nstop = "median"'
    write_experiments(tmp_path, steps=4, head=head)
    process = start("--budget", "2trials", "--launcher", "gang", "--workers", "2", *shown)
    printed = process.communicate()[0]
    assert process.returncode == 0, printed
    *trials, final = rows_in(tmp_path / "out")
    assert [row.state for row in trials] == ["complete"] * 2
    assert {len(row.run_scores) for row in trials} == {2}
    best = max(trials, key=lambda row: row.score or 0.0)
    assert (final.state, final.params, final.origin) == ("final", best.params, f"trial {best.number}")
    runs = Results(tmp_path / "out").runs.set_index("run_id")
    assert set(runs.loc[[run for row in trials for run in row.run_ids], "workers"]) == {2}
    assert set(runs.loc[final.run_ids, "validation_images"]) == {3}
    assert set(runs.loc[trials[0].run_ids, "validation_images"]) == {1}
    # The best step of a run is chosen by the images of validation: the final number is of the last step.
    assert final.score == pytest.approx(runs.loc[final.run_ids, "miou_whole_last"].mean())
    # All runs in one folder, each written by one of its two workers.
    written = [path.parent.name for path in (tmp_path / "out/tensorboard").rglob("events*")]
    assert sorted(written) == sorted(runs.index)
    said = [json.loads(line) for line in tracked.read_text().splitlines()]
    began = {line["began"]: line["settings"] for line in said if "began" in line}
    names = [f"{row.study}-{row.number}" for row in trials]
    assert set(began) == {*names, *final.run_ids}
    assert [began[name] for name in names] == [row.params for row in trials]
    settings = began[final.run_ids[1]]
    assert (settings["seed"], settings["loss"]["strategy"]) == (1, final.params["loss.strategy"])
    assert {line["run"] for line in said if line.get("miou") is not None} >= set(runs.index)
    storage = JournalStorage(JournalFileBackend(str(journal)))
    exported = optuna.load_study(study_name=final.study, storage=storage).trials
    assert [trial.value for trial in exported] == [row.score for row in trials]
