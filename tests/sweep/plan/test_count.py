"""Counts beside independent ones: by hand, as published, and of whole real steps."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fpl.config.compose import validate
from fpl.config.schema import RunConfig
from fpl.config.sections import ModelConfig
from fpl.data.batches import Batch
from fpl.methods.base import Clock, Losses, Method
from fpl.methods.optimizers import OptimizerSpec, Scheduled, make_optimizer
from fpl.methods.supervised.options import SupervisedOptions
from fpl.models import build_network
from fpl.sweep.plan import count as module
from fpl.sweep.plan import count_memory
from fpl.sweep.plan.cost import Cost, window_of
from fpl.sweep.plan.count import META, SIDES, count
from fpl.sweep.plan.drawn import DrawnImages, bare_method, drawn_batch
from fpl.sweep.plan.tally import Counter

AEL = {"name": "ael", "paste_excluded": [0, 1]}
RESNET: dict[str, object] = {"backbone": "resnet101", "head_channels": 256, "low_level_channels": 256}
CHOSEN: dict[str, dict[str, object]] = {
    "supervised": {"name": "supervised"},
    "cps": {"name": "cps", "weight": 1.0, "cutmix": False},
    "cps on unlabeled alone": {"name": "cps", "weight": 1.0, "cutmix": False, "on_labeled": False},
    "cutmix": {"name": "cps", "weight": 1.0, "cutmix": True},
    "ael": AEL,
}


def changed(config: RunConfig, **sections: dict[str, object]) -> RunConfig:
    tree = config.model_dump(mode="json")
    for section, values in sections.items():
        tree[section] = values if section == "method" else tree[section] | values
    return validate(tree)


def cost_of(config: RunConfig) -> Cost:
    return count(config, window_of(config))


def forward(config: RunConfig, size: tuple[int, int]) -> float:
    """GFLOP of one image through the network, counted by torch."""
    with torch.device("meta"):
        network = build_network(config.model, config.data.num_classes).eval()
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            network(torch.empty(1, 3, *size))
    return counter.get_total_flops() / 1e9


# --- the counter ----------------------------------------------------------------------------------------------------


def test_one_convolution_by_hand() -> None:
    # 3 -> 12 channels, 3x3, stride 2 on 48 x 48: a multiplication and an addition per weight and position.
    once = 2 * 3 * 12 * 9 * 24 * 24
    convolution = nn.Conv2d(3, 12, 3, stride=2, padding=1, bias=False)
    image = torch.zeros(1, 3, 48, 48)
    with torch.no_grad(), Counter() as counter:
        convolution(image)
    assert (counter.tally.calls, counter.tally.flops) == (1, once)
    # Read: image and weights; written: the result, 12 x 24 x 24. Float32.
    assert counter.tally.bytes == 4 * (3 * 48 * 48 + 12 * 27 + 12 * 24 * 24)
    # An image wants no gradient; the weights do, and the second convolution's input.
    second = nn.Conv2d(12, 4, 1)
    twice = 2 * 12 * 4 * 24 * 24
    with Counter() as there_and_back:
        second(convolution(image)).sum().backward()
    with Counter(ahead=True) as ahead:
        second(convolution(image))
    expected = (2 + 3, 2 * once + 3 * twice)
    assert (there_and_back.tally.calls, there_and_back.tally.flops) == expected
    assert (ahead.tally.calls, ahead.tally.flops) == expected
    frozen = second.requires_grad_(False)
    with Counter(ahead=True) as ahead:
        frozen(convolution(image))
    assert ahead.tally.calls == 2 + 2


def test_products_count_as_convolutions_do() -> None:
    layer, points = nn.Linear(6, 5), torch.zeros(7, 6, requires_grad=True)
    with Counter() as there_and_back:
        layer(points).sum().backward()
    with Counter(ahead=True) as ahead:
        layer(points)
    assert there_and_back.tally.flops == ahead.tally.flops == 3 * 2 * 7 * 6 * 5
    assert there_and_back.tally.calls == ahead.tally.calls == 3


def test_resnet50_as_published() -> None:
    from torchvision.models import resnet50

    with torch.device("meta"), torch.no_grad(), Counter() as counter:
        resnet50().eval()(torch.empty(1, 3, 224, 224))
    # torchvision states 4.09 GFLOP, counting a multiplication with its addition as one.
    assert counter.tally.flops / 2 == pytest.approx(4.09e9, rel=0.005)
    assert counter.tally.calls == 53 + 1


# --- steps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", CHOSEN)
@pytest.mark.parametrize("network", ["cps", "ael"])
def test_work_of_a_step_is_what_a_real_step_does(config: RunConfig, method: str, network: str) -> None:
    """At another size, and with another network, than those at which the step was recorded."""
    data = {"labeled_batch": 2, "unlabeled_batch": 3, "groups": 1, "crop": [72, 88]}
    model = {"network": network, "tiny_width": 12, "tiny_depth": 2, "low_level_channels": 24}
    config = changed(config, method=CHOSEN[method], data=data, model=model, loss={"stride": 4})
    real = bare_method(config, torch.device("cpu"))
    source = DrawnImages(config)
    real.attach(source)
    batch = drawn_batch(config, real, 0)
    trained, taught = [0], [0]

    def called(layer: nn.Module, *_: object) -> None:
        (trained if torch.is_grad_enabled() else taught)[0] += 1

    for layer in real.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(called)
    with FlopCounterMode(display=False) as counter:
        losses = real.losses(batch.to("cpu"), Clock(0, 10))
        losses.objectives["main"].backward()  # type: ignore[no-untyped-call]
    work = cost_of(config).step
    assert work.gflop == pytest.approx(counter.get_total_flops() / 1e9, rel=1e-9)
    # Three each, but for the first layer of every trained pass: an image wants no gradient.
    passes = {"supervised": 1, "cutmix": 4, "ael": 2}.get(method, 4)
    assert work.calls == 3 * trained[0] + taught[0] - passes
    pasted = 0.0 if batch.partner is None else real.request.paste.probability * len(batch.partner.image)
    assert work.images == len(batch.image) + sum(len(draw.image) for draw in batch.unlabeled) + source.reads + pasted


def test_passes_of_cps_with_cutmix(config: RunConfig) -> None:
    """Each network is trained on labeled and on mixed images, and teaches on two unlabeled ones."""
    config = changed(config, data={"crop": [512, 512], "labeled_batch": 2, "unlabeled_batch": 3, "groups": 1})
    once = forward(config, (512, 512))
    # Without the first layer's gradient of its input: 3 -> 8 channels, 3x3, half the size.
    first = 2 * 3 * 8 * 9 * 256**2 / 1e9
    assert cost_of(config).step.gflop == pytest.approx(2 * (3 * (2 + 3) + 2 * 3) * once - 2 * (2 + 3) * first)


def test_work_of_the_published_ael_step_by_hand(config: RunConfig) -> None:
    """What the assumed speed of a V100 goes by: 17.4 TFLOP on each of 8 GPUs on Cityscapes, 7.8 on VOC."""
    model = {**RESNET, "network": "ael", "aspp_rates": [12, 24, 36]}
    for dataset, side, classes, expected in (("cityscapes", 769, 19, 17_400), ("voc", 513, 21, 7_800)):
        data = {"dataset": dataset, "crop": (side, side), "labeled_batch": 4, "unlabeled_batch": 2, "groups": 2}
        ael = changed(config, data=data | {"num_classes": classes}, model=model, method={"name": "ael"})
        step = cost_of(ael).step
        # The auxiliary head: 3x3 from 1024 to 256 channels and 1x1 to the classes, at an eighth of the size.
        auxiliary = 2 * (1024 * 256 * 9 + 256 * classes) * math.ceil(side / 8) ** 2 / 1e9
        # The share of two GPUs. Trained: 4 labeled images and 2 mixed ones. Teacher: 4 labeled and 4 unlabeled ones.
        by_hand = (3 * 6 + 8) * forward(ael, (side, side)) + 3 * 4 * auxiliary
        assert step.gflop == pytest.approx(by_hand, rel=1e-3)
        assert step.gflop / 2 == pytest.approx(expected, rel=0.01)
        assert step.images == 4 + 0.5 * 4 + 4


def test_traffic_grows_with_pixels_classes_and_what_the_loss_does(config: RunConfig) -> None:
    base = changed(config, loss={"kind": "ce"})
    values = 40 * 40 * 19 / 1e9
    ce = cost_of(base).step.gigabytes
    # At the least: logits of 4 students and 8 teachers enlarged and read, with gradients, in float32.
    assert ce > values * 4 * (3 * 4 * 4 + 8 * 4)
    assert cost_of(config).step.gigabytes > 1.5 * ce
    larger = changed(base, data={"crop": [80, 120]})
    assert cost_of(larger).step.gigabytes == pytest.approx(6 * ce, rel=1e-9)
    thin = cost_of(changed(base, loss={"stride": 4})).step.gigabytes
    # A sixteenth of the pixels for the losses; images are mixed and normalised at their full size.
    assert ce / 16 < thin < ce / 4
    more = cost_of(changed(base, data={"labeled_batch": 8, "unlabeled_batch": 8})).step.gigabytes
    assert more == pytest.approx(2 * ce, rel=0.01)


# --- state and evaluation -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["cutmix", "ael"])
def test_state_is_that_of_the_method(config: RunConfig, method: str) -> None:
    config = changed(config, method=CHOSEN[method], model={"network": "ael"})
    real = bare_method(config, torch.device("cpu"))
    cost = cost_of(config)
    assert cost.weights == sum(4 * item.numel() if item.is_floating_point() else item.nbytes for item in state(real))
    # SGD keeps one momentum per trained number; a teacher has none.
    trained = sum(parameter.numel() for network in real.networks() for parameter in network.parameters())
    assert cost.optimizer == 4 * trained
    plain = changed(config, optim={"momentum": 0.0})
    assert cost_of(plain).optimizer == 0


def state(method: Method) -> list[Tensor]:
    return list(method.state_dict().values())


def test_a_look_is_one_pass_of_the_evaluated_network(config: RunConfig) -> None:
    model = {"network": "ael"}
    look = cost_of(changed(config, method=AEL, model=model)).look
    plain = changed(config, model=model)
    assert look.gflop == pytest.approx(forward(plain, (64, 128)))  # the auxiliary head has no part in it
    network = build_network(ModelConfig.model_validate(plain.model.model_dump()), 19)
    assert network.auxiliary is not None
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    own = [layer for layer in network.auxiliary.modules() if isinstance(layer, nn.Conv2d)]
    assert look.calls == len(layers) - len(own)


# --- a method that nobody knows -------------------------------------------------------------------------------------


class Judged(Method):
    """A network whose prediction a second module, on the network's embedding, judges; it keeps Adam's two averages."""

    def __init__(self, config: RunConfig, *rest: object) -> None:
        super().__init__(config, *rest)  # type: ignore[arg-type]
        self.judge = nn.Conv2d(config.model.head_channels, 1, 3, padding=1)

    def optimizers(self) -> dict[str, Scheduled]:
        judge = make_optimizer(OptimizerSpec(1e-4, kind="adam", schedule="constant"), [self.judge])
        return {**super().optimizers(), "judge": judge}

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        _, supervised = self.labeled_loss(self.network, self.network.raw(batch.image), batch.label)
        with torch.no_grad():
            embedding = self.network.decode(self.network.encode(batch.image))
        return Losses({"main": supervised, "judge": self.judge(embedding).square().mean()}, supervised=supervised)


def test_a_method_needs_to_say_nothing(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SupervisedOptions, "implementation", f"{__name__}:Judged")
    for counting in (module, count_memory):
        # Neither must know this method from another's steps, nor others from this one's.
        monkeypatch.setattr(counting, "_small_step", counting._small_step.__wrapped__)
    data = {"labeled_batch": 2, "unlabeled_batch": 0, "groups": 1, "crop": [64, 64]}
    small = {"backbone": "resnet50", "head_channels": 24, "low_level_channels": 12}
    config = changed(config, method={"name": "supervised"}, data=data, model=small)
    cost = cost_of(config)
    once = forward(config, (64, 64))
    first, judged = 2 * 3 * 64 * 9 * 32**2 / 1e9, 2 * 24 * 9 * 16**2 / 1e9
    # Trained on labels, and looked at once more up to the embedding, without the classifier; the judge's own weights.
    classifier = 2 * 24 * 19 * 16**2 / 1e9
    expected = 2 * (3 * once - first) + 2 * (once - classifier) + 2 * 2 * judged
    assert cost.step.gflop == pytest.approx(expected, rel=0.01)
    network = sum(parameter.numel() for parameter in build_network(config.model, 19).parameters())
    judge = 24 * 9 + 1
    assert cost.optimizer == pytest.approx(4 * (network + 2 * judge), rel=1e-4)
    assert cost.memory.gradients == pytest.approx(4 * (network + judge), rel=1e-4)


def test_small_sides_suit_every_network() -> None:
    assert all(side > 33 and side % 16 == 0 for side in SIDES)
    assert META.type == "meta"
