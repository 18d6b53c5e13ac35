"""A method and its batches without any data: random weights, random pixels. For counting steps, and for timing them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fpl.config.registry import method_class
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, Draw, Labeled
from fpl.data.spec import IGNORE
from fpl.methods.base import Method
from fpl.methods.optimizers import Scheduled
from fpl.models import build_network
from fpl.train.runtime import Workers


def bare_method(config: RunConfig, device: torch.device) -> Method:
    """Build the method of a run as it trains on a device (`meta`: nothing is stored), its weights random."""
    with device:
        method: Method = method_class(config.method)(
            config,
            lambda: build_network(config.model, config.data.num_classes, device_type=device.type),
            Workers(),
        )
    if config.train.channels_last:
        method.to(memory_format=torch.channels_last)
    return method.train()


class DrawnImages:
    """Source of unlabeled images that has the same random one in memory for all of them.

    Attributes:
        reads: How many were asked for.
    """

    count = 1000

    def __init__(self, config: RunConfig) -> None:
        crop = config.data.crop
        self.reads = 0
        self._drawn = torch.randint(0, 256, (3, *crop), dtype=torch.uint8), torch.ones(crop, dtype=torch.bool)

    def read(self, index: int, position: int) -> tuple[Tensor, Tensor]:
        """The image, uint8 [3, h, w], and where it is valid, bool [h, w]: everywhere."""
        self.reads += 1
        return self._drawn

    def truth(self, index: int, position: int) -> Tensor:
        """Its label, uint8 [h, w]: unknown."""
        return torch.full_like(self._drawn[0][0], IGNORE)


def drawn_batch(config: RunConfig, method: Method, step: int) -> Batch:
    """What a method asks for at a step: random images and labels, each class as likely as the other.

    Args:
        config: Batch sizes, crop, classes.
        method: What it draws, and whether it pastes: every slot then has an image to paste from.
        step: From 0.
    """
    data = config.data

    def images(count: int, crop: tuple[int, int]) -> tuple[Tensor, Tensor]:
        return torch.randint(0, 256, (count, 3, *crop), dtype=torch.uint8), torch.ones(count, *crop, dtype=torch.bool)

    def labels(count: int) -> Tensor:
        return torch.randint(0, data.num_classes, (count, *data.crop), dtype=torch.uint8)

    def labeled() -> Labeled:
        image, valid = images(data.labeled_batch, data.crop)
        return Labeled(image, labels(data.labeled_batch), valid)

    request, first = method.request, labeled()
    numbers = torch.arange(data.unlabeled_batch)
    position = numbers + step * data.unlabeled_batch
    crop = request.unlabeled_crop(data.crop)
    unlabeled = [Draw(*images(data.unlabeled_batch, crop), numbers, position) for _ in range(request.draws)]
    partner = None if request.paste is None else labeled()
    more = [labeled() for _ in range(1, request.labeled_streams)]
    return Batch(first.image, first.label, first.valid, unlabeled, step, partner, more)


class Prepared(NamedTuple):
    """All that a step takes, in memory."""

    method: Method
    optimizers: dict[str, Scheduled]
    batch: Batch
    source: DrawnImages


def prepared_step(config: RunConfig, device: torch.device) -> Prepared:
    """Build a method with its optimizers and a batch; everything random is drawn from torch's global generator."""
    method = bare_method(config, device)
    source = DrawnImages(config)
    method.attach(source)
    return Prepared(method, method.optimizers(), drawn_batch(config, method, 0), source)
