"""AdvSemSeg against its published rule, written down here a second time in plain PyTorch and float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, Draw, Labeled
from fpl.errors import FplError
from fpl.losses.kernels import use
from fpl.methods.advsemseg.discriminator import Discriminator, true_maps
from fpl.methods.advsemseg.method import AdvSemSeg
from fpl.methods.advsemseg.options import AdvSemSegOptions
from fpl.methods.base import Clock
from fpl.models import SegmentationNetwork
from fpl.train.step import take_step
from tests.losses.reference import columns, k_of, naive_losses, weight_of
from tests.methods.support import batch_for, build

BASE = Path(__file__).parents[2] / "experiments" / "base"
CPU = torch.device("cpu")
# Before and after the share of training from which self-labels count.
EARLY, LATE = Clock(step=24, total=100), Clock(step=25, total=100)


def configured(run_file: Path, *more: str) -> RunConfig:
    keys = ["method.name=advsemseg", "loss.kind=ce", "method.discriminator_channels=4", "data.groups=1"]
    return load_config(run_file, overrides=[*keys, *more])


def made(config: RunConfig) -> AdvSemSeg:
    """A method in float64 whose discriminator is not undecided, as a new one is."""
    method = build(config).double()
    assert isinstance(method, AdvSemSeg)
    with torch.no_grad():
        for layer in method.discriminator.layers:
            if isinstance(layer, torch.nn.Conv2d):
                layer.weight *= 4.0
    return method


def batch(config: RunConfig, seed: int = 0) -> Batch:
    """Float64 images, with a second stream of labels; some have no class."""
    found = batch_for(config, 1)
    generator = torch.Generator().manual_seed(100 + seed)
    for part in (found, found.unlabeled[0]):
        part.image = (part.image + seed * torch.randn(part.image.shape, generator=generator)).double()
    label = torch.randint(0, config.data.num_classes, found.label.shape, generator=generator)
    label[:, :, -5:] = 255
    found.more_labeled = [Labeled(found.image.flip(0), label, found.valid)]
    return found


# The published rule.


def discriminated(discriminator: Discriminator, maps: Tensor) -> Tensor:
    """Five convolutions as sums over 4x4 windows, and the enlargement between corners, [B, h, w].

    A map with a side below 32 lies in the corner of one of zeros.
    """
    convolutions = [layer for layer in discriminator.layers if isinstance(layer, torch.nn.Conv2d)]
    size = maps.shape[-2:]
    x = torch.zeros(*maps.shape[:2], max(size[0], 32), max(size[1], 32), dtype=torch.float64)
    x[..., : size[0], : size[1]] = maps
    for number, layer in enumerate(convolutions):
        assert layer.bias is not None
        windows = F.unfold(x, 4, padding=1, stride=2)
        rows, count = x.shape[-2] // 2, len(layer.weight)
        x = (layer.weight.reshape(count, -1) @ windows + layer.bias[:, None]).reshape(len(x), count, rows, -1)
        if number < 4:
            x = torch.where(x > 0, x, 0.2 * x)
    return (between(size[0], x.shape[-2]) @ x[:, 0]) @ between(size[1], x.shape[-1]).T


def between(size: int, given: int) -> Tensor:
    """Shares of `given` values in each of `size` values that lie at equal distances from the first to the last."""
    shares = torch.zeros(size, given, dtype=torch.float64)
    for place in range(size):
        position = place * (given - 1) / max(size - 1, 1)
        low = min(math.floor(position), max(given - 2, 0))
        shares[place, low] += 1 - (position - low)
        if position > low:
            shares[place, low + 1] += position - low
    return shares


def one_hot(label: Tensor, classes: int) -> Tensor:
    maps = torch.zeros(len(label), classes, *label.shape[1:], dtype=torch.float64)
    for number in range(classes):
        maps[:, number][label == number] = 1.0
    return maps


def crossed(verdict: Tensor, target: int, known: Tensor) -> Tensor:
    chance = 1 / (1 + torch.exp(-verdict[known]))
    return -torch.log(chance if target else 1 - chance).mean()


class Rule(NamedTuple):
    adversarial: Tensor
    semi_adversarial: Tensor
    semi: Tensor
    share: float
    supervised: Tensor
    segmenter: Tensor
    discriminator: Tensor


def rule(
    network: SegmentationNetwork,
    discriminator: Discriminator,
    batch: Batch,
    *,
    semi: bool = True,
    unlabeled_fakes: bool = True,
    threshold: float = 0.2,
    kind: str = "ce",
    stride: int = 1,
) -> Rule:
    """One iteration of `train.py`, and the paper's equations 2 to 5, with the weights of the README."""
    side = batch.image.shape[-1]
    kept = torch.linspace(0, side - 1, -(-side // stride)).round().long()

    def logits(image: Tensor) -> Tensor:
        small = network.classifier(network.decode(network.encode(image)))
        return F.interpolate(small, size=(len(kept), len(kept)), mode="bilinear", align_corners=True)

    def thin(label: Tensor) -> Tensor:
        return label[:, kept][..., kept]

    z_unlabeled = logits(batch.unlabeled[0].image)
    z_labeled = logits(batch.image)
    label, other = thin(batch.label), thin(batch.more_labeled[0].label)
    everywhere, known = torch.ones_like(label, dtype=torch.bool), label != 255
    verdict = discriminated(discriminator, z_unlabeled.softmax(1))
    semi_adversarial = crossed(verdict, 1, everywhere)
    trusted = 1 / (1 + torch.exp(-verdict.detach())) >= threshold
    rows = z_unlabeled.movedim(1, -1)[trusted]
    self_taught = pixel_losses(rows, kind).mean() if len(rows) else torch.zeros((), dtype=torch.float64)
    supervised = F.cross_entropy(z_labeled, label, ignore_index=255)
    adversarial = crossed(discriminated(discriminator, z_labeled.softmax(1)), 1, known)
    segmenter = supervised + 0.01 * adversarial + 0.001 * semi_adversarial + (0.1 * self_taught if semi else 0.0)

    fakes, counted = [z_labeled.detach().softmax(1)], [known]
    if unlabeled_fakes:
        fakes.append(z_unlabeled.detach().softmax(1))
        counted.append(everywhere)
    fake = crossed(discriminated(discriminator, torch.cat(fakes)), 0, torch.cat(counted))
    real = crossed(discriminated(discriminator, one_hot(other, z_labeled.shape[1])), 1, other != 255)
    share = trusted.double().mean().item()
    return Rule(adversarial, semi_adversarial, self_taught, share, supervised, segmenter, (fake + real) / 2)


def pixel_losses(logits: Tensor, kind: str) -> Tensor:
    """Losses [N] of logits [N, C] taught by themselves: cross-entropy, or FPL with T = 0.9 and its concave weight."""
    if kind == "ce":
        return F.cross_entropy(logits, logits.argmax(1), reduction="none")
    probabilities = columns(logits.detach().softmax(1).T[None])
    ks = [k_of(row, 0.9) for row in probabilities]
    weights = torch.tensor([weight_of(row, k, "concave") for row, k in zip(probabilities, ks, strict=True)]).double()
    return weights * naive_losses(logits, logits.detach(), torch.tensor(ks))


# The discriminator.


@pytest.mark.parametrize(("classes", "expected"), [(21, 2_783_169), (19, 2_781_121)])
def test_the_discriminator_has_the_published_size(classes: int, expected: int) -> None:
    widths = (classes, 64, 128, 256, 512, 1)
    by_formula = sum(16 * inputs * outputs + outputs for inputs, outputs in pairwise(widths))
    found = sum(parameter.numel() for parameter in Discriminator(classes).parameters())
    assert found == by_formula == expected


@pytest.mark.parametrize("size", [(32, 32), (33, 33), (40, 40), (64, 97), (10, 70), (1, 9)])
def test_verdicts_and_their_gradients_are_those_of_the_formula(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    discriminator = Discriminator(5, 3).double()
    other = copy.deepcopy(discriminator)
    maps = torch.randn(2, 5, *size, dtype=torch.float64).softmax(1).requires_grad_()
    again = maps.detach().clone().requires_grad_()
    found, expected = discriminator(maps), discriminated(other, again)
    assert found.shape == (2, *size)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    factors = torch.randn(2, *size, dtype=torch.float64)
    ours = gradients((found * factors).sum(), [maps, *discriminator.parameters()])
    theirs = gradients((expected * factors).sum(), [again, *other.parameters()])
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_true_maps_are_empty_where_there_is_no_label() -> None:
    label = torch.tensor([[[0, 2], [255, 1]]])
    maps = true_maps(label, 3)
    assert maps.dtype == torch.float32 and torch.equal(maps.double(), one_hot(label, 3))
    assert maps.sum(1).tolist() == [[[1, 1], [0, 1]]]


# A step.


@pytest.mark.parametrize(
    ("keys", "kind", "stride"),
    [
        ([], "ce", 1),
        ([], "ce", 2),
        ([], "fpl", 4),
        (["method.unlabeled_fakes=false"], "ce", 4),
    ],
    ids=["published", "thin", "fpl", "labeled fakes"],
)
def test_losses_and_gradients_are_those_of_the_published_rule(
    run_file: Path, keys: list[str], kind: str, stride: int
) -> None:
    more = [*keys, f"loss.stride={stride}", f"loss.kind={kind}", "data.crop=[72,72]", "data.unlabeled_batch=2"]
    more += ["data.labeled_batch=2"]
    config = configured(run_file, *more, *(["loss.threshold=0.9"] if kind == "fpl" else []))
    method = made(config)
    images = batch(config)
    median = middle(method, images)
    config = configured(run_file, *more, f"method.discriminator_threshold={median}")
    method.options = config.method  # type: ignore[assignment]
    twin = copy.deepcopy(method)
    with use("tensor"):
        found = method.losses(images, LATE)
    expected = rule(
        twin.network,
        twin.discriminator,
        images,
        unlabeled_fakes=not keys,
        threshold=median,
        kind=kind,
        stride=stride,
    )
    assert 0.1 < expected.share < 0.9
    pairs = {
        "supervised": expected.supervised,
        "adversarial": expected.adversarial,
        "semi_adversarial": expected.semi_adversarial,
        "semi": expected.semi,
        "semi_share": torch.tensor(expected.share).double(),
        "discriminator": expected.discriminator,
    }
    assert list(found.terms) == list(pairs)
    for name, value in pairs.items():
        torch.testing.assert_close(found.terms[name], value, rtol=1e-9, atol=1e-12, msg=name)
    torch.testing.assert_close(found.objectives["main"], expected.segmenter, rtol=1e-9, atol=1e-12)
    assert found.unsupervised is not None
    torch.testing.assert_close(found.supervised + found.unsupervised, expected.segmenter, rtol=1e-9, atol=1e-12)
    for objective, value, part in (
        ("main", expected.segmenter, "network"),
        ("discriminator", expected.discriminator, "discriminator"),
    ):
        ours = gradients(found.objectives[objective], list(method.get_submodule(part).parameters()))
        theirs = gradients(value, list(twin.get_submodule(part).parameters()))
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-10)
    for (name, one), other in zip(method.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12, msg=name)


def gradients(value: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value, parameters, retain_graph=True)


def middle(method: AdvSemSeg, images: Batch) -> float:
    """A threshold that some pixels of the unlabeled images pass."""
    twin = copy.deepcopy(method)
    with torch.no_grad():
        logits = twin.train_logits(twin.network, images.unlabeled[0].image)
        chances = discriminated(twin.discriminator, logits.softmax(1)).sigmoid()
    return float(chances.median()) + 1e-6


def test_steps_are_those_of_the_published_code(run_file: Path) -> None:
    """Three steps over the start of self-labels: SGD and Adam of PyTorch, gradients stopped as the code stops them."""
    keys = ["optim.lr=0.01", "optim.weight_decay=5e-4", "optim.decay_norm_and_bias=true", "data.labeled_batch=2"]
    keys += ["optim.head_lr_multiplier=10", "method.discriminator_lr=1e-3", "data.unlabeled_batch=2"]
    config = configured(run_file, *keys)
    method = made(config)
    twin = copy.deepcopy(method)
    optimizers = method.optimizers()
    assert list(optimizers) == ["main", "discriminator"]
    network, discriminator = twin.network, twin.discriminator
    groups = [{"params": list(network.backbone_parameters())}, {"params": list(network.head_parameters())}]
    sgd = torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=5e-4)
    adam = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.9, 0.99))
    for step in (23, 24, 25):
        images = batch(config, seed=step)
        take_step(method, optimizers, images, Clock(step, 100), config.train, CPU)
        decay = (1 - step / 100) ** 0.9
        sgd.param_groups[0]["lr"], sgd.param_groups[1]["lr"] = 0.01 * decay, 0.1 * decay
        adam.param_groups[0]["lr"] = 1e-3 * decay
        sgd.zero_grad()
        adam.zero_grad()
        losses = rule(network, discriminator, images, semi=step >= 25)
        discriminator.requires_grad_(False)
        own = [parameter for group in sgd.param_groups for parameter in group["params"]]
        for parameter, gradient in zip(own, gradients(losses.segmenter, own), strict=True):
            parameter.grad = gradient
        discriminator.requires_grad_(True)
        losses.discriminator.backward()  # type: ignore[no-untyped-call]
        sgd.step()
        adam.step()
    for (name, ours), theirs in zip(method.state_dict().items(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8, msg=name)


def test_neither_objective_reaches_the_parameters_of_the_other(run_file: Path) -> None:
    config = configured(run_file, "method.start=0")
    method = made(config)
    images, twin = batch(config), copy.deepcopy(method)
    losses = method.losses(images, EARLY)
    networks, discriminators = list(method.network.parameters()), list(method.discriminator.parameters())
    # There is no way from the discriminator's loss to the network, and one that is not gone the other way.
    found = torch.autograd.grad(losses.objectives["discriminator"], networks, retain_graph=True, allow_unused=True)
    assert not any(gradient is not None for gradient in found)
    passed = gradients(losses.objectives["main"], discriminators)
    assert all(bool(gradient.any()) for gradient in passed)
    alone = {
        "network": gradients(losses.objectives["main"], networks),
        "discriminator": gradients(losses.objectives["discriminator"], discriminators),
    }
    take_step(twin, twin.optimizers(), images, EARLY, config.train, CPU)
    for part, expected in alone.items():
        for parameter, gradient in zip(twin.get_submodule(part).parameters(), expected, strict=True):
            assert parameter.grad is not None
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-12, atol=0.0)


