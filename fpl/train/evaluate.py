"""Validation: predictions over a whole set into one confusion matrix, and mIoU from that.

mIoU is in percent everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fpl.config.defaults import BATCH_PIXELS
from fpl.config.schema import SMALLEST_CROP
from fpl.config.sections import DataConfig, EvalConfig
from fpl.data.augment import normalise
from fpl.data.spec import IGNORE
from fpl.errors import FplError
from fpl.train.runtime import Workers

Predict = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Scores:
    """What a confusion matrix says.

    Attributes:
        miou: Mean over classes, in percent.
        iou: Per class in percent; NaN for a class that neither label nor prediction holds, under `absent = "skip"`.
        pixel_accuracy: Share of right pixels, in percent.
        pixels: Pixels counted: those with a valid label.
    """

    miou: float
    iou: tuple[float, ...]
    pixel_accuracy: float
    pixels: int


def scores(confusion: NDArray[np.int64], absent: str = "skip") -> Scores:
    """Scores of a `[C, C]` confusion matrix (rows: label, columns: prediction).

    Args:
        confusion: Pixel counts over the whole set.
        absent: "skip" leaves a class without union out of the mean (CPS), "zero" counts it 0 (AEL).
    """
    right = np.diag(confusion).astype(np.float64)
    union = confusion.sum(0) + confusion.sum(1) - np.diag(confusion)
    missing = math.nan if absent == "skip" else 0.0
    iou = np.where(union > 0, 100.0 * right / np.maximum(union, 1), missing)
    pixels = int(confusion.sum())
    present = iou[~np.isnan(iou)]
    return Scores(
        miou=float(present.mean()) if present.size else math.nan,
        iou=tuple(float(value) for value in iou),
        pixel_accuracy=float(100.0 * right.sum() / pixels) if pixels else math.nan,
        pixels=pixels,
    )


def confusion_matrix(prediction: Tensor, label: Tensor, num_classes: int) -> Tensor:
    """Counts `[C, C]` (rows: label) of classes and labels of one shape; labels outside 0..C-1 are not counted."""
    row = label.to(torch.int64).clamp(0, num_classes)
    flat = row * num_classes + prediction.to(torch.int64)
    counts = torch.bincount(flat.reshape(-1), minlength=num_classes * (num_classes + 1))
    return counts.view(num_classes + 1, num_classes)[:num_classes]


def constant_miou(confusion: NDArray[np.int64], absent: str = "skip") -> tuple[int, float]:
    """The best that predicting one class everywhere reaches on the labels counted in `confusion`: class and mIoU."""
    labels = confusion.sum(1)
    best = int(labels.argmax())
    constant = np.zeros_like(confusion)
    constant[:, best] = labels
    return best, scores(constant, absent).miou


@torch.inference_mode()
def evaluate(
    predict: Predict,
    samples: Iterable[tuple[str, Tensor, Tensor]],
    protocol: EvalConfig,
    data: DataConfig,
    device: torch.device,
    workers: Workers,
    on_image: Callable[[int], None] = lambda done: None,
) -> NDArray[np.int64]:
    """Confusion matrix over all samples of all workers.

    Samples of the same sizes that follow each other share a pass. Each is predicted as if it were alone, up to the
    rounding of sums: where two classes are equally likely to the last digits, the other one may win.

    Args:
        predict: Logits `[B, C, h, w]` of normalised images `[B, 3, h, w]`, the network being in eval mode.
        samples: This worker's `(id, image uint8 [3, h, w], label uint8 [H, W])`; the label may be larger than the
            image (`data.downscale`): logits are then enlarged, so that every labeled pixel counts.
        protocol: Sliding, whole or center.
        data: Its number of classes, its crop where the protocol has none, and its `padding_label` are used.
        device: Where to predict.
        workers: Those among whom the samples are shared.
        on_image: Called with the number of images done.
    """
    crop, classes = protocol.crop or data.crop, data.num_classes
    padding_label = IGNORE if data.padding_label is None else data.padding_label
    total = torch.zeros(classes, classes, dtype=torch.int64, device=device)
    done = 0
    for images, valid, labels in _batches(samples, protocol, crop, padding_label, _batch_pixels(device)):
        logits = predict_logits(predict, images.to(device), protocol, crop, valid)
        prediction = class_map(logits, (labels.shape[-2], labels.shape[-1]))
        total += confusion_matrix(prediction, labels.to(device), classes)
        done += len(images)
        on_image(done)
    counts: NDArray[np.int64] = workers.total(total).cpu().numpy()
    return counts


def check_counted(
    confusion: NDArray[np.int64], protocol: EvalConfig, dataset: str, error: type[FplError] = FplError
) -> None:
    """Refuse to score a confusion matrix that counts no pixel.

    Raises:
        FplError: It counts none; of the class `error`.
    """
    if confusion.any():
        return
    middle = '; eval.protocol = "center" scores the middle of each image alone' * (protocol.protocol == "center")
    raise error(
        f"no label pixel of any image counts: all that are scored are {IGNORE} (ignore)",
        where=f"validation on {dataset}",
        hint=f"fpl data check {dataset} counts the pixels of each class{middle}",
    )


def _batch_pixels(device: torch.device) -> int:
    return BATCH_PIXELS.get(device.type, BATCH_PIXELS["cpu"])


def _batches(
    samples: Iterable[tuple[str, Tensor, Tensor]],
    protocol: EvalConfig,
    crop: tuple[int, int],
    padding_label: int,
    most_pixels: int,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Images uint8 `[B, 3, h, w]`, valid bool `[B, h, w]` and labels uint8 `[B, H, W]` of neighbours of equal sizes."""
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    least = (SMALLEST_CROP, SMALLEST_CROP) if protocol.protocol == "whole" else crop
    for _, image, label in samples:
        valid = torch.ones(image.shape[-2:], dtype=torch.bool)
        if protocol.protocol == "center":
            image, valid, label = center_crop(image, label, crop, padding_label)
        # What the network sees, padding included, and what its logits grow to.
        padded = max(valid.shape[0], least[0]) * max(valid.shape[1], least[1])
        pixels = max(padded, label.numel())
        if kept and (
            (valid.shape, label.shape) != (kept[0][1].shape, kept[0][2].shape) or (len(kept) + 1) * pixels > most_pixels
        ):
            yield _stacked(kept)
            kept = []
        kept.append((image, valid, label))
    if kept:
        yield _stacked(kept)


