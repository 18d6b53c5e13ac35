"""Crop-first against its reference, resize-then-crop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from fpl.data.augment import Parameters
from fpl.data.resample import source_window
from tests.data.test_augment import make

PUBLISHED = (0.5, 0.75, 1.0, 1.5, 1.75, 2.0)


def scene(height: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Smooth colours with noise of 8 grey levels, and random labels."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3), dtype=np.uint8)
    smooth = np.array(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    image = np.clip(smooth + random.integers(-8, 9, smooth.shape), 0, 255).astype(np.uint8)
    return image, random.integers(0, 19, (height, width), dtype=np.uint8)


def differences(size: tuple[int, int], crop: tuple[int, int], scale: float, places, random) -> list[torch.Tensor]:
    """Absolute differences of the images; labels and valid pixels must be equal."""
    image, label = scene(*size)
    augmentation, found = make(crop), []
    for number in range(places):
        parameters = Parameters(number % 2 == 1, scale, float(random.random()), float(random.random()))
        first, second = augmentation.apply(image, label, parameters), augmentation.apply_whole(image, label, parameters)
        assert torch.equal(first[1], second[1]) and torch.equal(first[2], second[2])
        assert first[0].is_contiguous() and first[1].is_contiguous()
        found.append((first[0].int() - second[0].int()).abs())
    return found


@pytest.mark.parametrize("scale", PUBLISHED)
@pytest.mark.parametrize(
    ("size", "crop"),
    [((256, 512), (100, 130)), ((360, 480), (90, 300)), ((64, 128), (64, 64)), ((37, 53), (64, 64)), ((1, 1), (3, 3))],
)
def test_published_scales_give_the_same_bits(size: tuple[int, int], crop: tuple[int, int], scale: float) -> None:
    for difference in differences(size, crop, scale, 6, np.random.default_rng(1)):
        assert not difference.any()


def test_any_scale_and_size_stays_within_a_grey_level() -> None:
    random = np.random.default_rng(2)
    for _ in range(80):
        size = tuple(int(side) for side in random.integers(1, 400, 2))
        crop = tuple(int(side) for side in random.integers(1, 200, 2))
        for difference in differences(size, crop, float(random.uniform(0.3, 2.5)), 2, random):
            assert difference.float().mean() < 0.4
            assert difference.max() <= 4


def test_cityscapes_size() -> None:
    for scale in (0.75, 1.2345):
        (difference,) = differences((1024, 2048), (800, 800), scale, 1, np.random.default_rng(3))
        assert difference.float().mean() < (0.2 if scale == 1.2345 else 1e-9)


def test_windows_hold_what_is_needed_and_little_more() -> None:
    """Positions by hand: resized pixel x lies at (x + 1/2) size / resized - 1/2 of the source."""
    random = np.random.default_rng(4)
    longer = []
    for _ in range(2000):
        size, scale = int(random.integers(1, 2049)), random.uniform(0.3, 2.5)
        resized = max(1, int(size * scale))
        length = int(random.integers(1, resized + 1))
        start = int(random.integers(0, resized - length + 1))
        window = source_window(size, resized, start, length)
        ratio = size / resized
        first, last = (max(0.0, (x + 0.5) * ratio - 0.5) for x in (start, start + length - 1))
        assert 0 <= window.start <= first and window.stop <= size
        assert min(int(last) + 2, size) <= window.stop
        # Resized pixel `start` is pixel `skip` of the window, to 1/64 pixel.
        assert window.skip >= 0
        assert abs(window.start / ratio + window.skip - start) <= 1 / 64 + 1e-9
        longer.append((window.stop - window.start) - (last - first + 2))
    assert np.median(longer) < 64


def test_window_by_hand() -> None:
    """From 8 to 6 pixels, every 4th source edge meets an edge: pixels 4 and 5 of 6 come from 4..7 of 8."""
    assert source_window(8, 6, 4, 2) == (4, 8, 1)
    assert source_window(8, 16, 8, 4) == (3, 8, 2)
    assert source_window(8, 4, 1, 2) == (2, 7, 0)
    assert source_window(5, 5, 2, 2) == (2, 5, 0)


def test_read_only_input_is_taken_and_not_shared() -> None:
    image, label = scene(40, 40)
    image.flags.writeable = label.flags.writeable = False
    for scale in (0.5, 1.0):
        for flip in (False, True):
            pixels, classes, _ = make((40, 40)).apply(image, label, Parameters(flip, scale, 0.0, 0.0))
            pixels.zero_(), classes.zero_()
    assert image.any() and label.any()
