"""Pictures of a few fixed images while a run trains: what figures show of single images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fpl.data.augment import normalise
from fpl.data.images import Images
from fpl.data.spec import IGNORE
from fpl.data.splits import Split
from fpl.data.validation import ValidationSet
from fpl.losses.diagnostics import diagnose_maps
from fpl.methods.base import Method

# Shares of training after which pictures are taken.
STAGES = (0.1, 0.25, 0.5, 1.0)
# Pictures are thinned to this many pixels at most along each axis.
LONGEST = 512


def example_steps(total: int) -> set[int]:
    """Steps (counted from 1) after which pictures are taken."""
    return {max(1, round(share * total)) for share in STAGES}


class Examples:
    """Takes pictures of the first images of evenly spaced places of a run's lists.

    Args:
        method: What is trained; put into evaluation mode for the pictures.
        split: Its unlabeled list gives the images on which one network teaches the other.
        images: The training images; their labels are read for the pictures alone.
        validation: Its images are segmented after the last step.
        device: Where the networks are.
        count: Pictured images of each of the two.
        read_truth: Whether to read the labels of unlabeled images; without them their true classes are unknown.
    """

    def __init__(
        self,
        method: Method,
        split: Split,
        images: Images,
        validation: ValidationSet,
        device: torch.device,
        count: int,
        *,
        read_truth: bool,
    ) -> None:
        self.method, self.images, self.validation, self.device = method, images, validation, device
        self.unlabeled = _spaced(split.unlabeled, count)
        self.validated = _spaced(validation.ids, count)
        self.read_truth = read_truth

    @torch.no_grad()
    def take(self, step: int, last: bool) -> list[dict[str, Any]]:
        """Rows of the table `examples`: K of unlabeled images, after the last step all else that is kept."""
        self.method.eval()
        rows = [row for image_id in self.unlabeled for row in self._taught(step, image_id, last)]
        if last:
            rows += [row for image_id in self.validated for row in self._segmented(step, image_id)]
        self.method.train()
        return rows

    def _taught(self, step: int, image_id: str, last: bool) -> Iterator[dict[str, Any]]:
        image = self.images.image(image_id)
        # Read where it is kept, and no sooner.
        label = self.images.truth(image_id) if last and self.read_truth else None
        truth = np.full(image.shape[:2], IGNORE, dtype=np.uint8) if label is None else label
        student, teacher = self.method.teaching_logits(self._network_input(image))
        ground_truth = torch.from_numpy(truth.copy()).to(self.device).unsqueeze(0)
        maps = diagnose_maps(student, teacher, ground_truth=ground_truth, rules=self.method.pixel_loss.rules)
        pictures: dict[str, NDArray[Any]] = {"k": _bytes(maps["k"])}
        if last:
            pictures |= {
                "image": image,
                "ground_truth": truth,
                "vanilla_score": _halves(maps["vanilla_score"]),
                "fuzzy_score": _halves(maps["fuzzy_score"]),
            }
        for kind, picture in pictures.items():
            yield _row(step, "unlabeled", image_id, kind, picture)

    def _segmented(self, step: int, image_id: str) -> Iterator[dict[str, Any]]:
        image = self.validation.images.image(image_id)
        prediction = _bytes(self.method.predict(self._network_input(image)).max(1).indices)
        pictures = {"image": image, "ground_truth": self.validation.images.label(image_id), "prediction": prediction}
        for kind, picture in pictures.items():
            yield _row(step, "val", image_id, kind, picture)

    def _network_input(self, image: NDArray[np.uint8]) -> Tensor:
        pixels = torch.from_numpy(image.transpose(2, 0, 1).copy()).to(self.device)
        return normalise(pixels, torch.ones_like(pixels[0], dtype=torch.bool)).unsqueeze(0)


def _spaced(ids: Sequence[str], count: int) -> list[str]:
    """So many entries of a list, from its first on, evenly spaced."""
    count = min(count, len(ids))
    return [ids[number * len(ids) // count] for number in range(count)]


def _bytes(values: Tensor) -> NDArray[np.uint8]:
    return values[0].clamp(max=IGNORE).to(torch.uint8).cpu().numpy()


def _halves(values: Tensor) -> NDArray[np.float16]:
    return values[0].to(torch.float16).cpu().numpy()


def _row(step: int, part: str, image_id: str, kind: str, picture: NDArray[Any]) -> dict[str, Any]:
    stride = math.ceil(max(picture.shape[:2]) / LONGEST)
    # A tensor, because it is part of checkpoints, which hold nothing else.
    array = torch.from_numpy(picture[::stride, ::stride].copy())
    return {"step": step, "part": part, "image_id": image_id, "kind": kind, "array": array}
