"""The fused loss trains what plain tensors train."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd
import pytest

import fpl
from fpl.config.compose import load_config
from fpl.losses.kernels import use
from fpl.sweep.places import Places
from tests.losses.kernels.cases import needs_cpu_kernel
from tests.train.runs import OPTIONS, elsewhere, run

STEPS = 50


@needs_cpu_kernel
@pytest.mark.parametrize("fidelity", ["paper", "released"])
def test_loss_curves_agree_for_fifty_steps(run_file: Path, places: Places, fidelity: str) -> None:
    # A small rate: rounding now and then moves a pixel across the threshold of K, which is a jump, and training
    # amplifies what is left of it. The crop is no multiple of the network's stride, so that the loss enlarges.
    overrides = [f"train.steps={STEPS}", f"train.evaluate_every={STEPS}", "optim.lr=0.00005", "data.crop=[33,37]"]
    overrides += ["data.labeled_batch=2", "data.unlabeled_batch=2"]
    config = load_config(run_file, overrides=[*overrides, f"loss.fidelity={fidelity}"])
    # Rows of the history are means over five steps.
    options = dataclasses.replace(OPTIONS, log_every=5, checkpoint_every=STEPS, diagnose_every=0)
    histories = {}
    for name in ("tensor", "cpu"):
        with use(name):
            run(config, out := elsewhere(places, name), options)
        histories[name] = fpl.load_results(out.out).history
    curves = [history[["loss", "unsupervised", "cross"]] for history in histories.values()]
    assert len(curves[0].dropna()) == STEPS / 5 + 1
    assert curves[0]["unsupervised"].nunique() == STEPS / 5 + 1
    pd.testing.assert_frame_equal(*curves, rtol=3e-5)
