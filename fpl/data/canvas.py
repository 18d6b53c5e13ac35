"""The canvas of drawn scenes: surfaces with a class, a colour and a stripe pattern."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNITS = 64.0
NOISE = 9.0
"""Standard deviation of the pixel noise, in grey values."""


@dataclass(frozen=True)
class Look:
    """Appearance of a class: mean colour of its group, direction of its offset, and stripes."""

    base: tuple[int, int, int]
    offset: tuple[float, float, float]
    stripes: float = 6.0
    angle: float = 0.0
    period: float = 6.0
    paint: float = 9.0


# Grey values per unit of separation between the classes of a group.
_SEPARATION_STEP = 6.5


class Canvas:
    """The map of surfaces and what is known of each.

    Colour and texture are looked up once at the end, so that drawing costs a few milliseconds.

    Args:
        generator: Source of everything random.
        size: Height and width in pixels.
        separation: Distance between the colours of the classes of a group.
        looks: Appearance of every class.
    """

    def __init__(
        self, generator: np.random.Generator, size: tuple[int, int], separation: float, looks: Mapping[int, Look]
    ) -> None:
        self.random = generator
        self.looks = looks
        self.height, self.width = size
        self.scale = self.height / UNITS
        self.units_wide = self.width / self.scale
        self.step = separation * _SEPARATION_STEP
        self.map = np.zeros(size, dtype=np.intp)
        self.y = np.arange(self.height)[:, None] / self.scale
        self.x = np.arange(self.width)[None, :] / self.scale
        self._classes: list[int] = []
        self._colours: list[NDArray[np.float64]] = []
        self._stripes: list[tuple[float, float, float, float]] = []

    def surface(self, class_id: int, shade: tuple[float, float, float] | float = 0.0) -> int:
        """A new surface of a class; `shade` is added to its colour."""
        look, random = self.looks[class_id], self.random
        paint = random.normal(0.0, look.paint) + random.normal(0.0, 0.6 * look.paint, 3)
        self._classes.append(class_id)
        self._colours.append(np.add(look.base, np.multiply(look.offset, self.step)) + paint + shade)
        wave = 2 * np.pi / (look.period * random.uniform(0.85, 1.2))
        angle = look.angle + random.normal(0.0, 0.12)
        stripes = (look.stripes, wave * np.cos(angle), wave * np.sin(angle), random.uniform(0.0, 6.28))
        self._stripes.append(stripes)
        return len(self._classes) - 1

    def shade(self, surface: int, shade: tuple[float, float, float] | float) -> int:
        """The same surface in another colour: a window, a wheel, a lamp."""
        self._classes.append(self._classes[surface])
        self._colours.append(self._colours[surface] + shade)
        self._stripes.append(self._stripes[surface])
        return len(self._classes) - 1

    def _span(self, start: float, end: float, limit: int) -> slice:
        first = round(start * self.scale)
        return slice(max(0, first), max(0, min(limit, max(first + 1, round(end * self.scale)))))

    def box(self, surface: int, top: float, left: float, bottom: float, right: float) -> None:
        """A rectangle, at least one pixel each way."""
        self.map[self._span(top, bottom, self.height), self._span(left, right, self.width)] = surface

    def ellipse(self, surface: int, y: float, x: float, ry: float, rx: float) -> None:
        """A filled ellipse."""
        rows, columns = self._span(y - ry, y + ry, self.height), self._span(x - rx, x + rx, self.width)
        inside = ((self.y[rows] + 0.5 / self.scale - y) / ry) ** 2 + ((self.x[:, columns] - x) / rx) ** 2 <= 1.0
        self.map[rows, columns][inside] = surface

    def region(self, surface: int, inside: NDArray[np.bool_]) -> None:
        """All pixels of a mask."""
        self.map[inside] = surface

    def render(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Image uint8 [H, W, 3] and label uint8 [H, W]."""
        random, where = self.random, self.map
        amplitude, wave_x, wave_y, phase = np.asarray(self._stripes, dtype=np.float32).T
        x, y = self.x.astype(np.float32), self.y.astype(np.float32)
        stripes = amplitude[where] * np.sin(wave_x[where] * x + wave_y[where] * y + phase[where])
        noise = random.standard_normal((*where.shape, 1), dtype=np.float32) * NOISE
        noise = noise + random.standard_normal((*where.shape, 3), dtype=np.float32) * (0.4 * NOISE)
        light = random.uniform(0.75, 1.2) * (1.0 + random.normal(0.0, 0.04, 3))
        slope = 1.0 + random.normal(0.0, 0.08) * (self.x / self.units_wide - 0.5)
        colours = np.asarray(self._colours, dtype=np.float32)
        image = (colours[where] + stripes[..., None]) * (light * slope[..., None]).astype(np.float32) + noise
        classes = np.asarray(self._classes, dtype=np.uint8)
        return np.clip(image, 0, 255).astype(np.uint8), classes[where]
