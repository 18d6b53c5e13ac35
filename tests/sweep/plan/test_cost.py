"""From counted amounts to whole runs and their disk, on amounts that are given."""

from __future__ import annotations

import pytest

from fpl.config.compose import validate
from fpl.config.schema import RunConfig
from fpl.data import synthetic
from fpl.data.spec import SPECS
from fpl.sweep.plan.cost import IMAGE_SIZES, KEPT_STEPS, Cost, Memory, Work, _windows, window_of
from fpl.train import checkpoint
from fpl.train.evaluate import window_starts

COST = Cost(Work(100, 10.0, 1.0, 8), Work(30, 2.0), weights=1000, optimizer=600, memory=Memory(0, 0, 0, 0, 0))


def changed(config: RunConfig, **sections: dict[str, object]) -> RunConfig:
    tree = config.model_dump(mode="json")
    for section, values in sections.items():
        tree[section] = values if section == "method" else tree[section] | values
    return validate(tree)


@pytest.mark.parametrize("length", [40, 64, 100, 129, 500])
@pytest.mark.parametrize("rate", [0.5, 2 / 3, 1.0])
def test_windows_are_those_of_the_evaluation(length: int, rate: float) -> None:
    assert _windows(length, 64, rate) == len(window_starts(length, 64, rate))


def test_validation_of_cityscapes_by_hand(config: RunConfig) -> None:
    data = {"dataset": "cityscapes", "crop": [800, 800]}
    sliding = changed(config, data=data, eval={"protocol": "sliding", "stride_rate": 2 / 3})
    # 1024 x 2048 in windows of 800 at a stride of 534: 2 x 4, each of them alone in its pass.
    assert window_of(sliding) == (800, 800)
    assert COST.validation(sliding).gflop == 500 * 8 * 2.0 and COST.validation(sliding).calls == 500 * 8 * 30
    assert COST.validation(sliding).gigabytes == pytest.approx(500 * 8 * 800 * 800 * 19 * 10 / 1e9)
    whole = changed(config, data=data)
    assert window_of(whole) == (1024, 2048) and COST.validation(whole).gflop == 500 * 2.0
    center = changed(config, data=data, eval={"protocol": "center"})
    assert window_of(center) == (800, 800) and COST.validation(center).gflop == 500 * 2.0
    assert COST.validation(changed(center, eval={"subsample": 93})).gflop == 93 * 2.0
    assert COST.validation(changed(center, eval={"subsample": 900})).gflop == 500 * 2.0
    # Of 2975 training images 186 are labeled (1/16), of which positions 0, 4, ..., 184 are held out.
    held = changed(center, data={"split": {"fraction": "1/16", "holdout": 4}})
    assert COST.validation(held).gflop == 47 * 2.0


def test_validation_calls_are_those_of_its_passes(config: RunConfig) -> None:
    """Drawn streets of 64 x 128: 32 go into 2^18 pixels."""
    small = changed(config, data={"dataset": "synthetic_city"}, eval={"protocol": "whole"})
    assert COST.validation(small).calls == 4 * 30  # 32 + 32 + 32 + 4


def test_a_run_is_its_steps_and_validations(config: RunConfig) -> None:
    config = changed(config, train={"steps": 7, "evaluate_every": 3})
    validation, run = COST.validation(config), COST.run(config)
    # After steps 3 and 6, and at the end.
    assert run.gflop == pytest.approx(7 * 10 + 3 * validation.gflop)
    assert run.calls == 7 * 100 + 3 * validation.calls
    assert run.images == 7 * 8


def test_disk_is_that_of_the_states() -> None:
    # best and last; two step checkpoints and one being written, each with what the optimizers keep.
    assert COST.kept_bytes == 2 * 1000 + 60_000
    assert COST.running_bytes == 3 * (1000 + 600)
    assert checkpoint.KEEP == KEPT_STEPS


def test_images_are_as_large_as_the_data_sets_have_them() -> None:
    assert set(IMAGE_SIZES) == set(SPECS)
    assert IMAGE_SIZES["synthetic_city"] == synthetic.CITY_SIZE
    assert IMAGE_SIZES["synthetic_voc"] == synthetic.VOC_SIZE
    assert all(spec.image_size in (None, IMAGE_SIZES[name]) for name, spec in SPECS.items())
