"""Shapes of the drawn objects: tables of boxes and ellipses.

Classes of a group share their family of shapes, as they share colours.
"""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """A piece of a shape inside the unit square of its object; `shade` is added to the object's colour."""

    kind: str
    shade: float
    top: float
    left: float
    bottom: float
    right: float


class Shape(NamedTuple):
    """Smallest and largest height in units, width relative to it, and parts from back to front."""

    height: tuple[float, float]
    aspect: float
    parts: tuple[Part, ...]


def _box(top: float, left: float, bottom: float, right: float, shade: float = 0.0) -> Part:
    return Part("box", shade, top, left, bottom, right)


def _oval(top: float, left: float, bottom: float, right: float, shade: float = 0.0) -> Part:
    return Part("ellipse", shade, top, left, bottom, right)


def _coach(windows: int, line: float) -> tuple[Part, ...]:
    step = 0.92 / windows
    glass = [_box(0.16, 0.05 + step * i, 0.48, 0.05 + step * (i + 0.75), -40.0) for i in range(windows)]
    wheels = (_oval(0.75, 0.1, 1.0, 0.3, -45.0), _oval(0.75, 0.7, 1.0, 0.9, -45.0))
    return (_box(0.0, 0.0, 0.88, 1.0), *glass, _box(0.6, 0.0, 0.7, 1.0, line), *wheels)


def _animal(head: float, thick: float, neck: float) -> tuple[Part, ...]:
    legs = [_box(0.6, left, 1.0, left + thick, -14.0) for left in (0.1, 0.26, 0.58, 0.74)]
    return (
        *legs,
        _oval(0.25, 0.04, 0.8, 0.92),
        _box(0.25 - neck, 0.72, 0.5, 0.9),
        _oval(0.3 - neck - head / 2, 0.66, 0.3 - neck + head / 2, 1.0, 10.0),
    )


# In the order of the classes 1..20.
SHAPES: tuple[Shape, ...] = (
    # aeroplane, bicycle, bird, boat, bottle
    Shape((13, 19), 2.1, (_oval(0.3, 0, 0.7, 1), _box(0, 0.35, 1, 0.55, -12), _box(0.05, 0.02, 0.5, 0.14, -12))),
    Shape(
        (15, 23),
        1.5,
        (
            _oval(0.4, 0, 1, 0.42),
            _oval(0.4, 0.58, 1, 1),
            _oval(0.55, 0.1, 0.85, 0.32, 35),
            _oval(0.55, 0.68, 0.85, 0.9, 35),
            _box(0.36, 0.2, 0.5, 0.8),
            _box(0.1, 0.7, 0.45, 0.78),
            _box(0.18, 0.2, 0.45, 0.28),
        ),
    ),
    Shape((11, 17), 1.6, (_oval(0.25, 0.1, 0.85, 0.9), _oval(0, 0.35, 0.6, 0.6, -12), _oval(0.15, 0.75, 0.5, 1, 10))),
    Shape(
        (15, 22),
        1.5,
        (_box(0.6, 0, 0.85, 1), _box(0.8, 0.12, 1, 0.88), _box(0, 0.42, 0.65, 0.5), _box(0.1, 0.5, 0.5, 0.8, 25)),
    ),
    Shape(
        (16, 23),
        0.4,
        (_box(0, 0.32, 0.35, 0.68), _oval(0.22, 0, 0.6, 1), _box(0.4, 0, 1, 1), _box(0.55, 0.1, 0.8, 0.9, 25)),
    ),
    # bus, car, cat, chair, cow
    Shape((15, 22), 1.6, _coach(4, -20.0)),
    Shape(
        (12, 18),
        1.9,
        (
            _box(0, 0.2, 0.5, 0.8),
            _box(0.1, 0.27, 0.45, 0.73, -38),
            _box(0.42, 0, 0.85, 1),
            _oval(0.65, 0.1, 1, 0.32, -45),
            _oval(0.65, 0.68, 1, 0.9, -45),
        ),
    ),
    Shape((12, 18), 1.3, _animal(0.5, 0.12, 0.0)),
    Shape(
        (16, 24),
        0.75,
        (_box(0, 0, 0.6, 0.28), _box(0.48, 0, 0.64, 1), _box(0.6, 0.02, 1, 0.16), _box(0.6, 0.82, 1, 0.96)),
    ),
    Shape((15, 22), 1.4, _animal(0.34, 0.12, 0.02)),
    # diningtable, dog, horse, motorbike, person
    Shape((13, 19), 1.6, (_box(0, 0, 0.3, 1), _box(0.28, 0.06, 1, 0.2), _box(0.28, 0.8, 1, 0.94))),
    Shape((12, 19), 1.2, _animal(0.4, 0.12, 0.12)),
    Shape((17, 24), 1.2, _animal(0.3, 0.09, 0.2)),
    Shape(
        (14, 21),
        1.5,
        (_oval(0.4, 0, 1, 0.42), _oval(0.4, 0.58, 1, 1), _box(0.25, 0.15, 0.75, 0.8), _box(0.05, 0.68, 0.4, 0.8, -14)),
    ),
    Shape(
        (20, 30),
        0.45,
        (
            _box(0.5, 0.08, 1, 0.44, -28),
            _box(0.5, 0.56, 1, 0.92, -28),
            _box(0.2, 0, 0.56, 1),
            _oval(0, 0.22, 0.24, 0.78, 22),
        ),
    ),
    # pottedplant, sheep, sofa, train, tvmonitor
    Shape((16, 23), 0.65, (_box(0.6, 0.2, 1, 0.8, -30), _oval(0, 0, 0.7, 1), _oval(0.1, 0.2, 0.4, 0.6, 16))),
    Shape((12, 18), 1.3, _animal(0.36, 0.1, 0.0)),
    Shape(
        (13, 19),
        1.8,
        (_box(0, 0.04, 0.6, 0.96), _box(0.5, 0, 0.9, 1, -12), _box(0.3, 0, 0.9, 0.14), _box(0.3, 0.86, 0.9, 1)),
    ),
    Shape((14, 20), 2.0, _coach(6, 24.0)),
    Shape((13, 19), 1.3, (_box(0, 0, 0.8, 1), _box(0.08, 0.07, 0.7, 0.93, 22), _box(0.78, 0.38, 1, 0.62))),
)
