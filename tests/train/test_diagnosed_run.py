"""Diagnostics and pictures of a run: what they leave, and that they change nothing about its training."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import fpl
from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.sweep.places import Places
from fpl.sweep.prepare import prepare
from fpl.train.examples import example_steps
from fpl.train.fuzziness import diagnosed_steps
from tests.train.runs import AEL, OPTIONS, elsewhere, run, weights

WATCHED = dataclasses.replace(OPTIONS, log_every=5, diagnose_every=2, examples=2)
BLIND = dataclasses.replace(OPTIONS, log_every=5, diagnose_every=0)


@pytest.mark.parametrize("method", ["cps", "ael"])
def test_watching_changes_nothing(run_file: Path, places: Places, method: str) -> None:
    config = load_config(run_file, overrides=AEL if method == "ael" else [])
    blind = elsewhere(places, "blind")
    run(config, places, WATCHED)
    run(config, blind, BLIND)
    seen, unseen = weights(places), weights(blind)
    assert all(torch.equal(seen[name], unseen[name]) for name in unseen)
    watched, other = fpl.load_results(places.out), fpl.load_results(blind.out)
    assert other.examples.empty
    assert other.fuzziness["labeled_pixels"].isna().all()
    assert sorted(set(watched.fuzziness["step"])) == [1, 2, 4, 5, 6]
    diagnosed = watched.fuzziness[watched.fuzziness["labeled_pixels"].notna()]
    assert sorted(set(diagnosed["step"])) == [1, 2, 4, 6]


def test_diagnostics_are_those_of_the_labels(config: RunConfig, places: Places) -> None:
    run(config, places, WATCHED)
    frame = fpl.load_results(places.out).fuzziness
    frame = frame[frame["labeled_pixels"].notna()]
    assert (frame["labeled_pixels"] <= frame["pixels"]).all() and (frame["labeled_pixels"] > 0).all()
    assert (frame["case_pixels"].map(sum) == frame["labeled_pixels"]).all()
    assert (frame["impurity"] * frame["labeled_pixels"]).to_numpy() == pytest.approx(
        frame["case_pixels"].map(lambda cases: cases[2]).to_numpy()
    )
    assert frame["k_histogram_uncapped"].map(sum).eq(frame["pixels"]).all()
    # Maximal entropy of 19 classes; the mean over the pixels of any K is below.
    assert max(np.nanmax(values) for values in frame["entropy_by_k"]) <= np.log(19) + 1e-6


def test_unlabeled_images_without_labels_leave_truth_unknown(config: RunConfig, places: Places, tmp_path: Path) -> None:
    copy = dataclasses.replace(places, data_root=tmp_path / "data")
    shutil.copytree(places.data_root / "synthetic_city", copy.data_root / "synthetic_city")
    split = prepare(config, places).split
    for image_id in split.unlabeled:
        for path in (copy.data_root / "synthetic_city" / "gtFine").rglob(f"{image_id}*"):
            path.unlink()
    run(config, copy, WATCHED)
    results = fpl.load_results(copy.out)
    frame = results.fuzziness.dropna(subset="labeled_pixels")
    assert (frame["labeled_pixels"] == 0).all() and frame["impurity"].isna().all()
    assert frame["gradient_sum_n"].notna().all()
    scores = results.examples.query("kind == 'fuzzy_score'")
    assert len(scores) and all(np.isnan(array).all() for array in scores["array"])


def test_a_damaged_label_says_how_to_train_without_it(config: RunConfig, places: Places, tmp_path: Path) -> None:
    copy = dataclasses.replace(places, data_root=tmp_path / "data")
    shutil.copytree(places.data_root / "synthetic_city", copy.data_root / "synthetic_city")
    for image_id in prepare(config, places).split.unlabeled:
        for path in (copy.data_root / "synthetic_city" / "gtFine").rglob(f"{image_id}*"):
            path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FplError) as caught:
        run(config, copy, WATCHED)
    assert "--diagnose-every 0" in caught.value.hint
    run(config, copy, dataclasses.replace(WATCHED, diagnose_every=0))
    results = fpl.load_results(copy.out)
    assert results.fuzziness["labeled_pixels"].isna().all()
    truths = results.examples.query("part == 'unlabeled' and kind == 'ground_truth'")["array"]
    assert len(truths) == 2 and all((truth == 255).all() for truth in truths)


def test_pictures_at_their_steps(run_file: Path, places: Places) -> None:
    # A T that networks of six steps reach with one class here and several there.
    run(load_config(run_file, overrides=["loss.threshold=0.3"]), places, WATCHED)
    frame = fpl.load_results(places.out).examples
    unlabeled, validation = frame.query("part == 'unlabeled'"), frame.query("part == 'val'")
    assert sorted(set(unlabeled["step"])) == sorted(example_steps(6)) == [1, 2, 3, 6]
    assert set(validation["step"]) == {6}
    assert unlabeled["image_id"].nunique() == 2
    for (step, _), kinds in unlabeled.groupby(["step", "image_id"])["kind"]:
        # What does not change, and the scores, once.
        once = ["fuzzy_score", "ground_truth", "image", "vanilla_score"] if step == 6 else []
        assert sorted(kinds) == sorted(["k", *once])
    assert validation.groupby("image_id")["kind"].agg(sorted).map(tuple).unique().tolist() == [
        ("ground_truth", "image", "prediction")
    ]
    assert set(frame["array"].map(lambda array: array.shape[:2])) == {(45, 60)}
    last = unlabeled[unlabeled["step"] == 6].set_index(["image_id", "kind"])["array"]
    for image_id in set(unlabeled["image_id"]):
        kinds = ("k", "vanilla_score", "fuzzy_score", "ground_truth")
        k, vanilla, fuzzy, truth = (last[image_id, kind] for kind in kinds)
        assert k.min() >= 1 and k.max() <= 18
        known = truth != 255
        assert np.isfinite(fuzzy[known]).all() and (np.abs(fuzzy[known]) <= 1).all()
        # Rᵛ is 1 where the true class is the teacher's best, else below 0; where that is the only positive, so is Rᶠ.
        alone = known & (k == 1) & (vanilla == 1)
        assert alone.any() and (fuzzy[alone] == 1).all()
        # Of a wrong pseudo label alone both are the same share of what is pushed down.
        wrong = known & (k == 1) & (vanilla < 0)
        assert wrong.any() and fuzzy[wrong] == pytest.approx(vanilla[wrong], abs=1e-3)


def test_steps() -> None:
    assert diagnosed_steps(0, 100) == set()
    assert diagnosed_steps(50, 120) == {1, 50, 100, 120}
    assert example_steps(1) == {1}
    assert example_steps(40) == {4, 10, 20, 40}
