"""Class names, colours and label values of the data sets: tables, and nothing that reads a file."""

from __future__ import annotations

from collections.abc import Mapping

IGNORE = 255
"""Label of pixels that count nowhere."""

Colour = tuple[int, int, int]


def identity(num_classes: int) -> dict[int, int]:
    """Label values that are the classes 0..num_classes-1 themselves, and `IGNORE`."""
    return {**{value: value for value in range(num_classes)}, IGNORE: IGNORE}


# Class order and colours of the trainIds in the official Cityscapes scripts.
CITYSCAPES_CLASSES: Mapping[str, Colour] = {
    "road": (128, 64, 128),
    "sidewalk": (244, 35, 232),
    "building": (70, 70, 70),
    "wall": (102, 102, 156),
    "fence": (190, 153, 153),
    "pole": (153, 153, 153),
    "traffic light": (250, 170, 30),
    "traffic sign": (220, 220, 0),
    "vegetation": (107, 142, 35),
    "terrain": (152, 251, 152),
    "sky": (70, 130, 180),
    "person": (220, 20, 60),
    "rider": (255, 0, 0),
    "car": (0, 0, 142),
    "truck": (0, 0, 70),
    "bus": (0, 60, 100),
    "train": (0, 80, 100),
    "motorcycle": (0, 0, 230),
    "bicycle": (119, 11, 32),
}

# The labelId of each trainId 0..18, as the official Cityscapes scripts publish them.
_LABEL_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)

CITYSCAPES_TRAIN_IDS: Mapping[int, int] = identity(len(_LABEL_IDS))
"""Values of `*_labelTrainIds.png`: 0..18, and 255 for everything else."""

CITYSCAPES_LABEL_IDS: Mapping[int, int] = {
    **dict.fromkeys(range(34), IGNORE),
    **{label_id: train_id for train_id, label_id in enumerate(_LABEL_IDS)},
}
"""Values of `*_labelIds.png`: 0..33 exist, 19 of them are classes, all others count nowhere. Without 255:
that value betrays a file of trainIds under this name, which the mapping would scramble."""

# The 11 classes of the SegNet tutorial's CamVid; colours as in its drawing script.
CAMVID_CLASSES: Mapping[str, Colour] = {
    "sky": (128, 128, 128),
    "building": (128, 0, 0),
    "pole": (192, 192, 128),
    "road": (128, 64, 128),
    "sidewalk": (60, 40, 222),
    "tree": (128, 128, 0),
    "sign": (192, 128, 128),
    "fence": (64, 64, 128),
    "car": (64, 0, 128),
    "pedestrian": (64, 64, 0),
    "bicyclist": (0, 128, 192),
}

CAMVID_VALUES: Mapping[int, int] = {**identity(11), 11: IGNORE}
"""11 is "void" in the files; 255 also occurs in converted copies."""

# Order and colours of the PASCAL VOC development kit, whose borders ("void", 255) count nowhere.
VOC_CLASSES: Mapping[str, Colour] = {
    "background": (0, 0, 0),
    "aeroplane": (128, 0, 0),
    "bicycle": (0, 128, 0),
    "bird": (128, 128, 0),
    "boat": (0, 0, 128),
    "bottle": (128, 0, 128),
    "bus": (0, 128, 128),
    "car": (128, 128, 128),
    "cat": (64, 0, 0),
    "chair": (192, 0, 0),
    "cow": (64, 128, 0),
    "diningtable": (192, 128, 0),
    "dog": (64, 0, 128),
    "horse": (192, 0, 128),
    "motorbike": (64, 128, 128),
    "person": (192, 128, 128),
    "pottedplant": (0, 64, 0),
    "sheep": (128, 64, 0),
    "sofa": (0, 192, 0),
    "train": (128, 192, 0),
    "tvmonitor": (0, 64, 128),
}

VOC_VALUES: Mapping[int, int] = identity(21)
