"""One drawn object scene: 0 to 20 objects of the PASCAL VOC classes before a cluttered background.

Coordinates are those of a canvas 64 units high, whatever the number of pixels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fpl.data.canvas import UNITS, Canvas
from fpl.data.object_looks import BACKGROUND, OBJECT_LOOKS
from fpl.data.object_shapes import SHAPES, Part
from fpl.data.spec import IGNORE

OBJECT_CLASSES = 20


def draw_objects(
    generator: np.random.Generator, classes: NDArray[np.int64], size: tuple[int, int], separation: float
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    """Draw one scene.

    Args:
        generator: Source of everything random.
        classes: Classes of the objects, int [N] in 1..20, one object each.
        size: Height and width in pixels.
        separation: Distance between the colours of similar classes: 1 hard, 4 easy.

    Returns:
        Image uint8 [H, W, 3], label uint8 [H, W] with 0..20, and the same label with 255 on the borders of objects.
    """
    canvas = Canvas(generator, size, separation, OBJECT_LOOKS)
    _background(canvas)
    starts: list[int] = []
    for class_id, box in _places(canvas, classes):
        body = canvas.surface(class_id)
        starts.append(body)
        _object(canvas, body, SHAPES[class_id - 1].parts, box)
    image, label = canvas.render()
    bordered = label.copy()
    # Surfaces are numbered as they are painted: an object owns those from its first to the next object's.
    bordered[_borders(np.searchsorted(starts, canvas.map, side="right"), max(1, round(canvas.scale)))] = IGNORE
    return image, label, bordered


def _background(canvas: Canvas) -> None:
    random = canvas.random
    canvas.surface(BACKGROUND)
    ground = canvas.surface(BACKGROUND, random.normal(0.0, 12.0))
    canvas.region(ground, (canvas.y > random.uniform(24.0, 56.0)) & (canvas.x >= 0))
    for _ in range(random.integers(0, 3)):
        blob = canvas.surface(BACKGROUND, tuple(random.normal(0.0, 12.0, 3)))
        y, x, (ry, rx) = random.uniform(0, UNITS), random.uniform(0, canvas.units_wide), random.uniform(4, 12, 2)
        canvas.ellipse(blob, y, x, ry, rx)


def _places(canvas: Canvas, classes: NDArray[np.int64]) -> list[tuple[int, NDArray[np.float64]]]:
    """A box (top, left, bottom, right) per object, the largest first: what is small stands in front."""
    random, boxes = canvas.random, np.empty((0, 4))
    for class_id in classes:
        shape = SHAPES[class_id - 1]
        tall = random.uniform(*shape.height)
        wide = tall * shape.aspect * random.uniform(0.85, 1.18)
        room = np.maximum(0.0, (UNITS - tall, canvas.units_wide - wide))
        corners = random.uniform(0.0, 1.0, (12, 2)) * room
        tries = np.concatenate([corners, corners + np.array([tall, wide])], axis=1)
        boxes = np.vstack([boxes, tries[np.argmin(_overlap(tries, boxes))]])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return [(int(classes[index]), boxes[index]) for index in np.argsort(-areas)]


def _overlap(tries: NDArray[np.float64], boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    low = np.maximum(tries[:, None, :2], boxes[None, :, :2])
    high = np.minimum(tries[:, None, 2:], boxes[None, :, 2:])
    shared: NDArray[np.float64] = np.maximum(0.0, high - low).prod(axis=2).sum(axis=1)
    return shared


def _object(canvas: Canvas, body: int, parts: tuple[Part, ...], box: NDArray[np.float64]) -> None:
    random = canvas.random
    top, left, bottom, right = box
    tall, wide = bottom - top, right - left
    mirrored = random.random() < 0.5
    for part in parts:
        shift = random.normal(0.0, 0.015)
        start, end = (1.0 - part.right, 1.0 - part.left) if mirrored else (part.left, part.right)
        surface = canvas.shade(body, part.shade + random.normal(0.0, 3.0))
        y0, y1 = top + (part.top + shift) * tall, top + (part.bottom + shift) * tall
        x0, x1 = left + (start + shift) * wide, left + (end + shift) * wide
        if part.kind == "box":
            canvas.box(surface, y0, x0, y1, x1)
        else:
            canvas.ellipse(surface, (y0 + y1) / 2, (x0 + x1) / 2, (y1 - y0) / 2, (x1 - x0) / 2)


def _borders(instances: NDArray[np.intp], width: int) -> NDArray[np.bool_]:
    """Pixels whose right or lower neighbour at `width` pixels belongs to another object."""
    found = np.zeros(instances.shape, dtype=bool)
    found[:-width] |= instances[:-width] != instances[width:]
    found[:, :-width] |= instances[:, :-width] != instances[:, width:]
    return found


# Share of the images in which a class occurs: a long tail, but 20 of 150 validation images hold even the rarest.
_BY_FREQUENCY = (15, 7, 9, 12, 8, 3, 6, 20, 5, 18, 16, 1, 19, 11, 4, 14, 13, 2, 10, 17)
_PRESENCE = {class_id: 0.16 + 0.36 * 0.72**rank for rank, class_id in enumerate(_BY_FREQUENCY)}
# Continued fractions [0; a, b, 1, 1, ...]: their multiples fill 0..1 evenly, and no two have a common rhythm.
_GOLDEN = (1 + 5**0.5) / 2
_STEPS = np.array([1 / (a + 1 / (b + 1 / _GOLDEN)) for a in range(1, 5) for b in range(1, 6)])
_STRIDE = 16


def class_schedule(generator: np.random.Generator, count: int) -> list[NDArray[np.int64]]:
    """Classes of the objects of `count` images, each int64 [N] in 1..20; a shorter schedule begins a longer one.

    Drawn evenly instead of independently, because a part is small: any stretch of images, and any 2nd, 4th, 8th or 16th
    image, holds nearly its share of every class.
    """
    offsets = generator.uniform(size=OBJECT_CLASSES)
    places = np.stack([generator.permutation(_STRIDE) for _ in range(OBJECT_CLASSES)], axis=1) / _STRIDE
    presence = np.array([_PRESENCE[class_id] for class_id in range(1, OBJECT_CLASSES + 1)])
    numbers = np.arange(count)[:, None]
    held = (numbers // _STRIDE * _STEPS + places[numbers[:, 0] % _STRIDE] + offsets) % 1.0 < presence
    return [np.flatnonzero(row) + 1 for row in held]


def voc_colours() -> list[int]:
    """The 256 colours of PASCAL VOC label files, R, G, B one after the other: bits of the index dealt out in turn."""
    index = np.arange(256)
    colours = np.zeros((256, 3), dtype=np.int64)
    for bit in range(8):
        for channel in range(3):
            colours[:, channel] |= ((index >> (3 * bit + channel)) & 1) << (7 - bit)
    return [int(value) for value in colours.ravel()]
