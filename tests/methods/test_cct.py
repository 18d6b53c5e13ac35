"""Cross-consistency training against second implementations of its perturbations, its losses and its whole step."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from fpl.config.checks import warnings_of
from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.augment import FOR_CHOICE, seeded
from fpl.data.batches import Batch
from fpl.errors import FplError
from fpl.losses import fuzzy_positive_loss
from fpl.methods.base import Clock
from fpl.methods.cct.bootstrapped import bootstrap_threshold, bootstrapped_cross_entropy
from fpl.methods.cct.decoders import bilinear_decoder, pixel_shuffle_decoder
from fpl.methods.cct.method import Cct, _Unlabeled
from fpl.methods.cct.options import KINDS, CctOptions
from fpl.methods.cct.perturbations import (
    adversarial_perturbation,
    context_mask,
    corner_counts,
    cutout_holes,
    feature_drop,
    feature_noise,
    guided_cutout,
    large_regions,
    object_mask,
)
from fpl.train.runtime import autocast
from tests.methods.support import CLOCK, assert_all_learn, batch_for, build

ONE_EACH = [f"method.{kind}_decoders=1" for kind in KINDS]
CCT = ["method.name=cct", "data.groups=2", "loss.kind=mse", "method.cutout_points=4"]


def cct(run_file: Path, *overrides: str) -> Cct:
    method = build(load_config(run_file, overrides=[*CCT, *overrides]))
    assert isinstance(method, Cct)
    return method


def options(run_file: Path, *overrides: str) -> CctOptions:
    found = load_config(run_file, overrides=[*CCT, *overrides]).method
    assert isinstance(found, CctOptions)
    return found


def doubled(batch: Batch) -> Batch:
    batch.image = batch.image.double()
    batch.unlabeled[0].image = batch.unlabeled[0].image.double()
    return batch


# --- options


def test_unset_keys_follow_the_code_that_is_meant(run_file: Path) -> None:
    small, original = options(run_file), options(run_file, "method.decoders=original")
    assert sum(small.counts.values()) == 12 and small.counts["adversarial"] == 0
    assert [original.counts[kind] for kind in KINDS] == [6, 6, 2, 2, 6, 2, 6]
    assert (small.ramp, small.bootstrapped, small.bootstrap_threshold, small.weight) == (0.0, True, 0.99, 30.0)
    assert (original.ramp, original.bootstrapped, original.weight) == (0.1, False, 30.0)
    annealed = options(run_file, "method.decoders=original", "method.bootstrapped=true", "method.dropout_decoders=1")
    assert (annealed.bootstrap_threshold, annealed.counts["dropout"], annealed.counts["noise"]) == (0.9, 1, 6)


def test_keys_that_nothing_reads_make_no_other_run(run_file: Path) -> None:
    plain = ["method.noise_decoders=1", *(f"method.{kind}_decoders=0" for kind in KINDS[1:])]
    unread = ["method.dropout=0.2", "method.cutout_side=0.1", "method.foreground=classes"]
    assert options(run_file, *plain, *unread) == options(run_file, *plain)
    assert options(run_file, *plain).foreground is None
    assert options(run_file, *plain, "method.noise=0.1") != options(run_file, *plain)


def test_the_data_say_what_the_foreground_is(run_file: Path) -> None:
    assert options(run_file).foreground == "random_subset"
    voc = ["data.dataset=synthetic_voc", "data.num_classes=21"]
    assert options(run_file, *voc).foreground == "classes"
    config = load_config(run_file, overrides=[*CCT, "method.foreground=classes"])
    assert any("class 0 is road" in warning for warning in warnings_of(config))


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        (["loss.supervised=ohem"], "method.bootstrapped"),
        ([f"method.{kind}_decoders=0" for kind in KINDS], "noise_decoders"),
        (["method.drop_thresholds=[0.9,0.7]"], "drop_thresholds"),
    ],
)
def test_contradictions_name_the_key(run_file: Path, overrides: list[str], word: str) -> None:
    with pytest.raises(FplError, match=word):
        load_config(run_file, overrides=[*CCT, *overrides])


# --- decoders


def parameters_of(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_decoders_have_the_published_sizes() -> None:
    assert parameters_of(bilinear_decoder(256, 21)) == 256 * 21 + 21 == 5397
    # Of the original: 512 channels at an eighth of the image's size.
    original = pixel_shuffle_decoder(512, 21, 3)
    assert parameters_of(original) == 512 * 21 + 3 * (21 * 84 + 84) == 16296
    assert original(torch.zeros(2, 512, 5, 6)).shape == (2, 21, 40, 48)
    # On an embedding of this suite, at a quarter.
    assert parameters_of(pixel_shuffle_decoder(256, 21, 2)) == 9072


def test_pixel_shuffle_begins_without_a_checkerboard() -> None:
    decoder = pixel_shuffle_decoder(8, 3, 2)
    for step in list(decoder)[1:]:
        for bias in (parameter for parameter in step.parameters() if parameter.ndim == 1):
            nn.init.zeros_(bias)
    found = decoder(torch.randn(2, 8, 5, 5, generator=torch.Generator().manual_seed(0)))
    assert bool(found.any())
    assert torch.equal(found, found[..., ::4, ::4].repeat_interleave(4, 2).repeat_interleave(4, 3))


def test_all_decoders_differ_and_learn_at_the_rate_of_heads(run_file: Path) -> None:
    method = cct(run_file, "optim.head_lr_multiplier=10.0")
    assert list(method.decoders)[:3] == ["noise_1", "noise_2", "drop_1"] and len(method.decoders) == 12
    weights = torch.stack([next(decoder.parameters()) for decoder in method.decoders.values()]).flatten(1)
    assert bool((torch.cdist(weights, weights) + torch.eye(12) > 0.1).all())
    rates = {
        id(parameter): group["lr_multiplier"]
        for group in method.optimizers()["main"].param_groups
        for parameter in group["params"]
    }
    assert {rates[id(parameter)] for parameter in method.decoders.parameters()} == {10.0}
    assert {rates[id(parameter)] for parameter in method.network.backbone.parameters()} == {1.0}


# --- perturbations


def features(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)).double() + 0.1


def test_feature_noise_is_relative_uniform_and_shared_by_a_group() -> None:
    z = features(4, 32, 20, 20)
    uniform = torch.rand(2, 32, 20, 20, generator=torch.Generator().manual_seed(1)).double()
    noise = feature_noise(z, uniform, 0.3) / z - 1
    torch.testing.assert_close(noise[0], noise[1])
    assert bool((noise[1] != noise[2]).any())
    torch.testing.assert_close(noise[::2], 0.6 * uniform - 0.3)
    drawn = noise[::2].flatten()
    assert float(drawn.abs().max()) <= 0.3 and abs(float(drawn.mean())) < 0.01
    assert abs(float(drawn.std()) - 0.3 / math.sqrt(3)) < 0.003


def test_feature_drop_keeps_what_has_little_attention() -> None:
    z, uniform = features(4, 6, 9, 9), torch.tensor([0.0, 0.75], dtype=torch.float64)
    found = feature_drop(z, uniform, (0.7, 0.9))
    for image, share in zip(range(4), (0.7, 0.7, 0.85, 0.85), strict=True):
        attention = z[image].numpy().mean(0)
        kept = attention < share * attention.max()
        assert 0 < kept.mean() < 1
        np.testing.assert_array_equal(found[image].numpy(), z[image].numpy() * kept)


def test_guided_masks_take_the_nearest_pixel() -> None:
    z = features(2, 3, 4, 4)
    foreground = torch.rand(2, 16, 8, generator=torch.Generator().manual_seed(2)) < 0.5
    nearest = foreground[:, ::4, ::2].unsqueeze(1)
    assert torch.equal(context_mask(z, foreground), z * nearest)
    assert torch.equal(object_mask(z, foreground), z * ~nearest)
    assert torch.equal(guided_cutout(z, foreground), z * ~nearest)
    assert torch.equal(context_mask(z, foreground) + object_mask(z, foreground), z)


def outlines(mask: NDArray[np.bool_]) -> list[list[tuple[int, int]]]:
    """Corners of each outer contour, followed pixel by pixel as Suzuki and Abe (1985) do; nested ones are left out."""
    around = [(0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1)]
    height, width = mask.shape

    def inside(place: tuple[int, int]) -> bool:
        return 0 <= place[0] < height and 0 <= place[1] < width and bool(mask[place])

    def flood(start: tuple[int, int], of: bool, steps: list[tuple[int, int]]) -> set[tuple[int, int]]:
        seen, front = {start}, [start]
        while front:
            row, column = front.pop()
            for down, right in steps:
                place = (row + down, column + right)
                within = -1 <= place[0] <= height and -1 <= place[1] <= width
                if within and place not in seen and inside(place) == of:
                    seen.add(place)
                    front.append(place)
        return seen

    outside = flood((-1, -1), False, around[::2])
    done: set[tuple[int, int]] = set()
    found = []
    for start in [(row, column) for row in range(height) for column in range(width)]:
        if not inside(start) or start in done:
            continue
        done |= flood(start, True, around)
        # The first pixel of a region in reading order lies right of what is outside it.
        if (start[0], start[1] - 1) not in outside:
            continue
        found.append(_corners(start, inside, around))
    return found


def _corners(start: tuple[int, int], inside: object, around: list[tuple[int, int]]) -> list[tuple[int, int]]:
    assert callable(inside)

    def at(place: tuple[int, int], direction: int) -> tuple[int, int]:
        return place[0] + around[direction % 8][0], place[1] + around[direction % 8][1]

    # Clockwise from the left: the pixel that the outline comes back from.
    last = next((4 - turn for turn in range(1, 8) if inside(at(start, 4 - turn))), None)
    if last is None:
        return [start]
    place, came, corners, before = start, last % 8, [], (last + 4) % 8
    while True:
        # Counterclockwise from where it came from.
        direction = next((came + turn) % 8 for turn in range(1, 9) if inside(at(place, came + turn)))
        if direction != before:
            corners.append(place)
        before, following = direction, at(place, direction)
        if following == start and place == at(start, last):
            return corners
        place, came = following, (direction + 4) % 8


def blobs(seed: int, size: int = 24, level: float = 0.5) -> NDArray[np.bool_]:
    noise = torch.rand(1, 1, size, size, generator=torch.Generator().manual_seed(seed))
    smooth = F.avg_pool2d(noise, 3, stride=1, padding=1, count_include_pad=False)[0, 0]
    return (smooth > level).numpy()


@pytest.mark.parametrize("seed", range(12))
def test_corners_of_outlines_are_those_of_following_them(seed: int) -> None:
    mask = blobs(seed, level=0.45 + 0.02 * (seed % 6))
    expected = sorted(len(corners) for corners in outlines(mask))
    from scipy import ndimage

    holes, _ = ndimage.label(np.pad(~mask, 1, constant_values=True))
    filled = (holes != holes[0, 0])[1:-1, 1:-1]
    regions, count = ndimage.label(filled, structure=np.ones((3, 3)))
    found = [int(corner_counts(filled)[regions == number].sum()) for number in range(1, count + 1)]
    assert sorted(found) == expected and max(expected) > 10


def test_corners_of_simple_shapes() -> None:
    mask = np.zeros((9, 9), dtype=bool)
    mask[2:6, 1:8] = True
    assert corner_counts(mask).sum() == 4 and corner_counts(mask)[2, 1] == 1
    line, dot = np.zeros((3, 9), dtype=bool), np.zeros((3, 3), dtype=bool)
    line[1, 2:7], dot[1, 1] = True, True
    assert corner_counts(line).sum() == 2 and corner_counts(dot).sum() == 1


def holes_of(mask: NDArray[np.bool_], points: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    return cutout_holes(mask.shape, large_regions(mask, points), 0.4, generator)


def test_a_hole_lies_in_the_box_of_each_large_region_anywhere_in_it() -> None:
    mask = np.zeros((40, 60), dtype=bool)
    rows, columns = np.ogrid[:40, :60]
    mask[(rows - 15) ** 2 + (columns - 20) ** 2 <= 144] = True
    mask[(rows - 15) ** 2 + (columns - 20) ** 2 <= 9] = False  # holes belong to it
    mask[15, 20] = True  # as does what lies in them
    mask[30:38, 45:58] = True  # four corners alone
    top, left, extent = 3, 8, 24
    places = set()
    for seed in range(400):
        holes = holes_of(mask, 20, np.random.default_rng(seed))
        inside = np.argwhere(holes)
        assert len(inside) == int(extent * 0.4) ** 2 == 81
        assert (inside.max(0) - inside.min(0) == 8).all()
        places.add(tuple(inside.min(0).tolist()))
    starts = np.array(sorted(places))
    assert (starts.min(0) == (top, left)).all() and (starts.max(0) == (top + 14, left + 14)).all()
    assert len(places) > 150, "of 15 * 15, all alike"
    assert not holes_of(mask, 200, np.random.default_rng(0)).any()
    both = holes_of(mask, 3, np.random.default_rng(0))
    assert both[30:38, 45:58].sum() == int(7 * 0.4) * int(12 * 0.4) and both.sum() == 81 + 8


def test_the_adversarial_direction_is_that_of_the_curvature() -> None:
    """For small steps the gradient is step^2 * J' (diag p - p p') J d, J the decoder's matrix: exact in the limit."""
    torch.manual_seed(0)
    z, decoder = features(3, 5, 4, 4), nn.Conv2d(5, 4, 1).double()
    uniform = torch.rand(3, 5, 4, 4).double()
    found = adversarial_perturbation(z, decoder, uniform, (4, 4), step=1e-6, radius=2.0) - z
    matrix = decoder.weight.detach()[:, :, 0, 0]
    for image in range(3):
        direction = (uniform[image] - 0.5) / (uniform[image] - 0.5).norm()
        moved = torch.einsum("kc,chw->khw", matrix, direction)
        p = decoder(z[image : image + 1]).softmax(1)[0].detach()
        curved = p * (moved - (p * moved).sum(0, keepdim=True))
        expected = torch.einsum("kc,khw->chw", matrix, curved)
        torch.testing.assert_close(found[image], 2 * expected / expected.norm(), rtol=1e-4, atol=1e-5)


