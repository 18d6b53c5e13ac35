"""GCT against second implementations: loops in float64 for its maps, plain PyTorch for a whole step."""

from __future__ import annotations

import copy
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import Tensor, nn

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch
from fpl.losses.kernels import use
from fpl.methods.base import Clock
from fpl.methods.gct.flaws import FlawDetector, HalfInstanceNorm, blur, compare, flaw_truth, gaussian, handled
from fpl.methods.gct.method import Gct
from fpl.methods.gct.options import GctOptions
from fpl.models.network import Raw
from fpl.train.step import take_step
from tests.methods.support import CLOCK, batch_for, build

Rows = list[list[float]]
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


# Second implementations, by loops over rows of numbers.


def mirrored(place: int, length: int) -> int:
    place = abs(place)
    return 2 * (length - 1) - place if place >= length else place


def blurred(rows: Rows, share: int) -> Rows:
    """A sum over the whole window at each place, with the weights that scipy makes."""
    height, width = len(rows), len(rows[0])
    size = min(height, width) // share
    size = size if size % 2 else size + 1
    spike = np.zeros((size, size))
    spike[size // 2, size // 2] = 1.0
    kernel = ndimage.gaussian_filter(spike, 0.3 * ((size - 1) * 0.5 - 1) + 0.8).tolist()
    half, result = size // 2, []
    for row in range(height):
        result.append([0.0] * width)
        for column in range(width):
            for down in range(-half, half + 1):
                line = rows[mirrored(row + down, height)]
                for right in range(-half, half + 1):
                    weight = kernel[down + half][right + half]
                    result[row][column] += weight * line[mirrored(column + right, width)]
    return result


def dilated(rows: Rows) -> Rows:
    height, width = len(rows), len(rows[0])
    around = (-1, 0, 1)
    return [
        [
            max(
                rows[row + down][column + right]
                for down in around
                for right in around
                if 0 <= row + down < height and 0 <= column + right < width
            )
            for column in range(width)
        ]
        for row in range(height)
    ]


def span(rows: Rows) -> tuple[float, float]:
    values = [value for row in rows for value in row]
    return min(values), max(values)


def stretched(rows: Rows) -> Rows:
    least, most = span(rows)
    return [[(value - least) / (most - least + 1e-9) for value in row] for row in rows]


def plain_truth(probabilities: Tensor, label: Tensor, mu: float, nu: int) -> Tensor:
    """G of one image from the one-hot label, which is 0 all over where the label is 255."""
    classes, height, width = probabilities.shape
    rows = [[0.0] * width for _ in range(height)]
    for row in range(height):
        for column in range(width):
            for number in range(classes):
                true = float(label[row, column] == number)
                rows[row][column] += mu * abs(true - float(probabilities[number, row, column]))
    rows = blurred(rows, 8)
    for _ in range(nu):
        rows = blurred(dilated(rows), 4)
    return torch.tensor(stretched(rows), dtype=torch.float64)


def plain_handled(maps: Tensor, released: bool, flawless: float = 0.1) -> Tensor:
    """The handled map of one image, in the order of the released code if asked."""
    rows = blurred([[value if value >= 0 else 0.0 for value in row] for row in maps.tolist()], 16)
    least, most = span(rows)
    if most > flawless:
        return torch.tensor(stretched(rows), dtype=torch.float64)
    value = (0.0 - least) / (most - least + 1e-9) if released else 0.0
    return torch.full_like(maps, value)


def some_maps(height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(height)
    noise = torch.randn(3, height, width, generator=generator, dtype=torch.float64)
    # A map with flaws, one below 0 all over but in a corner, and one whose flaws are all small.
    maps = torch.stack([noise[0], noise[1] - 5, 0.05 + 0.01 * noise[2]])
    maps[1, :3, :3] = 4.0
    return maps


@pytest.mark.parametrize(("size", "nu"), [((33, 33), 1), ((40, 46), 0), ((34, 33), 2)])
def test_the_truth_of_the_detector_is_that_of_the_loops(size: tuple[int, int], nu: int) -> None:
    generator = torch.Generator().manual_seed(nu)
    probabilities = (3 * torch.randn(2, 4, *size, generator=generator, dtype=torch.float64)).softmax(1)
    label = torch.randint(0, 4, (2, *size), generator=generator)
    label[0, :6] = 255
    found = flaw_truth(probabilities, label, nu)
    for image, mu in enumerate((0.5, 3.0)):  # a factor that the stretch takes out again
        expected = plain_truth(probabilities[image], label[image], mu, nu)
        torch.testing.assert_close(found[image], expected, rtol=1e-7, atol=1e-7)
    assert found.amin((1, 2)).tolist() == [0, 0] and torch.allclose(found.amax((1, 2)), torch.ones(2).double())


@pytest.mark.parametrize("size", [(33, 33), (64, 50)])
@pytest.mark.parametrize("released", [False, True])
def test_handled_maps_are_those_of_the_loops(size: tuple[int, int], released: bool) -> None:
    maps = some_maps(*size)
    found = handled(maps, 0.1, released=released)
    for image in range(3):
        torch.testing.assert_close(found[image], plain_handled(maps[image], released), rtol=1e-9, atol=1e-12)
    flawless = set(found[2].flatten().tolist())
    assert len(flawless) == 1 and (max(flawless) < 0 if released else max(flawless) == 0)
    # One image after the other: nothing depends on who else is in the batch.
    torch.testing.assert_close(found[1:2], handled(maps[1:2], 0.1, released=released), rtol=0, atol=0)


@pytest.mark.parametrize("size", [1, 3, 5, 11, 33, 129])
def test_the_kernel_is_the_one_that_scipy_makes(size: int) -> None:
    spike = np.zeros((size, size))
    spike[size // 2, size // 2] = 1.0
    expected = ndimage.gaussian_filter(spike, 0.3 * ((size - 1) * 0.5 - 1) + 0.8)
    np.testing.assert_allclose(np.outer(gaussian(size), gaussian(size)), expected, rtol=1e-12, atol=1e-16)
    assert math.fsum(gaussian(size)) == pytest.approx(1.0, abs=1e-14)


def test_a_blur_keeps_what_is_constant_and_is_not_that_of_bfloat16() -> None:
    maps = torch.full((2, 40, 40), 0.3)
    torch.testing.assert_close(blur(maps, 4), maps)
    maps = torch.rand(1, 40, 40, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(blur(maps, 4), blur(maps.double(), 4).float(), rtol=1e-6, atol=1e-6)


def test_who_teaches_whom() -> None:
    first = torch.tensor([[[0.1, 0.5, 0.3, 0.9, 0.7, 0.6, 0.2, 0.61]]])
    second = torch.tensor([[[0.4, 0.2, 0.3, 0.7, 0.6, 0.8, 0.9, 0.59]]])
    verdict = compare(first, second, 0.6)
    # 0.9 against 0.7: both are bad, and equal. 0.6 is not above the threshold yet.
    assert verdict.both_bad.int().tolist() == [[[0, 0, 0, 1, 0, 0, 0, 0]]]
    assert verdict.taught[0].int().tolist() == [[[0, 1, 0, 0, 1, 0, 0, 1]]]
    assert verdict.taught[1].int().tolist() == [[[1, 0, 0, 0, 0, 1, 1, 0]]]


def test_targets_are_those_of_masks_and_sums() -> None:
    """As both codes put them together: values above the threshold become 1, targets are sums of masked predictions."""
    generator = torch.Generator().manual_seed(0)
    flaws = torch.rand(2, 3, 8, 8, generator=generator)
    flaws[1, 0], flaws[0, 1, :, :4] = flaws[0, 0], 0.0
    predictions = torch.rand(2, 3, 8, 8, generator=generator)
    verdict = compare(flaws[0], flaws[1], 0.6)
    equal = flaws * (flaws <= 0.6) + (flaws > 0.6)
    keeps = [(equal[1] >= equal[0]).float(), (equal[0] >= equal[1]).float()]
    for own, other in ((0, 1), (1, 0)):
        target = keeps[own] * predictions[own] + (1 - keeps[own]) * predictions[other]
        found = torch.where(verdict.taught[own], predictions[other], predictions[own])
        torch.testing.assert_close(found, target)
    assert torch.equal(verdict.both_bad, (flaws[0] > 0.6) & (flaws[1] > 0.6))


@pytest.mark.parametrize(("classes", "million"), [(21, 8.294), (19, 8.292)])
def test_the_detector_has_the_published_parameters(classes: int, million: float) -> None:
    def expected(width: int) -> int:
        multiples = [1, 2, 2, 4, 4, 8, 8]
        weights = 16 * width * (3 + classes) + 16 * width * 8
        weights += sum(16 * width**2 * one * other for one, other in itertools.pairwise(multiples))
        # Biases, and the two parameters of half of the channels.
        return weights + sum(multiples) * width + 1 + sum(multiples) * width

    found = {width: sum(p.numel() for p in FlawDetector(classes, width).parameters()) for width in (4, 64)}
    assert found == {width: expected(width) for width in (4, 64)}
    assert round(found[64] / 1e6, 3) == million


def plain_detector(detector: FlawDetector, seen: Tensor, strides: list[int]) -> Tensor:
    """Its pass written out, with batch statistics and given strides."""
    convolutions = [module for module in detector.layers if isinstance(module, nn.Conv2d)]
    norms = [module for module in detector.layers if isinstance(module, HalfInstanceNorm)]
    features = seen
    for number, (convolution, stride) in enumerate(zip(convolutions, strides, strict=True)):
        features = F.conv2d(features, convolution.weight, convolution.bias, stride, 1)
        if number == len(norms):
            break
        batch = norms[number].batch
        half = batch.num_features
        normed = []
        for part, axes in ((features[:, :half], (0, 2, 3)), (features[:, half:], (2, 3))):
            mean = part.mean(axes, keepdim=True)
            normed.append((part - mean) / (part.var(axes, unbiased=False, keepdim=True) + 1e-5).sqrt())
        normed[0] = normed[0] * batch.weight.view(1, -1, 1, 1) + batch.bias.view(1, -1, 1, 1)
        joined = torch.cat(normed, dim=1)
        features = torch.where(joined > 0, joined, 0.2 * joined)
    return F.interpolate(features, seen.shape[-2:], mode="bilinear", align_corners=True)[:, 0]


# Published: all five halve. Small: 40, 20, 10, and from there on one row less with every convolution.
@pytest.mark.parametrize(
    ("size", "strides", "inside"),
    [
        ((321, 284), [2, 2, 1, 2, 1, 2, 1, 2], (9, 8)),
        ((40, 40), [2, 2, 1, 1, 1, 1, 1, 1], (4, 4)),
        ((33, 60), [2, 2, 1, 1, 1, 1, 1, 1], (2, 9)),
    ],
)
def test_the_detector_is_the_published_one(size: tuple[int, int], strides: list[int], inside: tuple[int, int]) -> None:
    torch.manual_seed(0)
    detector = FlawDetector(4, 3).double()
    for module in detector.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    seen = torch.randn(2, 7, *size, dtype=torch.float64)
    torch.testing.assert_close(detector(seen), plain_detector(detector, seen, strides), rtol=1e-8, atol=1e-10)
    assert detector.layers(seen).shape[-2:] == inside


def test_the_detector_takes_every_size_that_networks_take() -> None:
    detector = FlawDetector(2, 2)
    for side in [*range(33, 70), 96, 127]:
        assert min(detector.layers(torch.zeros(1, 5, side, 40)).shape[-2:]) >= 2, side
    assert detector(torch.zeros(2, 5, 33, 35)).shape == (2, 33, 35)


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
    joint = method._by_group(labeled, unlabeled)
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
    raw = method.network.raw(torch.zeros(2, 3, 40, 40))
    assert isinstance(raw, Raw)
    assert shapes == [((8, *raw.logits.shape[1:]), False, False)] * 2
