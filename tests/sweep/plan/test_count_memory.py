"""Memory by count beside memory by hand, as others counted it, and as the allocator hands it out in a real step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from fpl.config.compose import validate
from fpl.config.schema import RunConfig
from fpl.losses import PixelLoss, kernels
from fpl.methods.base import Clock
from fpl.sweep.plan.alive import BESIDE, Alive
from fpl.sweep.plan.cost import Memory, window_of
from fpl.sweep.plan.count import SIDES, _small
from fpl.sweep.plan.count_memory import Held, _there_and_back, count_memory
from fpl.sweep.plan.drawn import bare_method, prepared_step
from fpl.sweep.plan.fused import Fused
from fpl.sweep.plan.record import Pass
from fpl.train.step import take_step

CPU, META = torch.device("cpu"), torch.device("meta")
STEPS: dict[str, tuple[str, dict[str, object]]] = {
    "supervised": ("ael", {"name": "supervised"}),
    "cps": ("cps", {"name": "cps", "weight": 1.0, "cutmix": False}),
    "cutmix": ("cps", {"name": "cps", "weight": 1.0, "cutmix": True}),
    "ael": ("ael", {"name": "ael", "paste_excluded": [0, 1]}),
}


def changed(config: RunConfig, **sections: dict[str, object]) -> RunConfig:
    tree = config.model_dump(mode="json")
    for section, values in sections.items():
        tree[section] = values if section == "method" else tree[section] | values
    return validate(tree)


def memory_of(config: RunConfig) -> Memory:
    """The part of `count` that is looked at here."""
    smalls = [_small(config, side) for side in SIDES]
    return count_memory(bare_method(config, META), smalls, config.data.crop, window_of(config))


# --- following what is alive ----------------------------------------------------------------------------------------


def test_what_is_alive_by_hand() -> None:
    given = torch.zeros(10)
    with Alive() as alive:
        first = given * 2
        assert alive.total == 40
        view = first.view(2, 5)[1]
        first.add_(1)
        given.add_(1)
        assert alive.total == 40, "views, and what was there before, take nothing"
        alive.enter(7)
        second = torch.cat([first, first])
        assert alive.now == {BESIDE: 40, 7: 80}
        del first
        assert alive.total == 120, "the view holds it"
        del view
        alive.enter(BESIDE)
        del second
        assert alive.total == 0 and alive.peak == 120
    assert [phase.most for phase in alive.phases] == [{BESIDE: 40}, {BESIDE: 40, 7: 80}, {BESIDE: 0, 7: 80}]


def pass_of(module: nn.Module, *shape: int, differentiated: bool = True, dtype: torch.dtype = torch.float32) -> Held:
    item = Pass("", "__call__", (shape,), (False,), differentiated, True)
    return _there_and_back(module.to(dtype), item, dtype)


def test_what_a_pass_holds_by_hand() -> None:
    """3 -> 8 -> 8 channels on 16 x 16: of 4 images each map is 4 * 8 * 256 numbers."""
    with META:
        network = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, padding=1), nn.Sigmoid()
        )
    size = 4 * 8 * 256 * 4
    held = pass_of(network, 4, 3, 16, 16)
    # The rectified map, which the second convolution and the ReLU both need, is one; the result, which Sigmoid needs,
    # is the other; the second convolution's own result is needed by nobody.
    assert held.left == 2 * size and held.there == 3 * size and held.copies == 0
    # The gradients of the result, of what Sigmoid got and of what the convolution did, and that of its weights, are
    # alive at once, while nothing of the way there is gone yet.
    weights = 4 * (8 * 8 * 9 + 8)
    assert held.back == 3 * size + weights
    looked = pass_of(network, 4, 3, 16, 16, differentiated=False)
    # Two maps at a time, and the last one at the end.
    assert looked == Held(left=size, there=2 * size, back=0, copies=0)
    halved = pass_of(network, 4, 3, 16, 16, dtype=torch.bfloat16)
    assert halved == Held(size, 3 * size // 2, held.back // 2, copies=2 * (3 * 8 * 9 + 8 * 8 * 9))


# --- steps ----------------------------------------------------------------------------------------------------------


def real_peak(work: Callable[[], object]) -> int:
    """The most bytes that PyTorch's CPU allocator had handed out at once beyond what was out before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        work()
    now = peak = 0
    assert found.profiler is not None and found.profiler.kineto_results is not None
    for event in found.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


