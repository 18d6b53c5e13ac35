"""A step of GCT against one in plain PyTorch, and whom each of its objectives moves."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch
from fpl.losses.kernels import use
from fpl.methods.base import Clock
from fpl.methods.gct.method import Gct
from fpl.methods.gct.options import GctOptions
from fpl.train.step import take_step
from tests.methods.gct_loops import plain_handled, plain_truth
from tests.methods.support import CLOCK, batch_for, build

GCT = ["method.name=gct", "method.detector_channels=4", "loss.kind=mse", "data.groups=2", "data.num_classes=5"]
# What an untrained detector says counts.
EAGER = [*GCT, "method.flawless_below=0", "method.flaw_threshold=0.3", "method.ramp=0"]


def config_for(run_file: Path, *more: str, base: list[str] = GCT) -> RunConfig:
    return load_config(run_file, overrides=[*base, *more])


def build_gct(config: RunConfig) -> Gct:
    method = build(config)
    assert isinstance(method, Gct)
    return method


def double(batch: Batch) -> Batch:
    batch.image = batch.image.double()
    for draw in batch.unlabeled:
        draw.image = draw.image.double()
    return batch


class Step:
    """The losses of the published codes on one batch in plain PyTorch, everything at the images' size."""

    def __init__(self, method: Gct, batch: Batch, released: bool = False) -> None:
        options = method.options
        labeled = len(batch.image)
        image = torch.cat([batch.image, batch.unlabeled[0].image])
        self.networks, self.detector = 0.0 * image.sum(), 0.0 * image.sum()
        predictions = []
        for network in method.networks():
            logits = torch.cat([network(image[:labeled]), network(image[labeled:])])
            predictions.append(logits.softmax(1))
            self.networks = self.networks + F.cross_entropy(logits[:labeled], batch.label, ignore_index=255)
        maps = [method.detector(torch.cat([image, each.detach()], 1)) for each in predictions]
        flaws = [
            torch.stack([plain_handled(one, released, options.flawless_below) for one in each.detach()])
            for each in maps
        ]
        limit = options.flaw_threshold
        both_bad = ((flaws[0] > limit) & (flaws[1] > limit)).double()
        flaws = [each * (each <= limit) + (each > limit) for each in flaws]
        for own, other in ((0, 1), (1, 0)):
            keeps = (flaws[other] >= flaws[own]).double().unsqueeze(1)
            target = (keeps * predictions[own] + (1 - keeps) * predictions[other]).detach()
            again = method.detector(torch.cat([image, predictions[own]], 1))
            self.networks = self.networks + options.correction_weight * (both_bad * again**2).mean()
            self.networks = self.networks + options.weight * ((predictions[own] - target) ** 2).mean()
            for number in range(labeled):
                predicted = predictions[own][number].detach()
                truth = plain_truth(predicted, batch.label[number], 0.5, options.nu)
                error = maps[own][number] - truth
                if released:  # the cut is made where autograd does not see it
                    error = error + (maps[own][number].clamp(min=0) - maps[own][number]).detach()
                self.detector = self.detector + options.detector_weight * (error**2).mean() / labeled / 2
        self.bad, self.taught = both_bad.mean().item(), (flaws[0] != flaws[1]).double().mean().item()


# Small: the loops are slow.
SMALL = ["data.crop=[33,33]", "data.labeled_batch=2", "data.unlabeled_batch=2", "data.num_classes=3"]


@pytest.mark.parametrize("released", [False, True])
def test_a_step_is_the_published_one(run_file: Path, released: bool) -> None:
    fidelity = "released" if released else "described"
    config = config_for(run_file, *SMALL, f"method.fidelity={fidelity}", base=EAGER)
    method = build_gct(config).double()
    # Maps around 0.3: some are cut, all are flawed.
    nn.init.constant_(method.detector.get_parameter("layers.21.bias"), 0.1)
    other = copy.deepcopy(method)
    batch = double(batch_for(config, 1))
    with use("tensor"):
        take_step(method, optimizers := method.optimizers(), batch, CLOCK, config.train, torch.device("cpu"))
    expected = Step(other, batch, released)
    assert 0.01 < expected.bad < 0.99 and 0.01 < expected.taught < 0.99
    # In the order of the codes: each loss backwards into everything, and one optimizer's step for its own parameters.
    for loss, modules in ((expected.networks, other.networks()), (expected.detector, [other.detector])):
        other.zero_grad()
        loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        for module in modules:
            own = dict(method.named_modules())[next(name for name, each in other.named_modules() if each is module)]
            for (name, theirs), ours in zip(module.named_parameters(), own.parameters(), strict=True):
                assert theirs.grad is not None and ours.grad is not None
                largest = float(theirs.grad.abs().max())
                torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-7 * largest + 1e-12, msg=name)
    # Adam's first step is as long as its rate, which has decayed by poly.
    adam = optimizers["detector"].param_groups[0]
    assert adam["betas"] == (0.9, 0.99) and adam["weight_decay"] == 0
    assert adam["lr"] == pytest.approx(1e-4 * (1 - CLOCK.progress) ** 0.9)
    for before, after in zip(other.detector.parameters(), method.detector.parameters(), strict=True):
        assert before.grad is not None
        moved = adam["lr"] * before.grad / (before.grad.abs() + 1e-8)
        torch.testing.assert_close(before - after, moved, rtol=1e-4, atol=1e-9)


