"""PC2Seg against its rule, as docs/systems.md has it, written down a second time in loops and float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.config.checks import warnings_of
from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch
from fpl.errors import FplError
from fpl.losses import fuzzy_positive_loss
from fpl.methods.base import Clock
from fpl.methods.pc2seg.contrast import (
    contrast,
    drawn_positions,
    images_of_negatives,
    negative_weights,
    pixels_at,
    unit_pixels,
)
from fpl.methods.pc2seg.method import Pc2Seg
from fpl.methods.pc2seg.options import OF_CONTRAST, Pc2SegOptions
from fpl.methods.views import JITTER, cutout_masks
from fpl.models.network import projector
from fpl.train.runtime import autocast
from tests.methods.support import CLOCK, assert_all_learn, batch_for, build

KEYS = ["method.name=pc2seg", "loss.kind=mse", "data.groups=2"]
SMALL = ["method.anchors=6", "method.negatives=5", "method.projector_channels=8"]


def configured(run_file: Path, *more: str) -> RunConfig:
    return load_config(run_file, overrides=[*KEYS, *more])


def options(run_file: Path, *more: str) -> Pc2SegOptions:
    found = configured(run_file, *more).method
    assert isinstance(found, Pc2SegOptions)
    return found


def pc2seg(run_file: Path, *more: str) -> Pc2Seg:
    method = build(configured(run_file, *more))
    assert isinstance(method, Pc2Seg)
    return method


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def padded(config: RunConfig) -> Batch:
    """Float64 images, those without labels with padding."""
    batch = batch_for(config, 1)
    draw = batch.unlabeled[0]
    valid = torch.ones_like(batch.valid)
    valid[0, 20:] = valid[1:, :, 32:] = False
    batch.image = batch.image.double()
    object.__setattr__(draw, "valid", valid)
    object.__setattr__(draw, "image", draw.image.double() * valid.unsqueeze(1))
    return batch


# --- options


def test_without_contrast_its_keys_make_no_other_run(run_file: Path) -> None:
    none = ["method.contrast_weight=0"]
    changed = ["method.anchors=3", "method.debiased=false", "method.temperature=1", "method.negative_images=any"]
    assert options(run_file, *none, *changed) == options(run_file, *none)
    for key in changed:
        assert options(run_file, key) != options(run_file)
    assert set(OF_CONTRAST) < set(Pc2SegOptions.model_fields)
    assert pc2seg(run_file, *none).projector is None


def test_an_image_alone_has_no_negatives_of_others(run_file: Path) -> None:
    alone = ["data.labeled_batch=1", "data.unlabeled_batch=1", "data.groups=1"]
    # Batch statistics of one image are refused before.
    alone += ["model.norm=frozen", "model.pretrained=imagenet"]
    with pytest.raises(FplError, match=r"method\.negative_images") as caught:
        configured(run_file, *alone)
    assert "any" in str(caught.value) and "data.unlabeled_batch" in str(caught.value)
    for way_out in ("method.negative_images=any", "method.contrast_weight=0"):
        configured(run_file, *alone, way_out)


def test_what_is_doubtful_is_said(run_file: Path) -> None:
    assert not warnings_of(configured(run_file))
    assert any("another scale" in warning for warning in warnings_of(configured(run_file, "loss.kind=fpl")))
    nothing = ["method.weight=0", "method.contrast_weight=0"]
    assert any("method.weight = 0" in warning for warning in warnings_of(configured(run_file, *nothing)))
    assert not warnings_of(configured(run_file, nothing[0]))


@pytest.mark.parametrize("key", ["temperature=0", "anchors=0", "negatives=0", "negative_images=same", "cutout_side=1"])
def test_problems_name_the_key(run_file: Path, key: str) -> None:
    with pytest.raises(FplError, match=f"method.{key.split('=', maxsplit=1)[0]}"):
        configured(run_file, f"method.{key}")


# --- what is drawn


def test_positions_are_drawn_among_what_is_seen() -> None:
    seen = uniform(3, 40) < 0.4
    seen[2] = False
    drawn = uniform(3, 7, seed=1)
    drawn[0, 0] = 1 - 2**-24
    positions, counted = drawn_positions(seen, drawn)
    for image in range(2):
        places = [place for place in range(40) if seen[image, place]]
        expected = [places[min(int(float(number) * len(places)), len(places) - 1)] for number in drawn[image]]
        assert positions[image].tolist() == expected
    assert counted.tolist() == [[True] * 7, [True] * 7, [False] * 7]
    assert bool(((positions >= 0) & (positions < 40)).all())


def test_positions_are_uniform() -> None:
    seen = torch.tensor([[True, False, True, True, False, True, True]])
    positions, _ = drawn_positions(seen, uniform(1, 20_000))
    shares = torch.bincount(positions.flatten(), minlength=7) / 20_000
    torch.testing.assert_close(shares, seen[0] / 5, rtol=0, atol=5 * (0.16 / 20_000) ** 0.5)


def test_images_of_negatives_are_others_or_any_and_uniform() -> None:
    drawn = uniform(4, 5000)
    others, every = (images_of_negatives(drawn, 0, 4, others=only) for only in (True, False))
    for own in range(4):
        shares = torch.bincount(others[own], minlength=4) / 5000
        expected = torch.full((4,), 1 / 3)
        expected[own] = 0
        torch.testing.assert_close(shares, expected, rtol=0, atol=5 * (2 / 9 / 5000) ** 0.5)
        shares = torch.bincount(every[own], minlength=4) / 5000
        torch.testing.assert_close(shares, torch.full((4,), 0.25), rtol=0, atol=5 * (3 / 16 / 5000) ** 0.5)
    # Two workers with two images each.
    halves = [images_of_negatives(drawn[first : first + 2], first, 4, others=True) for first in (0, 2)]
    assert torch.equal(torch.cat(halves), others)
    last = torch.full((1, 1), 1 - 2**-24)
    assert images_of_negatives(last, 1, 2, others=True).item() == 0
    assert images_of_negatives(last, 1, 2, others=False).item() == 1


def test_vectors_are_those_at_the_positions() -> None:
    maps, positions = numbers(2, 3, 4, 5), torch.tensor([[0, 19, 7], [7, 7, 12]])
    found, unit = pixels_at(maps, positions), unit_pixels(maps, positions)
    for image in range(2):
        for place, position in enumerate(positions[image].tolist()):
            vector = maps[image, :, position // 5, position % 5]
            assert torch.equal(found[image, place], vector)
            torch.testing.assert_close(unit[image, place], vector / vector.square().sum().sqrt())


def test_the_projector_has_two_layers() -> None:
    layers = projector(256, 128)
    assert sum(parameter.numel() for parameter in layers.parameters()) == 256 * 256 + 256 + 256 * 128 + 128
    assert layers(torch.zeros(2, 256, 3, 4)).shape == (2, 128, 3, 4)


# --- weights and loss


@pytest.mark.parametrize("debiased", [True, False])
@pytest.mark.parametrize("confidence", [0.0, 0.5])
def test_weights_of_negatives_are_those_by_loops(debiased: bool, confidence: float) -> None:
    anchors, negatives = (2 * numbers(2, 3, 4)).softmax(-1), (2 * numbers(2, 6, 4, seed=1)).softmax(-1)
    found = negative_weights(anchors, negatives, debiased=debiased, confidence=confidence)
    left_out = 0
    for image in range(2):
        for i in range(3):
            for j in range(6):
                same = sum(float(anchors[image, i, c] * negatives[image, j, c]) for c in range(4))
                expected = 1 - same if debiased else 1.0
                if max(negatives[image, j].tolist()) < confidence:
                    expected, left_out = 0.0, left_out + 1
                assert float(found[image, i, j]) == pytest.approx(expected, abs=1e-12)
    assert (left_out > 0) == (confidence > 0) and left_out < 36


def test_weights_computed_by_hand() -> None:
    anchors = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    negatives = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.8, 0.2]]])
    found = negative_weights(anchors, negatives, debiased=True, confidence=0.0)
    torch.testing.assert_close(found, torch.tensor([[[0.0, 1.0, 0.2], [0.5, 0.5, 0.5]]]))
    unsure = negative_weights(anchors, negatives * torch.nan, debiased=True, confidence=0.9)
    assert bool(unsure.isnan().all()), "what is no number is seen"


def contrast_by_loops(
    anchors: Tensor, positives: Tensor, negatives: Tensor, weights: Tensor, temperature: float
) -> Iterator[Tensor]:
    for image in range(len(anchors)):
        for i in range(anchors.shape[1]):
            anchor = anchors[image, i]
            positive = ((anchor * positives[image, i]).sum() / temperature).exp()
            rest = torch.zeros((), dtype=anchor.dtype)
            for j in range(negatives.shape[1]):
                rest = rest + weights[image, i, j] * ((anchor * negatives[image, j]).sum() / temperature).exp()
            yield -(positive / (positive + rest)).log()


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_contrast_is_that_by_loops(temperature: float) -> None:
    anchors = F.normalize(numbers(2, 3, 5), dim=-1).requires_grad_()
    positives, negatives = (F.normalize(numbers(2, count, 5, seed=count), dim=-1) for count in (3, 4))
    weights = uniform(2, 3, 4).double()
    weights[0, 0], weights[1, 1, 2] = 0.0, 0.0
    found = contrast(anchors, positives, negatives, weights, temperature)
    expected = torch.stack(list(contrast_by_loops(anchors, positives, negatives, weights, temperature))).view(2, 3)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    gradients = [torch.autograd.grad(value.sum(), anchors)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)
    assert float(found[0, 0].detach()) == 0.0 and not bool(gradients[0][0, 0].any())


def test_contrast_computed_by_hand() -> None:
    # Cosines 1, 0 and -1 at temperature 1, the negatives weighing 1 and 1/2: log((e + 1 + 1 / 2e) / e).
    anchor, negatives = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0], [-1.0, 0.0]]])
    found = contrast(anchor, anchor, negatives, torch.tensor([[[1.0, 0.5]]]), 1.0)
    assert float(found) == pytest.approx(math.log(1 + 1 / math.e + 0.5 / math.e**2), rel=1e-6)


# --- a whole step


def picked(mask: Tensor, size: torch.Size) -> Tensor:
    rows = [row * mask.shape[-2] // size[0] for row in range(size[0])]
    columns = [place * mask.shape[-1] // size[1] for place in range(size[1])]
    return mask[:, rows][..., columns]


def places_by_hand(seen: Tensor, drawn: Tensor) -> list[list[int]]:
    found = []
    for mask, row in zip(seen.flatten(1).tolist(), drawn.tolist(), strict=True):
        places = [place for place, inside in enumerate(mask) if inside]
        found.append([places[int(number * len(places))] for number in row])
    return found


def contrast_term(method: Pc2Seg, strong: Tensor, weak: Tensor, p: Tensor, seen: Tensor, valid: Tensor) -> Tensor:
    """The contrast of projected maps, pixel by pixel; random numbers in the order in which the method takes them."""
    own, count = method.options, len(strong)
    drawn = [torch.rand(count, number) for number in (own.anchors, own.negatives, own.negatives)]
    width, total, values = strong.shape[-1], 0, []
    anchors, offered = places_by_hand(seen, drawn[0]), places_by_hand(valid, drawn[1])

    def at(maps: Tensor, image: int, place: int) -> Tensor:
        return maps[image, :, place // width, place % width]

    for image in range(count):
        for place in anchors[image]:
            query, key = at(strong, image, place), at(weak, image, place)
            positive = (F.cosine_similarity(query, key, dim=0) / own.temperature).exp()
            rest = torch.zeros((), dtype=query.dtype)
            for number in range(own.negatives):
                draw = float(drawn[2][image, number])
                other = int(draw * count)
                if own.negative_images == "other":
                    other = (image + 1 + int(draw * (count - 1))) % count
                    assert other != image
                there = offered[other][number]
                weight = 1 - (at(p, image, place) * at(p, other, there)).sum() if own.debiased else torch.ones(())
                if float(at(p, other, there).max()) < own.negative_confidence:
                    total, weight = total + 1, torch.zeros(())
                negative = at(weak, other, there)
                rest = rest + weight * (F.cosine_similarity(query, negative, dim=0) / own.temperature).exp()
            values.append(-(positive / (positive + rest)).log())
    assert (total > 0) == (own.negative_confidence > 0) and total < len(values) * own.negatives
    return torch.stack(values).mean()


def step_by_hand(method: Pc2Seg, batch: Batch) -> dict[str, Tensor]:
    network, own, draw, config = method.network, method.options, batch.unlabeled[0], method.config
    kept = torch.linspace(0, 39, -(-40 // config.loss.stride)).round().long()

    def enlarged(logits: Tensor) -> Tensor:
        return F.interpolate(logits, size=(len(kept), len(kept)), mode="bilinear", align_corners=True)

    def passed(image: Tensor) -> tuple[Tensor, Tensor]:
        embedding = network.decode(network.encode(image))
        return embedding, network.classifier(embedding)

    logits = enlarged(passed(batch.image)[1])
    pairs = zip(logits.chunk(2), batch.label[:, kept][..., kept].chunk(2), strict=True)
    terms = {"supervised": torch.stack([F.cross_entropy(*pair, ignore_index=255) for pair in pairs]).mean()}
    side = round(own.cutout_side * 40)
    hole = cutout_masks(config.seed, draw.position, (40, 40), (side, side))
    strong = JITTER(draw.image, draw.valid, config.seed, draw.position).double() * ~hole.unsqueeze(1)
    seen = draw.valid & ~hole
    with torch.no_grad():
        weak_embedding, weak_logits = passed(draw.image)
    embedding, logits = passed(strong)
    mask = seen[:, kept][..., kept]
    student, teacher = (enlarged(each).movedim(1, -1)[mask] for each in (logits, weak_logits))
    if config.loss.kind == "fpl":
        terms["consistency"] = fuzzy_positive_loss(student, teacher, threshold=config.loss.threshold)
    else:
        terms["consistency"] = (student.softmax(1) - teacher.softmax(1)).square().sum(1).mean()
    if method.projector is not None:
        maps, p = method.projector(embedding), weak_logits.softmax(1)
        with torch.no_grad():
            keys = method.projector(weak_embedding)
        size = embedding.shape[-2:]
        terms["contrast"] = contrast_term(method, maps, keys, p, picked(seen, size), picked(draw.valid, size))
    return terms


@pytest.mark.parametrize(
    "keys",
    [
        SMALL,
        [*SMALL, "method.negative_images=any", "method.debiased=false", "method.cutout_side=0", "loss.stride=4"],
        [*SMALL, "method.negative_confidence=0.11", "method.temperature=0.5", "method.ramp=0.8", "method.weight=3"],
        [*SMALL, "loss.kind=fpl", "loss.threshold=0.4", "method.cutout_side=0.5"],
        ["method.contrast_weight=0"],
    ],
    ids=["usual", "any", "sure", "fpl", "consistency"],
)
def test_a_step_is_that_of_the_rule(run_file: Path, keys: list[str]) -> None:
    method = pc2seg(run_file, *keys).double().train()
    other = copy.deepcopy(method)
    batch = padded(method.config)
    torch.manual_seed(5)
    found = method.losses(batch, CLOCK)
    torch.manual_seed(5)
    terms = step_by_hand(other, batch)
    assert set(found.terms) == set(terms)
    for name, term in terms.items():
        torch.testing.assert_close(found.terms[name], term, rtol=1e-8, atol=0)
    own = method.options
    ramp = math.exp(-5 * (1 - 0.5 / own.ramp) ** 2) if own.ramp > 0.5 else 1.0
    unsupervised = own.weight * terms["consistency"]
    if own.contrast_weight:
        unsupervised = unsupervised + own.contrast_weight * terms["contrast"]
    total = terms["supervised"] + ramp * unsupervised
    torch.testing.assert_close(found.objectives["main"], total, rtol=1e-9, atol=0)
    for objective in (found.objectives["main"], total):
        objective.backward()  # type: ignore[no-untyped-call]
    for (name, ours), theirs in zip(method.named_parameters(), other.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None, name
        torch.testing.assert_close(
            ours.grad, theirs.grad, rtol=1e-7, atol=1e-8 * float(theirs.grad.abs().max()), msg=name
        )
    for (name, kept), buffer in zip(method.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(kept, buffer, rtol=1e-9, atol=1e-12, msg=name)


def test_the_weak_view_is_a_constant(run_file: Path) -> None:
    method = pc2seg(run_file, *SMALL)
    batch = batch_for(method.config, 1)
    draw = batch.unlabeled[0]
    object.__setattr__(draw, "image", draw.image.requires_grad_())
    found = method.losses(batch, CLOCK)
    assert found.unsupervised is not None
    found.unsupervised.backward()  # type: ignore[no-untyped-call]
    # Strong views are made without a graph: what is left is the weak view's own way.
    assert draw.image.grad is None
    assert method.network.backbone.stem[0].weight.grad is not None  # type: ignore[union-attr, index]


def test_each_loss_reaches_what_it_should(run_file: Path) -> None:
    method = pc2seg(run_file, *SMALL)
    found = method.losses(batch_for(method.config, 1), CLOCK)
    named = dict(method.named_parameters())

    def reached(value: Tensor) -> set[str]:
        gradients = torch.autograd.grad(value, list(named.values()), retain_graph=True, allow_unused=True)
        pairs = zip(named, gradients, strict=True)
        return {name for name, gradient in pairs if gradient is not None and bool(gradient.any())}

    network = {name for name in named if name.startswith("network.")}
    classifier = {name for name in named if name.startswith("network.classifier")}
    assert reached(found.terms["consistency"]) == network == reached(found.supervised)
    assert reached(found.terms["contrast"]) == set(named) - classifier
    assert all(grad.any() for grad in torch.autograd.grad(found.objectives["main"], method.probe_parameters()))


def test_an_image_that_shows_nothing_is_left_out(run_file: Path) -> None:
    method = pc2seg(run_file, *SMALL, "method.debiased=false", "method.cutout_side=0").double()
    batch = padded(method.config)
    batch.unlabeled[0].valid[3] = False
    with torch.no_grad():
        batch.unlabeled[0].image[3] = 0.0
    torch.manual_seed(1)
    found = method.losses(batch, CLOCK)
    # Its pixels are no negatives: without weights, an anchor has those of the other two images alone.
    with torch.no_grad():
        embedding = method.network.details(batch.unlabeled[0].image).embedding
        assert method.projector is not None
        keys = method.projector(embedding)
        torch.manual_seed(1)
        torch.rand(4, 6)
        classes = torch.full((4, 19, 10, 10), 1 / 19, dtype=torch.float64)
        valid = torch.ones(4, 100, dtype=torch.bool)
        valid[3] = False
        pool = method._negatives(keys, classes, valid)
        torch.manual_seed(1)
        torch.rand(4, 6), torch.rand(4, 5)
        images = images_of_negatives(torch.rand(4, 5), 0, 4, others=True)
    assert torch.equal(pool.probabilities.sum(-1) == 0, images == 3) and bool((images == 3).any())
    assert all(bool(value.isfinite()) for value in found.terms.values())
    batch.unlabeled[0].valid[:] = False
    nothing = method.losses(batch, CLOCK)
    assert float(nothing.terms["contrast"].detach()) == 0.0 == float(nothing.terms["consistency"].detach())


def test_steps_draw_other_pixels(run_file: Path) -> None:
    method = pc2seg(run_file, *SMALL)
    batch = batch_for(method.config, 1)
    torch.manual_seed(1)
    first, second = (float(method.losses(batch, CLOCK).terms["contrast"].detach()) for _ in range(2))
    torch.manual_seed(1)
    again = float(method.losses(batch, CLOCK).terms["contrast"].detach())
    assert first != second and first == again


def test_a_ramp_scales_both_losses(run_file: Path) -> None:
    method = pc2seg(run_file, *SMALL, "method.weight=3", "method.ramp=0.5", "method.contrast_weight=0.2")
    batch = batch_for(method.config, 1)
    for step, factor in ((0, math.exp(-5)), (20, math.exp(-5 * 0.36)), (50, 1.0), (99, 1.0)):
        found = method.losses(batch, Clock(step, 100))
        assert found.unsupervised is not None
        whole = 3 * found.terms["consistency"] + 0.2 * found.terms["contrast"]
        torch.testing.assert_close(found.unsupervised, factor * whole)


def test_every_parameter_learns_under_bf16(run_file: Path) -> None:
    method = pc2seg(run_file, *SMALL, "train.precision=bf16")
    batch = batch_for(method.config, 1)
    torch.manual_seed(2)
    with autocast(method.config.train, torch.device("cpu")):
        found = method.losses(batch, CLOCK)
    assert all(value.dtype == torch.float32 for value in found.terms.values())
    found.objectives["main"].backward()  # type: ignore[no-untyped-call]
    assert_all_learn(method)
    exact = pc2seg(run_file, *SMALL)
    torch.manual_seed(2)
    for name, term in exact.losses(batch, CLOCK).terms.items():
        torch.testing.assert_close(found.terms[name], term, rtol=0.05, atol=0.01)


@pytest.mark.parametrize("name", ["cityscapes", "voc", "camvid", "synthetic_city", "synthetic_voc"])
def test_recipes_are_what_their_data_need(name: str) -> None:
    config = load_config(Path(__file__).parents[2] / "experiments" / "base" / f"{name}_pc2seg.toml")
    method = config.method
    assert isinstance(method, Pc2SegOptions) and config.loss.kind == "mse" and not warnings_of(config)
    assert (method.weight, method.contrast_weight, method.negative_images, method.debiased) == (1.0, 0.1, "other", True)
    # No more are drawn than there are, at a quarter of the crop's size.
    height, width = config.data.crop
    assert method.anchors + method.negatives < height * width / 16
