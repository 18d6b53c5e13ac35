"""Pictures of nothing: patches of coloured texture, for pre-training a small encoder.

They share no class, colour table, shape or scene with the drawn data sets: patches are cells of a distorted Voronoi
diagram, classes are random pairs of a colour and a pattern. What they teach is what any encoder needs: tell colours,
grains and edges apart under noise and changing light.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

TEXTURE_CLASSES = 32
_PATTERNS = 5
_SITES = 10
_NOISE = 10.0


class TextureSource:
    """An endless stream of texture pictures with their labels, a function of its seed.

    Args:
        seed: Decides the classes and every picture.
        size: Height and width in pixels.
    """

    def __init__(self, seed: int, size: tuple[int, int] = (64, 64)) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.size = size
        # Two classes share each colour, so that the pattern must be looked at.
        self.colours = self._uniform(30.0, 225.0, TEXTURE_CLASSES // 2, 3).repeat(2, 1)
        self.colours += self._normal(6.0, TEXTURE_CLASSES, 3)
        self.patterns = torch.arange(TEXTURE_CLASSES) * 2 // 3 % _PATTERNS
        self.periods = self._uniform(3.0, 9.0, TEXTURE_CLASSES)
        self.contrasts = self._uniform(6.0, 24.0, TEXTURE_CLASSES)

    def batch(self, count: int) -> tuple[Tensor, Tensor]:
        """The next `count` pictures: uint8 [count, 3, H, W], labels int64 [count, H, W] with 0..31."""
        height, width = self.size
        grid = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij"), -1).float()
        sites = self._uniform(0.0, 1.0, count, _SITES, 1, 1, 2) * torch.tensor([height, width])
        offset = grid - sites
        turned = _turn(offset, self._uniform(0.0, math.pi, count, _SITES, 1, 1))
        stretch = self._uniform(-0.7, 0.7, count, _SITES, 1, 1).exp()
        distance = (turned[..., 0] * stretch) ** 2 + (turned[..., 1] / stretch) ** 2
        nearest = (distance * self._uniform(0.5, 2.0, count, _SITES, 1, 1)).argmin(1)
        classes = torch.randint(TEXTURE_CLASSES, (count, _SITES), generator=self.random)
        return self._paint(grid, nearest, classes), _pick(classes, nearest)

    def _paint(self, grid: Tensor, nearest: Tensor, classes: Tensor) -> Tensor:
        count = len(classes)
        paint = self.colours[classes] + self._normal(8.0, count, _SITES, 1) + self._normal(4.0, count, _SITES, 3)
        grain = 2 * math.pi / (self.periods[classes] * self._uniform(0.85, 1.2, count, _SITES))
        angle = self._uniform(0.0, math.pi, count, _SITES)
        place = _turn(grid, _pick(angle, nearest)) * _pick(grain, nearest)[..., None]
        wave = torch.sin(place + self._uniform(0.0, 6.28, count, 1, 1, 2))
        dots = wave.prod(-1)
        rings = torch.sin(torch.hypot(*(_pick(part, nearest) for part in self._uniform(-40.0, 40.0, 2, count, _SITES))
                                      ) + place.norm(dim=-1))  # fmt: skip
        coarse = torch.randn(count, 1, *(math.ceil(side / 4) for side in self.size), generator=self.random)
        blotches = torch.nn.functional.interpolate(coarse, size=self.size, mode="bilinear")[:, 0].sign()
        shapes = torch.stack([torch.zeros_like(dots), dots * 1.4, dots.sign(), rings, blotches], 1)
        pattern = shapes.gather(1, _pick(self.patterns[classes], nearest)[:, None])
        values = _pick(paint, nearest).movedim(-1, 1) + pattern * _pick(self.contrasts[classes], nearest)[:, None]
        light = self._uniform(0.7, 1.2, count, 1, 1, 1) * (1.0 + self._normal(0.04, count, 3, 1, 1))
        noise = self._normal(_NOISE, count, 1, *self.size) + self._normal(0.4 * _NOISE, count, 3, *self.size)
        return (values * light + noise).clamp(0, 255).to(torch.uint8)

    def _uniform(self, low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=self.random)

    def _normal(self, deviation: float, *shape: int) -> Tensor:
        return deviation * torch.randn(shape, generator=self.random)


def _turn(points: Tensor, angle: Tensor) -> Tensor:
    """Points `[..., 2]` turned by an angle that has their leading dimensions, or dimensions of size 1."""
    y, x = points.unbind(-1)
    return torch.stack([y * angle.cos() - x * angle.sin(), y * angle.sin() + x * angle.cos()], -1)


def _pick(values: Tensor, nearest: Tensor) -> Tensor:
    """Values per site `[B, S, ...]` spread over the pixels of `nearest` `[B, H, W]`: `[B, H, W, ...]`."""
    rows = torch.arange(len(values))[:, None, None]
    return values[rows, nearest]
