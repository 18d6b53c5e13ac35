"""One drawn street scene: an image and its label as a function of a few numbers.

A scene is painted back to front; coordinates are those of a canvas 64 units high, whatever the number of pixels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fpl.data.canvas import UNITS, Canvas
from fpl.data.city_looks import (
    BICYCLE,
    BUILDING,
    BUS,
    CAR,
    CITY_LOOKS,
    FENCE,
    LIGHT,
    MOTORCYCLE,
    PERSON,
    PLANT,
    POLE,
    RIDER,
    ROAD,
    SIDEWALK,
    SIGN,
    SKY,
    TERRAIN,
    TRAIN,
    TRUCK,
    WALL,
)
from fpl.data.spec import IGNORE

# Height, smallest and largest width of a vehicle, relative to the height at which a car would stand there.
_PROPORTIONS = {CAR: (0.8, 1.1, 1.9), TRUCK: (1.5, 1.3, 2.2), BUS: (1.4, 1.2, 2.4), TRAIN: (1.5, 2.4, 4.2)}


class _Street:
    """Perspective of a scene: a road from the bottom to a vanishing point, with a sidewalk on both sides."""

    def __init__(self, canvas: Canvas) -> None:
        random = canvas.random
        self.canvas = canvas
        self.horizon = random.uniform(20.0, 28.0)
        self.vanishing = canvas.units_wide / 2 + random.normal(0.0, 9.0)
        # Left and right edges at the bottom row of the road, then of the sidewalks.
        self.road = (random.uniform(-22.0, 22.0), canvas.units_wide + random.uniform(-22.0, 22.0))
        self.walk = (self.road[0] - random.uniform(14.0, 44.0), self.road[1] + random.uniform(14.0, 44.0))

    def x(self, edge: float, y: float) -> float:
        """Column in which the line to `edge` (a column at the bottom) crosses row y."""
        return self.vanishing + (edge - self.vanishing) * self.near(y)

    def near(self, y: float) -> float:
        """Size factor of things that stand on row y: 0 at the horizon, 1 at the bottom."""
        return (y - self.horizon) / (UNITS - self.horizon)

    def band(self, left: float, right: float) -> NDArray[np.bool_]:
        """Ground between the lines to two bottom columns."""
        near = np.maximum(0.0, (self.canvas.y - self.horizon) / (UNITS - self.horizon))
        x = self.canvas.x - self.vanishing
        above = self.canvas.y >= self.horizon
        return above & (x >= (left - self.vanishing) * near - 2) & (x < (right - self.vanishing) * near + 2)


def draw_scene(
    generator: np.random.Generator, size: tuple[int, int], separation: float
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Draw one scene.

    Args:
        generator: Source of everything random.
        size: Height and width in pixels.
        separation: Distance between the colours of similar classes: 1 hard, 2.5 the default, 3 easy.

    Returns:
        Image uint8 [H, W, 3] and label uint8 [H, W] with trainIds 0..18 and 255.
    """
    canvas = Canvas(generator, size, separation, CITY_LOOKS)
    canvas.surface(SKY)
    street = _Street(canvas)
    _background(canvas, street)
    _ground(canvas, street)
    for side in (0, 1):
        _border(canvas, street, side)
    _roadside(canvas, street)
    _traffic(canvas, street)
    _ego_vehicle(canvas)
    return canvas.render()


def _background(canvas: Canvas, street: _Street) -> None:
    random, x = canvas.random, -6.0
    while x < canvas.units_wide:
        width = random.uniform(11.0, 30.0)
        rise = random.uniform(6.0, 17.0) * (0.6 + 1.8 * abs(x + width / 2 - street.vanishing) / canvas.units_wide)
        if random.random() < 0.8:
            _building(canvas, street.horizon - rise, x, street.horizon + 5.0, x + width)
        x += width
    for _ in range(random.integers(1, 5)):
        plant = canvas.surface(PLANT)
        x, size = random.uniform(0.0, canvas.units_wide), random.uniform(3.5, 9.0)
        y = street.horizon - random.uniform(0.0, 7.0)
        for _ in range(3):
            dy, dx = random.normal(0.0, 0.4 * size, 2)
            canvas.ellipse(plant, y + dy, x + dx, size * 0.7, size)
        canvas.box(canvas.shade(plant, -18.0), y, x - 0.6, street.horizon + 4.0, x + 0.6)


def _building(canvas: Canvas, top: float, left: float, bottom: float, right: float) -> None:
    random = canvas.random
    building = canvas.surface(BUILDING, (random.normal(0.0, 12.0), 0.0, random.normal(0.0, 8.0)))
    canvas.box(building, top, left, bottom, right)
    if random.random() < 0.7:
        window = canvas.shade(building, -random.uniform(14.0, 34.0))
        step = random.uniform(3.5, 5.5)
        for y in np.arange(top + 1.5, bottom - 3.0, step):
            for x in np.arange(left + 1.5, right - 2.0, step):
                canvas.box(window, y, x, y + 0.5 * step, x + 0.45 * step)


