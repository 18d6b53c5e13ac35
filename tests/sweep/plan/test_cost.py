from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fpl.config.compose import validate
from fpl.config.registry import method_class, method_names
from fpl.config.schema import RunConfig
from fpl.config.sections import ModelConfig
from fpl.data import synthetic
from fpl.data.spec import SPECS
from fpl.losses.pixel import KINDS
from fpl.methods.base import Clock, Method
from fpl.models import build_network
from fpl.sweep.plan.calibrate import _batch, _OneImage
from fpl.sweep.plan.convolutions import Layer, auxiliary_layers, layers_of
from fpl.sweep.plan.cost import (
    IMAGE_SIZES,
    KEPT_STEPS,
    LABEL_BYTES,
    PIXEL_BYTES,
    STEPS,
    _windows,
    kept_bytes,
    parameters,
    run_work,
    running_bytes,
    step_key,
    step_work,
    validation_work,
)
from fpl.train import checkpoint
from fpl.train.evaluate import window_starts
from fpl.train.runtime import Workers

AEL = {"name": "ael", "paste_excluded": [0, 1]}


def changed(config: RunConfig, **sections: dict[str, object]) -> RunConfig:
    tree = config.model_dump(mode="json")
    for section, values in sections.items():
        tree[section] = values if section == "method" else tree[section] | values
    return validate(tree)


def method_of(config: RunConfig) -> Method:
    torch.manual_seed(0)
    build = method_class(config.method)
    return build(config, lambda: build_network(config.model, config.data.num_classes), Workers())


