"""Workers share the global batch and change nothing; one that fails says why."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import fpl
from fpl.config.compose import load_config
from fpl.sweep.places import Places
from tests import warm
from tests.drawn import forget_checksums
from tests.ports import free_ports
from tests.train.runs import AEL, OPTIONS, command, elsewhere, run, weights

OHEM = ["loss.supervised=ohem", "loss.ohem_min_kept=100"]
TERMS = {
    "cps": ["supervised_1", "supervised_2", "cross"],
    "ael": ["supervised", "consistency_labeled", "consistency_mixed"],
}


def start_workers(run_file: Path, places: Places, *overrides: str) -> list[tuple[int, str]]:
    """Exit code and stderr of two workers that train one run."""
    (port,) = free_ports(1)
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environments = [os.environ | group | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    results = warm.run_together([command(run_file, places, *overrides)] * 2, environments)
    return [(code, errors) for code, _, errors in results]


def assert_same_diagnostics(one: pd.DataFrame, two: pd.DataFrame) -> None:
    """Equal counts of pixels, but for single ones at a threshold, and equal means, but for rounding."""
    keys = ["step", "direction", "pixels", "labeled_pixels"]
    pd.testing.assert_frame_equal(one[keys], two[keys])
    assert list(one.loc[one["labeled_pixels"].notna(), "step"].unique()) == [1, 5]
    counts = ["k_histogram", "k_histogram_uncapped", "case_pixels", "case_1_k1_pixels"]
    for name in one.columns.drop(["run_id", *keys]):
        # A standard deviation near 0 is the root of what rounding left.
        tolerance = {"rtol": 0, "atol": 2} if name in counts else {"rtol": 1e-4, "atol": 1e-3}
        for ours, theirs in zip(one[name], two[name], strict=True):
            pair = (np.asarray(value, dtype=float) for value in (ours, theirs))
            np.testing.assert_allclose(*pair, **tolerance, err_msg=name)


@pytest.mark.parametrize(
    ("fidelity", "method"), [("paper", "cps"), ("released", "cps"), ("paper", "ael"), ("released", "ael")]
)
def test_two_workers_see_what_one_sees(run_file: Path, places: Places, fidelity: str, method: str) -> None:
    # A small rate: rounding must not grow until it moves a pixel across the threshold of K, which is a jump. AEL has
    # more of these (the classes that both networks predict, the random number that keeps a pixel), and in a network
    # that has learned nothing they are close: from the second step on single pixels of 12,800 differ.
    rate, tolerance = (0.0001, 2e-4) if method == "ael" else (0.001, 1e-5)
    # With seed 0 one pixel lies so close to the threshold that rounding decides its K at the first step.
    overrides = ["seed=1", "train.steps=5", "train.evaluate_every=5", f"optim.lr={rate}"]
    overrides += ["data.labeled_batch=8", "data.unlabeled_batch=8"]
    overrides += ["loss.fidelity=released"] if fidelity == "released" else OHEM
    if method == "ael":
        overrides += [*AEL, f"method.fidelity={fidelity}"]
    together = elsewhere(places, "together")
    run(load_config(run_file, overrides=overrides), places, dataclasses.replace(OPTIONS, examples=1))
    for code, errors in start_workers(run_file, together, *overrides, "--examples", "1"):
        assert code == 0, errors
    one, two = fpl.load_results(places.out), fpl.load_results(together.out)
    histories = [results.history.query("loss.notna()") for results in (one, two)]
    losses = ["loss", "unsupervised", "lr", *TERMS[method]]
    pd.testing.assert_frame_equal(*(history[losses].head(1) for history in histories), rtol=1e-6)
    pd.testing.assert_frame_equal(*(history[losses] for history in histories), rtol=tolerance)
    pd.testing.assert_series_equal(
        *(history["unsupervised_gradient_share"] for history in histories), rtol=10 * tolerance
    )
    assert_same_diagnostics(one.fuzziness, two.fuzziness)
    keys = ["step", "part", "image_id", "kind"]
    assert len(one.examples) and one.examples[keys].equals(two.examples[keys])
    assert one.runs["pixels_counted"].equals(two.runs["pixels_counted"])
    assert two.runs["workers"].item() == 2
    if method == "ael":
        own, other = weights(places), weights(together)
        assert torch.equal(own["image_bank.bits"], other["image_bank.bits"])
        torch.testing.assert_close(own["confidence_bank.confidence"], other["confidence_bank.confidence"])


def test_a_worker_that_fails_says_why(run_file: Path, places: Places, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(places.data_root, root)
    forget_checksums(root / "synthetic_city")
    for path in sorted((root / "synthetic_city" / "leftImg8bit" / "val").rglob("*.png"))[1::2]:
        path.write_bytes(path.read_bytes()[:200])  # the second worker's share of the validation images
    copied = Places(places.out, root, root / "splits")
    results = start_workers(run_file, copied)
    assert [code for code, _ in results] == [1, 2]
    assert "error (rank 1): " in results[1][1] and "truncated" in results[1][1]
    assert "lost another worker" in results[0][1]
    assert all("Traceback" not in errors for _, errors in results)
