"""Protocols and scores against answers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fpl.config.schema import EvalConfig
from fpl.data.augment import normalise
from fpl.train.evaluate import (
    class_map,
    confusion_matrix,
    constant_miou,
    evaluate,
    predict_logits,
    scores,
    window_starts,
)
from fpl.train.runtime import Workers

WHOLE = EvalConfig(protocol="whole")


def test_scores_by_hand() -> None:
    # Rows are labels: class 0 has 3 right and 1 taken for class 1; class 1 all 2 right; class 2 is nowhere.
    confusion = np.array([[3, 1, 0], [0, 2, 0], [0, 0, 0]], dtype=np.int64)
    skip = scores(confusion, "skip")
    assert skip.iou[:2] == pytest.approx((75.0, 200 / 3))
    assert math.isnan(skip.iou[2])
    assert skip.miou == pytest.approx((75 + 200 / 3) / 2)
    assert skip.pixel_accuracy == pytest.approx(500 / 6)
    assert skip.pixels == 6
    assert scores(confusion, "zero").miou == pytest.approx((75 + 200 / 3) / 3)


def test_absent_class_rule() -> None:
    confusion = np.diag([5, 5, 5, 0]).astype(np.int64)
    assert scores(confusion, "skip").miou == 100.0
    assert scores(confusion, "zero").miou == 75.0


def test_nothing_labeled_scores_nan() -> None:
    found = scores(np.zeros((2, 2), dtype=np.int64))
    assert math.isnan(found.miou) and found.pixels == 0


def test_confusion_matrix_drops_ignored_pixels() -> None:
    label = torch.tensor([[0, 1, 255], [1, 1, 0]], dtype=torch.uint8)
    prediction = torch.tensor([[0, 0, 1], [1, 1, 1]])
    assert confusion_matrix(prediction, label, 2).tolist() == [[1, 1], [1, 2]]


def test_constant_prediction_by_hand() -> None:
    # 6 pixels of class 1 and 2 of class 0, whatever was predicted: the constant 1 has IoU 6/8 and class 0 has 0.
    confusion = np.array([[1, 1], [4, 2]], dtype=np.int64)
    best, miou = constant_miou(confusion)
    assert best == 1
    assert miou == pytest.approx((75.0 + 0.0) / 2)


@pytest.mark.parametrize(
    ("length", "crop", "starts"),
    [
        (1024, 800, [0, 224]),
        (2048, 800, [0, 534, 1068, 1248]),  # Cityscapes: 2 x 4 windows, stride 534, the last shifted inwards
        (500, 512, [0]),
        (512, 512, [0]),
        (854, 512, [0, 342]),
        (855, 512, [0, 342, 343]),
    ],
)
def test_window_starts(length: int, crop: int, starts: list[int]) -> None:
    assert window_starts(length, crop, 2 / 3) == starts


def by_brightness(image: Tensor) -> Tensor:
    """Class 1 where the first channel is above 0, class 0 elsewhere; pixelwise, so windows cannot matter."""
    return torch.stack([-image[:, 0], image[:, 0]], dim=1)


@pytest.mark.parametrize("size", [(20, 30), (1, 1), (40, 90), (64, 33), (37, 53)])
@pytest.mark.parametrize("combine", ["logits", "probabilities"])
def test_protocols_agree_for_a_pixelwise_network(size: tuple[int, int], combine: str) -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (3, *size), dtype=torch.uint8, generator=generator)
    crop = (33, 35)
    whole = predict_logits(by_brightness, image, EvalConfig(protocol="whole", combine=combine), crop)  # type: ignore[arg-type]
    sliding = predict_logits(by_brightness, image, EvalConfig(protocol="sliding", combine=combine), crop)  # type: ignore[arg-type]
    assert whole.shape == sliding.shape == (1, 2, *size)
    expected = normalise(image[None], torch.ones(1, *size, dtype=torch.bool))[0, 0] > 0
    assert torch.equal(class_map(whole, size), expected.long())
    assert torch.equal(class_map(sliding, size), expected.long())


def test_windows_add_up_logits_or_probabilities() -> None:
    # Each window answers its own constant: the first says class 0 weakly, the second class 1 strongly.
    answers = iter([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 8.0])])

    def network(image: Tensor) -> Tensor:
        return next(answers).view(1, 2, 1, 1).expand(1, 2, *image.shape[-2:])

    image = torch.zeros(3, 33, 40, dtype=torch.uint8)
    logits = predict_logits(network, image, EvalConfig(protocol="sliding", stride_rate=1.0), (33, 33))
    assert logits[0, :, 0, 0].tolist() == [1.0, 0.0]
    assert logits[0, :, 0, 20].tolist() == [1.0, 8.0]  # columns 7..32 are in both windows
    assert logits[0, :, 0, 39].tolist() == [0.0, 8.0]


def test_padding_is_zero_after_normalisation_and_centred() -> None:
    seen: list[Tensor] = []

    def network(image: Tensor) -> Tensor:
        seen.append(image)
        return image[:, :2]

    image = torch.full((3, 30, 33), 255, dtype=torch.uint8)
    logits = predict_logits(network, image, WHOLE, (33, 33))
    assert seen[0].shape == (1, 3, 33, 33)
    assert seen[0][..., 0, :].abs().max() == 0 and seen[0][..., -2:, :].abs().max() == 0
    assert torch.equal(logits, seen[0][:, :2, 1:31])


def test_every_pixel_of_a_larger_label_counts() -> None:
    image = torch.zeros(3, 40, 40, dtype=torch.uint8)
    image[:, :, 20:] = 255
    label = torch.zeros(80, 80, dtype=torch.uint8)
    label[:, 40:] = 1
    counts = evaluate(by_brightness, [("a", image, label)], WHOLE, (33, 33), 2, torch.device("cpu"), Workers())
    assert counts.sum() == 80 * 80
    assert scores(counts).pixel_accuracy > 98.0


def test_whole_image_counts_what_lies_in_the_border() -> None:
    label = torch.zeros(40, 40, dtype=torch.uint8)
    label[0, :] = 1
    image = torch.zeros(3, 40, 40, dtype=torch.uint8)
    counts = evaluate(by_brightness, [("a", image, label)], WHOLE, (33, 33), 2, torch.device("cpu"), Workers())
    assert counts[1].sum() == 40