def test_the_adversarial_perturbation_survives_single_and_half_precision() -> None:
    torch.manual_seed(0)
    decoder, uniform = pixel_shuffle_decoder(16, 5, 2), torch.rand(2, 16, 10, 10)
    z = torch.rand(2, 16, 10, 10)
    exact = adversarial_perturbation(
        z.double(), copy.deepcopy(decoder).double(), uniform.double(), (40, 40), step=1e-6, radius=2.0
    )
    single = adversarial_perturbation(z, decoder, uniform, (40, 40), step=1e-6, radius=2.0)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double() - z, exact - z, rtol=1e-3, atol=1e-5)
    for image in single - z:
        assert abs(float(image.norm()) - 2.0) < 1e-3
    with torch.autocast("cpu", torch.bfloat16):
        half = adversarial_perturbation(z.bfloat16(), decoder, uniform, (40, 40), step=1e-6, radius=2.0)
    assert half.dtype == torch.bfloat16
    assert float(F.cosine_similarity((half - z.bfloat16()).float().flatten(), (single - z).flatten(), 0)) > 0.9


def test_the_adversary_moves_a_prediction_more_than_a_random_direction_and_no_weight() -> None:
    torch.manual_seed(1)
    decoder, uniform = nn.Conv2d(16, 5, 1), torch.rand(2, 16, 10, 10)
    z = torch.rand(2, 16, 10, 10, requires_grad=True)
    attacked = adversarial_perturbation(z, decoder, uniform, (40, 40), step=1e-6, radius=2.0)
    assert all(parameter.grad is None for parameter in decoder.parameters()) and z.grad is None
    (gradient,) = torch.autograd.grad(attacked.sum(), z)
    assert torch.equal(gradient, torch.ones_like(z)), "features learn from it as from themselves"

    def divergence(other: Tensor) -> float:
        logs, target = decoder(other).log_softmax(1), decoder(z).softmax(1)
        return float(F.kl_div(logs, target, reduction="sum").detach())

    random = uniform - 0.5
    random = z + 2 * random / random.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    assert divergence(attacked) > 3 * divergence(random) > 0