class CountedImages(_OneImage):
    reads = 0

    def read(self, index: int, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.reads += 1
        return super().read(index, position)


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
    # Sides of 20 and 9 after the stem, 11 and 5 after a pooling that rounds up, then 6 and 3.
    assert Layer(8, 4, 1, 8, wide_pooling=True).flops(40, 17) == 2 * 8 * 4 * 6 * 3


@pytest.mark.parametrize(
    "keys",
    [
        {"backbone": "resnet50"},
        {"backbone": "resnet101", "head_channels": 64},
        {"backbone": "efficientnet_lite0", "low_level_channels": 32},
        {"backbone": "tiny", "tiny_width": 12, "tiny_depth": 1, "head_channels": 32, "low_level_channels": 16},
        {"backbone": "tiny", "tiny_width": 10, "tiny_depth": 3},
        {"backbone": "resnet50", "network": "ael"},
        {"backbone": "resnet101", "network": "ael", "low_level_channels": 256},
        {"backbone": "efficientnet_lite0", "network": "ael", "head_channels": 64},
        {"backbone": "tiny", "network": "ael", "tiny_width": 12, "tiny_depth": 2, "head_channels": 32},
    ],
)
def test_layers_are_those_of_the_built_network(keys: dict[str, object]) -> None:
    model = ModelConfig.model_validate({"pretrained": "none", **keys})
    with torch.device("meta"):
        network = build_network(model, 21).eval()
        sizes = ((64, 96), (49, 65), (66, 69))
        counts, auxiliary_counts = [], []
        for size in sizes:
            image = torch.empty(1, 3, *size)
            with FlopCounterMode(display=False) as counter:
                network(image)
            counts.append(counter.get_total_flops())
            features = network.encode(image)
            with FlopCounterMode(display=False) as counter:
                if network.auxiliary is not None:
                    network.classify_auxiliary(features, size)
            auxiliary_counts.append(counter.get_total_flops())
    layers, auxiliary = layers_of(model, 21), auxiliary_layers(model, 21)
    assert counts == [sum(layer.flops(*size) for layer in layers) for size in sizes]
    assert auxiliary_counts == [sum(layer.flops(*size) for layer in auxiliary) for size in sizes]
    all_layers = (*layers, *auxiliary)
    assert sum(parameter.numel() for parameter in network.parameters()) == sum(layer.parameters for layer in all_layers)
    assert sum(isinstance(module, nn.Conv2d) for module in network.modules()) == len(all_layers)


# --- work -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["supervised", "cps", "cps on unlabeled alone", "cutmix", "ael"])
@pytest.mark.parametrize("network", ["cps", "ael"])
@pytest.mark.parametrize("stride", [1, 4])
def test_work_of_a_step_is_what_a_real_step_does(config: RunConfig, method: str, network: str, stride: int) -> None:
    chosen = {
        "supervised": {"name": "supervised"},
        "cps": {"name": "cps", "weight": 1.0, "cutmix": False},
        "cps on unlabeled alone": {"name": "cps", "weight": 1.0, "cutmix": False, "on_labeled": False},
        "cutmix": {"name": "cps", "weight": 1.0, "cutmix": True},
        "ael": AEL,
    }[method]
    data = {"labeled_batch": 2, "unlabeled_batch": 3, "groups": 1}
    config = changed(config, method=chosen, loss={"stride": stride}, data=data, model={"network": network})
    real = method_of(config)
    source = CountedImages(config)
    real.attach(source)
    calls = {"trained": 0, "teacher": 0}

    def count(module: nn.Module, inputs: object, output: object) -> None:
        calls["trained" if torch.is_grad_enabled() else "teacher"] += 1

    for module in real.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(count)
    batch = _batch(config, real.request.draws, 0, paste=real.request.paste is not None).to("cpu")
    with FlopCounterMode(display=False) as counter:
        real.losses(batch, Clock(0, 10)).objectives["main"].backward()  # type: ignore[no-untyped-call]
    work = step_work(config)
    # The first convolution has no gradient of its input; everything else is exact.
    assert work.gflop == pytest.approx(counter.get_total_flops() / 1e9, rel=0.02)
    assert work.calls == 3 * calls["trained"] + calls["teacher"]
    pasted = 0.0 if batch.partner is None else config.method.paste_probability * len(batch.partner.image)
    assert work.images == len(batch.image) + sum(len(draw.image) for draw in batch.unlabeled) + source.reads + pasted


def test_work_of_the_published_ael_step_by_hand(config: RunConfig) -> None:
    crop = (769, 769)
    model = {"backbone": "resnet101", "network": "ael", "aspp_rates": [12, 24, 36]}
    model |= {"head_channels": 256, "low_level_channels": 256}
    config = changed(
        config,
        data={"dataset": "cityscapes", "crop": crop, "labeled_batch": 16, "unlabeled_batch": 8},
        model=model,
        method={"name": "ael"},
    )
    forward = sum(layer.flops(*crop) for layer in layers_of(config.model, 19)) / 1e9
    auxiliary = sum(layer.flops(*crop) for layer in auxiliary_layers(config.model, 19)) / 1e9
    work = step_work(config)
    # Trained: 16 labeled and 8 mixed images. Teacher: 16 labeled and twice 8 unlabeled ones.
    assert work.gflop == pytest.approx((3 * 24 + 32) * forward + 3 * 16 * auxiliary)
    # 17.4 TFLOP on each of 8 GPUs: what the assumed speed of a V100 goes by.
    assert work.gflop / 8 == pytest.approx(17_400, rel=0.005)
    values = 769 * 769 * 19 / 1e9
    # Pixel loss with its weights on 24 pairs; two heads on 16 labeled images, and the confidence in them; maps of 24
    # trained images, of 16 from the auxiliary head and of 32 from the teacher.
    expected = values * (24 * (237 + 38) + 16 * (2 * 34 + 23) + (24 + 16) * 8 + 32 * 10)
    assert work.gigabytes == pytest.approx(expected)
    assert work.images == 16 + 0.5 * 16 + 2 * 8
    unpasted = changed(config, method={"name": "ael", "copy_paste": False})
    assert step_work(unpasted).images == 32


def test_traffic_by_hand(config: RunConfig) -> None:
    config = changed(
        config, data={"crop": [40, 42], "labeled_batch": 2, "unlabeled_batch": 3, "groups": 1}, loss={"stride": 4}
    )
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
    forward_whole = sum(layer.flops(1024, 2048) for layer in layers_of(whole.model, 19)) / 1e9
    assert validation_work(whole).gflop == pytest.approx(500 * forward_whole)
    center = changed(config, data=data, eval={"protocol": "center"})
    assert validation_work(center).gflop == pytest.approx(500 * forward)
    assert validation_work(changed(center, eval={"subsample": 93})).gflop == pytest.approx(93 * forward)
    assert validation_work(changed(center, eval={"subsample": 900})).gflop == pytest.approx(500 * forward)
    # Of 2975 training images 186 are labeled (1/16), of which positions 0, 4, ..., 184 are held out.
    held = changed(center, data={"split": {"fraction": "1/16", "holdout": 4}})
    assert validation_work(held).gflop == pytest.approx(47 * forward)
    # The auxiliary head has no part in it.
    ael = changed(center, model={"network": "ael"})
    forward = sum(layer.flops(800, 800) for layer in layers_of(ael.model, 19)) / 1e9
    assert validation_work(ael).gflop == pytest.approx(500 * forward)


def test_validation_calls_are_those_of_its_passes(config: RunConfig) -> None:
    """Drawn streets of 64 x 128: 32 go into 2^18 pixels; windows of Cityscapes go alone."""
    small = changed(config, data={"dataset": "synthetic_city"}, eval={"protocol": "whole"})
    layers = len(layers_of(small.model, 19))
    assert validation_work(small).calls == 4 * layers  # 32 + 32 + 32 + 4
    city = changed(config, data={"dataset": "cityscapes", "crop": [800, 800]}, eval={"protocol": "sliding"})
    assert validation_work(city).calls == 500 * 8 * layers


def test_a_run_is_its_steps_and_validations(config: RunConfig) -> None:
    config = changed(config, train={"steps": 7, "evaluate_every": 3})
    step, validation, run = step_work(config), validation_work(config), run_work(config)
    # After steps 3 and 6, and at the end.
    assert run.gflop == pytest.approx(7 * step.gflop + 3 * validation.gflop)
    assert run.calls == 7 * step.calls + 3 * validation.calls
    assert run.images == 7 * step.images


def test_nothing_is_left_without_a_cost() -> None:
    assert set(STEPS) == set(method_names())
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


def test_disk_of_a_teacher_holds_no_momentum(config: RunConfig) -> None:
    config = changed(config, method=AEL, model={"network": "ael"})
    real = method_of(config)
    trained = sum(parameter.numel() for network in real.networks() for parameter in network.parameters())
    weights = sum(parameter.numel() for parameter in real.parameters())
    assert weights == 2 * trained == 2 * parameters(config)
    assert kept_bytes(config) - 60_000 == 2 * 4 * weights
    assert running_bytes(config) == 3 * 4 * (weights + trained)


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
        changed(config, model={"network": "ael"}),
        changed(config, method=AEL),
        changed(config, method=AEL, loss={"kind": "ce"}),
    ]
    assert len({step_key(each) for each in [config, *others]}) == len(others) + 1
    same = [
        changed(config, data={"labeled_batch": 8}),
        changed(config, loss={"threshold": 0.5}),
        changed(config, optim={"lr": 1.0}),
        config.model_copy(update={"seed": 5}),
    ]
    assert {step_key(each) for each in same} == {step_key(config)}
