"""UniMatch and FixMatch against the arithmetic of their released code, written down a second time, in float64."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.config.checks import warnings_of
from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, Draw
from fpl.errors import FplError
from fpl.losses import fuzzy_positive_loss
from fpl.methods.base import Clock
from fpl.methods.unimatch.boxes import box_masks
from fpl.methods.unimatch.method import COLOURS, UniMatch
from tests.methods.support import CLOCK, batch_for, build

# A gate that part of the pixels of an untrained network pass, and partners in every strong view.
KEYS = ["method.name=unimatch", "data.groups=2", "method.confidence_gate=0.1", "method.cutmix_probability=1"]
FIXMATCH = ["method.strong_views=1", "method.feature_share=0"]


def configured(run_file: Path, *more: str) -> RunConfig:
    return load_config(run_file, overrides=[*KEYS, *more])


def unimatch(config: RunConfig) -> UniMatch:
    method = build(config)
    assert isinstance(method, UniMatch)
    return method.double().train()


def padded(config: RunConfig) -> Batch:
    """Float64 images with padding, other in the partners, and one group that has less to count than the other."""
    batch = batch_for(config, 2)
    batch.image = batch.image.double()
    for draw, side in zip(batch.unlabeled, (24, 30), strict=True):
        draw.valid = torch.ones_like(draw.valid)
        draw.valid[0, side:] = draw.valid[-1, :, side - 10 :] = False
        draw.image = draw.image.double() * draw.valid.unsqueeze(1)
    return batch


# The published rule. Two processes have half of each batch; batch statistics are of all images, as SyncBN's.


def strong(draw: Draw, seed: int, stream: int) -> Tensor:
    return COLOURS(draw.image, draw.valid, seed, draw.position, stream).double()


def enlarged(logits: Tensor) -> Tensor:
    return F.interpolate(logits, size=(40, 40), mode="bilinear", align_corners=True)


def consistency(method: UniMatch, student: Tensor, teacher: Tensor, valid: Tensor) -> Tensor:
    """`(criterion_u(...) * (conf >= thresh) & valid).sum() / valid.sum()` of each process; their mean."""
    config, values = method.config, []
    for own in (slice(0, 2), slice(2, 4)):
        kept = (teacher[own].softmax(1).amax(1) >= method.options.confidence_gate) & valid[own]
        assert method.options.confidence_gate == 0 or 0 < int(kept.sum()) < int(valid[own].sum())
        rows, targets = (source[own].movedim(1, -1)[kept] for source in (student, teacher))
        if config.loss.kind == "fpl":
            total = fuzzy_positive_loss(rows, targets, threshold=config.loss.threshold, reduction="sum")
        else:
            total = F.cross_entropy(rows, targets.argmax(1), reduction="sum")
        values.append(total / valid[own].sum())
    return torch.stack(values).mean()


def step_by_hand(method: UniMatch, batch: Batch) -> tuple[Tensor, Tensor]:
    """Supervised loss and the weighed sum of the others, in the released order of passes."""
    network, own, seed = method.network, method.options, method.config.seed
    weak, partner = batch.unlabeled
    network.eval()
    with torch.no_grad():
        of_partner = network(partner.image)
    network.train()
    features = network.encode(torch.cat([batch.image, weak.image]))
    low, high = features.low, features.high
    if own.feature_share:
        # Numbers are drawn by process: its labeled images, then its unlabeled ones.
        places = torch.tensor([0, 1, 4, 5, 2, 3, 6, 7])
        dropped = []
        for part in (low, high):
            kept = (torch.rand(8, part.shape[1])[places] >= own.feature_dropout).double() / (1 - own.feature_dropout)
            dropped.append(part * kept[:, :, None, None])
        low, high = torch.cat([low, dropped[0]]), torch.cat([high, dropped[1]])
    logits = enlarged(network.classifier(network.decode(features._replace(low=low, high=high))))
    pairs = zip(logits[:4].chunk(2), batch.label.chunk(2), strict=True)
    supervised = torch.stack([F.cross_entropy(*pair, ignore_index=255) for pair in pairs]).mean()
    teacher = logits[4:8].detach()
    images, taught, valids = [], [], []
    for view in range(own.strong_views):
        inside = box_masks(seed, weak.position, (40, 40), view, own.cutmix_probability)
        box = inside[:, None].double()
        images.append(strong(weak, seed, view) * (1 - box) + strong(partner, seed, 2 + view) * box)
        taught.append(teacher * (1 - box) + of_partner * box)
        valids.append((weak.valid & ~inside) | (partner.valid & inside))
    students = enlarged(network.classifier(network.decode(network.encode(torch.cat(images))))).chunk(own.strong_views)
    found = [consistency(method, *each) for each in zip(students, taught, valids, strict=True)]
    if not own.feature_share:
        assert len(found) == 1
        return supervised, found[0]
    features_term = consistency(method, logits[12:], teacher, weak.valid)
    return supervised, 0.25 * found[0] + 0.25 * found[1] + 0.5 * features_term


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [*FIXMATCH, "method.ramp=0.8", "method.weight=2"],
        ["loss.kind=fpl", "loss.threshold=0.4", "method.confidence_gate=0", "method.feature_dropout=0.75"],
    ],
    ids=["unimatch", "fixmatch", "fpl"],
)
def test_a_step_is_that_of_the_released_code(run_file: Path, keys: list[str]) -> None:
    config = configured(run_file, *keys)
    method = unimatch(config)
    other, batch = copy.deepcopy(method), padded(config)
    torch.manual_seed(5)
    found = method.losses(batch, CLOCK)
    torch.manual_seed(5)
    supervised, unlabeled = step_by_hand(other, batch)
    own = method.options
    ramp = math.exp(-5 * (1 - 0.5 / own.ramp) ** 2) if own.ramp > 0.5 else 1.0
    total = supervised + own.weight * ramp * unlabeled
    torch.testing.assert_close(found.terms["supervised"], supervised, rtol=1e-9, atol=0)
    # The weights of pixels are float32.
    torch.testing.assert_close(found.terms["consistency"], unlabeled, rtol=1e-6, atol=0)
    torch.testing.assert_close(found.objectives["main"], total, rtol=1e-6, atol=0)
    for objective in (found.objectives["main"], total):
        objective.backward()  # type: ignore[no-untyped-call]
    for (name, ours), theirs in zip(method.named_parameters(), other.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None, name
        largest = float(theirs.grad.abs().max())
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6 * largest, msg=name)
    for (name, ours), theirs in zip(method.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12, msg=name)


def test_the_sum_that_is_halved_is_half_the_rate_and_twice_the_decay() -> None:
    """What the recipes write: gradients g / 2 at rate r with decay d are gradients g at r / 2 with 2 d."""
    gradients = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
    released, ours = (torch.nn.Parameter(torch.ones(3).double()) for _ in range(2))
    for parameter, factor, rate, decay in ((released, 0.5, 0.1, 1e-2), (ours, 1.0, 0.05, 2e-2)):
        optimizer = torch.optim.SGD([parameter], lr=rate, momentum=0.9, weight_decay=decay)
        for gradient in gradients:
            parameter.grad = factor * gradient
            optimizer.step()
    torch.testing.assert_close(released, ours)


def test_a_padded_group_has_no_part_and_does_not_end_in_nothing_by_nothing(run_file: Path) -> None:
    config = configured(run_file, *FIXMATCH, "method.confidence_gate=0", "method.cutmix_probability=0")
    method, batch = unimatch(config), padded(config)
    whole = float(method.losses(batch, CLOCK).terms["consistency"].detach())
    weak = batch.unlabeled[0]
    weak.valid = weak.valid.clone()
    weak.valid[2:] = False
    found = float(method.losses(batch, CLOCK).terms["consistency"].detach())
    assert 0 < found < whole


def test_a_gate_at_one_half_of_t_and_above_it(run_file: Path) -> None:
    """Behind a gate of T or more every pixel has K = 1; and a run says so."""
    fpl = ["loss.kind=fpl", "loss.threshold=0.5", *FIXMATCH]
    counts = []
    for threshold in (0.5, 0.05):
        config = configured(run_file, *fpl, f"method.confidence_gate={threshold}")
        method, batch = unimatch(config), padded(config)
        with torch.no_grad():
            # As sure as a trained network is of some pixels.
            method.network.classifier.weight *= 12.0
        method.pixel_loss.collect = True
        (term,) = method.losses(batch, CLOCK).pixel_terms.values()
        counts.append(term.statistics["k_histogram"])
        said = any("every pixel that passes has K = 1" in text for text in warnings_of(config))
        assert said is (threshold == 0.5)
    assert int(counts[0][0]) > 0 and int(counts[0][1:].sum()) == 0
    assert int(counts[1][1:].sum()) > 0


def test_names_and_keys_that_nothing_reads(run_file: Path) -> None:
    named = {
        (1, 0.0): ("fixmatch", "FixMatch"),
        (2, 0.0): ("fixmatch2", "FixMatch with two strong views"),
        (1, 0.5): ("fixmatchfeatures", "FixMatch with perturbed features"),
        (2, 0.5): ("unimatch", "UniMatch"),
    }
    for (views, share), names in named.items():
        keys = [f"method.strong_views={views}", f"method.feature_share={share}"]
        method = configured(run_file, *keys).method
        assert (method.word, method.label) == names
        other = configured(run_file, *keys, "method.feature_dropout=0.3").method
        assert (other == method) is not bool(share)
    with pytest.raises(FplError, match=r"method\.strong_views"):
        configured(run_file, "method.strong_views=3")


def test_boxes_have_the_areas_the_ratios_and_the_places_of_the_published_ones() -> None:
    side, count = 400, 600
    masks = box_masks(3, torch.arange(count), (side, side), 0, 1.0)
    boxes = [mask.nonzero() for mask in masks]
    corners = torch.stack([torch.cat([box.amin(0), box.amax(0) + 1]) for box in boxes]).double() / side
    heights, widths = corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]
    areas, ratios = masks.double().mean((1, 2)), heights / widths
    torch.testing.assert_close(areas, heights * widths)
    # Whole pixels are cut off at both ends.
    assert 0.015 < float(areas.min()) < 0.03 and 0.37 < float(areas.max()) <= 0.4
    assert float(areas.mean()) == pytest.approx(0.21, abs=0.02)
    assert 0.28 < float(ratios.min()) < 0.5 and 2.2 < float(ratios.max()) < 3.6
    # A box of a given size lies anywhere with the same chance; on the average, in the middle.
    middles = torch.stack([corners[:, 0] + corners[:, 2], corners[:, 1] + corners[:, 3]]) / 2
    torch.testing.assert_close(middles.mean(1), torch.full((2,), 0.5).double(), rtol=0, atol=0.03)
    assert not torch.equal(masks, box_masks(3, torch.arange(count), (side, side), 1, 1.0))
    half = box_masks(3, torch.arange(count), (side, side), 0, 0.5)
    held = half.flatten(1).any(1)
    assert float(held.double().mean()) == pytest.approx(0.5, abs=0.07)
    assert torch.equal(half[held], masks[held])


def test_the_weight_rises_over_the_ramp_alone(run_file: Path) -> None:
    config = configured(run_file, "method.ramp=0.5", *FIXMATCH)
    method, batch = unimatch(config), padded(config)
    shares = []
    for step in (0, 2, 5):
        found = method.losses(batch, Clock(step, 6))
        assert found.unsupervised is not None
        shares.append(float((found.unsupervised / found.terms["consistency"]).detach()))
    assert shares == pytest.approx([math.exp(-5), math.exp(-5 / 9), 1.0])
