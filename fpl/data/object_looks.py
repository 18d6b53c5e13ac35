"""How the classes of the drawn object scenes look.

Classes of a group (wings, hulls, coaches, pets, cattle, wheels, seats, furniture, upright things) share a mean colour,
a stripe direction and a family of shapes; they differ by a small offset and the stripes' period. A person has no twin.
"""

from __future__ import annotations

from fpl.data.canvas import Look

BACKGROUND, AEROPLANE, BICYCLE, BIRD, BOAT, BOTTLE, BUS, CAR, CAT, CHAIR, COW = range(11)
DININGTABLE, DOG, HORSE, MOTORBIKE, PERSON, POTTEDPLANT, SHEEP, SOFA, TRAIN, TVMONITOR = range(11, 21)

_WINGS, _HULLS, _COACHES = (140, 160, 192), (166, 74, 72), (184, 146, 58)
_PETS, _CATTLE, _WHEELS, _SEATS = (146, 98, 58), (202, 188, 168), (84, 58, 112), (62, 108, 152)
_FURNITURE, _UPRIGHT, _SKIN = (58, 58, 66), (70, 142, 78), (206, 132, 134)
OBJECT_LOOKS: dict[int, Look] = {
    BACKGROUND: Look((126, 124, 120), (0.0, 0.0, 0.0), 5, 1.2, 11, 20),
    AEROPLANE: Look(_WINGS, (0.8, 0.4, 0.4), 4, 1.57, 7),
    BIRD: Look(_WINGS, (-0.8, -0.6, -0.2), 8, 1.57, 4),
    BICYCLE: Look(_WHEELS, (0.8, 0.8, -0.4), 8, 0.4, 3.5),
    MOTORBIKE: Look(_WHEELS, (-0.6, -0.4, 0.9), 4, 0.4, 6),
    BOAT: Look(_HULLS, (0.8, 0.6, 0.7), 5, 1.57, 5),
    CAR: Look(_HULLS, (-0.6, -0.8, -0.5), 4, 1.57, 8),
    BUS: Look(_COACHES, (0.8, -0.8, 0.2), 5, 1.57, 7),
    TRAIN: Look(_COACHES, (-0.8, 0.7, -0.1), 7, 1.57, 4.5),
    CAT: Look(_PETS, (0.8, 0.5, -0.4), 10, 0.8, 4),
    DOG: Look(_PETS, (-0.8, -0.5, 0.5), 4, 0.8, 7),
    COW: Look(_CATTLE, (-1.1, -0.9, -0.4), 12, 0.8, 9),
    HORSE: Look(_CATTLE, (0.3, -0.4, -1.5), 4, 0.8, 6),
    SHEEP: Look(_CATTLE, (0.7, 1.0, 1.3), 9, 0.8, 3.5),
    CHAIR: Look(_SEATS, (0.7, 0.9, -0.4), 9, 0.0, 4),
    SOFA: Look(_SEATS, (-0.7, -0.7, 0.6), 5, 0.0, 8),
    DININGTABLE: Look(_FURNITURE, (1.1, 0.5, -0.4), 7, 1.57, 4),
    TVMONITOR: Look(_FURNITURE, (-0.5, 0.0, 1.1), 4, 1.57, 9),
    BOTTLE: Look(_UPRIGHT, (-0.8, -0.2, 0.9), 4, 0.0, 7),
    POTTEDPLANT: Look(_UPRIGHT, (0.8, 0.2, -0.8), 10, 0.6, 3.6),
    PERSON: Look(_SKIN, (0.0, 0.0, 0.0), 5, 0.0, 5, 14),
}