def test_dropout_drops_half_of_the_channels(run_file: Path) -> None:
    method = cct(run_file)
    z = torch.ones(64, 32, 3, 3)
    found = method.dropout(z)
    channels = found.amax((2, 3))
    assert torch.equal(channels, found.amin((2, 3))) and set(channels.unique().tolist()) == {0.0, 2.0}
    assert abs(float((channels == 0).float().mean()) - 0.5) < 0.03


# --- supervised loss


def bootstrapped_by_hand(logits: Tensor, label: Tensor, threshold: float, groups: int) -> Tensor:
    """As published, in one process after the other: sort, cut, mean."""
    values = []
    for own, classes in zip(logits.chunk(groups), label.chunk(groups), strict=True):
        flat, mask = own.permute(0, 2, 3, 1).flatten(0, 2), classes.flatten() != 255
        p = flat[mask].softmax(1)[torch.arange(int(mask.sum())), classes.flatten()[mask]]
        if not len(p):
            values.append(0 * logits.sum())
            continue
        ordered = p.detach().sort().values
        cut = max(float(ordered[min(len(own), len(p) - 1)]), threshold)
        kept = -p[p.detach() < cut].log()
        values.append(kept.sum() / max(1, len(kept)))
    return torch.stack(values).mean()


@pytest.mark.parametrize("threshold", [0.01, 0.25, 0.5, 0.99])
@pytest.mark.parametrize("groups", [1, 2])
def test_bootstrapped_cross_entropy_is_that_of_sorting(threshold: float, groups: int) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = (2 * torch.randn(4, 5, 6, 7, generator=generator)).double().requires_grad_()
    label = torch.randint(0, 5, (4, 6, 7), generator=generator)
    label[torch.rand(4, 6, 7, generator=generator) < 0.2] = 255
    found = bootstrapped_cross_entropy(logits, label, threshold, groups)
    expected = bootstrapped_by_hand(logits, label, threshold, groups)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    gradients = [torch.autograd.grad(value, logits)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-14)
    assert 0 < float((gradients[0] != 0).any(1).float().mean()) < 0.85