def _ground(canvas: Canvas, street: _Street) -> None:
    random = canvas.random
    middle = street.vanishing
    for outer, walk in ((-1e4, street.walk[0]), (1e4, street.walk[1])):
        verge = canvas.surface(TERRAIN if random.random() < 0.55 else SIDEWALK)
        canvas.region(verge, street.band(min(outer, middle), max(outer, middle)))
        canvas.region(canvas.surface(SIDEWALK), street.band(min(walk, middle), max(walk, middle)))
    road = canvas.surface(ROAD)
    canvas.region(road, street.band(*street.road))
    if random.random() < 0.6:
        line = canvas.shade(road, 55.0)
        centre = sum(street.road) / 2 + random.normal(0.0, 12.0)
        rows = np.arange(street.horizon + 3.0, UNITS, 1.0 / canvas.scale)
        for y in rows[np.sin(40.0 / (rows - street.horizon)) > 0]:
            x, half = street.x(centre, y), 1.2 * street.near(y)
            canvas.box(line, y, x - half, y, x + half)


def _border(canvas: Canvas, street: _Street, side: int) -> None:
    """Wall, fence or hedge along the outer edge of a sidewalk."""
    random = canvas.random
    kind = random.choice([WALL, FENCE, PLANT, SKY], p=[0.36, 0.36, 0.12, 0.16])
    if kind == SKY:
        return
    surface = canvas.surface(int(kind))
    edge = street.walk[side] - street.vanishing
    near = (canvas.x - street.vanishing) / edge
    foot = street.horizon + near * (UNITS - street.horizon)
    tall = random.uniform(11.0, 20.0) * near + 1.5
    start, end = np.sort(random.uniform(0.08, 1.3, 2)) if random.random() < 0.5 else (0.12, 9.0)
    canvas.region(surface, (near > start) & (near < end + 0.1) & (canvas.y < foot) & (canvas.y >= foot - tall))


def _roadside(canvas: Canvas, street: _Street) -> None:
    """Poles with signs and lights, and people, from far to near."""
    random = canvas.random
    poles = sorted(random.uniform(street.horizon + 3.0, 56.0, random.integers(2, 6)))
    for y in poles:
        side = int(random.integers(2))
        x = street.x(street.road[side] + (8.0 if side else -8.0), y)
        _pole(canvas, y, x, 12.0 + 34.0 * street.near(y), 0.45 + 1.1 * street.near(y))
    for y in sorted(random.uniform(street.horizon + 5.0, 58.0, random.poisson(1.7))):
        side = int(random.integers(2))
        edges = street.road[side], street.walk[side]
        x = street.x(edges[0] + random.uniform(0.15, 0.9) * (edges[1] - edges[0]), y)
        _person(canvas, canvas.surface(PERSON), y, x, 6.0 + 26.0 * street.near(y))


def _pole(canvas: Canvas, y: float, x: float, height: float, width: float) -> None:
    random = canvas.random
    canvas.box(canvas.surface(POLE), y - height, x - width, y, x + width)
    size, kind = 1.2 + 2.6 * width, random.random()
    if kind < 0.42:
        plate = canvas.surface(SIGN)
        top = y - height * random.uniform(0.75, 1.0)
        if random.random() < 0.5:
            canvas.ellipse(plate, top, x, size, size)
        else:
            canvas.box(plate, top - size * 0.7, x - size, top + size * 0.7, x + size * 1.2)
        canvas.box(canvas.shade(plate, 45.0), top - size * 0.2, x - size * 0.6, top + size * 0.2, x + size * 0.6)
    elif kind < 0.82:
        lamps = canvas.surface(LIGHT)
        top = y - height * random.uniform(0.8, 1.0)
        canvas.box(lamps, top - size * 1.3, x - size * 0.75, top + size * 1.3, x + size * 0.75)
        colour = ((120.0, 0.0, 0.0), (110.0, 80.0, 0.0), (0.0, 100.0, 40.0))[random.integers(3)]
        place = top + size * random.uniform(-0.8, 0.8)
        canvas.ellipse(canvas.shade(lamps, colour), place, x, size * 0.4, size * 0.4)


def _person(canvas: Canvas, body: int, y: float, x: float, height: float) -> None:
    random = canvas.random
    half = 0.15 * height
    trousers = canvas.shade(body, -random.uniform(10.0, 34.0))
    spread = random.uniform(0.0, 0.25) * half
    canvas.box(trousers, y - 0.48 * height, x - half - spread, y, x - 0.1 * half)
    canvas.box(trousers, y - 0.48 * height, x + 0.1 * half, y, x + half + spread)
    canvas.box(body, y - 0.84 * height, x - 1.2 * half, y - 0.42 * height, x + 1.2 * half)
    canvas.ellipse(canvas.shade(body, (28.0, 14.0, 6.0)), y - 0.91 * height, x, 0.1 * height, 0.09 * height)


