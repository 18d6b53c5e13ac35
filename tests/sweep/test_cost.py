from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fpl.config.compose import validate
from fpl.config.schema import ModelConfig, RunConfig
from fpl.data import synthetic
from fpl.data.spec import SPECS
from fpl.errors import FplError
from fpl.losses.pixel import KINDS
from fpl.methods import METHODS, Clock, Method
from fpl.models import build_network
from fpl.sweep.calibrate import _batch
from fpl.sweep.convolutions import Layer, layers_of
from fpl.sweep.cost import (
    IMAGE_SIZES,
    KEPT_STEPS,
    LABEL_BYTES,
    PIXEL_BYTES,
    STEPS,
    Work,
    _windows,
    kept_bytes,
    parameters,
    run_work,
    running_bytes,
    step_key,
    step_work,
    validation_work,
)
from fpl.sweep.speed import CPU_CORE, CostModel, Measured, Speed, read_calibration, write_calibration
from fpl.train import checkpoint
from fpl.train.evaluate import window_starts

CPS = {"method": {"name": "cps", "weight": 1.0, "cutmix": True}}


def changed(config: RunConfig, **sections: dict[str, object]) -> RunConfig:
    tree = config.model_dump(mode="json")
    for section, values in sections.items():
        tree[section] = values if section == "method" else tree[section] | values
    return validate(tree)


def method_of(config: RunConfig) -> Method:
    torch.manual_seed(0)
    build = METHODS[config.method.name]
    return build(config, lambda: build_network(config.model, config.data.num_classes), lambda value: value, 1)


# --- layers ---------------------------------------------------------------------------------------------------------


def test_flops_of_one_convolution_by_hand() -> None:
    # 3 -> 12 channels, 3x3, output 24 x 24: a multiplication and an addition per weight and position.
    assert Layer(3, 12, 3, 2).flops(48, 48) == 2 * 3 * 12 * 9 * 24 * 24
    # Sides that the stride does not divide round up.
    assert Layer(8, 4, 1, 4).flops(10, 9) == 2 * 8 * 4 * 3 * 3
    # Depthwise: every channel sees itself alone.
    assert Layer(8, 8, 5, 1, groups=8).flops(2, 2) == 2 * 8 * 25 * 4
    # One position per image, whatever its size.
    assert Layer(16, 4, 1, 0).flops(500, 500) == 2 * 16 * 4
    assert Layer(3, 12, 3, 2, norm=12, bias=True).parameters == 3 * 12 * 9 + 12 + 24


@pytest.mark.parametrize(
    "keys",
    [
        {"backbone": "resnet50"},
        {"backbone": "resnet101", "head_channels": 64},
        {"backbone": "efficientnet_lite0", "low_level_channels": 32},
        {"backbone": "tiny", "tiny_width": 12, "tiny_depth": 1, "head_channels": 32, "low_level_channels": 16},
        {"backbone": "tiny", "tiny_width": 10, "tiny_depth": 3},
    ],
)
def test_layers_are_those_of_the_built_network(keys: dict[str, object]) -> None:
    model = ModelConfig.model_validate({"pretrained": "none", **keys})
    with torch.device("meta"):
        network = build_network(model, 21).eval()
        counts = []
        for size in ((64, 96), (49, 65)):
            with FlopCounterMode(display=False) as counter:
                network(torch.empty(1, 3, *size))
            counts.append(counter.get_total_flops())
    layers = layers_of(model, 21)
    assert counts == [sum(layer.flops(*size) for layer in layers) for size in ((64, 96), (49, 65))]
    assert sum(parameter.numel() for parameter in network.parameters()) == sum(layer.parameters for layer in layers)
    assert sum(isinstance(module, nn.Conv2d) for module in network.modules()) == len(layers)