def test_bootstrapped_cross_entropy_of_few_labels_and_none() -> None:
    logits = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    label = torch.full((2, 4, 4), 255)
    empty = bootstrapped_cross_entropy(logits, label, 0.5, 2)
    assert float(empty.detach()) == 0.0 and not bool(torch.autograd.grad(empty, logits)[0].any())
    label[0, 0, :2] = torch.tensor([1, 2])
    for groups in (1, 2):
        found = bootstrapped_cross_entropy(logits, label, 1e-6, groups)
        torch.testing.assert_close(found, bootstrapped_by_hand(logits, label, 1e-6, groups))
    with torch.no_grad():
        logits[0, 0, 0, 0] = torch.nan
    assert bool(bootstrapped_cross_entropy(logits, label, 0.5, 2).isnan())


def test_the_threshold_rises_as_published(run_file: Path) -> None:
    only = [f"method.{kind}_decoders=0" for kind in KINDS[:-1]]
    method = cct(run_file, "method.bootstrap_threshold=0.9", *only)
    batch, classes = batch_for(method.config, 1), method.config.data.num_classes
    for step in (0, 3, 10, 40, 99):
        method.losses(batch, Clock(step, 100))
        expected = 1 / classes + (1 - math.exp(-5 * min(step, 40) / 40)) * (0.9 - 1 / classes)
        assert method.threshold == pytest.approx(expected)
    assert bootstrap_threshold(0.0, 0.99, 21) == pytest.approx(1 / 21)