def _traffic(canvas: Canvas, street: _Street) -> None:
    """Vehicles and cycles, from far to near."""
    random = canvas.random
    kinds = [CAR] * (1 + int(random.poisson(1.2)))
    for kind, chance in ((TRUCK, 0.36), (BUS, 0.34), (TRAIN, 0.32), (MOTORCYCLE, 0.5), (BICYCLE, 0.6)):
        kinds += [kind] * int(random.random() < chance)
    feet = random.uniform(street.horizon + 3.5, 54.0, len(kinds))
    for number in np.argsort(feet):
        kind, y = kinds[number], float(feet[number])
        near = street.near(y)
        if kind in (MOTORCYCLE, BICYCLE):
            side = int(random.integers(2))
            x = street.x(street.road[side] + random.uniform(-6.0, 16.0) * (1 - 2 * side), y)
            _cycle(canvas, kind, y, x, 5.5 + 18.0 * near)
        else:
            x = street.x(random.uniform(street.road[0] + 16.0, street.road[1] - 16.0), y)
            _vehicle(canvas, kind, y, x, 4.5 + 21.0 * near)


def _cycle(canvas: Canvas, kind: int, y: float, x: float, size: float) -> None:
    """A bicycle or motorcycle, three times out of four with its rider."""
    random = canvas.random
    cycle = canvas.surface(kind)
    wheel, reach = (0.30, 0.5) if kind == BICYCLE else (0.25, 0.55)
    if random.random() < 0.75:
        _person(canvas, canvas.surface(RIDER), y - 0.25 * size, x, 1.3 * size)
    for offset in (-reach, reach):
        hub = x + offset * size
        canvas.ellipse(cycle, y - wheel * size, hub, wheel * size, wheel * size)
        if kind == BICYCLE:
            canvas.ellipse(canvas.shade(cycle, 32.0), y - wheel * size, hub, wheel * size * 0.55, wheel * size * 0.55)
    thick = 0.12 if kind == BICYCLE else 0.3
    canvas.box(cycle, y - (0.38 + thick) * size, x - reach * size, y - 0.36 * size, x + reach * size)
    handle = canvas.shade(cycle, -14.0)
    canvas.box(handle, y - 0.8 * size, x + (reach - 0.14) * size, y - 0.4 * size, x + (reach - 0.04) * size)


def _vehicle(canvas: Canvas, kind: int, y: float, x: float, size: float) -> None:
    """A car, truck, bus or train; `size` sets its scale (see `_PROPORTIONS`)."""
    random = canvas.random
    body = canvas.surface(kind)
    glass, dark = canvas.shade(body, (-34.0, -26.0, -14.0)), canvas.shade(body, -48.0)
    tall, narrowest, widest = _PROPORTIONS[kind]
    wide = random.uniform(narrowest, widest)
    top, left, right = y - tall * size, x - wide * size / 2, x + wide * size / 2
    if kind == CAR:
        middle = y - 0.45 * size
        canvas.box(body, top, left + 0.2 * wide * size, middle, right - 0.2 * wide * size)
        canvas.box(glass, top + 0.08 * size, left + 0.26 * wide * size, middle, right - 0.26 * wide * size)
        canvas.box(body, middle, left, y - 0.1 * size, right)
        lamp = canvas.shade(body, (70.0, -10.0, -20.0) if random.random() < 0.5 else (60.0, 60.0, 50.0))
        for edge in (left, right - 0.16 * size):
            canvas.box(lamp, middle + 0.06 * size, edge, middle + 0.18 * size, edge + 0.16 * size)
    elif kind == TRUCK:
        cargo, cab = canvas.shade(body, random.uniform(0.0, 26.0)), left + 0.28 * wide * size
        canvas.box(cargo, top, cab, y - 0.14 * size, right)
        canvas.box(body, top + 0.45 * size, left, y - 0.1 * size, cab)
        canvas.box(glass, top + 0.55 * size, left + 0.06 * size, top + 0.85 * size, cab - 0.08 * size)
    else:
        canvas.box(body, top, left, y - 0.1 * size, right)
        step = (0.3 if kind == BUS else 0.45) * size
        for edge in np.arange(left + 0.1 * size, right - 0.7 * step, step):
            canvas.box(glass, top + 0.2 * size, edge, top + 0.65 * size, edge + 0.72 * step)
        if kind == TRAIN:
            canvas.box(canvas.shade(body, (30.0, 24.0, 0.0)), top + 0.9 * size, left, top + 1.02 * size, right)
    for share in (0.18, 0.82):
        hub = left + share * wide * size
        canvas.ellipse(dark, y - 0.14 * size, hub, 0.16 * size, 0.17 * size)


def _ego_vehicle(canvas: Canvas) -> None:
    """The bonnet of the own car and, in half of the images, the frame of the sensor: both count nowhere."""
    random = canvas.random
    bonnet = canvas.surface(IGNORE)
    x = canvas.units_wide / 2 + random.normal(0.0, 3.0)
    canvas.ellipse(bonnet, UNITS + 1.0, x, random.uniform(3.5, 6.0), 0.36 * canvas.units_wide)
    if random.random() < 0.5:
        for left in (0.0, canvas.units_wide - 1.0 / canvas.scale):
            canvas.box(bonnet, 0.0, left, UNITS, left)