# --- work -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["supervised", "cps", "cps on unlabeled alone", "cutmix"])
@pytest.mark.parametrize("stride", [1, 4])
def test_work_of_a_step_is_what_a_real_step_does(config: RunConfig, method: str, stride: int) -> None:
    chosen = {
        "supervised": {"name": "supervised"},
        "cps": {"name": "cps", "weight": 1.0, "cutmix": False},
        "cps on unlabeled alone": {"name": "cps", "weight": 1.0, "cutmix": False, "on_labeled": False},
        "cutmix": {"name": "cps", "weight": 1.0, "cutmix": True},
    }[method]
    config = changed(config, method=chosen, loss={"stride": stride}, data={"labeled_batch": 2, "unlabeled_batch": 3})
    real = method_of(config)
    calls = {"trained": 0, "teacher": 0}

    def count(module: nn.Module, inputs: object, output: object) -> None:
        calls["trained" if torch.is_grad_enabled() else "teacher"] += 1

    for module in real.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(count)
    batch = _batch(config, real.draws, 0).to("cpu")
    with FlopCounterMode(display=False) as counter:
        real.losses(batch, Clock(0, 10)).objectives["main"].backward()  # type: ignore[no-untyped-call]
    work = step_work(config)
    # The first convolution has no gradient of its input; everything else is exact.
    assert work.gflop == pytest.approx(counter.get_total_flops() / 1e9, rel=0.02)
    assert work.calls == 3 * calls["trained"] + calls["teacher"]
    assert work.images == len(batch.image) + sum(len(draw.image) for draw in batch.unlabeled)


def test_traffic_by_hand(config: RunConfig) -> None:
    config = changed(config, data={"crop": [40, 42], "labeled_batch": 2, "unlabeled_batch": 3}, loss={"stride": 4})
    values = 10 * 11 * 19  # pixels that the losses see, and classes
    # Two directions over 3 mixed images with the fuzzy loss, two networks with labels; maps: 2 trained ones of every
    # labeled and mixed image, 4 of teachers.
    expected = values * (2 * 3 * 237 + 2 * 2 * 34 + 2 * (2 + 3) * 8 + 4 * 3 * 10)
    assert step_work(config).gigabytes == pytest.approx(expected / 1e9)
    plain = changed(config, method={"name": "cps", "weight": 1.0, "cutmix": False}, loss={"kind": "ce"})
    expected = values * (2 * (2 + 3) * 44 + 2 * 2 * 34 + 2 * (2 + 3) * 8)
    assert step_work(plain).gigabytes == pytest.approx(expected / 1e9)


@pytest.mark.parametrize("length", [40, 64, 100, 129, 500])
@pytest.mark.parametrize("rate", [0.5, 2 / 3, 1.0])
def test_windows_are_those_of_the_evaluation(length: int, rate: float) -> None:
    assert _windows(length, 64, rate) == len(window_starts(length, 64, rate))


def test_validation_of_cityscapes_by_hand(config: RunConfig) -> None:
    data = {"dataset": "cityscapes", "crop": [800, 800]}
    sliding = changed(config, data=data, eval={"protocol": "sliding", "stride_rate": 2 / 3})
    forward = sum(layer.flops(800, 800) for layer in layers_of(sliding.model, 19)) / 1e9
    # 1024 x 2048 in windows of 800 at a stride of 534: 2 x 4.
    assert validation_work(sliding).gflop == pytest.approx(500 * 8 * forward)
    whole = changed(config, data=data)
    forward = sum(layer.flops(1024, 2048) for layer in layers_of(whole.model, 19)) / 1e9
    assert validation_work(whole).gflop == pytest.approx(500 * forward)


def test_a_run_is_its_steps_and_validations(config: RunConfig) -> None:
    config = changed(config, train={"steps": 7, "evaluate_every": 3})
    step, validation, run = step_work(config), validation_work(config), run_work(config)
    # After steps 3 and 6, and at the end.
    assert run.gflop == pytest.approx(7 * step.gflop + 3 * validation.gflop)
    assert run.calls == 7 * step.calls + 3 * validation.calls
    assert run.images == 7 * step.images


def test_nothing_is_left_without_a_cost() -> None:
    assert set(STEPS) == set(METHODS)
    assert set(PIXEL_BYTES) == set(KINDS)
    supervised = ("ce", "ohem")
    assert set(LABEL_BYTES) == set(supervised)
    assert set(IMAGE_SIZES) == set(SPECS)
    assert IMAGE_SIZES["synthetic_city"] == synthetic.CITY_SIZE
    assert IMAGE_SIZES["synthetic_voc"] == synthetic.VOC_SIZE
    assert all(spec.image_size in (None, IMAGE_SIZES[name]) for name, spec in SPECS.items())
    assert checkpoint.KEEP == KEPT_STEPS


