"""From a step on tiny networks at a small crop to one on the real networks at the real crop."""

from __future__ import annotations

import functools

import torch
from torch import nn

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
        layer = self._layers.get(first)
        channels = shape[1] if layer is None else channels_of(layer) or shape[1]
        if shape[1:] == self._high[0]:
            return (shape[0], channels, *self._high[1][1:])
        sides = (-(-length * whole // side) for length, whole, side in zip(shape[2:], crop, small, strict=True))
        return (shape[0], channels, *sides)

    @functools.cached_property
    def _layers(self) -> dict[str, nn.Module]:
        return dict(self.method.named_modules())

    @functools.cached_property
    def _high(self) -> tuple[torch.Size, torch.Size]:
        """Shapes of the last features of the tiny backbone and of the real one: no common ratio leads to them."""
        return _small_high(self.small), _high_of(self.method, self.crop)


@functools.cache
def _small_high(small: RunConfig) -> torch.Size:
    return _high_of(bare_method(small, META), small.data.crop)


def _high_of(method: Method, crop: tuple[int, int]) -> torch.Size:
    with torch.no_grad():
        return method.network.encode(torch.empty(2, 3, *crop, device=META)).high.shape[1:]
