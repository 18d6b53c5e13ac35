"""CAC against its published rule, written down here a second time in plain PyTorch, loops and float64."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, Draw
from fpl.losses.kernels import use
from fpl.methods.base import Clock
from fpl.methods.cac.method import COLOURS, Cac
from fpl.methods.cac.options import CacOptions
from fpl.train.runtime import Workers, autocast
from fpl.train.step import take_step
from tests.methods.cac_rule import GATE, agreement, contrast, gradients, places_of, views_of
from tests.methods.support import build

CPU = torch.device("cpu")
# Before and after the share of training from which unlabeled images count.
EARLY, LATE = Clock(step=6, total=100), Clock(step=7, total=100)
SMALL = ["method.name=cac", "data.groups=1", "data.crop=[48,56]", "method.strong_colours=false"]
SMALL += [f"method.confidence_gate={GATE}", "method.projection_channels=6", "method.bank_size=400"]


def configured(run_file: Path, *more: str) -> RunConfig:
    return load_config(run_file, overrides=[*SMALL, "loss.kind=ce", *more])


def made(config: RunConfig) -> Cac:
    """A method in float64 with a classifier that is not undecided, as a new one is."""
    method = build(config).double().train()
    assert isinstance(method, Cac)
    with torch.no_grad():
        method.network.classifier.weight *= 2.0
    return method


def drawn(config: RunConfig, seed: int = 0) -> Batch:
    """A random batch; of the first unlabeled image a margin is padding, of the second most."""
    generator = torch.Generator().manual_seed(seed)
    count, (height, width) = config.data.labeled_batch, config.data.crop
    image = torch.randn(count, 3, height, width, generator=generator, dtype=torch.float64)
    label = torch.randint(0, config.data.num_classes, (count, height, width), generator=generator)
    label[:, :3] = 255
    size = (round(1.5 * height), round(1.5 * width))
    valid = torch.ones(count, *size, dtype=torch.bool)
    valid[0, :20] = valid[0, :, :3] = False
    valid[1, 30:] = False
    # Coarse noise, so that a place looks alike in both crops.
    coarse = torch.randn(count, 3, 9, 11, generator=generator, dtype=torch.float64)
    unlabeled = F.interpolate(coarse, size, mode="bilinear").masked_fill(~valid[:, None], 0.0) * 2
    position = torch.arange(count) + 40 * seed
    draw = Draw(unlabeled, valid, position, position)
    return Batch(image, label, torch.ones_like(label, dtype=torch.bool), [draw], LATE.step)


# A step.

WAYS = {
    "published": ([], "ce"),
    "paper's mean": (["method.averaged_over=overlap"], "ce"),
    "control": (["method.consistency_weight=0.7"], "ce"),
    "fpl": (["loss.threshold=0.5", "method.consistency_weight=0.7"], "fpl"),
    "fuzzy negatives": (["loss.threshold=0.5", "method.fuzzy_negatives=true"], "fpl"),
}


@pytest.mark.parametrize("way", WAYS)
def test_losses_and_gradients_are_those_of_the_published_rule(run_file: Path, way: str) -> None:
    """Two steps: in the second the bank holds features of both, and has dropped the first ones."""
    more, kind = WAYS[way]
    config = configured(run_file, *more, f"loss.kind={kind}")
    method = made(config)
    options = method.options
    twin, bank = copy.deepcopy(method), [([0.0] * 6, -1)] * 400
    for seed in range(2):
        batch = drawn(config, seed)
        with use("tensor"):
            found = method.losses(batch, LATE)
        small = twin.network.classifier(twin.network.decode(twin.network.encode(batch.image)))
        logits = F.interpolate(small, size=config.data.crop, mode="bilinear", align_corners=True)
        supervised = F.cross_entropy(logits, batch.label, ignore_index=255)
        places, remembered = places_of(config, twin, batch.unlabeled[0])
        bank = (bank + remembered)[-400:]
        keys = {"overlap": options.averaged_over == "overlap", "fuzzy": options.fuzzy_negatives}
        parts = [contrast(places, bank, anchor, images=len(batch.image), **keys) for anchor in (0, 1)]
        unsupervised = 0.1 * (parts[0] + parts[1])
        expected = {"supervised": supervised, "contrast_12": parts[0], "contrast_21": parts[1]}
        if options.consistency_weight:
            expected["consistency"] = agreement(places, 0, kind) + agreement(places, 1, kind)
            unsupervised = unsupervised + 0.7 * expected["consistency"]
        sure = [[z.detach().softmax(0).max().item() for z in place.logits] for place in places]
        kept = sum((b > GATE and a < b) or (a > GATE and b < a) for a, b in sure)
        expected["kept_share"] = torch.tensor(kept / len(places)).double()
        assert 0.1 < kept / len(places) < 0.95
        assert list(found.terms) == list(expected)
        for name, value in expected.items():
            torch.testing.assert_close(found.terms[name], value, rtol=1e-7, atol=1e-9, msg=name)
        torch.testing.assert_close(found.objectives["main"], supervised + unsupervised, rtol=1e-7, atol=1e-9)
        assert found.unsupervised is not None
        torch.testing.assert_close(found.unsupervised, unsupervised, rtol=1e-7, atol=1e-9)
        ours = gradients(found.objectives["main"], list(method.parameters()))
        theirs = gradients(supervised + unsupervised, list(twin.parameters()))
        assert any(bool(part.any()) for part in theirs[-4:])
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    for (name, one), other in zip(method.network.named_buffers(), twin.network.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12, msg=name)
    in_bank = zip(method.bank.features.tolist(), method.bank.labels.tolist(), strict=True)
    pairs = zip(sorted(in_bank), sorted(bank), strict=True)
    for (ours_row, our_label), (their_row, their_label) in pairs:
        assert our_label == their_label and ours_row == pytest.approx(their_row, rel=1e-9, abs=1e-12)
    assert -1 in method.bank.labels.tolist()


def test_steps_are_those_of_the_published_code(run_file: Path) -> None:
    """Over the start: SGD of PyTorch, the projector among the heads, untouched as long as it has no gradient."""
    keys = ["optim.lr=0.01", "optim.weight_decay=5e-4", "optim.decay_norm_and_bias=true", "optim.head_lr_multiplier=10"]
    config = configured(run_file, *keys)
    method = made(config)
    twin, bank = copy.deepcopy(method), [([0.0] * 6, -1)] * 400
    optimizers, network = method.optimizers(), twin.network
    heads = [*network.head_parameters(), *twin.projector.parameters()]
    sgd = torch.optim.SGD(
        [{"params": list(network.backbone_parameters())}, {"params": heads}], lr=0.01, momentum=0.9, weight_decay=5e-4
    )
    for step in (6, 7, 8):
        batch = drawn(config, step)
        take_step(method, optimizers, batch, Clock(step, 100), config.train, CPU)
        for group, factor in zip(sgd.param_groups, (1, 10), strict=True):
            group["lr"] = 0.01 * factor * (1 - step / 100) ** 0.9
        sgd.zero_grad()
        small = network.classifier(network.decode(network.encode(batch.image)))
        logits = F.interpolate(small, size=config.data.crop, mode="bilinear", align_corners=True)
        loss = F.cross_entropy(logits, batch.label, ignore_index=255)
        if step >= 7:
            places, remembered = places_of(config, twin, batch.unlabeled[0])
            bank = (bank + remembered)[-400:]
            for anchor in (0, 1):
                loss = loss + 0.1 * contrast(places, bank, anchor, overlap=False, fuzzy=False, images=4)
        loss.backward()  # type: ignore[no-untyped-call]
        sgd.step()
    for (name, ours), theirs in zip(method.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8, msg=name)


def test_before_the_start_unlabeled_images_are_not_looked_at(run_file: Path) -> None:
    config = configured(run_file, "method.consistency_weight=0.5")
    method = made(config)
    before, batch = copy.deepcopy(method), drawn(config)
    _, supervised = before.labeled_loss(before.network, before.network.raw(batch.image), batch.label)
    batch.unlabeled[0].image = batch.unlabeled[0].image * math.nan
    losses = method.losses(batch, EARLY)
    assert torch.equal(losses.objectives["main"], supervised) and torch.equal(losses.supervised, supervised)
    assert losses.unsupervised is not None and losses.unsupervised.item() == 0.0
    assert not any(bool(gradient.any()) for gradient in gradients(losses.unsupervised, method.probe_parameters()))
    for name, value in before.state_dict().items():
        assert torch.equal(method.state_dict()[name], value), name
    # The history has one row of names for a whole run.
    assert list(losses.terms) == list(method.losses(drawn(config), LATE).terms)
    assert not losses.pixel_terms


def test_both_losses_reach_what_their_shares_are_compared_on(run_file: Path) -> None:
    config = configured(run_file)
    method = made(config)
    losses = method.losses(drawn(config), LATE)
    assert losses.unsupervised is not None
    for part in (losses.supervised, losses.unsupervised):
        assert all(
            bool(gradient.any()) for gradient in torch.autograd.grad(part, method.probe_parameters(), retain_graph=True)
        )
    # The contrast says nothing to the classifier, whose labels and confidences are constants.
    classifier = list(method.network.classifier.parameters())
    found = torch.autograd.grad(losses.unsupervised, classifier, retain_graph=True, allow_unused=True)
    assert found == (None, None)


def test_statistics_of_the_pixel_loss_change_nothing(run_file: Path) -> None:
    """Natively it has no part: terms are there at steps that are logged, for diagnostics."""
    config = configured(run_file)
    method, batch = made(config), drawn(config)
    twin = copy.deepcopy(method)
    quiet = method.losses(batch, LATE)
    twin.pixel_loss.collect = True
    watched = twin.losses(batch, LATE)
    assert not quiet.pixel_terms and list(watched.pixel_terms) == ["12", "21"]
    assert torch.equal(quiet.objectives["main"], watched.objectives["main"])
    assert list(quiet.terms) == list(watched.terms)
    # A place has one surer view: no pixel teaches in both directions.
    pixels = [int(term.statistics["pixels"]) for term in watched.pixel_terms.values()]
    places, _ = places_of(config, twin, batch.unlabeled[0])
    assert min(pixels) > 0 and sum(pixels) == len(places)


def test_fpl_finds_several_positives_behind_the_published_gate(run_file: Path) -> None:
    config = configured(run_file, "loss.kind=fpl", "loss.threshold=0.9", "method.confidence_gate=0.75")
    method = made(config)
    method.pixel_loss.collect = True
    for term in method.losses(drawn(config), LATE).pixel_terms.values():
        assert int(term.statistics["k_histogram"][1:].sum()) > 0
    assert not config.method.warnings(config)


def test_views_are_recoloured_each_by_itself(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(run_file, "method.strong_colours=true", "method.crop_scale=1")
    method = build(config)
    assert isinstance(method, Cac)
    batch = drawn(config)
    draw = batch.unlabeled[0]
    whole = (slice(None), slice(None), slice(0, 48), slice(0, 56))
    draw.image, draw.valid = draw.image[whole].float(), torch.ones(4, 48, 56, dtype=torch.bool)
    batch.image = batch.image.float()
    shown: list[Tensor] = []
    details = method.network.details
    monkeypatch.setattr(method.network, "details", lambda image: (shown.append(image), details(image))[1])
    method.losses(batch, LATE)
    views = views_of(config, draw)
    for number, image in enumerate(shown):
        upright = [one.flip(2) if view.flips[number] else one for one, view in zip(draw.image, views, strict=True)]
        expected = COLOURS(torch.stack(upright), draw.valid, config.seed, draw.position, number)
        assert torch.equal(image, expected) and not torch.equal(image, torch.stack(upright))


def test_bfloat16_leaves_the_contrast_in_float32(run_file: Path) -> None:
    config = configured(run_file, "train.precision=bf16")
    method = build(config)
    assert isinstance(method, Cac)
    batch = drawn(config)
    for part in (batch, batch.unlabeled[0]):
        part.image = part.image.float()
    with autocast(config.train, CPU):
        losses = method.losses(batch, LATE)
    assert losses.terms["contrast_12"].dtype == method.bank.features.dtype == torch.float32
    stored = method.bank.features[method.bank.labels >= 0]
    torch.testing.assert_close(stored.norm(dim=1), torch.ones(len(stored)), rtol=1e-5, atol=1e-5)
    losses.objectives["main"].backward()  # type: ignore[no-untyped-call]
    for parameter in method.parameters():
        assert parameter.grad is not None and bool(parameter.grad.isfinite().all())


# What is remembered.


def test_two_workers_remember_what_one_does(run_file: Path) -> None:
    """Features go in image after image, so that the order is that of the global batch."""
    config = configured(run_file, "method.bank_size=150")
    alone, batch = made(config), drawn(config)
    offered: list[list[Tensor]] = []

    class Half(Workers):
        def concatenate(self, value: Tensor) -> Tensor:
            offered[-1].append(value)
            return value

    for rank in range(2):
        offered.append([])
        half = copy.deepcopy(alone).eval()  # batch statistics are another test's matter
        half.workers = Half(0, 1)
        draw = batch.unlabeled[0]
        mine = slice(2 * rank, 2 * rank + 2)
        part = Draw(draw.image[mine], draw.valid[mine], draw.index[mine], draw.position[mine])
        half.losses(Batch(batch.image[mine], batch.label[mine], batch.valid[mine], [part], 7), LATE)
    alone.eval().losses(batch, LATE)
    features, labels = (torch.cat(parts)[-150:] for parts in zip(*offered, strict=True))
    assert torch.equal(alone.bank.labels, labels)
    torch.testing.assert_close(alone.bank.features, features, rtol=1e-12, atol=1e-14)


def test_a_resumed_run_goes_on_with_the_bank_and_kept_weights_do_without(run_file: Path) -> None:
    config = configured(run_file)
    method, other = made(config), made(config)
    optimizers, others = method.optimizers(), other.optimizers()
    take_step(method, optimizers, drawn(config, 0), LATE, config.train, CPU)
    other.load_state_dict(copy.deepcopy(method.state_dict()))
    others["main"].load_state_dict(copy.deepcopy(optimizers["main"].state_dict()))
    forgetful = copy.deepcopy(other)
    forgetful.bank.labels.fill_(-1)
    losses = [
        take_step(each, own, drawn(config, 1), Clock(8, 100), config.train, CPU).terms["contrast_12"]
        for each, own in ((method, optimizers), (other, others), (forgetful, forgetful.optimizers()))
    ]
    assert torch.equal(losses[0], losses[1]) and not torch.equal(losses[0], losses[2])
    for name, value in method.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    missing = method.state_dict().keys() - method.kept_state().keys()
    assert missing == {"bank.features", "bank.labels", "bank.position"}
    assert any(name.startswith("projector.") for name in method.kept_state())
    options = config.method
    assert isinstance(options, CacOptions) and method.bank.features.shape == (options.bank_size, 6)