def test_an_objective_of_one_alone_leaves_the_other_as_it_is(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(run_file, "method.start=0")
    for kept, moved, still in (("main", "network", "discriminator"), ("discriminator", "discriminator", "network")):
        method = made(config)
        before = copy.deepcopy(method)
        losses = method.losses

        def only(images: Batch, clock: Clock, losses: object = losses, kept: str = kept) -> object:
            found = losses(images, clock)  # type: ignore[operator]
            found.objectives = {kept: found.objectives[kept]}
            return found

        monkeypatch.setattr(method, "losses", only)
        take_step(method, method.optimizers(), batch(config), EARLY, config.train, CPU)
        pairs = zip(method.get_submodule(moved).parameters(), before.get_submodule(moved).parameters(), strict=True)
        assert any(not torch.equal(now, then) for now, then in pairs)
        pairs = zip(method.get_submodule(still).parameters(), before.get_submodule(still).parameters(), strict=True)
        assert all(now.grad is None and torch.equal(now, then) for now, then in pairs)


def test_before_their_share_of_training_self_labels_have_no_influence(run_file: Path) -> None:
    config = configured(run_file)
    images = batch(config)
    early, late = (made(config).losses(images, clock) for clock in (EARLY, LATE))
    assert early.unsupervised is not None and late.unsupervised is not None
    assert bool(early.terms["semi"] > 0) and torch.equal(early.terms["semi"], late.terms["semi"])
    torch.testing.assert_close(early.unsupervised, 0.001 * early.terms["semi_adversarial"], rtol=1e-12, atol=0.0)
    torch.testing.assert_close(late.unsupervised, early.unsupervised + 0.1 * late.terms["semi"], rtol=1e-12, atol=0.0)


def test_the_adversarial_term_of_unlabeled_images_may_begin_later(run_file: Path) -> None:
    config = configured(run_file, "method.unlabeled_adversarial_start=0.25", "method.start=1")
    early, late = (made(config).losses(batch(config), clock) for clock in (EARLY, LATE))
    assert early.unsupervised is not None and late.unsupervised is not None
    assert bool(early.unsupervised == 0)
    torch.testing.assert_close(late.unsupervised, 0.001 * late.terms["semi_adversarial"], rtol=1e-12, atol=0.0)


def test_without_self_labels_the_adversarial_terms_are_all(run_file: Path) -> None:
    config = configured(run_file, "method.self_labels=false")
    losses = made(config).losses(batch(config), LATE)
    assert not losses.pixel_terms and "semi" not in losses.terms and losses.unsupervised is not None
    torch.testing.assert_close(losses.unsupervised, 0.001 * losses.terms["semi_adversarial"], rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(("bias", "share"), [(-50.0, 0.0), (50.0, 1.0)])
def test_a_discriminator_that_trusts_nothing_or_all(run_file: Path, bias: float, share: float) -> None:
    config = configured(run_file)
    method = made(config)
    last = method.discriminator.layers[-1]
    with torch.no_grad():
        last.get_parameter("bias").fill_(bias)
        last.get_parameter("weight").zero_()
    images = batch(config)
    expected = rule(copy.deepcopy(method).network, method.discriminator, images)
    losses = method.losses(images, LATE)
    assert float(losses.terms["semi_share"]) == share == expected.share
    torch.testing.assert_close(losses.terms["semi"], expected.semi, rtol=1e-10, atol=0.0)
    # Unlike in the released code, the adversarial term stays where nothing is trusted.
    torch.testing.assert_close(losses.objectives["main"], expected.segmenter, rtol=1e-10, atol=0.0)
    assert losses.terms["semi_adversarial"].item() == pytest.approx(math.log1p(math.exp(-bias)), rel=1e-9)


def test_images_without_any_label_count_nowhere(run_file: Path) -> None:
    config = configured(run_file, "method.unlabeled_fakes=false")
    method, images = made(config), batch(config)
    images.label.fill_(255)
    images.more_labeled[0].label.fill_(255)
    losses = method.losses(images, LATE)
    assert all(losses.terms[name].item() == 0.0 for name in ("supervised", "adversarial", "discriminator"))
    assert not any(
        bool(g.any()) for g in gradients(losses.terms["discriminator"], list(method.discriminator.parameters()))
    )


def test_whose_labels_are_true_maps(run_file: Path) -> None:
    for value, streams in (("other", 2), ("same", 1)):
        config = configured(run_file, f"method.real_labels={value}")
        method = made(config)
        assert method.request.labeled_streams == streams and method.request.draws == 1
        images = batch(config)
        if value == "same":
            images.more_labeled = []
        found = copy.deepcopy(method).losses(images, LATE).terms["discriminator"]
        if value == "same":
            images.more_labeled = [Labeled(images.image, images.label, images.valid)]
        expected = rule(method.network, method.discriminator, images).discriminator
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=0.0)


class Recorded:
    """One of two workers that take turns: first each says what it has, then the mean of both is known."""

    world_size = 2

    def __init__(self) -> None:
        self.said: tuple[list[Tensor], list[Tensor]] = [], []
        self.turn(0, False)

    def turn(self, rank: int, known: bool) -> None:
        self.rank, self.known, self.asked = rank, known, 0

    def average(self, value: Tensor) -> Tensor:
        self.asked += 1
        if self.known:
            return (self.said[0][self.asked - 1] + self.said[1][self.asked - 1]) / 2
        self.said[self.rank].append(value)
        return value

    def concatenate(self, value: Tensor) -> Tensor:
        raise NotImplementedError


def test_means_are_over_the_global_batch(run_file: Path) -> None:
    """Two workers, of whose pixels not as many count, have on average the objectives of one."""
    config = configured(run_file, "data.groups=2", "data.crop=[72,72]")
    method, images = made(config).eval(), batch(config)
    images.label[:2, :30] = 255
    images.more_labeled[0].label[2:, :, :20] = 255
    median = middle(method, images)
    config = configured(run_file, "data.groups=2", "data.crop=[72,72]", f"method.discriminator_threshold={median}")
    method.options = config.method  # type: ignore[assignment]
    whole, shares, workers = method.losses(images, LATE), [], Recorded()
    method.workers, method.groups = workers, 1
    for known in (False, True):
        for rank in (0, 1):
            workers.turn(rank, known)
            found = method.losses(half(images, rank), LATE)
            shares.append(found)
    assert shares[0].terms["semi_share"].item() != shares[1].terms["semi_share"].item()
    for name, value in (whole.terms | whole.objectives).items():
        parts = [{**each.terms, **each.objectives}[name] for each in shares[2:]]
        torch.testing.assert_close((parts[0] + parts[1]) / 2, value, rtol=1e-9, atol=0.0, msg=name)


def half(images: Batch, rank: int) -> Batch:
    own = slice(2 * rank, 2 * rank + 2)
    draw, more = images.unlabeled[0], images.more_labeled[0]
    unlabeled = Draw(draw.image[own], draw.valid[own], draw.index[own], draw.position[own])
    labeled = Labeled(more.image[own], more.label[own], more.valid[own])
    return Batch(
        images.image[own], images.label[own], images.valid[own], [unlabeled], images.step, more_labeled=[labeled]
    )


# Its table, and its recipes.


def test_what_contradicts_and_what_is_doubtful_is_said(run_file: Path) -> None:
    with pytest.raises(FplError, match=r"method\.self_labels"):
        configured(run_file, "method.self_labels=false", "loss.kind=fpl")
    with pytest.raises(FplError, match=r"method\.weight"):
        configured(run_file, "method.weight=0")

    def said(*keys: str) -> str:
        config = configured(run_file, *keys)
        return " ".join(config.method.warnings(config))

    assert not said() and not said("loss.kind=fpl") and not said("method.self_labels=false")
    assert "method.weight" in said("loss.kind=mse")
    assert "discriminator_threshold = 0" in said("method.discriminator_threshold=0")
    none = ["method.self_labels=false", "method.unlabeled_adversarial_weight=0"]
    assert "through the discriminator alone" in said(*none)
    assert "no influence" in said(*none, "method.unlabeled_fakes=false")
    assert "no influence" in said(*none, "method.adversarial_weight=0")


def test_keys_that_nothing_reads_are_forgotten(run_file: Path) -> None:
    one = configured(run_file, "method.self_labels=false", "method.start=0.5", "method.discriminator_threshold=0.9")
    assert one.method == configured(run_file, "method.self_labels=false").method


@pytest.mark.parametrize("data", ["cityscapes", "voc", "camvid", "synthetic_city", "synthetic_voc"])
def test_recipes_are_whole_and_take_fpl_by_configuration(data: str) -> None:
    path = BASE / f"{data}_advsemseg.toml"
    config = load_config(path)
    options = config.method
    assert isinstance(options, AdvSemSegOptions) and config.loss.kind == "ce"
    assert (options.weight, options.start, options.discriminator_threshold) == (0.1, 0.25, 0.2)
    assert (options.adversarial_weight, options.unlabeled_adversarial_weight) == (0.01, 0.001)
    assert options.discriminator_lr == 1e-4
    fpl = load_config(path, overrides=["loss.kind=fpl"])
    assert fpl.loss.kind == "fpl" and not fpl.method.warnings(fpl)
    if data in ("cityscapes", "voc"):
        assert options.discriminator_channels == 64
        other = load_config(BASE / f"{data}_cps.toml")
        for section in ("data", "model", "optim", "train", "eval"):
            assert getattr(config, section) == getattr(other, section)