def test_losses_are_weighted_and_ramped(run_file: Path) -> None:
    config = config_for(run_file, "method.ramp=0.5", "method.correction_weight=3", base=EAGER)
    for step, factor in ((0, math.exp(-5)), (1, math.exp(-1.25)), (2, 1.0), (3, 1.0)):
        losses = build_gct(config).losses(batch_for(config, 1), Clock(step, 4))
        terms = losses.terms
        assert terms["dynamic_consistency"] > 0 and terms["flaw_correction"] > 0
        expected = 3 * terms["flaw_correction"] + 100 * factor * terms["dynamic_consistency"]
        torch.testing.assert_close(losses.unsupervised, expected)
        both = terms["supervised_1"] + terms["supervised_2"]
        torch.testing.assert_close(losses.objectives["main"], both + expected)
        torch.testing.assert_close(losses.objectives["detector"], 10 * terms["flaw_detector"])


def test_neither_objective_has_a_gradient_for_the_others_parameters(run_file: Path) -> None:
    """The detector's reaches no network; the networks' goes through the detector, whose optimizer never sees it."""
    config = config_for(run_file, base=EAGER)
    method = build_gct(config)
    losses = method.losses(batch_for(config, 1), CLOCK)
    networks = [parameter for network in method.networks() for parameter in network.parameters()]
    through = torch.autograd.grad(losses.objectives["detector"], networks, retain_graph=True, allow_unused=True)
    assert all(gradient is None for gradient in through)
    detector = list(method.detector.parameters())
    through = torch.autograd.grad(losses.objectives["main"], detector, retain_graph=True, allow_unused=True)
    assert any(gradient is not None and bool(gradient.any()) for gradient in through)
    # A step with one of the two objectives left out moves nothing of the other's.
    for kept in ("main", "detector"):
        method = build_gct(config)
        still: nn.Module = method.detector if kept == "main" else nn.ModuleList(method.networks())
        before = copy.deepcopy(list(still.parameters()))
        compute = method.losses

        def only(batch: Batch, clock: Clock, kept: str = kept, compute: Any = compute) -> Any:
            losses = compute(batch, clock)
            losses.objectives = {kept: losses.objectives[kept]}
            return losses

        method.losses = only  # type: ignore[method-assign]
        take_step(method, method.optimizers(), batch_for(config, 1), CLOCK, config.train, torch.device("cpu"))
        assert all(torch.equal(one, other) for one, other in zip(before, still.parameters(), strict=True))
        assert all(parameter.grad is None for parameter in still.parameters())


def test_flaw_correction_alone_moves_networks_where_both_are_bad(run_file: Path) -> None:
    config = config_for(run_file, "method.weight=0", base=EAGER)
    method = build_gct(config)
    losses = method.losses(batch_for(config, 1), CLOCK)
    assert losses.unsupervised is not None
    found = torch.autograd.grad(losses.unsupervised, method.probe_parameters(), retain_graph=True)
    assert all(bool(gradient.any()) for gradient in found)
    # Without a pixel where both are bad there is nothing to correct.
    method = build_gct(config_for(run_file, "method.weight=0", "method.flaw_threshold=1", base=EAGER))
    losses = method.losses(batch_for(config, 1), CLOCK)
    assert losses.terms["flaw_correction"] == 0 and losses.terms["both_bad_share"] == 0


def test_groups_hold_their_own_labeled_images(run_file: Path) -> None:
    method = build_gct(config_for(run_file))
    labeled, unlabeled = torch.arange(4), torch.arange(10, 14)
    joint = method.by_group(labeled, unlabeled)
    assert joint.tolist() == [0, 1, 10, 11, 2, 3, 12, 13]
    assert method._labeled_part(joint, 4).tolist() == [0, 1, 2, 3]


def remember_sizes(method: Gct, sizes: list[tuple[int, ...]]) -> None:
    forward = method.pixel_loss.forward

    def watch(*logits: Any, inside: Tensor, **keywords: Any) -> Any:
        sizes.append(tuple(inside.shape[1:]))
        return forward(*logits, inside=inside, **keywords)

    method.pixel_loss.forward = watch  # type: ignore[method-assign, assignment]


