"""Whole runs on a tiny data set: what they leave, refuse and warn about."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fpl
from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.config.sections import OptimConfig
from fpl.data.spec import get_spec
from fpl.data.synthetic import draw_city
from fpl.data.validation import ValidationSet
from fpl.errors import FplError
from fpl.methods.optimizers import OptimizerSpec
from fpl.sweep import local
from fpl.sweep.local import epochs
from fpl.sweep.places import Places
from fpl.sweep.prepare import prepare
from fpl.train.checkpoint import CheckpointFolder
from fpl.train.runtime import TrainingError
from tests.train.runs import OPTIONS, run


def test_a_run_leaves_its_record(config: RunConfig, places: Places) -> None:
    path = run(config, places)
    results = fpl.load_results(places.out)
    row = results.runs.iloc[0]
    assert path.stem == row["run_id"] and row["data.dataset"] == "synthetic_city"
    assert 0 <= row["miou_whole_last"] <= row["miou_whole_best"] <= 100
    assert pd.isna(row["miou_sliding_last"])
    assert (row["labeled_images"], row["unlabeled_images"], row["validation_images"]) == (3, 9, 3)
    labels = ValidationSet(get_spec("synthetic_city"), places.data_root / "synthetic_city")
    assert row["pixels_counted"] == sum(int((label != 255).sum()) for _, _, label in labels)
    assert list(results.history.query("loss.notna()")["step"]) == [1, 2, 3, 4, 5, 6]
    assert list(results.history.query("miou.notna()")["step"]) == [3, 6]
    assert results.history["unsupervised_gradient_share"].dropna().between(0, 1).all()
    assert set(results.classes["choice"]) == {"last", "best"} and len(results.classes) == 38
    fuzziness = results.fuzziness
    assert set(fuzziness["direction"]) == {"12", "21"} and set(fuzziness["step"]) == {1, 2, 3, 4, 5, 6}
    assert (fuzziness["pixels"] == 4 * 40 * 40).all()
    assert (fuzziness["k_histogram"].map(sum) == fuzziness["pixels"]).all()
    assert fuzziness["mean_k"].between(1, 18).all()
    folder = places.checkpoints(path.stem)
    assert {file.name for file in folder.glob("*.pt")} == {"best.pt", "last.pt"}


def test_a_finished_run_is_not_trained_again(config: RunConfig, places: Places) -> None:
    said: list[str] = []
    path = run(config, places)
    before = path.stat().st_mtime_ns
    assert run(config, places, say=said.append) == path
    assert "is done" in said[0] and path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("steps", "images", "published"),
    [
        (1157 * 34, 9259, 34),  # VOC 1/8
        (1240 * 32, 9920, 32),  # VOC 1/16
        (325 * 137, 2603, 137),  # Cityscapes 1/8
    ],
)
def test_epochs_are_derived_from_steps(steps: int, images: int, published: int) -> None:
    assert epochs(steps, 8, images) == pytest.approx(published, rel=0.002)


def test_a_worker_that_ignores_its_settings_is_caught(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = local._train

    def deaf(prepared: Any, *arguments: Any) -> Any:
        default = prepared.config.model_copy(update={"seed": 99})
        return original(dataclasses.replace(prepared, config=default), *arguments)

    monkeypatch.setattr(local, "_train", deaf)
    with pytest.raises(FplError, match=r"asked for .*, trained digest"):
        run(config, places)
    assert not list(places.out.glob("runs/*.parquet"))


def test_learning_rate_is_a_function_of_the_step() -> None:
    optim = OptimConfig(lr=0.02, poly_power=0.9)
    assert OptimizerSpec.of(optim).rate(0, 100) == 0.02
    assert OptimizerSpec.of(optim).rate(50, 100) == pytest.approx(0.02 * 0.5**0.9)
    assert OptimizerSpec.of(optim).rate(99, 100) == pytest.approx(0.02 * 0.01**0.9)


def test_logged_rate_and_group_multiplier(run_file: Path, places: Places) -> None:
    run(load_config(run_file, overrides=["optim.head_lr_multiplier=2.0"]), places)
    rates = fpl.load_results(places.out).history.query("lr.notna()")["lr"]
    assert list(rates) == pytest.approx([0.05 * (1 - step / 6) ** 0.9 for step in range(6)])


def test_divergence_names_step_and_term_and_keeps_what_came_before(run_file: Path, places: Places) -> None:
    config = load_config(run_file, overrides=["optim.lr=1e18", "train.steps=20", "train.evaluate_every=20"])
    with pytest.raises(TrainingError) as caught:
        run(config, places, dataclasses.replace(OPTIONS, log_every=20, checkpoint_every=1))
    assert "loss became" in caught.value.what and "at step" in caught.value.what
    assert "supervised_1" in caught.value.what
    assert caught.value.exit_code == 1
    assert not list(places.out.glob("runs/*.parquet"))
    latest = CheckpointFolder(next((places.out / "checkpoints").iterdir())).latest()
    assert latest is not None  # the checkpoint of step 1, whose loss was finite


def test_labels_of_unlabeled_images_are_never_opened(config: RunConfig, places: Places) -> None:
    prepared = prepare(config, places)
    run(config, places)
    reads = prepared.images.label_reads
    assert set(reads) <= set(prepared.split.labeled)


def test_unlabeled_images_need_no_label_file(config: RunConfig, places: Places, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(places.data_root, root)
    copied = Places(places.out, root, root / "splits")
    prepared = prepare(config, places)
    for name in prepared.split.unlabeled:
        prepared.spec.label_path(root / "synthetic_city", "train", name).unlink()
    run(config, copied)
    assert fpl.load_results(places.out).runs["unlabeled_images"].item() == 9


def test_another_drawing_is_another_run(run_file: Path, places: Places, tmp_path: Path) -> None:
    config = load_config(run_file)
    draw_city(tmp_path / "synthetic_city", train=12, validation=3, size=(45, 60), seed=1)
    other = dataclasses.replace(places, data_root=tmp_path)
    first, second = prepare(config, places), prepare(config, other)
    assert first.split.labeled_digest == second.split.labeled_digest  # the ids say nothing about the drawing
    assert first.run_id != second.run_id
    with pytest.raises(FplError, match=r"data\.version pins"):
        prepare(first.config, other)


def test_wrong_class_count_is_refused_before_anything_starts(run_file: Path, places: Places) -> None:
    with pytest.raises(FplError, match=r"num_classes = 12, but synthetic_city has 19"):
        prepare(load_config(run_file, overrides=["data.num_classes=12"]), places)


def test_weight_zero_and_few_labels_are_warned_about(run_file: Path, places: Places) -> None:
    said: list[str] = []
    run(load_config(run_file, overrides=["method.weight=0.0"]), places, say=said.append)
    assert any("method.weight = 0" in line for line in said)
    assert any("repeat" in line for line in said)
    stored = list(fpl.load_results(places.out).runs["warnings"].item())
    assert any("method.weight = 0" in line for line in stored)


def test_an_unsupervised_loss_that_stays_zero_is_noticed(
    run_file: Path, places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = ["method.weight=0.0", "train.steps=60", "train.evaluate_every=60", "data.labeled_batch=2"]
    config = load_config(run_file, overrides=[*overrides, "data.unlabeled_batch=2"])
    run(config, places, dataclasses.replace(OPTIONS, log_every=10, checkpoint_every=60))
    assert capsys.readouterr().err.count("has been exactly 0 for 50 steps") == 1


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_precision_and_layout_options_train(run_file: Path, places: Places, precision: str) -> None:
    overrides = [f"train.precision={precision}", "train.channels_last=true", "train.deterministic=strict"]
    run(load_config(run_file, overrides=overrides), places)
    history = fpl.load_results(places.out).history
    assert history["loss"].dropna().gt(0).all()


@pytest.mark.parametrize("table", ["runs", "history", "classes", "fuzziness"])
@pytest.mark.parametrize("kind", ["file", "link to nothing"])
def test_a_place_that_cannot_take_the_rows_is_found_before_training(
    config: RunConfig, places: Places, table: str, kind: str
) -> None:
    places.out.mkdir(parents=True)
    place = places.out / table
    if kind == "file":
        place.write_text("")
    else:
        place.symlink_to(places.out / "nowhere")
    with pytest.raises(FplError, match=f"{table}: is a {kind}, and a folder is needed"):
        run(config, places)
    assert not (places.out / "checkpoints").exists()
