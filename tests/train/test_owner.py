"""Files of one run in the place of another: refused by both names wherever a run's files are read or replaced."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import fpl
from fpl.cli.main import main
from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.sweep.places import Places
from fpl.train.checkpoint import load, save
from fpl.train.trained import find_weights, load_trained
from tests.train.runs import elsewhere, killed, resumed_at, rewritten, run

CPU = torch.device("cpu")
OTHER_SEED = ["seed=1"]


@pytest.fixture(scope="module")
def two_runs(run_file: Path, data_places: Places, tmp_path_factory: pytest.TempPathFactory) -> Places:
    """A store with two finished runs that differ in their seed."""
    places = dataclasses.replace(data_places, out=tmp_path_factory.mktemp("two") / "out")
    for overrides in ([], OTHER_SEED):
        run(load_config(run_file, overrides=overrides), places)
    return places


@pytest.fixture
def pair(two_runs: Places, places: Places) -> tuple[Path, Path]:
    """The folders of the two in a store of this test's own."""
    shutil.copytree(two_runs.out, places.out)
    own, other = sorted((places.out / "checkpoints").iterdir())
    assert "-s0-" in own.name and "-s1-" in other.name
    return own, other


@pytest.fixture(scope="module")
def begun_too(run_file: Path, data_places: Places, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the other run, killed at step 4."""
    places = dataclasses.replace(data_places, out=tmp_path_factory.mktemp("begun_too") / "out")
    return killed(load_config(run_file, overrides=OTHER_SEED), places, after=4).folder


def one_file(own: Path, other: Path) -> None:
    shutil.copy(other / "best.pt", own / "best.pt")


def whole_folder(own: Path, other: Path) -> None:
    shutil.rmtree(own)
    other.rename(own)


@pytest.mark.parametrize("put", [one_file, whole_folder])
@pytest.mark.parametrize("by_path", [False, True])
def test_weights_of_another_run_do_not_pass_as_its_own(
    pair: tuple[Path, Path],
    places: Places,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    put: Callable[[Path, Path], None],
    by_path: bool,
) -> None:
    own, other = pair
    named = str(own / "best.pt") if by_path else own.name
    assert fpl.load_model(named, out=places.out).step
    put(own, other)
    with pytest.raises(FplError) as caught:
        fpl.load_model(named, out=places.out)
    said = [caught.value.message]
    for line in (
        ["eval", named, "--data-root", str(places.data_root)],
        ["predict", named, str(places.data_root), str(places.out / "seen")],
    ):
        monkeypatch.setattr(sys, "argv", ["fpl", *line, "--out", str(places.out), "--device", "cpu", "--threads", "1"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        said.append(capsys.readouterr().err)
    for message in said:
        assert f"holds weights of run {other.name}, in the place of run {own.name}" in message
        assert str(own / "best.pt") in message and "->" in message
    assert not (places.out / "seen").exists()


def test_a_link_to_the_weights_of_another_run_is_no_way_round(pair: tuple[Path, Path]) -> None:
    own, other = pair
    (own / "best.pt").unlink()
    (own / "best.pt").symlink_to(other / "best.pt")
    with pytest.raises(FplError, match=other.name):
        load_trained(own / "best.pt", CPU)


def test_weights_elsewhere_may_be_anybodys(pair: tuple[Path, Path], tmp_path: Path) -> None:
    own, _ = pair
    shutil.copy(own / "best.pt", tmp_path / "favourite.pt")
    assert load_trained(tmp_path / "favourite.pt", CPU).step == load_trained(own / "best.pt", CPU).step


def test_a_file_of_before_is_known_by_its_configuration(pair: tuple[Path, Path], places: Places) -> None:
    own, other = pair
    for path in (own / "best.pt", own / "last.pt", other / "best.pt"):
        rewritten(path, lambda state: state.pop("run"), listed=True)
    assert load_trained(find_weights(places.out, own.name, None), CPU).step
    # Another version may give other digits to the same configuration.
    moved = own.with_name(f"{own.name[:-8]}00000000")
    own.rename(moved)
    assert load_trained(moved / "last.pt", CPU).step == 6
    shutil.copy(other / "best.pt", moved / "best.pt")
    with pytest.raises(FplError, match=f"holds weights of run {other.name}, in the place of run {moved.name}"):
        load_trained(moved / "best.pt", CPU)


def test_a_configuration_that_was_edited_is_no_longer_that_of_the_run(pair: tuple[Path, Path], tmp_path: Path) -> None:
    own, _ = pair
    # A copy lies in nobody's place, where only the file itself tells.
    for path in (own / "best.pt", shutil.copy(own / "last.pt", tmp_path / "mine.pt")):
        rewritten(path, lambda state: state.update(config=state["config"].replace('"seed":0', '"seed":7')), listed=True)
        with pytest.raises(FplError, match=f"is not that of run {own.name}"):
            load_trained(path, CPU)


@pytest.mark.parametrize("value", [3, None, torch.zeros(2), ["a"], "\x1b" * 10**6, "a-s0-00000000"])
def test_an_id_that_is_none(pair: tuple[Path, Path], value: object) -> None:
    own, _ = pair
    rewritten(own / "best.pt", lambda state: state.update(run=value), listed=True)
    with pytest.raises(FplError, match=r"of run|no id of a run") as caught:
        load_trained(own / "best.pt", CPU)
    assert str(own / "best.pt") in caught.value.message and len(caught.value.message) < 900


@pytest.mark.parametrize("told", [True, False])
def test_best_weights_of_another_run_lead_to_the_checkpoint_before(
    config: RunConfig,
    places: Places,
    begun: Places,
    begun_too: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: bool,
) -> None:
    shutil.copytree(begun.out, places.out)
    (own,) = (places.out / "checkpoints").iterdir()
    best = own / "best_00000003.pt"
    shutil.copy(begun_too / best.name, best)
    if not told:
        rewritten(best, lambda state: state.pop("run"), listed=True)
    message, said = resumed_at(config, places, monkeypatch)
    assert "stopped at step 2 of 6" in message
    assert f"{best.name}, are of run {begun_too.name}, and this is run {own.name}" in said


@pytest.mark.parametrize("told", [True, False])
def test_checkpoints_of_another_run_are_not_continued(
    config: RunConfig, places: Places, begun: Places, begun_too: Path, told: bool
) -> None:
    shutil.copytree(begun.out, places.out)
    (own,) = (places.out / "checkpoints").iterdir()
    shutil.rmtree(own)
    shutil.copytree(begun_too, own)
    if not told:
        for path in own.glob("step_*.pt"):
            rewritten(path, lambda state: state.pop("run"), listed=True)
    before = {path: path.read_bytes() for path in own.glob("*.pt")}
    with pytest.raises(FplError, match="belongs to another configuration") as caught:
        run(config, places)
    assert f"this is run {own.name}" in caught.value.what and (begun_too.name in caught.value.what) == told
    assert before == {path: path.read_bytes() for path in own.glob("*.pt")}


def test_a_checkpoint_that_says_two_runs(
    config: RunConfig, places: Places, begun: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(begun.out, places.out)
    (own,) = (places.out / "checkpoints").iterdir()
    rewritten(own / "step_00000004.pt", lambda state: state.update(run="another"), listed=True)
    message, said = resumed_at(config, places, monkeypatch)
    assert "stopped at step 2 of 6" in message and f"of run another, and this is run {own.name}" in said


def test_checkpoints_of_before_are_continued(
    config: RunConfig, places: Places, begun: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(begun.out, places.out)
    for path in (places.out / "checkpoints").glob("*/*.pt"):
        rewritten(path, lambda state: state.pop("run"), listed=True)
    message, said = resumed_at(config, places, monkeypatch)
    assert "stopped at step 4 of 6" in message and "before it" not in said


def test_finished_weights_of_another_run_are_not_written_over(
    config: RunConfig, pair: tuple[Path, Path], places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = pair
    whole_folder(own, other)
    (places.out / "runs" / f"{own.name}.parquet").unlink()
    before = {path: path.read_bytes() for path in own.glob("*.pt")}
    message, _ = resumed_at(config, places, monkeypatch)
    assert f"is a file of run {other.name}, in the place of run {own.name}, and would be written over" in message
    assert before == {path: path.read_bytes() for path in own.glob("*.pt")}


def test_a_finished_run_does_not_take_or_remove_checkpoints_of_another(
    config: RunConfig, pair: tuple[Path, Path], places: Places, begun_too: Path
) -> None:
    own, other = pair
    shutil.copytree(begun_too, own, dirs_exist_ok=True)
    before = {path: path.read_bytes() for path in own.glob("*.pt")}
    with pytest.raises(FplError, match=f"of run {other.name}, in the place of run {own.name}, and would be removed"):
        run(config, places)
    assert before == {path: path.read_bytes() for path in own.glob("*.pt")} and len(before) == 5


def test_a_damaged_file_is_nobodys(config: RunConfig, places: Places) -> None:
    other = elsewhere(places, "other")
    own = other.out / "checkpoints" / run(config, other).stem
    folder = places.out / "checkpoints" / own.name
    folder.mkdir(parents=True)
    (folder / "best.pt").write_bytes(b"cut")
    save(folder / "last.pt", {**load(own / "last.pt"), "step": 1})
    run(config, places)
    assert load(folder / "best.pt")["run"] == load(folder / "last.pt")["run"] == own.name
    assert load(folder / "last.pt")["step"] == 6
