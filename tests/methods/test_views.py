"""Strong views against a second implementation in plain Python, and the distribution of what is drawn for them."""

from __future__ import annotations

import colorsys
import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from fpl.data.augment import MEAN, STD, cutmix_masks, seeded
from fpl.data.batches import Draw
from fpl.methods.views import JITTER, Colours, StrongView, cutout_masks, mix, mix_draws, strong_draw

CUTMIX_SEG = StrongView(0.4, 0.4, 0.4, 0.1)
EVERYTHING = StrongView(0.5, 0.4, 0.3, 0.25, jitter=1.0, grey=0.0, blur=1.0, sigmas=(0.8, 1.2), kernel=3)
Pixels = list[list[tuple[float, ...]]]


def images(count: int = 4, side: int = 6) -> tuple[Tensor, Tensor]:
    """Normalised images, in the middle of the range of colours so that few are clipped, and their valid masks."""
    generator = torch.Generator().manual_seed(0)
    colours = 0.2 + 0.5 * torch.rand(count, 3, side, side, generator=generator)
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    valid = torch.ones(count, side, side, dtype=torch.bool)
    valid[:, -1] = False
    return ((colours - mean) / deviation).masked_fill(~valid.unsqueeze(1), 0.0), valid


def grey_of(pixel: tuple[float, ...]) -> float:
    return 0.2989 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]