# --- a whole step


def foreground_by_hand(
    method: Cct, classes: Tensor, number: int, positions: list[int]
) -> tuple[Tensor, list[np.random.Generator]]:
    generators = [seeded(method.config.seed, FOR_CHOICE, number, position) for position in positions]
    if method.options.foreground == "classes":
        return classes > 0, generators
    masks = []
    for own, generator in zip(classes, generators, strict=True):
        chosen = np.flatnonzero(generator.random(method.config.data.num_classes) < 0.5)
        masks.append(torch.isin(own, torch.from_numpy(chosen)))
    return torch.stack(masks), generators


def perturbed_by_hand(method: Cct, kind: str, number: int, decoder: nn.Module, z: Tensor, classes: Tensor) -> Tensor:
    """p_n(z), its random numbers drawn as the method draws them."""
    if kind == "noise":
        noise = (2 * torch.rand(2, *z.shape[1:]) - 1) * 0.3
        return z + z * noise[[0, 0, 1, 1]]
    if kind == "drop":
        share = 0.7 + 0.2 * torch.rand(2)[[0, 0, 1, 1]].view(4, 1, 1)
        attention = z.detach().mean(1)
        return z * (attention < share * attention.flatten(1).max(1).values.view(4, 1, 1)).unsqueeze(1)
    if kind == "dropout":
        return z * 2 * (torch.rand(z.shape[:2]) >= 0.5).view(4, -1, 1, 1)
    if kind == "adversarial":
        size = (classes.shape[-2], classes.shape[-1])
        return adversarial_perturbation(z, decoder, torch.rand(z.shape), size, step=1e-6, radius=2.0)
    foreground, generators = foreground_by_hand(method, classes, number, [0, 1, 2, 3])
    kept = foreground if kind == "context" else ~foreground
    if kind == "cutout":
        pairs = zip(foreground, generators, strict=True)
        kept = torch.stack([~torch.from_numpy(holes_of(mask.numpy(), 4, each)) for mask, each in pairs])
        assert 0 < float(kept.float().mean()) < 1
    return z * F.interpolate(kept.unsqueeze(1).double(), size=z.shape[-2:], mode="nearest")


