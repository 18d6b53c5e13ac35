"""From a step on tiny networks at a small crop to one on the real networks at the real crop."""

from __future__ import annotations

import functools

import torch

from fpl.config.schema import RunConfig
from fpl.methods.base import Method
from fpl.sweep.plan.drawn import bare_method
from fpl.sweep.plan.record import Pass, Shapes, channels_of

META = torch.device("meta")


class Scale:
    """Shapes of a small step as they are in a real one."""

    def __init__(self, small: RunConfig, method: Method, crop: tuple[int, int]) -> None:
        self.small, self.method, self.crop = small, method, crop

    def all_of(self, item: Pass) -> Shapes:
        """The shapes of what goes into a pass."""
        return tuple(self(shape, item.first) for shape in item.shapes)

    def __call__(self, shape: tuple[int, ...], first: str) -> tuple[int, ...]:
        """The shape of a tensor for a module whose first layer is `first`: its channels, and its height and width."""
        small, crop = self.small.data.crop, self.crop
        if len(shape) != 4:
            return shape
        if shape[1:] == (3, *small):
            return (shape[0], 3, *crop)
        # A backbone that was exchanged has other layers; what goes into it are images.
        layer = dict(self.method.named_modules()).get(first)
        channels = shape[1] if layer is None else channels_of(layer) or shape[1]
        if shape[1:] == self._high[0]:
            return (shape[0], channels, *self._high[1][1:])
        sides = (-(-length * whole // side) for length, whole, side in zip(shape[2:], crop, small, strict=True))
        return (shape[0], channels, *sides)

    @functools.cached_property
    def _high(self) -> tuple[torch.Size, torch.Size]:
        """Shapes of the last features of the tiny backbone and of the real one: no common ratio leads to them."""
        pairs = ((bare_method(self.small, META), self.small.data.crop), (self.method, self.crop))
        images = [torch.empty(2, 3, *size, device=META) for _, size in pairs]
        with torch.no_grad():
            encoded = (method.network.encode(image) for (method, _), image in zip(pairs, images, strict=True))
            small, real = (features.high.shape[1:] for features in encoded)
        return small, real