def clip(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def changed(image: Pixels, name: str, amount: float, added: bool = False) -> Pixels:
    """By the definitions of PIL's ImageEnhance, colorsys for the hue, and TensorFlow's for brightness that is added."""
    every = [pixel for row in image for pixel in row]
    mean = sum(grey_of(pixel) for pixel in every) / len(every)

    def change(pixel: tuple[float, ...]) -> tuple[float, ...]:
        if name == "hue":
            hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
            return colorsys.hsv_to_rgb((hue + amount) % 1.0, saturation, value)
        if name == "brightness" and added:
            return tuple(clip(channel + amount - 1) for channel in pixel)
        base = {"brightness": 0.0, "contrast": mean, "saturation": grey_of(pixel)}[name]
        return tuple(clip(base + amount * (channel - base)) for channel in pixel)

    return [[change(pixel) for pixel in row] for row in image]


def blurred(image: Pixels, sigma: float, kernel: int) -> Pixels:
    half, side = kernel // 2, len(image)
    powers = [math.exp(-(offset**2) / (2 * sigma**2)) for offset in range(-half, half + 1)]

    def reflected(place: int) -> int:
        place = abs(place)
        return place if place < side else 2 * (side - 1) - place

    def value(y: int, x: int, channel: int) -> float:
        return (
            sum(
                powers[dy + half] * powers[dx + half] * image[reflected(y + dy)][reflected(x + dx)][channel]
                for dy in range(-half, half + 1)
                for dx in range(-half, half + 1)
            )
            / sum(powers) ** 2
        )

    return [[tuple(value(y, x, channel) for channel in range(3)) for x in range(side)] for y in range(side)]


def by_hand(image: Tensor, valid: Tensor, colours: Colours, kernel: int, added: bool = False) -> Tensor:
    mean, deviation = (torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in (MEAN, STD))
    pixels: Pixels = [[tuple(p) for p in row] for row in (image.double() * deviation + mean).permute(1, 2, 0).tolist()]
    for name, amount in colours.changes:
        pixels = changed(pixels, name, amount, added)
    if colours.grey:
        pixels = [[(grey_of(pixel),) * 3 for pixel in row] for row in pixels]
    if colours.sigma is not None:
        pixels = blurred(pixels, colours.sigma, kernel)
    return (torch.tensor(pixels, dtype=torch.float64).permute(2, 0, 1) - mean) / deviation * valid


@pytest.mark.parametrize(
    "view",
    [
        StrongView(0.5, 0.0, 0.0, 0.0, jitter=1.0, grey=0.0),
        StrongView(0.0, 0.5, 0.0, 0.0, jitter=1.0, grey=0.0),
        StrongView(0.0, 0.0, 0.5, 0.0, jitter=1.0, grey=0.0),
        StrongView(0.0, 0.0, 0.0, 0.5, jitter=1.0, grey=0.0),
        StrongView(0.0, 0.0, 0.0, 0.0, jitter=0.0, grey=1.0),
        StrongView(0.0, 0.0, 0.0, 0.0, jitter=0.0, grey=0.0, blur=1.0, sigmas=(0.5, 2.0), kernel=5),
        StrongView(0.3, 0.0, 0.0, 0.0, jitter=1.0, grey=0.0, brightness_added=True),
        JITTER,
        EVERYTHING,
    ],
)
def test_views_are_those_by_hand(view: StrongView) -> None:
    image, valid = images()
    positions = [3, 17, 18, 1000]
    found = view(image, valid, 5, positions, 1)
    assert found.dtype == torch.float32 and not torch.equal(found, image)
    for ours, weak, mask, position in zip(found, image, valid, positions, strict=True):
        colours = view.draw(seeded(5, 5, 1, position))
        expected = by_hand(weak, mask, colours, view.kernel, view.brightness_added)
        torch.testing.assert_close(ours.double(), expected, rtol=0, atol=3e-5)
    assert (found[:, :, -1] == 0).all()


def test_view_depends_on_seed_stream_and_position_alone() -> None:
    image, valid = images()
    state = torch.get_rng_state()
    found = EVERYTHING(image, valid, 0, torch.tensor([4, 5, 6, 7]))
    # Two workers with two slots each.
    shares = [
        EVERYTHING(image[half], valid[half], 0, numbers)
        for half, numbers in ((slice(2), (4, 5)), (slice(2, 4), (6, 7)))
    ]
    assert torch.equal(found, torch.cat(shares))
    assert torch.equal(torch.get_rng_state(), state)
    for other in ((1, (4, 5, 6, 7), 0), (0, (8, 9, 10, 11), 0), (0, (4, 5, 6, 7), 1)):
        assert not any(map(torch.equal, found, EVERYTHING(image, valid, *other)))
    before = image.clone()
    EVERYTHING(image.requires_grad_(), valid, 0, range(4))
    assert torch.equal(image.detach(), before)


def test_mixed_precision_around_it_changes_nothing() -> None:
    image, valid = images()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = EVERYTHING(image, valid, 0, range(4))
    assert torch.equal(found, EVERYTHING(image, valid, 0, range(4)))


def test_view_without_a_change_is_the_image_to_the_bit() -> None:
    image, valid = images()
    assert torch.equal(StrongView(0.4, 0.4, 0.4, 0.1, jitter=0.0, grey=0.0)(image, valid, 0, range(4)), image)


def test_what_is_drawn_has_the_stated_distribution() -> None:
    count, view = 4000, StrongView(0.4, 0.3, 0.2, 0.1, jitter=0.8, grey=0.2, blur=0.5, sigmas=(0.1, 2.0))
    drawn = [view.draw(seeded(0, 5, 0, number)) for number in range(count)]
    jittered = [colours.changes for colours in drawn if colours.changes]
    sigmas = [colours.sigma for colours in drawn if colours.sigma is not None]
    for found, chance in ((len(jittered), 0.8), (sum(colours.grey for colours in drawn), 0.2), (len(sigmas), 0.5)):
        assert abs(found / count - chance) < 5 * (chance * (1 - chance) / count) ** 0.5
    both = sum(1 for colours in drawn if colours.grey and colours.sigma is not None)
    assert abs(both / count - 0.1) < 5 * (0.1 * 0.9 / count) ** 0.5  # independent
    orders = Counter(tuple(name for name, _ in changes) for changes in jittered)
    expected = len(jittered) / 24
    assert len(orders) == 24 and all(abs(number - expected) < 5 * expected**0.5 for number in orders.values())
    ranges = {"brightness": (0.6, 1.4), "contrast": (0.7, 1.3), "saturation": (0.8, 1.2), "hue": (-0.1, 0.1)}
    samples = {name: [dict(changes)[name] for changes in jittered] for name in ranges}
    for values, (least, most) in ((samples[name], ranges[name]) for name in ranges):
        assert_uniform(values, least, most)
    assert_uniform(sigmas, 0.1, 2.0)


def assert_uniform(values: list[float], least: float, most: float) -> None:
    """Kolmogorov-Smirnov, 0.1 %."""
    ordered = (np.sort(values) - least) / (most - least)
    assert ordered[0] >= 0 and ordered[-1] <= 1
    assert np.abs(ordered - (np.arange(len(ordered)) + 0.5) / len(ordered)).max() < 1.95 / len(ordered) ** 0.5


def test_cutout_has_its_middle_anywhere() -> None:
    """By enumeration: a pixel is cut with the chance that the middle lies within the box around it."""
    count, (height, width), (rows, columns) = 4000, (7, 6), (4, 2)
    masks = cutout_masks(0, range(count), (height, width), (rows, columns))
    expected = torch.zeros(height, width)
    for y in range(height):
        for x in range(width):
            top, left = y - rows // 2, x - columns // 2
            expected[max(top, 0) : top + rows, max(left, 0) : left + columns] += 1 / (height * width)
    assert (masks.float().mean(0) - expected).abs().max() < 5 * 0.5 / count**0.5
    one = cutout_masks(0, torch.tensor([7]), (7, 6), (4, 2))
    assert torch.equal(one[0], masks[7])


def draw(value: int, truth: bool = True) -> Draw:
    image = torch.full((2, 3, 4, 5), float(value))
    valid = torch.full((2, 4, 5), value == 1)
    labels = torch.full((2, 4, 5), value, dtype=torch.uint8) if truth else None
    return Draw(image, valid, torch.tensor([value] * 2), torch.tensor([10 + value] * 2), labels)


def test_mix_takes_everything_alike() -> None:
    inside = cutmix_masks(0, [1, 2], (4, 5))
    first, second = draw(1), draw(2)
    mixed = mix_draws(inside, first, second)
    assert mixed.truth is not None
    assert torch.equal(mixed.truth == 2, inside) and torch.equal(~mixed.valid, inside)
    for channel in range(3):
        assert torch.equal(mixed.image[:, channel] == 2, inside)
    assert mixed.index is first.index and mixed.position is first.position
    assert mix_draws(inside, first, draw(2, truth=False)).truth is None
    logits = torch.randn(2, 7, 4, 5), torch.full((2, 7, 4, 5), torch.nan)
    assert torch.equal(mix(inside, *logits).isnan(), inside.unsqueeze(1).expand(-1, 7, -1, -1))
    assert torch.equal(
        mix(inside, *logits)[~mix(inside, *logits).isnan()], logits[0][~inside.unsqueeze(1).expand(-1, 7, -1, -1)]
    )


def test_a_strong_draw_cuts_a_box_out_of_image_and_valid_mask_alike() -> None:
    image, valid = images(count=4, side=20)
    positions = torch.tensor([3, 17, 18, 1000])
    draw = Draw(image, valid, positions, positions, torch.full((4, 20, 20), 7, dtype=torch.uint8))
    found, whole = strong_draw(draw, 5, 0.4), strong_draw(draw, 5, 0.0)
    assert torch.equal(whole.image, JITTER(image, valid, 5, positions)) and torch.equal(whole.valid, valid)
    hole = cutout_masks(5, positions, (20, 20), (8, 8))
    assert bool(hole.flatten(1).any(1).all()) and len({int(mask.sum()) for mask in hole}) > 1
    assert torch.equal(found.valid, valid & ~hole) and torch.equal(found.image, whole.image * ~hole.unsqueeze(1))
    assert found.truth is draw.truth and torch.equal(draw.valid, images(count=4, side=20)[1])
    one = strong_draw(Draw(image[1:2], valid[1:2], positions[1:2], positions[1:2]), 5, 0.4)
    assert torch.equal(one.image, found.image[1:2]), "a slot's view does not depend on the others"
