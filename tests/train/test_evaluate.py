"""Protocols and scores against answers worked out by hand."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from typer.testing import CliRunner

import fpl
import fpl.train.evaluate as evaluate_module
from fpl.cli.main import app
from fpl.config.schema import RunConfig
from fpl.config.sections import DataConfig, EvalConfig, ModelConfig
from fpl.data.augment import normalise
from fpl.data.images import Images
from fpl.data.spec import get_spec
from fpl.data.validation import validation_ids
from fpl.errors import FplError
from fpl.models import build_network
from fpl.sweep.places import Places
from fpl.train.evaluate import (
    Predict,
    center_crop,
    check_counted,
    class_map,
    confusion_matrix,
    constant_miou,
    evaluate,
    predict_logits,
    scores,
    window_starts,
)
from fpl.train.runtime import TrainingError, Workers
from fpl.train.trained import evaluate_trained, find_weights, load_trained
from tests.train.runs import elsewhere, run

WHOLE = EvalConfig(protocol="whole")
CENTER = EvalConfig(protocol="center")


def count(
    network: Predict,
    image: Tensor,
    label: Tensor,
    protocol: EvalConfig,
    crop: tuple[int, int] = (33, 33),
    padding_label: int = 255,
) -> NDArray[np.int64]:
    """Confusion of one sample, two classes."""
    split = {"fraction": "1/4"}
    section = {"dataset": "camvid", "num_classes": 2, "split": split, "labeled_batch": 2, "crop": crop}
    data = DataConfig.model_validate({**section, "padding_label": padding_label})
    return evaluate(network, [("a", image, label)], protocol, data, torch.device("cpu"), Workers())


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


def test_a_validation_without_a_pixel_that_counts_is_no_score() -> None:
    label = torch.full((8, 8), 255, dtype=torch.uint8)
    label[0] = 1  # outside of what "center" scores
    image = torch.zeros(3, 8, 8, dtype=torch.uint8)
    for protocol in (CENTER, WHOLE):
        confusion = count(by_brightness, image, label, protocol, (4, 4))
        if protocol is WHOLE:
            check_counted(confusion, protocol, "camvid")
            continue
        with pytest.raises(FplError, match="no label pixel of any image counts") as caught:
            check_counted(confusion, protocol, "camvid")
        assert "fpl data check camvid" in caught.value.hint and "the middle" in caught.value.hint
    with pytest.raises(FplError) as caught:
        check_counted(np.zeros_like(confusion), WHOLE, "camvid")
    assert "the middle" not in caught.value.hint


def test_neither_a_run_nor_eval_ends_with_a_score_of_nothing(
    config: RunConfig, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(config, places)
    trained = load_trained(find_weights(places.out, "", None), torch.device("cpu"))
    original = Images.full_label
    monkeypatch.setattr(Images, "full_label", lambda self, image_id: np.full_like(original(self, image_id), 255))
    with pytest.raises(FplError, match="no label pixel of any image counts"):
        evaluate_trained(trained, places.data_root)
    other = elsewhere(places, "other")
    with pytest.raises(TrainingError, match="no label pixel of any image counts"):
        run(config, other)
    assert not list(other.out.glob("runs/*")) and not list(other.out.glob("checkpoints/*/best*.pt"))


def test_eval_refuses_changed_images_of_a_drawn_set(config: RunConfig, places: Places, tmp_path: Path) -> None:
    """Of the same size, so that their data set passes for that of the run."""
    run(config, places)
    trained = load_trained(find_weights(places.out, "", None), torch.device("cpu"))
    root = tmp_path / "data" / "synthetic_city"
    shutil.copytree(places.data_root / "synthetic_city", root)
    path = sorted((root / "leftImg8bit" / "val").rglob("*.png"))[0]
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(FplError, match="1 file of the drawn set is not as drawn") as caught:
        evaluate_trained(trained, root.parent)
    assert caught.value.where == str(path)


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
    whole = predict_logits(by_brightness, image[None], EvalConfig(protocol="whole", combine=combine), crop)  # type: ignore[arg-type]
    sliding = predict_logits(by_brightness, image[None], EvalConfig(protocol="sliding", combine=combine), crop)  # type: ignore[arg-type]
    assert whole.shape == sliding.shape == (1, 2, *size)
    expected = normalise(image[None], torch.ones(1, *size, dtype=torch.bool))[0, 0] > 0
    assert torch.equal(class_map(whole, size)[0], expected.long())
    assert torch.equal(class_map(sliding, size)[0], expected.long())


def test_windows_add_up_logits_or_probabilities() -> None:
    # Each window answers its own constant: the first says class 0 weakly, the second class 1 strongly. Only the second
    # sees the white column.
    answers = torch.tensor([[1.0, 0.0], [0.0, 8.0]])

    def network(image: Tensor) -> Tensor:
        second = (image[:, 0] > 1).flatten(1).any(1).long()
        return answers[second].view(-1, 2, 1, 1).expand(-1, 2, *image.shape[-2:])

    image = torch.zeros(1, 3, 33, 40, dtype=torch.uint8)
    image[..., 39] = 255
    logits = predict_logits(network, image, EvalConfig(protocol="sliding", stride_rate=1.0), (33, 33))
    assert logits[0, :, 0, 0].tolist() == [1.0, 0.0]
    assert logits[0, :, 0, 20].tolist() == [1.0, 8.0]  # columns 7..32 are in both windows
    assert logits[0, :, 0, 39].tolist() == [0.0, 8.0]


def test_padding_is_zero_after_normalisation_and_centred() -> None:
    seen: list[Tensor] = []

    def network(image: Tensor) -> Tensor:
        seen.append(image)
        return image[:, :2]

    image = torch.full((1, 3, 30, 33), 255, dtype=torch.uint8)
    logits = predict_logits(network, image, WHOLE, (33, 33))
    assert seen[0].shape == (1, 3, 33, 33)
    assert seen[0][..., 0, :].abs().max() == 0 and seen[0][..., -2:, :].abs().max() == 0
    assert torch.equal(logits, seen[0][:, :2, 1:31])


def windows_by_hand(image: NDArray[np.uint8], size: int, black: bool) -> NDArray[np.float64]:
    """Summed scores [C, H, W] of windows as CPS's evaluator places them (`black`) or AEL's.

    The former fills up the image, the latter what the network is given: 0 is black there, and the mean here.
    """
    height, width = image.shape[1:]
    before = [(max(size, side) - side) // 2 for side in (height, width)]
    behind = [max(size, side) - side - first for side, first in zip((height, width), before, strict=True)]
    around = ((0, 0), (before[0], behind[0]), (before[1], behind[1]))
    mean, std = (np.array(each).reshape(3, 1, 1) for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    pixels = (image / 255 - mean) / std
    filled = (np.pad(image, around) / 255 - mean) / std if black else np.pad(pixels, around)
    total = np.zeros((2, *filled.shape[1:]))
    stride = math.ceil(size * 2 / 3)
    for row in range(math.ceil((filled.shape[1] - size) / stride) + 1):
        for column in range(math.ceil((filled.shape[2] - size) / stride) + 1):
            top, left = min(row * stride, filled.shape[1] - size), min(column * stride, filled.shape[2] - size)
            part = filled[:, top : top + size, left : left + size]
            score = np.stack([part[0] - part[1].mean(), part[2] * part[1].mean()])
            if not black:
                score = np.exp(score) / np.exp(score).sum(0)
            total[:, top : top + size, left : left + size] += score
    return total[:, before[0] : before[0] + height, before[1] : before[1] + width]


def by_neighbours(image: Tensor) -> Tensor:
    """Scores that depend on the whole window, its padding included."""
    mean = image[:, 1].mean((1, 2), keepdim=True)
    return torch.stack([image[:, 0] - mean, image[:, 2] * mean], dim=1)


@pytest.mark.parametrize("size", [(20, 60), (61, 17), (40, 50), (33, 34), (20, 30), (33, 33)])
@pytest.mark.parametrize("combine", ["logits", "probabilities"])
def test_windows_that_reach_beyond_the_image_see_what_the_original_evaluators_put_there(
    size: tuple[int, int], combine: str
) -> None:
    image = torch.randint(1, 256, (3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    protocol = EvalConfig.model_validate({"protocol": "sliding", "combine": combine})
    found = predict_logits(by_neighbours, image[None], protocol, (33, 33))
    # CPS's fills up with black only if a side is longer than the window; else it normalises first, as AEL's does.
    scores = windows_by_hand(image.numpy(), 33, black=combine == "logits" and max(size) > 33)
    if combine == "logits" and max(size) <= 33:
        scores = by_neighbours_of_one(image.numpy(), 33)
    np.testing.assert_allclose(found[0].numpy(), scores, rtol=1e-4, atol=1e-4)


def by_neighbours_of_one(image: NDArray[np.uint8], size: int) -> NDArray[np.float64]:
    """CPS's single window of an image that fits into it: normalised, then filled up with 0."""
    mean, std = (np.array(each).reshape(3, 1, 1) for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    pixels = (image / 255 - mean) / std
    # All that lies outside adds nothing to the window's mean.
    average = pixels[1].sum() / size**2
    result: NDArray[np.float64] = np.stack([pixels[0] - average, pixels[2] * average])
    return result


def test_every_pixel_of_a_larger_label_counts() -> None:
    image = torch.zeros(3, 40, 40, dtype=torch.uint8)
    image[:, :, 20:] = 255
    label = torch.zeros(80, 80, dtype=torch.uint8)
    label[:, 40:] = 1
    counts = count(by_brightness, image, label, WHOLE)
    assert counts.sum() == 80 * 80
    assert scores(counts).pixel_accuracy > 98.0


def test_whole_image_counts_what_lies_in_the_border() -> None:
    label = torch.zeros(40, 40, dtype=torch.uint8)
    label[0, :] = 1
    image = torch.zeros(3, 40, 40, dtype=torch.uint8)
    counts = count(by_brightness, image, label, WHOLE)
    assert counts[1].sum() == 40


def test_center_crop_by_hand() -> None:
    """3 x 5 in 4 x 4: the row missing goes below; of the column left over the last is cut off."""
    image = torch.arange(1, 16, dtype=torch.uint8).view(1, 3, 5).expand(3, 3, 5)
    label = torch.arange(21, 36, dtype=torch.uint8).view(3, 5)
    pixels, valid, classes = center_crop(image, label, (4, 4), 0)
    assert pixels[1].tolist() == [[1, 2, 3, 4], [6, 7, 8, 9], [11, 12, 13, 14], [0] * 4]
    assert classes.tolist() == [[21, 22, 23, 24], [26, 27, 28, 29], [31, 32, 33, 34], [0] * 4]
    assert valid.tolist() == [[True] * 4] * 3 + [[False] * 4]


@pytest.mark.parametrize("size", [(1024, 2048), (366, 500), (513, 513), (514, 512), (769, 1000), (1, 1)])
@pytest.mark.parametrize("crop", [(769, 769), (513, 513), (600, 601)])
def test_center_crop_is_placed_as_by_the_released_code(size: tuple[int, int], crop: tuple[int, int]) -> None:
    """Its order: pad the whole image, then cut at half of what is left over."""
    label = np.random.default_rng(0).integers(0, 21, size).astype(np.uint8)
    missing = [max(0, least - side) for least, side in zip(crop, size, strict=True)]
    around = [(each // 2, each - each // 2) for each in missing]
    padded, shown = (np.pad(array, around, constant_values=fill) for array, fill in ((label, 9), (label * 0 + 1, 0)))
    top, left = ((side - least) // 2 for side, least in zip(padded.shape, crop, strict=True))
    window = np.s_[top : top + crop[0], left : left + crop[1]]
    image = torch.from_numpy(label).expand(3, *size)
    pixels, valid, classes = center_crop(image, torch.from_numpy(label), crop, 9)
    assert np.array_equal(classes.numpy(), padded[window])
    assert np.array_equal(valid.numpy(), shown[window].astype(bool))
    assert np.array_equal(pixels[2].numpy(), padded[window] * shown[window])


def test_center_counts_the_middle_alone() -> None:
    """60 x 80: rows 13 to 45 and columns 22 to 56 are the middle 33 x 35."""
    label = torch.zeros(60, 80, dtype=torch.uint8)
    label[13:46, 22:57] = 1
    label[20, 30] = 255
    image = torch.zeros(3, 60, 80, dtype=torch.uint8)
    image[:, 13:46, 22:25] = 255
    counts = count(by_brightness, image, label, CENTER, (33, 35))
    assert counts.tolist() == [[0, 0], [33 * 32 - 1, 33 * 3]]
    inside = count(by_brightness, image, label, EvalConfig(protocol="center", crop=(33, 33)), (33, 35))
    assert inside.tolist() == [[0, 0], [33 * 31 - 1, 33 * 2]]  # columns 23 to 55


@pytest.mark.parametrize("padding_label", [0, 255])
def test_center_counts_padding_as_class_0_or_not_at_all(padding_label: int) -> None:
    """Padding is 0 after normalisation, which this network takes for class 1."""

    def network(image: Tensor) -> Tensor:
        blank = (image == 0).all(1).float()
        return torch.stack([1 - blank, blank], dim=1)

    image, label = torch.full((3, 30, 33), 7, dtype=torch.uint8), torch.ones(30, 33, dtype=torch.uint8)
    counts = count(network, image, label, CENTER, (33, 36), padding_label)
    padding = 33 * 36 - 30 * 33 if padding_label == 0 else 0
    assert counts.tolist() == [[0, padding], [30 * 33, 0]]


@pytest.mark.parametrize("combine", ["logits", "probabilities"])
def test_center_equals_sliding_where_one_window_holds_the_image(combine: str) -> None:
    """Also for a network that looks around."""
    generator = torch.Generator().manual_seed(1)
    kernel = torch.randn(2, 3, 5, 5, generator=generator)
    for height, width in ((33, 40), (20, 31), (1, 40)):
        image = torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)
        label = torch.randint(0, 3, (height, width), dtype=torch.uint8, generator=generator)
        label[label == 2] = 255
        center, sliding = (
            count(
                lambda pixels: F.conv2d(pixels, kernel, padding=2),
                image,
                label,
                EvalConfig.model_validate({"protocol": protocol, "combine": combine}),
                (33, 40),
            )
            for protocol in ("center", "sliding")
        )
        assert np.array_equal(center, sliding) and center.sum() == (label != 255).sum()


def test_center_of_a_larger_label() -> None:
    """At half size: 80 x 80 labels of a 40 x 40 image; its middle 34 x 36 is the label's middle 68 x 72."""
    label = torch.zeros(80, 80, dtype=torch.uint8)
    label[6:74, 4:76] = 1
    image = torch.zeros(3, 40, 40, dtype=torch.uint8)
    image[:, :, 20:] = 255
    counts = count(by_brightness, image, label, CENTER, (34, 36))
    assert counts[0].sum() == 0 and counts[1].sum() == 68 * 72
    assert counts[1, 1] == pytest.approx(68 * 36, abs=68)


def test_center_of_a_larger_label_of_odd_size() -> None:
    """101 x 90 at 1/2 is 50 x 45: rows 5 to 45 of it are 10.1 to 90.9 of the label, all columns are all columns."""
    label = torch.arange(101, dtype=torch.uint8).view(101, 1).expand(101, 90)
    image, valid, classes = center_crop(torch.zeros(3, 50, 45, dtype=torch.uint8), label, (40, 49), 255)
    assert image.shape == (3, 40, 49) and valid.sum() == 40 * 45
    assert classes.shape == (91 - 10, 4 + 90 + 4)
    assert classes[:, 4].tolist() == list(range(10, 91)) and (classes[:, :4] == 255).all()


def test_an_image_as_such_is_predicted_whole_under_center() -> None:
    image = torch.randint(0, 256, (2, 3, 50, 90), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    sliding = predict_logits(by_brightness, image, EvalConfig(protocol="sliding"), (33, 35))
    assert torch.equal(predict_logits(by_brightness, image, CENTER, (33, 35)), sliding)


def looks_around(seed: int) -> Predict:
    """A small network of double precision, with a mean over the whole image as the pyramid has one."""
    generator = torch.Generator().manual_seed(seed)
    near, far = (torch.randn(size, generator=generator).double() for size in ((3, 3, 5, 5), (3, 3, 1, 1)))

    def network(image: Tensor) -> Tensor:
        image = image.double()
        everywhere = F.conv2d(image.mean((2, 3), keepdim=True), far)
        return F.conv2d(image, near, padding=2) + everywhere

    return network


def one_by_one(
    network: Predict, samples: list[tuple[str, Tensor, Tensor]], protocol: str, crop: tuple[int, int], ignored: int
) -> NDArray[np.int64]:
    """The protocols again: every image and every window alone, every pixel counted in a loop of numpy."""
    counts = np.zeros((3, 3), dtype=np.int64)
    for _, image, label in samples:
        valid = torch.ones(1, *image.shape[-2:], dtype=torch.bool)
        if protocol == "center":
            image, valid, label = center_crop(image, label, crop, ignored)
            valid = valid[None]
        height, width = image.shape[-2:]
        pixels = normalise(image[None], valid)
        size = (33, 33) if protocol == "whole" else crop
        within = (slice(None), slice(None))
        padded = [max(side, length) for side, length in zip((height, width), crop, strict=True)]
        if protocol == "sliding" and padded not in ([height, width], list(crop)):
            # A side beyond the window: CPS fills the other up with black.
            around = [(longer - side) // 2 for longer, side in zip(padded, (height, width), strict=True)]
            within = (slice(around[0], around[0] + height), slice(around[1], around[1] + width))
            black = normalise(torch.zeros(1, 3, *padded, dtype=torch.uint8), torch.ones(1, *padded, dtype=torch.bool))
            black[(..., *within)] = pixels
            pixels, (height, width) = black, padded
        tops, lefts = (
            [0] if protocol == "whole" else window_starts(side, length, 2 / 3)
            for side, length in zip((height, width), crop, strict=True)
        )
        total = torch.zeros(1, 3, height, width, dtype=torch.float64)
        for top in tops:
            for left in lefts:
                rows, columns = (slice(top, None), slice(left, None))
                if protocol != "whole":
                    rows, columns = slice(top, top + crop[0]), slice(left, left + crop[1])
                window = pixels[..., rows, columns]
                above = max(0, size[0] - window.shape[-2]) // 2
                before = max(0, size[1] - window.shape[-1]) // 2
                blank = torch.zeros(1, 3, max(size[0], window.shape[-2]), max(size[1], window.shape[-1]))
                inside = (..., slice(above, above + window.shape[-2]), slice(before, before + window.shape[-1]))
                blank[inside] = window
                total[..., rows, columns] += network(blank)[inside]
        total = total[(..., *within)]
        if total.shape[-2:] != label.shape:
            total = F.interpolate(total, size=tuple(label.shape), mode="bilinear", align_corners=True)
        predicted = total[0].argmax(0).numpy()
        for truth in range(3):
            for guess in range(3):
                counts[truth, guess] += ((label.numpy() == truth) & (predicted == guess)).sum()
    return counts


# Sizes of the images of a set, in its order; with a factor by which the labels are larger.
SETS = {
    "equal": ([(40, 50)] * 7, 1),
    "of two sizes": ([(40, 50)] * 3 + [(50, 40)] * 2 + [(40, 50)] + [(20, 60)] * 4, 1),
    "all different": ([(40 + index, 70 - index) for index in range(5)], 1),
    "reduced, labels of equal size": ([(36, 45)] * 4, 2),
    "reduced, labels of odd sizes": ([(36, 45), (36, 45), (36, 45), (30, 36)], 3),
    "none": ([], 1),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("protocol", ["whole", "sliding", "center"])
@pytest.mark.parametrize("most", [1, 6000, 10**6])
def test_batches_count_what_one_by_one_counts(
    name: str, protocol: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the sizes, the protocol, the pixels a pass may have, and the number of workers."""
    sizes, factor = SETS[name]
    generator = torch.Generator().manual_seed(len(name))
    samples = []
    for number, (height, width) in enumerate(sizes):
        image = torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)
        # Rounded down when reduced: two labels may differ in size where their images do not.
        odd = number % 2 if "odd" in name else 0
        label = torch.randint(0, 4, (height * factor + odd, width * factor), dtype=torch.uint8, generator=generator)
        samples.append((str(number), image, label.masked_fill(label == 3, 255)))
    monkeypatch.setitem(evaluate_module.BATCH_PIXELS, "cpu", most)
    passes: list[int] = []
    network, crop = looks_around(0), (33, 44)

    def watched(image: Tensor) -> Tensor:
        passes.append(image.shape[0] * image.shape[-2] * image.shape[-1])
        return network(image)

    section = {"dataset": "camvid", "num_classes": 3, "split": {"fraction": "1/4"}, "labeled_batch": 2, "crop": crop}
    settings = (EvalConfig.model_validate({"protocol": protocol}), DataConfig.model_validate(section))
    cpu, done = torch.device("cpu"), []
    counts = evaluate(watched, samples, *settings, cpu, Workers(), done.append)
    shares = [evaluate(watched, samples[rank::2], *settings, cpu, Workers()) for rank in range(2)]
    expected = one_by_one(network, samples, protocol, crop, 255)
    assert np.array_equal(counts, expected)
    assert np.array_equal(shares[0] + shares[1], expected)
    assert expected.sum() > 0 or not sizes
    assert done[-1:] == [len(samples)] * bool(sizes) and done == sorted(set(done))
    largest = max([max(height, 33) * max(width, 44) for height, width in [*sizes, crop]])
    assert all(size <= max(most, largest) for size in passes)
    if most == 10**6 and name == "equal" and protocol != "sliding":
        assert passes[0] == 7 * (40 * 50 if protocol == "whole" else 33 * 44)


def test_a_batch_is_bounded_by_what_its_pass_and_its_logits_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small images in large windows, and labels larger than images, make small batches."""
    monkeypatch.setitem(evaluate_module.BATCH_PIXELS, "cpu", 4 * 60 * 60)
    batches: list[int] = []

    def network(image: Tensor) -> Tensor:
        batches.append(len(image))
        return image[:, :2]

    def sizes(protocol: EvalConfig, image: tuple[int, int], factor: int) -> list[int]:
        batches.clear()
        samples = [("a", torch.zeros(3, *image, dtype=torch.uint8), torch.zeros(image).byte())] * 8
        enlarged = [(name, pixels, label.repeat(factor, factor)) for name, pixels, label in samples]
        section = {"dataset": "camvid", "num_classes": 2, "split": {"fraction": "1/4"}, "labeled_batch": 2}
        data = DataConfig.model_validate({**section, "crop": (60, 60)})
        evaluate(network, enlarged, protocol, data, torch.device("cpu"), Workers())
        return list(batches)

    assert sizes(WHOLE, (60, 60), 1) == [4, 4]
    assert sizes(WHOLE, (30, 30), 4) == [1] * 8  # 120 x 120 pixels of logits each
    assert sizes(EvalConfig(protocol="sliding"), (5, 5), 1) == [4, 4]  # windows of 60 x 60, nearly all padding
    assert sizes(EvalConfig(protocol="sliding"), (60, 240), 1) == [4, 2] * 8  # six windows an image


def test_a_network_with_batch_norm_gives_an_image_the_same_logits_in_company() -> None:
    config = ModelConfig(backbone="tiny", pretrained="none", tiny_width=8, head_channels=8, low_level_channels=8)
    network = build_network(config, 5).eval()
    images = torch.randint(0, 256, (6, 3, 40, 56), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for protocol in (WHOLE, EvalConfig(protocol="sliding")):
        with torch.inference_mode():
            together = predict_logits(network, images, protocol, (33, 33))
            alone = torch.cat([predict_logits(network, image[None], protocol, (33, 33)) for image in images])
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_a_run_validates_on_centers_of_a_subsample(config: RunConfig, places: Places) -> None:
    """45 x 60 images in crops of 48 x 48: 3 rows are padding, counted as class 0; 12 columns are left out."""
    given = config.model_dump()
    changes = {
        "data": {**given["data"], "padding_label": 0},
        "train": {**given["train"], "steps": 2, "evaluate_every": 2},
        "eval": {"protocol": "center", "crop": [48, 48], "absent": "zero", "subsample": 2},
    }
    path = run(RunConfig.model_validate({**given, **changes}), places)
    results = fpl.load_results(places.out)
    row = results.runs.iloc[0]
    assert row["validation_images"] == 2
    assert 0 <= row["miou_center_last"] <= 100 and np.isnan(row["miou_whole_last"])
    spec, root = get_spec("synthetic_city"), places.data_root / "synthetic_city"
    labels = [Images(spec, root, "val").full_label(name) for name in validation_ids(spec, root, 2)]
    middle = np.concatenate([label[:, 6:54].ravel() for label in labels])
    expected = np.bincount(middle[middle != 255], minlength=19)
    expected[0] += 2 * 3 * 48
    last = results.classes.query("choice == 'last'")
    assert list(last["label_pixels"]) == expected.tolist()

    trained = load_trained(find_weights(places.out, path.stem, "last"), torch.device("cpu"))
    own = evaluate_trained(trained, places.data_root)
    assert scores(own, "zero").miou == row["miou_center_last"]
    whole = evaluate_trained(trained, places.data_root, "whole")
    assert whole.sum() == sum((label != 255).sum() for label in labels)
    where = ("--out", str(places.out), "--data-root", str(places.data_root), "--choice", "last", "--device", "cpu")
    shown = CliRunner().invoke(app, ["eval", path.stem, *where, "--protocol", "center"])
    assert shown.exit_code == 0, shown.output
    assert "center protocol" in shown.output and f"mIoU {row['miou_center_last']:.2f} %" in shown.output
