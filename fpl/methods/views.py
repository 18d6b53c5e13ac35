"""Strong views of unlabeled images, made on the device: other colours, boxes cut out, two images mixed.

Whatever is drawn is drawn for a position of the unlabeled stream (`Draw.position`), which numbers the slots of all
steps and workers: it depends neither on how many workers there are nor on what has been drawn before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fpl.data.augment import FOR_CUTOUT, FOR_VIEW, channel_statistics, seeded
from fpl.data.batches import Draw, send

NAMES = ("brightness", "contrast", "saturation", "hue")


class Colours(NamedTuple):
    """What is drawn for one view."""

    changes: tuple[tuple[str, float], ...]
    """Changes in their order: "brightness", "contrast", "saturation" with a factor, "hue" with a shift in turns.

    Where brightness is added, 1 less than its factor is what is added.
    """
    grey: bool
    sigma: float | None
    """Of the blur, in pixels; None for none."""


@dataclass(frozen=True)
class StrongView:
    """A photometric augmentation; no pixel moves, so labels and masks of the weak image fit.

    Attributes:
        brightness: Factors of brightness are uniform in 1 - this .. 1 + this; 0..1.
        brightness_added: Whether it is a shift of all colours instead, uniform in -this .. this, of colours in 0..1.
        contrast: The same of the distance to the image's mean grey.
        saturation: The same of the distance to each pixel's grey.
        hue: Shifts of the hue are uniform in -this .. this turns, 0..0.5.
        jitter: Chance of these four, which then follow one another in random order.
        grey: Chance to lose all colour, after the four.
        blur: Chance of a Gaussian blur, after that.
        sigmas: Smallest and largest standard deviation of the blur, in pixels, above 0; uniform between them.
        kernel: Side of the blur's kernel, odd, in pixels.
    """

    brightness: float
    contrast: float
    saturation: float
    hue: float
    jitter: float = 0.8
    grey: float = 0.2
    blur: float = 0.0
    sigmas: tuple[float, float] = (0.1, 2.0)
    kernel: int = 13
    brightness_added: bool = False

    def draw(self, generator: np.random.Generator) -> Colours:
        """Draw one view. The numbers drawn are as many whatever the chances are."""
        jittered, grey, blurred, place, *factors = (float(value) for value in generator.random(8))
        strengths = (self.brightness, self.contrast, self.saturation, self.hue)
        changes = []
        for index in generator.permutation(4).tolist():
            middle = 0.0 if NAMES[index] == "hue" else 1.0
            changes.append((NAMES[index], middle + (2 * factors[index] - 1) * strengths[index]))
        least, most = self.sigmas
        sigma = least + place * (most - least) if blurred < self.blur else None
        return Colours(tuple(changes) if jittered < self.jitter else (), grey < self.grey, sigma)

    @torch.no_grad()
    def __call__(
        self, image: Tensor, valid: Tensor, seed: int, positions: Iterable[int] | Tensor, stream: int = 0
    ) -> Tensor:
        """Strong views of images, float32 [B, 3, h, w], normalised as they are and 0 on padding.

        Padding is of ImageNet's mean colour here, which is what networks are fed there: the blur takes that in.

        Args:
            image: float32 [B, 3, h, w], normalised (`Draw.image` on its device).
            valid: bool [B, h, w], false on padding.
            seed: Seed of the run.
            positions: B positions in the unlabeled stream (`Draw.position`).
            stream: Views of different streams are independent: for several views of an image, or several draws.
        """
        mean, deviation = channel_statistics(image.device)
        views = []
        # In bfloat16 neighbouring colours would become one, and autocast does blur in it.
        with torch.autocast(image.device.type, enabled=False):
            for number, pixels in zip(_numbers(positions), image.float(), strict=True):
                colours = self.draw(seeded(seed, FOR_VIEW, stream, number))
                if any(colours):
                    changed = self._apply((pixels * deviation + mean).clamp_(0, 1), colours)
                    pixels = (changed - mean) / deviation
                views.append(pixels)
            return torch.stack(views).masked_fill_(~valid.unsqueeze(1), 0.0)

    def _apply(self, image: Tensor, colours: Colours) -> Tensor:
        # Imported late: torchvision doubles the start-up time of a process, and most methods do without it.
        from torchvision.transforms.v2 import functional as F

        adjust: dict[str, Callable[[Tensor, float], Tensor]] = {
            "brightness": _shift if self.brightness_added else F.adjust_brightness,
            "contrast": F.adjust_contrast,
            "saturation": F.adjust_saturation,
            "hue": F.adjust_hue,
        }
        for name, amount in colours.changes:
            image = adjust[name](image, amount)
        if colours.grey:
            image = F.rgb_to_grayscale(image, num_output_channels=3)
        if colours.sigma is not None:
            image = F.gaussian_blur(image, [self.kernel, self.kernel], [colours.sigma, colours.sigma])
        return image


# The jitter of PseudoSeg, of every image (`random_color_jitter`, `_PROB_OF_JITTER` of its released code).
JITTER = StrongView(0.5, 0.5, 0.5, 0.25, jitter=1.0, grey=0.0, brightness_added=True)


def recoloured(draw: Draw, view: StrongView, seed: int, stream: int = 0) -> Draw:
    """A draw with other colours, drawn for its positions in a stream of views."""
    image = view(draw.image, draw.valid, seed, draw.position, stream)
    return replace(draw, image=image.to(draw.image.dtype))


def strong_draw(draw: Draw, seed: int, cutout_side: float) -> Draw:
    """A draw with other colours and one box cut out, whose pixels are valid no more; the box is of the mean colour.

    Args:
        draw: The weak view.
        seed: Seed of the run.
        cutout_side: Sides of the box in those of the crop, 0..1; 0 is none. Its middle is uniform over all pixels.
    """
    image = recoloured(draw, JITTER, seed).image
    height, width = image.shape[-2:]
    box = (round(cutout_side * height), round(cutout_side * width))
    hole = send(cutout_masks(seed, draw.position, (height, width), box), image.device)
    return replace(draw, image=image.masked_fill(hole.unsqueeze(1), 0.0), valid=draw.valid & ~hole)


def cutout_masks(seed: int, positions: Iterable[int] | Tensor, size: tuple[int, int], box: tuple[int, int]) -> Tensor:
    """Masks bool [B, *size] on the CPU, true in one box each: what is to be cut out.

    The middle of a box is uniform over all pixels, so that some of it may lie outside (PseudoSeg, `cutout_with_mask`).

    Args:
        seed: Seed of the run.
        positions: B positions in the unlabeled stream; a mask is a function of seed and position.
        size: Height and width in pixels.
        box: Height and width of the box; what exceeds the image is left out.
    """
    numbers = _numbers(positions)
    masks = np.zeros((len(numbers), *size), dtype=bool)
    # 0 is the stream, as in `cutmix_masks`.
    for mask, number in zip(masks, numbers, strict=True):
        window = []
        for side, length, place in zip(size, box, seeded(seed, FOR_CUTOUT, 0, number).random(2), strict=True):
            start = int(place * side) - length // 2
            window.append(slice(max(start, 0), max(start + length, 0)))
        mask[tuple(window)] = True
    return torch.from_numpy(masks)


def mix(inside: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Take the second where a mask is true, and the first elsewhere; the values themselves, whatever they are.

    Args:
        inside: bool [B, h, w], on the device of the others.
        first: Images or logits [B, C, h, w], or masks or labels [B, h, w].
        second: Of the same shape and dtype.
    """
    return torch.where(inside.unsqueeze(1) if first.ndim == inside.ndim + 1 else inside, second, first)


def mix_draws(inside: Tensor, first: Draw, second: Draw) -> Draw:
    """Mix image, valid mask and (where both have one) truth of two draws alike; index and position are the first's."""
    truth = None
    if first.truth is not None and second.truth is not None:
        truth = mix(inside, first.truth, second.truth)
    image, valid = mix(inside, first.image, second.image), mix(inside, first.valid, second.valid)
    return replace(first, image=image, valid=valid, truth=truth)


def _shift(image: Tensor, factor: float) -> Tensor:
    return (image + (factor - 1)).clamp(0, 1)


def _numbers(positions: Iterable[int] | Tensor) -> list[int]:
    return [int(number) for number in (positions.tolist() if isinstance(positions, Tensor) else positions)]
