from __future__ import annotations

import numpy as np
import pytest
import torch

from fpl.config.sections import DataConfig
from fpl.data.augment import MEAN, STD, Augmentation, Parameters, cutmix_masks, normalise, seeded


def make(crop: tuple[int, int], **options) -> Augmentation:
    section = {"dataset": "camvid", "num_classes": 11, "split": {"fraction": "1/4"}, "labeled_batch": 2}
    return Augmentation(DataConfig(**section, crop=crop, **options))


def grey(values) -> np.ndarray:
    return np.asarray(values, dtype=np.uint8)[..., None].repeat(3, axis=2)


def apply(augmentation: Augmentation, values, label, parameters: Parameters):
    image, classes, valid = augmentation.apply(grey(values), np.asarray(label, dtype=np.uint8), parameters)
    assert image.dtype == classes.dtype == torch.uint8
    assert valid.dtype == torch.bool
    assert image.shape == (3, *augmentation.crop)
    assert (image[0] == image[2]).all()
    return image[0].tolist(), classes.tolist(), valid.tolist()


def test_flip_and_centred_padding_by_hand() -> None:
    """2x2 in a crop of 5x5: 1 row above, 2 below; 1 column before, 2 behind."""
    image, label, valid = apply(make((5, 5)), [[1, 2], [3, 4]], [[5, 6], [7, 8]], Parameters(True, 1.0, 0.9, 0.9))
    assert image == [[0] * 5, [0, 2, 1, 0, 0], [0, 4, 3, 0, 0], [0] * 5, [0] * 5]
    assert label == [[255] * 5, [255, 6, 5, 255, 255], [255, 8, 7, 255, 255], [255] * 5, [255] * 5]
    assert valid == [[value != 255 for value in row] for row in label]


def test_scale_by_hand() -> None:
    """Twice as wide: bilinear at pixel centres; half as wide: the mean of the middle pixels, the left label."""
    image, label, _ = apply(make((1, 4)), [[0, 100]], [[1, 2]], Parameters(False, 2.0, 0.0, 0.0))
    assert image == [[0, 25, 75, 100]]
    assert label == [[1, 1, 2, 2]]
    image, label, _ = apply(make((1, 2)), [[0, 100, 20, 40]] * 2, [[1, 2, 3, 4]] * 2, Parameters(False, 0.5, 0, 0))
    assert image == [[50, 30]]
    assert label == [[1, 3]]


def test_crop_by_hand() -> None:
    """A crop of 2x2 in 4x4 has 3 starts a side: .5 is the middle one, .99 the last."""
    values = np.arange(16).reshape(4, 4)
    image, label, valid = apply(make((2, 2)), values, values, Parameters(False, 1.0, 0.5, 0.99))
    assert image == label == [[6, 7], [10, 11]]
    assert valid == [[True, True], [True, True]]


def test_size_is_truncated() -> None:
    _, _, valid = make((64, 64)).apply(grey(np.zeros((37, 53))), None, Parameters(False, 0.75, 0.0, 0.0))
    assert valid.any(1).sum() == 27
    assert valid.any(0).sum() == 39


def test_input_is_never_shared() -> None:
    image, label = grey([[1, 2], [3, 4]]), np.zeros((2, 2), np.uint8)
    pixels, classes, _ = make((2, 2)).apply(image, label, Parameters(False, 1.0, 0.0, 0.0))
    pixels.zero_()
    classes += 9
    assert image.min() == 1
    assert label.max() == 0


@pytest.mark.parametrize("scale", [0.5, 0.75, 1.0, 1.5, 1.75, 2.0])
@pytest.mark.parametrize("flip", [False, True])
def test_image_and_label_stay_aligned(scale: float, flip: bool) -> None:
    """Nearest labels lag by at most 1.2 pixels, wherever the crop lies."""
    y, x = np.indices((60, 50))
    image = np.stack([4 * y, 4 * x, 0 * x], axis=2).astype(np.uint8)
    for coordinate, channel in ((y, 0), (x, 1)):
        pixels, label, valid = make((40, 44)).apply(
            image, coordinate.astype(np.uint8), Parameters(flip, scale, 0.3, 0.7)
        )
        error = pixels[channel].float()[valid] / 4 - label.float()[valid]
        assert error.abs().max() <= 1.3
        assert (label[~valid] == 255).all()


@pytest.mark.parametrize("size", [(37, 53), (1, 1), (1, 200)])
@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_r21_any_size(size: tuple[int, int], scale: float) -> None:
    image, label, valid = make((64, 64)).apply(
        grey(np.full(size, 7)), np.full(size, 3, np.uint8), Parameters(True, scale, 0.5, 0.5)
    )
    rows, columns = (min(64, max(1, int(side * scale))) for side in size)
    assert valid.sum() == rows * columns
    assert (image[:, valid] == 7).all() and (image[:, ~valid] == 0).all()
    assert (label[valid] == 3).all() and (label[~valid] == 255).all()