def step_by_hand(method: Cct, batch: Batch, clock: Clock) -> Tensor:
    """TorchSemiSeg's step (or the original's) with everything enlarged first, in plain PyTorch."""
    network, own, stride = method.network, method.options, method.config.loss.stride
    side = -(-40 // stride)

    def enlarged(logits: Tensor) -> Tensor:
        return F.interpolate(logits, size=(side, side), mode="bilinear", align_corners=True)

    kept = torch.linspace(0, 39, side).round().long()
    label = batch.label[:, kept][..., kept]
    labeled = enlarged(network.classifier(network.decode(network.encode(batch.image))))
    if own.bootstrapped:
        assert own.bootstrap_threshold is not None
        risen = 1 - math.exp(-5 * min(1.0, clock.step / clock.total / own.bootstrap_ramp))
        cut = 1 / 19 + risen * (own.bootstrap_threshold - 1 / 19)
        supervised = bootstrapped_by_hand(labeled, label, cut, 2)
    else:
        supervised = torch.stack(
            [F.cross_entropy(a, b, ignore_index=255) for a, b in zip(labeled.chunk(2), label.chunk(2), strict=True)]
        ).mean()
    z = network.decode(network.encode(batch.unlabeled[0].image))
    main = enlarged(network.classifier(z)).detach()
    unsupervised = torch.zeros((), dtype=z.dtype)
    for number, (name, decoder) in enumerate(method.decoders.items()):
        changed = perturbed_by_hand(method, name.split("_")[0], number, decoder, z, main.argmax(1))
        student = enlarged(decoder(changed))
        if method.config.loss.kind == "mse":
            unsupervised = unsupervised + ((student.softmax(1) - main.softmax(1)) ** 2).mean()
        else:
            unsupervised = unsupervised + fuzzy_positive_loss(student, main, threshold=0.4)
    ramp = math.exp(-5 * (1 - min(1.0, clock.step / clock.total / own.ramp)) ** 2) if own.ramp else 1.0
    return supervised + 30 * ramp * unsupervised / len(method.decoders)


SMALL = [*ONE_EACH, "method.adversarial_decoders=0", "method.noise_decoders=2"]
ORIGINAL = [*ONE_EACH, "method.decoders=original", "method.foreground=classes"]


@pytest.mark.parametrize(
    "keys",
    [
        SMALL,
        [*SMALL, "loss.stride=4", "method.bootstrapped=false"],
        [*SMALL, "loss.kind=fpl", "loss.threshold=0.4"],
        ORIGINAL,
        [*ORIGINAL, "loss.stride=2", "method.bootstrapped=true", "method.ramp=0.8"],
    ],
    ids=["torchsemiseg", "thin", "fpl", "original", "original-thin"],
)
def test_a_step_is_that_of_the_published_rule(run_file: Path, keys: list[str]) -> None:
    method = cct(run_file, *keys).double()
    other = copy.deepcopy(method)
    batch = doubled(batch_for(method.config, 1))
    torch.manual_seed(5)
    found = method.losses(batch, CLOCK)
    torch.manual_seed(5)
    expected = step_by_hand(other, batch, CLOCK)
    torch.testing.assert_close(found.objectives["main"], expected, rtol=1e-9, atol=0)
    for total in (found.objectives["main"], expected):
        total.backward()  # type: ignore[no-untyped-call]
    for (name, ours), theirs in zip(method.named_parameters(), other.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None, name
        torch.testing.assert_close(
            ours.grad, theirs.grad, rtol=1e-8, atol=1e-9 * float(theirs.grad.abs().max()), msg=name
        )
    for (name, own), buffer in zip(method.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(own, buffer, rtol=1e-12, atol=0, msg=name)
    assert set(found.terms) == {"supervised", "consistency"}
    assert list(found.pixel_terms) == list(method.decoders)


def test_consistency_reaches_the_encoder_and_its_own_decoders_alone(run_file: Path) -> None:
    method = cct(run_file, *ONE_EACH)
    found = method.losses(batch_for(method.config, 1), CLOCK)
    assert found.unsupervised is not None
    named = dict(method.named_parameters())
    reached = torch.autograd.grad(found.unsupervised, list(named.values()), retain_graph=True, allow_unused=True)
    for name, gradient in zip(named, reached, strict=True):
        wanted = not name.startswith("network.classifier")
        assert (gradient is not None and bool(gradient.any())) == wanted, name
    by_labels = torch.autograd.grad(found.supervised, list(named.values()), retain_graph=True, allow_unused=True)
    for name, gradient in zip(named, by_labels, strict=True):
        assert (gradient is not None and bool(gradient.any())) != name.startswith("decoders."), name
    for name, term in found.pixel_terms.items():
        own = torch.autograd.grad(term.value, list(named.values()), retain_graph=True, allow_unused=True)
        decoders = {
            key for key, gradient in zip(named, own, strict=True) if gradient is not None and "decoders." in key
        }
        assert decoders and all(key.startswith(f"decoders.{name}.") for key in decoders)
    # What the loop compares the shares of the two losses on has to be reached by both.
    for part in (found.supervised, found.unsupervised):
        assert all(grad.any() for grad in torch.autograd.grad(part, method.probe_parameters(), retain_graph=True))


def test_decoders_of_a_kind_and_steps_draw_anew(run_file: Path) -> None:
    none = [f"method.{kind}_decoders=0" for kind in KINDS]
    method = cct(run_file, *none, "method.context_decoders=2", "method.cutout_decoders=2")
    classes = torch.arange(40 * 40).view(40, 40).remainder(19).expand(4, 40, 40)

    def masks(number: int, positions: list[int]) -> Tensor:
        generators = [seeded(method.config.seed, FOR_CHOICE, number, position) for position in positions]
        view = _Unlabeled(features(1, 1, 1, 1), features(1, 1, 1, 1), classes[: len(positions)], positions, (40, 40))
        return method._foreground(view, generators)

    first = masks(0, [0, 1, 2, 3])
    assert torch.equal(first, masks(0, [0, 1, 2, 3]))
    assert not torch.equal(first, masks(1, [0, 1, 2, 3])) and not torch.equal(first, masks(0, [4, 5, 6, 7]))
    assert torch.equal(first[2:4], masks(0, [2, 3])), "a slot's draw does not depend on the others"
    share = torch.stack([masks(0, [position] * 4)[0].float().mean() for position in range(200)])
    assert abs(float(share.mean()) - 0.5) < 0.03 and float(share.std()) > 0.08
    for mask, own in zip(first, classes, strict=True):
        assert all(len(mask[own == number].unique()) == 1 for number in range(19)), "whole classes"


def test_every_parameter_learns_under_bf16(run_file: Path) -> None:
    for keys in (ONE_EACH, ORIGINAL):
        method = cct(run_file, *keys, "train.precision=bf16")
        with autocast(method.config.train, torch.device("cpu")):
            found = method.losses(batch_for(method.config, 1), CLOCK)
        found.objectives["main"].backward()  # type: ignore[no-untyped-call]
        assert_all_learn(method)


def recipe(name: str) -> RunConfig:
    return load_config(Path(__file__).parents[2] / "experiments" / "base" / f"{name}_cct.toml")


def test_recipes_are_what_their_data_need() -> None:
    found = {name: recipe(name) for name in ("cityscapes", "voc", "camvid", "synthetic_city", "synthetic_voc")}
    for name, config in found.items():
        assert isinstance(config.method, CctOptions) and config.loss.kind == "mse" and config.method.weight == 30.0
        assert config.method.foreground == ("classes" if name.endswith("voc") else "random_subset")
        assert config.method.bootstrapped == (name.endswith("voc") or name == "camvid")
        assert sum(config.method.counts.values()) == 12 and not warnings_of(config)
    assert found["cityscapes"].loss.supervised == "ohem"