def test_disk_is_that_of_the_states(config: RunConfig) -> None:
    real = method_of(config)
    weights = sum(parameter.numel() for network in real.networks() for parameter in network.parameters())
    assert 2 * parameters(config) == weights
    # best and last; two step checkpoints and one being written, each with weights and momentum.
    assert kept_bytes(config) - 60_000 == 2 * 4 * weights
    assert running_bytes(config) == 3 * 2 * 4 * weights


# --- seconds --------------------------------------------------------------------------------------------------------

SPEED = Speed("for tests", per_call=0.5, per_gflop=2.0, per_gigabyte=10.0, per_image=1.0, per_shared_call=0.25)


def test_seconds_by_hand() -> None:
    work = Work(calls=4, gflop=3, gigabytes=0.2, images=6)
    assert SPEED.seconds(work) == pytest.approx(4 * 0.5 + 3 * 2 + 0.2 * 10 + 6)
    # Three workers make all calls, wait for each other, and share the rest.
    assert SPEED.seconds(work, workers=3) == pytest.approx(4 * 0.75 + (6 + 2 + 6) / 3)


def test_kinds_of_steps_differ_where_their_time_does(config: RunConfig) -> None:
    others = [
        changed(config, loss={"kind": "ce"}),
        changed(config, loss={"stride": 4}),
        changed(config, data={"crop": [48, 48]}),
        changed(config, model={"tiny_depth": 2}),
        changed(config, train={"precision": "bf16"}),
        changed(config, train={"channels_last": True}),
        changed(config, method={"name": "supervised"}),
        changed(config, method={"name": "cps", "weight": 1.0, "cutmix": False}),
    ]
    assert len({step_key(each) for each in [config, *others]}) == len(others) + 1
    same = [
        changed(config, data={"labeled_batch": 8}),
        changed(config, loss={"threshold": 0.5}),
        changed(config, optim={"lr": 1.0}),
        config.model_copy(update={"seed": 5}),
    ]
    assert {step_key(each) for each in same} == {step_key(config)}


def measured(config: RunConfig, ratio: float, device: str = "here") -> Measured:
    work = replace(step_work(config), images=0.0)
    return Measured(device, False, 1, step_key(config), 4, 4, 5, ratio * CPU_CORE.seconds(work), work)


def test_calibration_scales_what_was_counted(config: RunConfig) -> None:
    plain = CostModel(CPU_CORE)
    assert plain.step_seconds(config) == pytest.approx(CPU_CORE.seconds(step_work(config)))
    assert plain.source.startswith("assumed: ")
    ce = changed(config, loss={"kind": "ce"})
    supervised = changed(config, method={"name": "supervised"})
    unseen = changed(config, model={"tiny_depth": 2})
    model = CostModel(CPU_CORE, (measured(config, 2.0), measured(ce, 3.0), measured(supervised, 10.0)))
    assert model.source == "measured on here, 3 kinds of steps"
    reading = CPU_CORE.per_image * step_work(config).images
    for each, ratio in ((config, 2.0), (ce, 3.0), (unseen, 3.0)):
        expected = ratio * (plain.step_seconds(each) - reading) + reading
        assert model.step_seconds(each) == pytest.approx(expected)
    # A measurement on half of the batch says as much about the whole one.
    half = changed(config, data={"labeled_batch": 2, "unlabeled_batch": 2})
    assert CostModel(CPU_CORE, (measured(half, 2.0),)).step_seconds(config) == pytest.approx(model.step_seconds(config))


def test_calibration_survives_the_file(config: RunConfig, tmp_path: Path) -> None:
    assert read_calibration(tmp_path) == []
    ce = changed(config, loss={"kind": "ce"})
    first = [measured(config, 2.0), measured(ce, 2.0), measured(config, 4.0, device="elsewhere")]
    write_calibration(tmp_path, first)
    assert read_calibration(tmp_path) == first
    again = measured(config, 3.0)
    path = write_calibration(tmp_path, [again])
    assert read_calibration(tmp_path) == [*first[1:], again]
    path.write_bytes(b"PAR1")
    with pytest.raises(FplError, match="no calibration"):
        read_calibration(tmp_path)
