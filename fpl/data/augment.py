"""Flip, rescale, crop and padding, the normalisation, and the masks of CutMix.

All randomness comes from generators seeded by position in the stream (`seeded`), never from a global state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fpl.config.sections import DataConfig
from fpl.data.resample import crop_resized_image, crop_resized_label
from fpl.data.spec import IGNORE

# Statistics of ImageNet in RGB, for values in 0..1.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

# First key of `seeded`: what the numbers are used for.
FOR_ORDER, FOR_SAMPLE, FOR_CUTMIX, FOR_PASTE, FOR_CHOICE, FOR_VIEW, FOR_CUTOUT = range(7)


def seeded(seed: int, purpose: int, stream: int, number: int) -> np.random.Generator:
    """A generator that depends on the four numbers alone."""
    return np.random.default_rng(np.random.SeedSequence((seed, purpose, stream, number)))


@dataclass(frozen=True)
class Parameters:
    """What is drawn for one sample; it does not depend on the size of the image.

    Attributes:
        flip: Mirror left and right.
        scale: Factor of both sides.
        top: Place of the crop among its possible rows, 0 <= top < 1.
        left: Place of the crop among its possible columns, 0 <= left < 1.
    """

    flip: bool
    scale: float
    top: float
    left: float


class Augmentation:
    """The training augmentation of the released CPS code: flip, rescale, random crop, centred padding.

    Args:
        config: Its `crop`, `scales`, `scale_sampling`, `flip` and `padding_label` are used.
    """

    def __init__(self, config: DataConfig) -> None:
        self.crop = config.crop
        self.scales = config.scales
        self.sampling = config.scale_sampling
        self.flip = config.flip
        self.padding_label = IGNORE if config.padding_label is None else config.padding_label

    def draw(self, generator: np.random.Generator) -> Parameters:
        """Draw the parameters of one sample: flip with probability 1/2, a scale, a place of the crop."""
        flip, scale, top, left = generator.random(4)
        return Parameters(bool(self.flip and flip < 0.5), self._factor(float(scale)), float(top), float(left))

    def _factor(self, uniform: float) -> float:
        """The scale that a number 0 <= uniform < 1 stands for; "balanced" is RandResize of the released AEL code."""
        if self.sampling == "choice":
            return self.scales[int(uniform * len(self.scales))]
        least, most = min(self.scales), max(self.scales)
        if self.sampling == "uniform":
            return least + uniform * (most - least)
        if uniform < 0.5:
            return least + 2 * uniform * (1 - least)
        return 1 + (2 * uniform - 1) * (most - 1)

    def apply(
        self, image: NDArray[np.uint8], label: NDArray[np.uint8] | None, parameters: Parameters
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Augment one sample, resizing only what the crop shows.

        The size after scaling is truncated to whole pixels (at least 1). Images are scaled bilinearly without
        antialiasing, labels to the nearest pixel: what the released code gets from OpenCV. The crop start is uniform
        over the starts inside the image (the released code can overshoot by one row or column, which it then pads).
        An image smaller than the crop is padded half on each side, an odd pixel going to the bottom and the right.

        Args:
            image: uint8 [H, W, 3]; may be read-only.
            label: uint8 [H, W] or None.
            parameters: See `draw`.

        Returns:
            Image uint8 [3, h, w] (padding 0), label uint8 [h, w] (padding `padding_label`) or None, and valid bool
            [h, w], false on padding; (h, w) is the crop. None of them shares memory with the input. Labels are those
            of `apply_whole`; images too, or shifted by at most 1/64 pixel where the sizes allow no more (`resample`).
        """
        place = self._place(image, parameters)
        pixels = np.zeros((3, *self.crop), dtype=np.uint8)
        part = crop_resized_image(image, place.resized, place.corner, place.size, parameters.flip)
        pixels[:, *place.inside] = part.transpose(2, 0, 1)
        classes = None
        if label is not None:
            classes = np.full(self.crop, self.padding_label, dtype=np.uint8)
            classes[place.inside] = crop_resized_label(label, place.resized, place.corner, place.size, parameters.flip)
        valid = torch.zeros(self.crop, dtype=torch.bool)
        valid[place.inside] = True
        return torch.from_numpy(pixels), None if classes is None else torch.from_numpy(classes), valid

    def apply_whole(
        self, image: NDArray[np.uint8], label: NDArray[np.uint8] | None, parameters: Parameters
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """What `apply` stands for, in the released order: flip and resize the whole image, then crop and pad."""
        # Imported late: torchvision doubles the start-up time of a process, and this is for comparison alone.
        from torchvision import tv_tensors
        from torchvision.transforms.v2 import functional as F

        place = self._place(image, parameters)
        above, before = (side.start for side in place.inside)
        below, behind = (self.crop[side] - place.inside[side].stop for side in (0, 1))

        def transform(pixels: Tensor, fill: int) -> Tensor:
            if parameters.flip:
                pixels = F.horizontal_flip(pixels)
            pixels = F.resize(pixels, list(place.resized), antialias=False)
            pixels = F.crop(pixels, *place.corner, *place.size)
            pixels = F.pad(pixels, [before, above, behind, below], fill=fill)
            return pixels.as_subclass(Tensor).clone(memory_format=torch.contiguous_format)

        pixels = transform(tv_tensors.Image(torch.from_numpy(image).permute(2, 0, 1)), 0)
        classes = None if label is None else transform(tv_tensors.Mask(torch.from_numpy(label)), self.padding_label)
        valid = torch.zeros(self.crop, dtype=torch.bool)
        valid[place.inside] = True
        return pixels, classes, valid

    def _place(self, image: NDArray[np.uint8], parameters: Parameters) -> _Place:
        height, width = (max(1, int(side * parameters.scale)) for side in image.shape[:2])
        top, rows, above = _window(height, self.crop[0], parameters.top)
        left, columns, before = _window(width, self.crop[1], parameters.left)
        inside = (slice(above, above + rows), slice(before, before + columns))
        return _Place((height, width), (top, left), (rows, columns), inside)


class _Place(NamedTuple):
    """Where a crop is cut and where it is put: size of the resized image, corner and size in it, place in the crop."""

    resized: tuple[int, int]
    corner: tuple[int, int]
    size: tuple[int, int]
    inside: tuple[slice, slice]


def _window(size: int, crop: int, place: float) -> tuple[int, int, int]:
    """Start and length of the crop along one side, and the padding before it."""
    length = min(size, crop)
    start = int(place * (size - length + 1))
    return start, length, (crop - length) // 2


def normalise(image: Tensor, valid: Tensor) -> Tensor:
    """Network input: float32 (image / 255 - mean) / std on the tensor's device, exactly 0 on padding.

    Args:
        image: uint8 [..., 3, h, w], RGB.
        valid: bool [..., h, w], false on padding.
    """
    mean, std = channel_statistics(image.device)
    pixels = image.to(torch.float32).div_(255).sub_(mean).div_(std)
    return pixels.masked_fill_(~valid.unsqueeze(-3), 0.0)


@lru_cache
def channel_statistics(device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and deviation of the three channels, [3, 1, 1], copied once: a GPU would be waited for at every copy."""
    return torch.tensor(MEAN, device=device).view(3, 1, 1), torch.tensor(STD, device=device).view(3, 1, 1)


def cutmix_masks(
    seed: int,
    positions: Iterable[int] | Tensor,
    size: tuple[int, int],
    boxes: int = 3,
    area: tuple[float, float] = (0.25, 0.5),
) -> Tensor:
    """CutMix masks, bool [B, H, W]: true where the second image is pasted.

    As in the released CPS code: every box has an area of U(area) / boxes of the image and a random aspect, lies
    inside the image, and toggles its rectangle, so that overlaps return to false. With the defaults a mask covers
    25 % of the image on average.

    Args:
        seed: Seed of the run.
        positions: B positions in the unlabeled stream (`Draw.position`); a mask is a function of seed and position.
        size: Height and width in pixels.
        boxes: Number of boxes.
        area: Smallest and largest area of a box, as a share of the image before the division by `boxes`.
    """
    height, width = size
    numbers = positions.tolist() if isinstance(positions, Tensor) else list(positions)
    masks = np.zeros((len(numbers), height, width), dtype=bool)
    for mask, number in zip(masks, numbers, strict=True):
        # 0 is the stream: UniMatch draws several.
        share, aspect, top, left = seeded(seed, FOR_CUTMIX, 0, int(number)).random((4, boxes))
        share = area[0] + share * (area[1] - area[0])
        # share ** a times share ** (1 - a) is the area whatever the aspect a is.
        rows = np.rint(share**aspect * boxes**-0.5 * height).astype(int)
        columns = np.rint(share ** (1 - aspect) * boxes**-0.5 * width).astype(int)
        starts = np.rint(top * (height - rows)).astype(int), np.rint(left * (width - columns)).astype(int)
        for y, x, h, w in zip(*starts, rows, columns, strict=True):
            mask[y : y + h, x : x + w] ^= True
    return torch.from_numpy(masks)
