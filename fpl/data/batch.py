"""What one rank trains on in one step, before and after its way to the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fpl.data.augment import normalise
from fpl.data.spec import IGNORE


@dataclass
class Labeled:
    """Labeled images of another stream, or to paste from, each under an augmentation of its own.

    Attributes:
        image: uint8 [B, 3, h, w], or float32 after `Batch.to`.
        label: uint8 [B, h, w], or int64 after `to`. Of images to paste from it is 255 on padding, whatever
            `data.padding_label` is, and all over in a slot that gets none.
        valid: bool [B, h, w], false on padding and in a slot that gets none.
    """

    image: Tensor
    label: Tensor
    valid: Tensor

    def to(self, device: torch.device | str) -> Labeled:
        """The same on a device, the image normalised."""
        image, valid = _network_input(self.image, self.valid, device)
        return Labeled(image, self.label.to(device, non_blocking=True).long(), valid)

    def pin_memory(self) -> Labeled:
        """The same in page-locked memory."""
        return Labeled(self.image.pin_memory(), self.label.pin_memory(), self.valid.pin_memory())


@dataclass
class Draw:
    """Unlabeled images of one stream.

    Attributes:
        image: uint8 [B, 3, h, w], or float32 after `Batch.to`.
        valid: bool [B, h, w], false on padding.
        index: int64 [B], into the unlabeled list of the split.
        position: int64 [B], in the stream.
        truth: uint8 [B, h, w], the labels under the same augmentation, 255 on padding and where an image has none; for
            diagnostics alone, at the steps that have some; None otherwise.
    """

    image: Tensor
    valid: Tensor
    index: Tensor
    position: Tensor
    truth: Tensor | None = None

    def to(self, device: torch.device | str) -> Draw:
        """The same on a device, the image normalised; index and position stay on the CPU."""
        image, valid = _network_input(self.image, self.valid, device)
        truth = None if self.truth is None else self.truth.to(device, non_blocking=True)
        return replace(self, image=image, valid=valid, truth=truth)

    def pin_memory(self) -> Draw:
        """The same in page-locked memory."""
        truth = None if self.truth is None else self.truth.pin_memory()
        return replace(self, image=self.image.pin_memory(), valid=self.valid.pin_memory(), truth=truth)


@dataclass
class Batch:
    """What one rank trains on in one step.

    Attributes:
        image: Labeled images, uint8 [B, 3, h, w], or float32 after `to`.
        label: uint8 [B, h, w], 0..C-1 or 255, or int64 after `to`.
        valid: bool [B, h, w], false on padding.
        unlabeled: As many draws as the method asks for.
        step: Number of the step, from 0.
        partner: Labeled images to paste from, if the method asks for them.
        more_labeled: Labeled images of further streams, if the method asks for them.
    """

    image: Tensor
    label: Tensor
    valid: Tensor
    unlabeled: list[Draw]
    step: int
    partner: Labeled | None = None
    more_labeled: list[Labeled] = field(default_factory=list)

    def to(self, device: torch.device | str) -> Batch:
        """The same on a device, images normalised to float32 with padding exactly 0."""
        image, valid = _network_input(self.image, self.valid, device)
        label = self.label.to(device, non_blocking=True).long()
        partner = self.partner and self.partner.to(device)
        draws, more = [draw.to(device) for draw in self.unlabeled], [each.to(device) for each in self.more_labeled]
        return Batch(image, label, valid, draws, self.step, partner, more)

    def pin_memory(self) -> Batch:
        """The same in page-locked memory; called by the DataLoader where there is a GPU."""
        image, label, valid = self.image.pin_memory(), self.label.pin_memory(), self.valid.pin_memory()
        partner = self.partner and self.partner.pin_memory()
        draws, more = [draw.pin_memory() for draw in self.unlabeled], [each.pin_memory() for each in self.more_labeled]
        return Batch(image, label, valid, draws, self.step, partner, more)


def tensors(part: Any) -> Iterator[Tensor]:
    """All tensors of a batch or of a part of one."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, list):
        for each in part:
            yield from tensors(each)
    elif is_dataclass(part):
        for item in fields(part):
            yield from tensors(getattr(part, item.name))


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor made on the CPU to the device of training; to a GPU without waiting for it."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _network_input(image: Tensor, valid: Tensor, device: torch.device | str) -> tuple[Tensor, Tensor]:
    image, valid = image.to(device, non_blocking=True), valid.to(device, non_blocking=True)
    return (normalise(image, valid) if image.dtype == torch.uint8 else image), valid


def nothing_to_paste(crop: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Image, label and valid mask of a slot of `Labeled` that gets none."""
    return (
        torch.zeros((3, *crop), dtype=torch.uint8),
        torch.full(crop, IGNORE, dtype=torch.uint8),
        torch.zeros(crop, dtype=torch.bool),
    )
