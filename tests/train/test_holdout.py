"""Whole runs that are validated on held-out labeled images."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

import fpl
from fpl.cli.main import app
from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.augment import normalise
from fpl.data.build_cache import build_cache, plan_cache
from fpl.data.spec import get_spec
from fpl.errors import FplError
from fpl.sweep.local import StoppedError
from fpl.sweep.places import Places
from fpl.sweep.plan.needs import Needs
from fpl.sweep.prepare import prepare
from fpl.train.runtime import Verdict
from fpl.train.trained import find_weights, load_trained
from tests.drawn import forget_checksums
from tests.train.runs import AEL, assert_equal_results, elsewhere, run, weights
from tests.train.test_workers import start_workers

SPEC = get_spec("synthetic_city")
HOLDOUT = "data.split.holdout=2"


@pytest.fixture
def held(run_file: Path) -> RunConfig:
    """Of 3 labeled images the first and the last are held out."""
    return load_config(run_file, overrides=[HOLDOUT])


def root_of(places: Places) -> Path:
    return places.data_root / "synthetic_city"


def lines(places: Places) -> list[str]:
    return (places.splits_root / "synthetic_city/every-nth/1-4/labeled.txt").read_text().split()


def counted(places: Places, path: Path, choice: str, part: str, ids: list[str]) -> NDArray[np.int64]:
    """Confusion matrix by loops over files and classes, for the protocol "whole" at full size."""
    trained = load_trained(find_weights(places.out, path.stem, choice), torch.device("cpu"))
    root = root_of(places)
    counts = np.zeros((19, 19), dtype=np.int64)
    for image_id in ids:
        image = np.array(Image.open(SPEC.image_path(root, part, image_id)).convert("RGB"))
        label = np.array(Image.open(SPEC.label_path(root, part, image_id)))
        pixels = torch.from_numpy(image).permute(2, 0, 1)[None]
        with torch.no_grad():
            logits = trained.method.predict(normalise(pixels, torch.ones(1, *label.shape, dtype=torch.bool)))
        logits = F.interpolate(logits, size=label.shape, mode="bilinear", align_corners=True)
        guess = logits[0].argmax(0).numpy()
        for wanted in range(19):
            for given in range(19):
                counts[wanted, given] += int(((label == wanted) & (guess == given)).sum())
    return counts


def mean_iou(counts: NDArray[np.int64]) -> float:
    found = []
    for each in range(19):
        union = counts[each].sum() + counts[:, each].sum() - counts[each, each]
        if union:
            found.append(100 * counts[each, each] / union)
    return float(np.mean(found))


def test_the_record_is_of_the_held_out_images(
    held: RunConfig, places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run(held, places)
    assert "validating on 2 held-out labeled images" in capsys.readouterr().err
    row = fpl.load_results(places.out).runs.iloc[0]
    assert (row["labeled_images"], row["unlabeled_images"], row["validation_images"]) == (1, 9, 2)
    assert row["data.split.holdout"] == 2 and "-1_4-h2-s0-" in row["run_id"]
    images = lines(places)[::2]
    for choice in ("best", "last"):
        counts = counted(places, path, choice, "train", images)
        assert row[f"miou_whole_{choice}"] == pytest.approx(mean_iou(counts), abs=1e-9)
        assert row["pixels_counted"] == counts.sum()
    # Not what the validation part would say.
    assert row["miou_whole_best"] != mean_iou(
        counted(places, path, "best", "val", SPEC.list_ids(root_of(places), "val"))
    )


def test_fpl_eval_looks_at_the_validation_part_and_says_so(held: RunConfig, places: Places) -> None:
    path = run(held, places)
    expected = mean_iou(counted(places, path, "best", "val", SPEC.list_ids(root_of(places), "val")))
    where = ("--out", str(places.out), "--data-root", str(places.data_root), "--device", "cpu")
    shown = CliRunner().invoke(app, ["eval", path.stem, *where])
    assert shown.exit_code == 0, shown.output
    assert f"mIoU {expected:.2f} %" in shown.output
    assert "on the validation part; the run's own scores are of its held-out labeled images" in shown.output


def with_other_images(places: Places, folder: Path, ids: list[str]) -> Places:
    """The data with other pixels and labels in some training images; results beside the old ones."""
    shutil.copytree(places.data_root, folder)
    root, random = folder / "synthetic_city", np.random.default_rng(0)
    forget_checksums(root)
    for image_id in ids:
        Image.fromarray(random.integers(0, 256, (45, 60, 3), np.uint8)).save(SPEC.image_path(root, "train", image_id))
        Image.fromarray(random.integers(0, 19, (45, 60), np.uint8)).save(SPEC.label_path(root, "train", image_id))
    return dataclasses.replace(elsewhere(places, folder.name), data_root=folder)


@pytest.mark.parametrize("method", [[], [*AEL, "loss.supervised=ohem", "loss.ohem_min_kept=100"]])
def test_training_does_not_depend_on_held_out_images(
    run_file: Path, places: Places, tmp_path: Path, method: list[str]
) -> None:
    """Nor do AEL's bank of unlabeled images, or what it pastes."""
    config = load_config(run_file, overrides=[HOLDOUT, *method])
    first, kept, last = lines(places)
    others = with_other_images(places, tmp_path / "others", [first, last])
    path = run(config, places)
    # Other labels make another run, which learns the same.
    assert run(config, others).stem != path.stem
    own, same = weights(places), weights(others)
    assert all(torch.equal(own[name], same[name]) for name in own)
    scores = [fpl.load_results(each.out).runs["miou_whole_last"].item() for each in (places, others)]
    assert scores[0] != scores[1]
    # The remaining one is what it is trained with.
    changed = with_other_images(places, tmp_path / "changed", [kept])
    run(config, changed)
    assert any(not torch.equal(own[name], tensor) for name, tensor in weights(changed).items())