def test_thin_logits_are_taught_by_the_whole_maps(run_file: Path) -> None:
    """`loss.stride` thins the pixel loss alone: verdict, correction and the detector's loss are those of all pixels."""
    terms, sizes = {}, list[tuple[int, ...]]()
    for stride in (1, 4):
        config = config_for(run_file, f"loss.stride={stride}", base=EAGER)
        method = build_gct(config)
        remember_sizes(method, sizes)
        terms[stride] = method.losses(batch_for(config, 1), CLOCK).terms
    for name in ("flaw_correction", "flaw_detector", "both_bad_share"):
        assert torch.equal(terms[1][name], terms[4][name])
    assert sizes == [(40, 40), (40, 40), (10, 10), (10, 10)]
    assert not torch.equal(terms[1]["dynamic_consistency"], terms[4]["dynamic_consistency"])


@pytest.mark.parametrize("kind", ["mse", "mse_logits", "soft", "ce", "fpl"])
def test_own_targets_are_nothing_in_the_published_loss(run_file: Path, kind: str) -> None:
    values = []
    for own in (True, False):
        config = config_for(run_file, f"loss.kind={kind}", "method.weight=1", base=EAGER)
        method = build_gct(config)
        method.options = method.options.model_copy(update={"own_target": own})
        losses = method.losses(batch_for(config, 1), CLOCK)
        gradient = torch.autograd.grad(losses.terms["dynamic_consistency"], method.probe_parameters())
        values.append([losses.terms["dynamic_consistency"].detach(), *gradient])
    if kind in ("mse", "mse_logits", "soft"):
        torch.testing.assert_close(values[0], values[1], rtol=1e-4, atol=1e-7)
        assert isinstance(config_for(run_file, f"loss.kind={kind}", "method.own_target=false").method, GctOptions)
    else:
        assert values[0][0] > values[1][0] > 0


def test_own_target_is_a_choice_for_kinds_with_a_value_there_alone(run_file: Path) -> None:
    for kind, kept in (("mse", True), ("soft", True), ("ce", False), ("fpl", False)):
        options = config_for(run_file, f"loss.kind={kind}", "method.own_target=false").method
        assert isinstance(options, GctOptions) and options.own_target is kept


def test_the_first_network_is_evaluated_and_the_second_teaches(run_file: Path) -> None:
    method = build_gct(config_for(run_file)).eval()
    image = torch.randn(1, 3, 40, 40)
    torch.testing.assert_close(method.predict(image), method.network(image))
    student, teacher = method.teaching_logits(image)
    assert torch.equal(student, method.network(image)) and torch.equal(teacher, method.network_2(image))
    assert not torch.equal(student, teacher)


def test_statistics_are_of_unlabeled_pixels_with_their_truth(run_file: Path) -> None:
    config = config_for(run_file, "loss.kind=fpl", "method.weight=1", base=EAGER)
    method = build_gct(config)
    method.pixel_loss.collect = method.pixel_loss.diagnose = True
    batch = batch_for(config, 1)
    batch.unlabeled[0].truth = torch.full((4, 40, 40), 255, dtype=torch.uint8)
    batch.unlabeled[0].truth[0, 0, :7] = 2
    terms = method.losses(batch, CLOCK).pixel_terms
    assert sorted(terms) == ["12", "21"]
    for term in terms.values():
        assert int(term.statistics["k_histogram"].sum()) == 4 * 40 * 40
        assert int(term.statistics["labeled_pixels"]) == 7


def test_options_say_what_is_odd(run_file: Path) -> None:
    def warned(*more: str) -> list[str]:
        config = config_for(run_file, *more)
        return config.method.warnings(config)

    assert warned() == []
    assert "another scale" in warned("loss.kind=fpl")[0]
    assert warned("method.weight=0") == []  # flaw correction is left
    assert "no influence" in warned("method.weight=0", "method.correction_weight=0")[0]
    assert (
        config_for(run_file, "method.weight=0", "method.ramp=0.5").method
        == config_for(run_file, "method.weight=0").method
    )
    constant = build_gct(config_for(run_file, "method.detector_schedule=constant")).optimizers()["detector"]
    assert constant.set_rate(5, 6) == 1e-4


def test_raw_logits_are_not_enlarged_twice(run_file: Path) -> None:
    """The pixel loss gets the networks' small logits, so that a fused one never stores the large ones."""
    method = build_gct(config_for(run_file))
    shapes = []
    forward = method.pixel_loss.forward

    def watch(student: Tensor, teacher: Tensor, *rest: Any, **keywords: Any) -> Any:
        shapes.append((student.shape, teacher.requires_grad, keywords["second"].requires_grad))
        return forward(student, teacher, *rest, **keywords)

    method.pixel_loss.forward = watch  # type: ignore[method-assign, assignment]
    method.losses(batch_for(method.config, 1), CLOCK)
    small = method.network.raw(torch.zeros(2, 3, 40, 40)).logits
    assert shapes == [((8, *small.shape[1:]), False, False)] * 2