def _stacked(samples: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    images, valid, labels = (torch.stack(parts) for parts in zip(*samples, strict=True))
    return images, valid, labels


def center_crop(
    image: Tensor, label: Tensor, crop: tuple[int, int], padding_label: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The middle of a sample, which is all that the protocol "center" predicts and counts.

    Placed as by the released AEL code: the crop starts at half of what is left over, rounded down; a side that is too
    short is padded by half of what is missing, an odd pixel going to the bottom and the right.

    Args:
        image: uint8 [3, h, w].
        label: uint8 [H, W]; where it is larger than the image (`data.downscale`), so is its crop.
        crop: Height and width, in pixels of the image.
        padding_label: Label of the padding; 255 is not counted.

    Returns:
        Image uint8 [3, *crop] (padding 0), valid bool [*crop], false on padding, and the label of the crop.
    """
    (height, width), (full_height, full_width) = image.shape[-2:], label.shape
    rows, columns = _middle(height, crop[0]), _middle(width, crop[1])
    label_rows = [round(edge * full_height / height) for edge in rows]
    label_columns = [round(edge * full_width / width) for edge in columns]
    valid = _cut(torch.ones_like(image[0]), rows, columns, 0).bool()
    return _cut(image, rows, columns, 0), valid, _cut(label, label_rows, label_columns, padding_label)


def _middle(size: int, length: int) -> list[int]:
    """Start and end of the middle of a side, and the padding before and behind it that `length` needs."""
    start, missing = max(0, size - length) // 2, max(0, length - size)
    return [start, min(size, start + length), missing // 2, missing - missing // 2]


def _cut(pixels: Tensor, rows: list[int], columns: list[int], fill: int) -> Tensor:
    inside = pixels[..., rows[0] : rows[1], columns[0] : columns[1]]
    return F.pad(inside, (*columns[2:], *rows[2:]), value=fill)


def class_map(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Classes `[B, H, W]` from logits `[B, C, h, w]`, enlarged bilinearly (align_corners) where the sizes differ."""
    if (logits.shape[-2], logits.shape[-1]) != size:
        logits = F.interpolate(logits.float(), size=size, mode="bilinear", align_corners=True)
    # max is several times faster than argmax on a CPU and gives the same indices.
    return logits.max(dim=1).indices


def predict_logits(
    predict: Predict, images: Tensor, protocol: EvalConfig, crop: tuple[int, int], valid: Tensor | None = None
) -> Tensor:
    """Scores `[B, C, h, w]` of images under a protocol.

    What "center" means for the score is up to `evaluate`; an image as such is predicted in windows under it too.

    Args:
        predict: See `evaluate`.
        images: uint8 [B, 3, h, w].
        protocol: How to predict.
        crop: Window of all protocols but whole.
        valid: bool [B, h, w], false on padding; None: there is none.
    """
    if valid is None:
        valid = torch.ones(len(images), *images.shape[-2:], dtype=torch.bool)
    normalised = normalise(images, valid.to(images.device))
    if protocol.protocol == "whole":
        return _padded(predict, normalised, (SMALLEST_CROP, SMALLEST_CROP), protocol.combine)
    return _sliding(predict, normalised, crop, protocol)


def _padded(predict: Predict, images: Tensor, least: tuple[int, int], combine: str) -> Tensor:
    """Predict on images padded with zeros, evenly on both sides, to at least a size; the margin is cut off."""
    height, width = images.shape[-2:]
    below, right = max(0, least[0] - height), max(0, least[1] - width)
    top, left = below // 2, right // 2
    padded = F.pad(images, (left, right - left, top, below - top))
    logits = predict(padded).float()[..., top : top + height, left : left + width]
    return logits if combine == "logits" else logits.softmax(1)


def _sliding(predict: Predict, images: Tensor, crop: tuple[int, int], protocol: EvalConfig) -> Tensor:
    """Sum the windows' scores; windows at the far edges are shifted inwards."""
    count, (height, width) = len(images), images.shape[-2:]
    least = (max(height, crop[0]), max(width, crop[1]))
    if protocol.combine == "logits" and least != (height, width) and least != crop:
        # CPS's evaluator pads an image that has a side longer than the window before it normalises: with black. Any
        # other is padded afterwards, with zeros, by CPS, and every image is by AEL, which sums probabilities.
        top, left = (least[0] - height) // 2, (least[1] - width) // 2
        black = normalise(torch.zeros_like(images[:1, :, :1, :1], dtype=torch.uint8), images.new_ones(1, 1, 1).bool())
        larger = black.repeat(count, 1, *least)
        larger[..., top : top + height, left : left + width] = images
        return _sliding(predict, larger, crop, protocol)[..., top : top + height, left : left + width]
    corners = [
        (top, left)
        for top in window_starts(height, crop[0], protocol.stride_rate)
        for left in window_starts(width, crop[1], protocol.stride_rate)
    ]
    at_once = max(1, _batch_pixels(images.device) // (count * crop[0] * crop[1]))
    total: Tensor | None = None
    for start in range(0, len(corners), at_once):
        some = corners[start : start + at_once]
        windows = torch.cat([images[..., top : top + crop[0], left : left + crop[1]] for top, left in some])
        parts = torch.split(_padded(predict, windows, crop, protocol.combine), count)
        for (top, left), part in zip(some, parts, strict=True):
            if total is None:
                total = part.new_zeros(count, part.shape[1], height, width)
            total[..., top : top + crop[0], left : left + crop[1]] += part
    assert total is not None
    return total


def window_starts(length: int, crop: int, stride_rate: float) -> list[int]:
    """Starts of the windows along one side; the stride is `ceil(crop * stride_rate)`."""
    if length <= crop:
        return [0]
    stride = math.ceil(crop * stride_rate)
    count = math.ceil((length - crop) / stride) + 1
    return [min(index * stride, length - crop) for index in range(count)]