def test_a_stopped_run_continues_and_a_finished_one_is_found(held: RunConfig, places: Places) -> None:
    run(held, places)
    again = elsewhere(places, "again")
    with pytest.raises(StoppedError):
        run(held, again, on_report=lambda step, metrics: Verdict.STOP if step == 2 else Verdict.GO)
    run(held, again)
    assert_equal_results(places, again)
    said: list[str] = []
    run(held, again, say=said.append)
    assert "is done" in said[0]


def test_cached_images_give_the_same_bits(
    run_file: Path, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reduced images, whose full-size labels the cache of the train part does not hold."""
    monkeypatch.setenv("FPL_CACHE", str(tmp_path / "caches"))
    config = load_config(run_file, overrides=[HOLDOUT, "data.downscale=2", "data.crop=[33,33]"])
    run(config, places)
    build_cache(plan_cache(SPEC, root_of(places), "train", 2))
    assert prepare(config, places).images.cache is not None
    run(config, elsewhere(places, "cached"))
    assert_equal_results(places, elsewhere(places, "cached"))


def test_two_workers_share_one_held_out_image(run_file: Path, places: Places) -> None:
    """The second has none to validate on."""
    overrides = ["data.split.holdout=3", "optim.lr=0.0001", "train.steps=2"]
    together = elsewhere(places, "together")
    run(load_config(run_file, overrides=overrides), places)
    for code, errors in start_workers(run_file, together, *overrides):
        assert code == 0, errors
    one, two = (fpl.load_results(each.out).runs.iloc[0] for each in (places, together))
    assert one["run_id"] == two["run_id"] and two["workers"] == 2
    assert one["validation_images"] == two["validation_images"] == 1
    assert one["pixels_counted"] == two["pixels_counted"]
    assert one["miou_whole_last"] == pytest.approx(two["miou_whole_last"], abs=0.2)


def test_too_few_labeled_images_are_refused_before_anything_starts(run_file: Path, places: Places) -> None:
    config = load_config(run_file, overrides=["data.split.holdout=4"])
    with pytest.raises(FplError, match=r"data\.split\.holdout = 4 of 3 labeled images\n.*2 to 3 are allowed"):
        run(config, places)
    assert not places.out.exists()
    # A plan says so, too, and not of the runs of the same split that can be trained.
    needs = Needs(places)
    assert needs.lacking(load_config(run_file)) == []
    (problem,) = needs.lacking(config)
    assert problem.startswith("data.split.holdout = 4 of 3 labeled images")