@pytest.mark.parametrize("kind", STEPS)
def test_a_step_holds_what_the_allocator_hands_out(config: RunConfig, kind: str) -> None:
    """At another size, and with other networks, than those at which the step was followed."""
    network, method = STEPS[kind]
    data = {"labeled_batch": 4, "unlabeled_batch": 4, "groups": 2, "crop": [136, 120]}
    model = {"network": network, "tiny_width": 24, "tiny_depth": 2, "head_channels": 48, "low_level_channels": 16}
    config = changed(config, method=method, data=data, model=model)
    with kernels.use(Fused()):
        step = prepared_step(config, CPU)
        clock = Clock(1, 10)
        # The optimizer's state is there from the second step on.
        take_step(step.method, step.optimizers, step.batch, clock, config.train, CPU)
        for optimizer in step.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        real = real_peak(lambda: take_step(step.method, step.optimizers, step.batch, clock, config.train, CPU))
    # Parameters' gradients come while all the rest goes. The largest parts are taken to be alive at once.
    assert 0.99 * real < memory_of(config).step < 1.15 * real


def test_images_decide_and_bf16_halves_what_networks_keep(config: RunConfig) -> None:
    large = changed(config, data={"crop": [128, 128], "labeled_batch": 8, "unlabeled_batch": 8}, loss={"stride": 4})
    small = changed(large, data={"labeled_batch": 4, "unlabeled_batch": 4})
    one, two = memory_of(small), memory_of(large)
    assert two.step == pytest.approx(2 * one.step, rel=0.05)
    assert two.copies_bf16 == one.copies_bf16 and two.gradients == one.gradients
    # Images and losses stay in float32.
    assert 0.5 * one.step < one.step_bf16 < 0.65 * one.step
    # Two networks are trained twice each; each pass has its copies.
    step = prepared_step(small, META)
    weights = sum(item.numel() for net in step.method.networks() for item in net.parameters() if item.ndim > 1)
    assert one.copies_bf16 == pytest.approx(2 * 2 * weights, rel=0.01)
    assert one.gradients == 4 * sum(item.numel() for item in step.method.parameters())


@pytest.mark.parametrize(("network", "side", "expected"), [("cps", 800, 2.13), ("ael", 769, 4.67)])
def test_activations_of_the_published_networks(config: RunConfig, network: str, side: int, expected: float) -> None:
    """What a ResNet-101 saves for its way back per image, in GiB, as it was counted apart from this suite."""
    model = {"backbone": "resnet101", "head_channels": 256, "network": network}
    model |= {"low_level_channels": 48} if network == "cps" else {"low_level_channels": 256, "aspp_rates": [12, 24, 36]}
    data = {"crop": [side, side], "labeled_batch": 2, "unlabeled_batch": 0, "groups": 1}
    alone = changed(config, method={"name": "supervised"}, data=data, model=model)
    memory = memory_of(alone)
    # Beside the network: the image, and the logits of 19 classes, enlarged for one head and two, with gradients.
    heads = 1 if network == "cps" else 2
    beside = side**2 * 4 * (3 + 19 * 2 * heads + 19)
    assert memory.step / 2 / 2**30 == pytest.approx(expected + beside / 2**30, rel=0.04)


# --- what stands in for the fused loss ------------------------------------------------------------------------------


def test_the_stand_in_holds_what_the_fused_loss_does(config: RunConfig) -> None:
    if not kernels.available("cpu"):
        pytest.skip("no compiler")
    torch.manual_seed(0)
    teacher = torch.randn(2, 19, 24, 24)
    peaks = []
    for name in (Fused(), "cpu"):
        student = torch.randn(2, 19, 24, 24, requires_grad=True)

        def work(student: Tensor = student) -> None:
            loss = PixelLoss("fpl")(student, teacher, size=(96, 96)).value
            loss.backward()  # type: ignore[no-untyped-call]

        with kernels.use(name):
            work()
            student.grad = None
            peaks.append(real_peak(work))
    one = 2 * 19 * 24 * 24 * 4
    full = F.interpolate(teacher, scale_factor=4.0).nbytes
    assert one <= peaks[0] <= peaks[1] * 1.1 and peaks[1] < peaks[0] + full / 4
