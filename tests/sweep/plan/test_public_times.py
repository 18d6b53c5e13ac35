"""The assumed speed of a GPU against times that others printed or logged: hours of real training, on real GPUs.

Tolerance: a factor of 1.5, either way. The sources do not say what part of their time is reading images, and the only
two that the assumed speed is made of, both of the same code on the same GPUs, differ by 1.4 in operations a second.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fpl.config.campaign import load_campaign
from fpl.config.compose import load_config, validate
from fpl.config.schema import RunConfig
from fpl.sweep.plan.cost import window_of
from fpl.sweep.plan.costs import Costs
from fpl.sweep.plan.count import count
from fpl.sweep.plan.memory import needed
from fpl.sweep.plan.speed import A100, V100, CostModel, assumed_gpu

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
TOLERANCE = 1.5


def cell(name: str) -> RunConfig:
    """The run of a cell at the paper's scale."""
    return load_campaign(EXPERIMENTS, "paper", [name]).all_cells[0].configs[0]


def near(ours: float, theirs: float) -> bool:
    return theirs / TOLERANCE <= ours <= theirs * TOLERANCE


@pytest.mark.parametrize(("name", "seconds"), [("table1.ael.r101_1_8", 4.48), ("table2.ael.r101_1_8", 1.44)])
def test_steps_of_ael_as_printed(name: str, seconds: float) -> None:
    """Table A6: 730 and 835 seconds an epoch on 8 V100."""
    assert near(CostModel(V100).step_seconds(cell(name), 8), seconds)


def test_cps_on_voc_as_its_author_has_it() -> None:
    """TorchSemiSeg, issue 56, asked about 4 V100: "It takes about 7 hours for Res50 1/8 split"."""
    assert near(CostModel(V100).run_seconds(cell("table2.cps.r50_1_8"), 4) / 3600, 7.0)


# Recipe, epochs, steps of each, the hours from the first line of a log to its last (4 GPUs), and the GPU, which it does
# not name. Their folders are on two machines: that of VOC is as fast as a V100. That of Cityscapes does 9.9 TFLOP/s on
# each GPU, and NVIDIA's own training of a ResNet-50 no more than 9.0 on a V100 (367 images of 3 * 8.2 GFLOP): it is a
# newer one, on which PyTorch convolves in TF32 by default.
LOGGED = {
    "Pascal-VOC-2012/High-Quality-Split-Size321/ResNet-50/92.log": ("voc", 80, 1311, 14.5, V100, "float32"),
    "Cityscapes/ResNet-50/1_16.log": ("cityscapes", 240, 348, 32.7, A100, "tf32"),
}


@pytest.mark.parametrize("log", LOGGED)
def test_unimatch_as_logged(log: str) -> None:
    """github.com/LiheYoung/UniMatch, training-logs/; memory: its issues 109 (15 GB on 4 GPUs) and 39 (80 to 120)."""
    dataset, epochs, steps, hours, speed, precision = LOGGED[log]
    keys = ["model.backbone=resnet50", f"train.steps={epochs * steps}", f"train.evaluate_every={steps}"]
    run = load_config(EXPERIMENTS / "base" / f"{dataset}_unimatch.toml", overrides=keys)
    cost = count(run, window_of(run))
    assert near(speed.seconds(cost.run(run), 4, precision) / 3600, hours)
    least, most = (15e9, 15e9) if dataset == "voc" else (80e9, 120e9)
    assert least / TOLERANCE < 4 * needed(cost, run, 4).total < most * TOLERANCE


def test_float32_takes_longer_than_tf32_on_a_gpu_that_has_it(config: RunConfig) -> None:
    assert assumed_gpu("NVIDIA A100-SXM4-80GB") is assumed_gpu("NVIDIA H200") is A100
    assert assumed_gpu("Tesla V100-SXM2-32GB") is assumed_gpu("") is assumed_gpu("NVIDIA RTX A1000") is V100
    costs = Costs()
    tree = config.model_dump(mode="json")
    seconds = {}
    for precision in ("float32", "tf32", "bf16"):
        run = validate(tree | {"train": tree["train"] | {"precision": precision}})
        work = costs.of(run).step
        seconds[precision] = [speed.seconds(work, precision=precision) for speed in (A100, V100)]
        model = CostModel(A100, costs=costs)
        assert model.step_seconds(run) == pytest.approx(seconds[precision][0])
    assert seconds["bf16"][0] < seconds["tf32"][0] < seconds["float32"][0] < seconds["float32"][1]
    # A V100 has neither.
    assert seconds["bf16"][1] == seconds["tf32"][1] == seconds["float32"][1]
    # NVIDIA's own ratio, of the arithmetic.
    arithmetic = [speed.per_gflop / speed.faster.get("tf32", 1.0) for speed in (V100, A100)]
    assert arithmetic[0] / arithmetic[1] == pytest.approx(938 / 367)
