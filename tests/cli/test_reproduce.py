"""The command `fpl reproduce` from its arguments to its files, without Ray."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from fpl import load_results
from fpl.cli.main import app
from fpl.errors import FplError
from fpl.store.read import Results
from fpl.store.write import write_table
from fpl.sweep.places import Places
from fpl.sweep.plan.capacity import processor_name
from tests.conftest import RUN

TABLE = """
[table]
recipe = "cps"
name = "small"
number = "1"
caption = "Two rows."
dataset = "synthetic_city"

[[columns]]
key = "quarter"
header = "1/4"

[[rows]]
key = "cps"
label = "CPS"
role = "baseline"
set.loss.kind = "ce"
values = [60.0]

[[rows]]
key = "fpl"
label = "FPL+CPS"
role = "proposed"
over = "cps"
set.loss.kind = "fpl"
threshold = 0.9
values = [61.0]
arrows = [1.0]
"""
SCALE = """
[scale]
name = "little"
comparable = false
noise = "small.fpl.quarter"
[train]
steps = 2
evaluate_every = 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (
        ("base/synthetic_city_cps.toml", RUN),
        ("tables/small.toml", TABLE),
        ("scale/little.toml", SCALE),
    ):
        path = tmp_path / "experiments" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, data_places: Places):  # type: ignore[no-untyped-def]
    def call(*arguments: str) -> Result:
        places = ["--data-root", str(data_places.data_root), "--splits", str(data_places.splits_root)]
        return CliRunner().invoke(app, ["reproduce", *arguments, "--scale", "little", "--local", *places])

    return call


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_trains_prints_and_shows_in_its_own_folder(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    first = run()
    assert first.exit_code == 0, first.output
    assert "2 trained now" in first.output and "paper 61.00" in first.output
    # Where to look is said before the first run begins.
    assert 0 <= first.output.find("tables and page, while it works") < first.output.find("[1/2]")
    own = folder / "runs" / "little"
    assert sorted(load_results(own).runs["loss.kind"]) == ["ce", "fpl"]
    page = (own / "index.html").read_text()
    assert "FPL+CPS" in page and "2 of 2 runs done" in page
    assert "2 runs" in (own / "ENVIRONMENT").read_text()
    before = content(own)
    second = run()
    assert "2 runs were done before, 0 trained now" in second.output
    # Nothing was done: nothing is written.
    assert content(own) == before
    assert not (folder / "results").exists()


def test_a_gpu_on_which_nothing_ran_is_not_named(  # type: ignore[no-untyped-def]
    run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("small.cps").exit_code == 0
    place = folder / "runs" / "little" / "ENVIRONMENT"
    place.unlink()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert run("small.cps").exit_code == 0
    assert f"machine: {processor_name()}, " in place.read_text()


def test_publishing_leaves_what_is_equal(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    published = folder / "results" / "little"
    done = run("--publish", str(published))
    assert done.exit_code == 0, done.output
    assert f"published in {published}: 2 new, 0 as they were, 0 taken out" in done.output
    place = published / "ENVIRONMENT"
    place.write_text("commit: of somebody else\ncpu instructions: AVX9\n")
    run("--publish", str(published))
    before = content(published)
    # Trained anew: other times, the same results.
    (folder / "runs").rename(folder / "gone")
    again = run("--publish", str(published))
    assert "2 of 2 runs equal the published ones in " in again.output and "0 new, 2 as they were" in again.output
    assert content(published) == before and "somebody else" in place.read_text()


def test_what_differs_is_counted_and_explained(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    published = folder / "results" / "little"
    run("--publish", str(published))
    table = pq.read_table(published / "runs" / "all.parquet").to_pylist()
    table[0] |= {"miou_whole_best": table[0]["miou_whole_best"] + 0.5, "torch": "1.0", "commit": "0123"}
    write_table(published / "runs" / "all.parquet", "runs", table)
    environment = published / "ENVIRONMENT"
    environment.write_text("cpu instructions: AVX9\n")
    output = " ".join(run().output.split())
    assert "1 of 2 runs equal the published ones in results/little to the last bit; 1 differs, by up to 0.50" in output
    assert "torch: " in output and "1.0 there" in output and "0123 there" in output
    assert "cpu instructions: " in output and "AVX9 there" in output and "threads: " not in output
    # The new result is published, with where it was made; the other one stays.
    assert "1 new, 1 as they were" in run("--publish", str(published)).output
    assert "AVX9" not in environment.read_text()


def test_what_cannot_be_published_into_is_refused_before_any_run(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    (folder / "notes").write_text("mine")
    done = run("--publish", str(folder / "notes"))
    assert isinstance(done.exception, FplError) and "a folder is needed" in done.exception.what
    assert not (folder / "runs" / "little" / "runs").exists() and (folder / "notes").read_text() == "mine"


def test_an_environment_that_is_no_text_is_shown_as_it_can_be(  # type: ignore[no-untyped-def]
    run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = folder / "results" / "little"
    run("--publish", str(published))
    (published / "ENVIRONMENT").write_bytes(b"cpu instructions: AVX\xff\n")
    # As the shell hands over what is not UTF-8.
    monkeypatch.setattr(sys, "argv", ["fpl", "reproduce", "--out", "nu\udce9"])
    (folder / "runs").rename(folder / "gone")
    assert run().exit_code == 0
    assert "--out nu" in (folder / "runs" / "little" / "ENVIRONMENT").read_text()


def test_a_part_leaves_what_else_is_published(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    published = folder / "results" / "little"
    run("--publish", str(published))
    (folder / "runs").rename(folder / "gone")
    assert "0 new, 1 as they were, 0 taken out" in run("small.fpl", "--publish", str(published)).output
    assert len(load_results(published).runs) == 2
    own = folder / "runs" / "little"
    assert list(load_results(own).runs["loss.kind"]) == ["fpl"]
    assert "1 of 2 runs done" in (own / "index.html").read_text()


def test_all_rows_measure_the_noise_floor_too(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    assert run("--rows", "all", "--repeats", "2").exit_code == 0
    assert len(Results(folder / "runs" / "little").noise) == 2


def test_an_override_leaves_the_baseline_alone(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    assert run("small.fpl", "loss.kind=soft").exit_code == 0
    assert run("small.cps").exit_code == 0
    assert sorted(load_results(folder / "runs" / "little").runs["loss.kind"]) == ["ce", "soft"]


def test_doubtful_settings_are_told_before_training(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    output = run("method.weight=0.0").output
    warning, done = output.find("warning: 2 runs: method.weight = 0: the unlabeled"), output.find("2 trained now")
    assert 0 <= warning < done


def test_a_failure_is_told_and_the_others_are_shown(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    assert run("small.cps").exit_code == 0
    failed = run("optim.lr=1e30")
    assert failed.exit_code == 1 and "diverged" in failed.output
    results = Results(folder / "runs" / "little")
    assert len(results.failures) == 2 and len(results.runs) == 1
    assert "--retry-failed" in run("optim.lr=1e30").output


def test_noise_repeats_the_run_of_the_scale(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    # Scripts that submit a job always name a number of seeds.
    assert run("noise", "--repeats", "2", "--seeds", "1").exit_code == 0
    noise = Results(folder / "runs" / "little").noise
    assert list(noise["repeat"]) == [0, 1] and set(noise["cell"]) == {"small.fpl.quarter"}


def test_the_log_of_a_repetition_is_its_own(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    failed = run("noise", "optim.lr=1e30", "--repeats", "2")
    logs = re.findall(r"^failed: .* \(log: (.*)\)$", failed.output, re.MULTILINE)
    assert failed.exit_code == 1 and [Path(log).parts[-4:-1] for log in logs] == [
        ("repeats", "0", "logs"),
        ("repeats", "1", "logs"),
    ]
    assert all("Traceback" in Path(log).read_text() for log in logs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=3"], "--seeds"),
        (["nothing"], "no table"),
        (["noise", "small"], "noise goes alone"),
        (["noise", "--seeds", "2"], "--seeds 2: noise repeats one run with one seed"),
        (["noise", "--publish", "results/little"], "--publish results/little: repetitions are published with"),
        (["--publish", "runs/../runs/little"], "cannot be published into their own store"),
        (["small", "--repeats", "2"], "--repeats 2: nothing is repeated"),
        (["loss.threshold=0.8", "--publish", "results/little"], "as they stand in experiments/"),
        (["--workers", "3"], "3 workers per run"),
        (["--data-root", "elsewhere", "data.dataset=camvid", "data.num_classes=11"], "cannot start"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    run,
    folder: Path,
    arguments: list[str],
    message: str,  # type: ignore[no-untyped-def]
) -> None:
    refused = run(*arguments)
    assert isinstance(refused.exception, FplError) and message in str(refused.exception)
    assert not (folder / "runs").exists()
