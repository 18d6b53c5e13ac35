"""Whole runs on a tiny data set: what they leave, that they resume exactly, and that workers change nothing."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import fpl
from fpl.config.compose import load_config
from fpl.config.schema import OptimConfig, RunConfig
from fpl.data.batches import Batch
from fpl.data.spec import get_spec
from fpl.data.synthetic import draw_city
from fpl.data.validation import ValidationSet
from fpl.errors import FplError
from fpl.methods import Clock, Losses
from fpl.methods.cps import Cps
from fpl.sweep import local
from fpl.sweep.local import epochs, run_local
from fpl.sweep.prepare import Places, prepare
from fpl.train.checkpoint import CheckpointFolder, load
from fpl.train.loop import learning_rate
from fpl.train.runtime import State, TrainingError, Verdict
from fpl.train.state import LoopOptions

OPTIONS = LoopOptions(checkpoint_every=2, log_every=1, threads=1)
# Columns that say when and where a run took place, not what it found.
CIRCUMSTANCES = ["train_seconds", "finished_at", "workers"]


def run(config: RunConfig, places: Places, options: LoopOptions = OPTIONS, **more: Any) -> Path:
    return run_local(config, places, device="cpu", options=options, **more)


def weights(places: Places, name: str = "last.pt") -> dict[str, torch.Tensor]:
    (path,) = (places.out / "checkpoints").glob(f"*/{name}")
    state: dict[str, torch.Tensor] = load(path)["method"]
    return state


def assert_equal_results(one: Places, other: Places) -> None:
    first, second = weights(one), weights(other)
    assert list(first) == list(second)
    for name in first:
        assert torch.equal(first[name], second[name]), name
    for frame in ("history", "classes", "fuzziness"):
        pd.testing.assert_frame_equal(
            getattr(fpl.load_results(one.out), frame), getattr(fpl.load_results(other.out), frame)
        )
    rows = [fpl.load_results(places.out).runs.drop(columns=CIRCUMSTANCES) for places in (one, other)]
    pd.testing.assert_frame_equal(*rows)


def elsewhere(places: Places, name: str) -> Places:
    return dataclasses.replace(places, out=places.out.with_name(name))


def command(run_file: Path, places: Places, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "fpl", "train", str(run_file), *more),
        *("--out", str(places.out), "--data-root", str(places.data_root), "--splits", str(places.splits_root)),
        *("--threads", "1", "--log-every", "1", "--device", "cpu"),
    ]


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


def test_two_runs_of_one_configuration_are_bit_equal(config: RunConfig, places: Places) -> None:
    other = elsewhere(places, "other")
    run(config, places)
    run(config, other, dataclasses.replace(OPTIONS, checkpoint_every=5, loader_workers=2))
    assert_equal_results(places, other)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("stop_after", [2, 4, 6])
def test_resuming_from_every_checkpoint_is_exact(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    original = CheckpointFolder.save_step

    def save_and_die(self: CheckpointFolder, step: int, state: State) -> Path:
        path = original(self, step, state)
        if step == stop_after:
            raise KilledError
        return path

    uninterrupted = elsewhere(places, "uninterrupted")
    options = dataclasses.replace(OPTIONS, log_every=5)  # a checkpoint then falls between two rows of the history
    run(config, uninterrupted, options)
    monkeypatch.setattr(CheckpointFolder, "save_step", save_and_die)
    with pytest.raises(KilledError):
        run(config, places, options)
    monkeypatch.setattr(CheckpointFolder, "save_step", original)
    torch.manual_seed(123)  # whatever the process did in between
    run(config, places, options)
    assert_equal_results(places, uninterrupted)


@pytest.mark.timeout(120)
def test_kill_at_any_moment_then_the_same_command(run_file: Path, places: Places) -> None:
    steps = ("train.steps=40", "train.evaluate_every=10")
    line = [*command(run_file, places, *steps), "--checkpoint-every", "3"]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(places.out.glob("checkpoints/*/step_*.pt")) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(random.uniform(0, 1))
    assert process.poll() is None, "the run ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(places.out.glob("runs/*.parquet"))
    again = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "continuing at step" in again.stderr
    uninterrupted = elsewhere(places, "uninterrupted")
    subprocess.run(command(run_file, uninterrupted, *steps), capture_output=True, check=True)
    assert_equal_results(places, uninterrupted)


def start_workers(run_file: Path, places: Places, *overrides: str) -> list[tuple[int, str]]:
    """Exit code and stderr of two workers that train one run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in range(2):
        environment = os.environ | {
            **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        }
        line = command(run_file, places, *overrides)
        processes.append(subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True))
    errors = [process.communicate(timeout=60)[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, errors, strict=True)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("released", [False, True])
def test_two_workers_see_what_one_sees(run_file: Path, places: Places, released: bool) -> None:
    # A small rate: rounding must not grow until it moves a pixel across the threshold of K, which is a jump.
    overrides = ["train.steps=5", "train.evaluate_every=5", "optim.lr=0.01"]
    overrides += ["data.labeled_batch=8", "data.unlabeled_batch=8"]
    overrides += ["loss.fidelity=released"] if released else ["loss.supervised=ohem", "loss.ohem_min_kept=100"]
    together = elsewhere(places, "together")
    run(load_config(run_file, overrides=overrides), places)
    for code, errors in start_workers(run_file, together, *overrides):
        assert code == 0, errors
    one, two = fpl.load_results(places.out), fpl.load_results(together.out)
    losses = ["loss", "supervised_1", "supervised_2", "cross", "unsupervised", "lr"]
    histories = [results.history.query("loss.notna()") for results in (one, two)]
    pd.testing.assert_frame_equal(*(history[losses] for history in histories), rtol=1e-5)
    pd.testing.assert_series_equal(*(history["unsupervised_gradient_share"] for history in histories), rtol=1e-4)
    assert list(one.fuzziness["pixels"]) == list(two.fuzziness["pixels"])
    assert one.runs["pixels_counted"].equals(two.runs["pixels_counted"])
    assert two.runs["workers"].item() == 2


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
    assert learning_rate(optim, 0, 100) == 0.02
    assert learning_rate(optim, 50, 100) == pytest.approx(0.02 * 0.5**0.9)
    assert learning_rate(optim, 99, 100) == pytest.approx(0.02 * 0.01**0.9)


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


def test_a_checkpoint_of_another_configuration_is_refused(config: RunConfig, places: Places) -> None:
    identity = prepare(config, places).run_id
    CheckpointFolder(places.checkpoints(identity)).save_step(2, {"canonical": "{}"})
    with pytest.raises(FplError, match="another configuration"):
        run(config, places)


def test_another_drawing_is_another_run(run_file: Path, places: Places, tmp_path: Path) -> None:
    config = load_config(run_file)
    draw_city(tmp_path / "synthetic_city", train=12, validation=3, size=(45, 60), seed=1)
    other = dataclasses.replace(places, data_root=tmp_path)
    first, second = prepare(config, places), prepare(config, other)
    assert first.split.labeled_digest == second.split.labeled_digest  # the ids say nothing about the drawing
    assert first.run_id != second.run_id
    with pytest.raises(FplError, match=r"data\.version pins"):
        prepare(first.config, other)


def test_left_overs_of_killed_processes_are_swept(config: RunConfig, places: Places) -> None:
    path = run(config, places)
    folder = places.checkpoints(path.stem)
    (folder / ".step_00000004.pt.123.tmp").write_bytes(b"half")
    CheckpointFolder(folder).save_step(4, {})
    run(config, places)  # done: nothing to train, but the killed process had not tidied up
    assert {file.name for file in folder.iterdir()} == {".lock", "best.pt", "last.pt"}


def test_a_method_that_draws_resumes_exactly(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_losses, original_save = Cps.losses, CheckpointFolder.save_step

    def drawing(self: Cps, batch: Batch, clock: Clock) -> Losses:
        batch.image = batch.image * torch.rand(1)  # as dropout would, from torch's own generator
        return original_losses(self, batch, clock)

    def save_and_die(self: CheckpointFolder, step: int, state: State) -> Path:
        original_save(self, step, state)
        raise KilledError

    monkeypatch.setattr(Cps, "losses", drawing)
    uninterrupted = elsewhere(places, "uninterrupted")
    run(config, uninterrupted)
    monkeypatch.setattr(CheckpointFolder, "save_step", save_and_die)
    with pytest.raises(KilledError):
        run(config, places)
    monkeypatch.setattr(CheckpointFolder, "save_step", original_save)
    run(config, places)
    assert_equal_results(places, uninterrupted)


@pytest.mark.timeout(60)
def test_a_worker_that_fails_says_why(run_file: Path, places: Places, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(places.data_root, root)
    for path in sorted((root / "synthetic_city" / "leftImg8bit" / "val").rglob("*.png"))[1::2]:
        path.write_bytes(path.read_bytes()[:200])  # the second worker's share of the validation images
    copied = Places(places.out, root, root / "splits")
    results = start_workers(run_file, copied)
    assert [code for code, _ in results] == [1, 2]
    assert "error (rank 1): " in results[1][1] and "truncated" in results[1][1]
    assert "lost another worker" in results[0][1]
    assert all("Traceback" not in errors for _, errors in results)


def test_two_processes_cannot_train_one_run(config: RunConfig, places: Places) -> None:
    import filelock

    folder = places.checkpoints(prepare(config, places).run_id)
    folder.mkdir(parents=True)
    with filelock.FileLock(folder / ".lock"), pytest.raises(FplError, match="another process is training this run"):
        run(config, places)


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


def test_stop_is_obeyed_and_continues_later(config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    original = local.LocalContext.report

    def stop(self: Any, step: int, metrics: dict[str, float], state: State | None) -> Verdict:
        original(self, step, metrics, state)
        return Verdict.STOP

    monkeypatch.setattr(local.LocalContext, "report", stop)
    with pytest.raises(FplError, match="stopped at step 2 of 6"):
        run(config, places)
    assert not list(places.out.glob("runs/*.parquet"))
    monkeypatch.setattr(local.LocalContext, "report", original)
    run(config, places)
    other = elsewhere(places, "other")
    run(config, other)
    assert_equal_results(places, other)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_precision_and_layout_options_train(run_file: Path, places: Places, precision: str) -> None:
    overrides = [f"train.precision={precision}", "train.channels_last=true", "train.deterministic=strict"]
    run(load_config(run_file, overrides=overrides), places)
    history = fpl.load_results(places.out).history
    assert history["loss"].dropna().gt(0).all()