def test_draw_is_a_function_of_the_generator_and_covers_everything() -> None:
    augmentation = make((33, 33))
    drawn = [augmentation.draw(seeded(0, 1, 0, number)) for number in range(600)]
    assert drawn[7] == augmentation.draw(seeded(0, 1, 0, 7))
    assert {parameters.scale for parameters in drawn} == {0.5, 0.75, 1.0, 1.5, 1.75, 2.0}
    assert 240 < sum(parameters.flip for parameters in drawn) < 360
    assert 0.45 < np.mean([parameters.top for parameters in drawn]) < 0.55
    uniform = make((33, 33), scale_sampling="uniform", scales=(0.5, 2.0), flip=False)
    drawn = [uniform.draw(seeded(0, 1, 0, number)) for number in range(600)]
    assert not any(parameters.flip for parameters in drawn)
    assert 1.2 < np.mean([parameters.scale for parameters in drawn]) < 1.3


@pytest.mark.parametrize("padding_label", [0, 255, None])
def test_padding_label_by_hand(padding_label: int | None) -> None:
    """2x3 in a crop of 3x4: the row below and the column behind are padding; the label's own 255 stays."""
    augmentation, filled = make((3, 4), padding_label=padding_label), 255 if padding_label is None else padding_label
    image, label = grey([[1, 2, 3], [4, 5, 6]]), np.array([[7, 255, 9], [10, 0, 8]], dtype=np.uint8)
    for method in (augmentation.apply, augmentation.apply_whole):
        pixels, classes, valid = method(image, label, Parameters(False, 1.0, 0.9, 0.9))
        assert classes is not None
        assert classes.tolist() == [[7, 255, 9, filled], [10, 0, 8, filled], [filled] * 4]
        assert pixels[1].tolist() == [[1, 2, 3, 0], [4, 5, 6, 0], [0] * 4]
        assert valid.tolist() == [[True] * 3 + [False], [True] * 3 + [False], [False] * 4]
        unlabeled = method(image, None, Parameters(False, 1.0, 0.9, 0.9))
        assert unlabeled[1] is None
        assert torch.equal(unlabeled[0], pixels) and torch.equal(unlabeled[2], valid)


@pytest.mark.parametrize("least", [0.5, 0.1])
def test_balanced_scales_have_the_closed_form(least: float) -> None:
    """Half U[least, 1], half U[1, 2]: the distribution function is piecewise linear with a knee at (1, 1/2)."""
    augmentation, count = make((33, 33), scale_sampling="balanced", scales=(2.0, least)), 4000
    drawn = np.sort([augmentation.draw(seeded(0, 1, 0, number)).scale for number in range(count)])
    assert least <= drawn[0] < least + 0.01 and 1.99 < drawn[-1] < 2
    assert abs((drawn < 1).mean() - 0.5) < 4 * 0.5 / count**0.5
    expected = np.interp(drawn, [least, 1.0, 2.0], [0.0, 0.5, 1.0])
    distance = np.abs(expected - (np.arange(count) + 0.5) / count).max()
    assert distance < 1.95 / count**0.5  # Kolmogorov-Smirnov, 0.1 %
    assert drawn[drawn < 1].mean() == pytest.approx((least + 1) / 2, abs=0.03)
    assert drawn[drawn > 1].mean() == pytest.approx(1.5, abs=0.03)


def test_crop_starts_are_uniform_over_all_valid_ones() -> None:
    augmentation = make((1, 1), scales=(1.0,), flip=False)
    image = grey(np.arange(4)[None])
    starts = [
        int(augmentation.apply(image, None, augmentation.draw(seeded(0, 1, 0, number)))[0][0]) for number in range(800)
    ]
    assert np.bincount(starts, minlength=4).min() > 150


def test_normalise() -> None:
    image = torch.full((2, 3, 2, 2), 255, dtype=torch.uint8)
    valid = torch.tensor([[[True, False], [True, True]]] * 2)
    result = normalise(image, valid)
    assert result.dtype == torch.float32
    assert result[0, :, 0, 0].tolist() == pytest.approx([(1 - m) / s for m, s in zip(MEAN, STD, strict=True)])
    assert (result[:, :, 0, 1] == 0).all()
    assert image.min() == 255


def test_cutmix_covers_a_quarter_with_the_published_quantiles() -> None:
    masks = cutmix_masks(0, range(4000), (64, 64))
    assert masks.shape == (4000, 64, 64)
    assert masks.dtype == torch.bool
    coverage = masks.float().mean((1, 2))
    assert coverage.mean().item() == pytest.approx(0.251, abs=0.004)
    low, middle, high = torch.quantile(coverage, torch.tensor([0.05, 0.5, 0.95])).tolist()
    assert (low, middle, high) == pytest.approx((0.145, 0.247, 0.372), abs=0.012)
    assert coverage.max() <= 0.5


def test_cutmix_boxes_toggle() -> None:
    """Boxes that all cover a single pixel cancel in pairs; one box of area 1 covers everything."""
    for boxes, covered in ((1, True), (2, False), (3, True)):
        assert cutmix_masks(0, range(9), (1, 1), boxes, area=(1.0, 1.0)).eq(covered).all()
    assert cutmix_masks(0, range(9), (20, 30), boxes=1, area=(1.0, 1.0)).all()
    assert not cutmix_masks(0, range(9), (20, 30), boxes=3, area=(0.0, 0.0)).float().mean() > 0.01


def test_cutmix_mask_depends_on_seed_and_position_only() -> None:
    masks = cutmix_masks(3, [4, 5, 6], (20, 30))
    assert torch.equal(masks[1:], cutmix_masks(3, torch.tensor([5, 6]), (20, 30)))
    assert not torch.equal(masks, cutmix_masks(4, [4, 5, 6], (20, 30)))
