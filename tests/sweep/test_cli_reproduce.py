"""The command `fpl reproduce` from its arguments to its files, without Ray."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fpl import load_results
from fpl.cli import app
from fpl.errors import FplError
from fpl.store.read import Results
from fpl.sweep.places import Places
from tests.conftest import RUN

TABLE = """
[table]
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


def test_trains_prints_and_publishes_once(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    first = run()
    assert first.exit_code == 0, first.output
    assert "2 trained now" in first.output and "paper 61.00" in first.output
    published = folder / "results" / "little"
    assert sorted(load_results(published).runs["loss.kind"]) == ["ce", "fpl"]
    page = (published / "index.html").read_text()
    assert "FPL+CPS" in page and "2 of 2 runs done" in page
    environment = (published / "ENVIRONMENT").read_text()
    assert "2 runs" in environment
    second = run()
    assert "2 runs were done before, 0 trained now" in second.output
    assert (published / "ENVIRONMENT").read_text() == environment


def test_a_part_is_not_published(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    assert run("small.fpl").exit_code == 0
    assert not (folder / "results").exists()
    assert list(load_results(folder / "runs" / "little").runs["loss.kind"]) == ["fpl"]


def test_new_results_get_a_new_environment_and_are_compared(run, folder: Path) -> None:  # type: ignore[no-untyped-def]
    run()
    place = folder / "results" / "little" / "ENVIRONMENT"
    place.write_text("commit: of somebody else")
    (folder / "runs").rename(folder / "gone")
    again = run()
    assert "miou_whole_best: 2 of 2 runs equal the results published before to the last bit" in again.output
    assert "somebody else" not in place.read_text()


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
    assert run("noise", "--repeats", "2").exit_code == 0
    noise = Results(folder / "runs" / "little").noise
    assert list(noise["repeat"]) == [0, 1] and set(noise["cell"]) == {"small.fpl.quarter"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=3"], "--seeds"),
        (["nothing"], "no table"),
        (["noise", "small"], "noise goes alone"),
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
