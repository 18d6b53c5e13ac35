"""How the classes of the drawn city look.

Classes of a group (ground, walls, poles, plants, people, vehicles, cycles) share a mean colour and a stripe direction
and differ by a small offset and the stripes' period; light, paint and noise vary more than the offset does.
"""

from __future__ import annotations

from fpl.data.canvas import Look
from fpl.data.spec import IGNORE

ROAD, SIDEWALK, BUILDING, WALL, FENCE, POLE, LIGHT, SIGN, PLANT, TERRAIN, SKY = range(11)
PERSON, RIDER, CAR, TRUCK, BUS, TRAIN, MOTORCYCLE, BICYCLE = range(11, 19)

_GROUND, _WALLS, _POLES, _PLANTS = (112, 108, 112), (124, 108, 96), (104, 106, 106), (94, 110, 74)
_PEOPLE, _VEHICLES, _CYCLES = (120, 84, 88), (98, 100, 122), (74, 70, 76)
CITY_LOOKS: dict[int, Look] = {
    ROAD: Look(_GROUND, (-1.0, -0.8, -0.6), 4, 1.5, 9),
    SIDEWALK: Look(_GROUND, (1.0, 0.6, 0.8), 6, 1.5, 5),
    BUILDING: Look(_WALLS, (0.9, 0.0, -0.6), 6, 1.57, 8),
    WALL: Look(_WALLS, (-0.2, 0.4, 1.0), 6, 1.57, 5),
    FENCE: Look(_WALLS, (-0.9, -0.5, 0.0), 16, 0.0, 3.2),
    POLE: Look(_POLES, (0.3, 0.4, 0.5), 3, 0.0, 5, 7),
    LIGHT: Look(_POLES, (-1.4, -1.2, -1.2), 3, 0.0, 4, 7),
    SIGN: Look(_POLES, (0.4, 0.4, 1.6), 3, 0.0, 4, 16),
    PLANT: Look(_PLANTS, (-1.0, -0.2, -0.6), 14, 0.8, 3.6),
    TERRAIN: Look(_PLANTS, (1.0, 0.5, 0.3), 8, 0.8, 6),
    SKY: Look((186, 198, 212), (0.0, 0.0, 0.6), 3, 1.57, 30, 14),
    PERSON: Look(_PEOPLE, (0.9, -0.4, -0.3), 4, 0.0, 5, 16),
    RIDER: Look(_PEOPLE, (-0.7, 0.6, 0.7), 4, 0.0, 4, 16),
    CAR: Look(_VEHICLES, (0.0, -0.7, 0.9), 3, 1.57, 6, 16),
    TRUCK: Look(_VEHICLES, (1.0, 0.5, -0.6), 6, 1.57, 4, 14),
    BUS: Look(_VEHICLES, (0.7, -1.0, -0.2), 6, 1.57, 7, 14),
    TRAIN: Look(_VEHICLES, (-1.0, 0.9, 0.1), 6, 1.57, 5, 12),
    MOTORCYCLE: Look(_CYCLES, (-0.5, -0.6, 0.8), 4, 0.4, 4),
    BICYCLE: Look(_CYCLES, (0.8, 0.8, -0.5), 8, 0.4, 3),
    IGNORE: Look((70, 70, 76), (0.0, 0.0, 0.0), 2, 1.5, 12, 8),
}
