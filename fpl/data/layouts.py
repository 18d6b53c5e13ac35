"""The trees of data sets that are known: two of Cityscapes, CamVid's and VOC's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fpl.config.classes import CAMVID_VALUES, CITYSCAPES_LABEL_IDS, CITYSCAPES_TRAIN_IDS, VOC_VALUES
from fpl.data.layout import LabelFiles, Layout, ids_in
from fpl.errors import FplError

_SETS = "ImageSets/Segmentation"
_VOC_LISTS = f"{_SETS}/train.txt and {_SETS}/val.txt are part of the VOC 2012 archive: fpl data prepare voc takes them"


@dataclass(frozen=True)
class VocLayout(Layout):
    """The tree of the PASCAL VOC development kit: all parts share one folder, lists tell them apart.

    Attributes:
        augmented: Folder whose label files mark training images where no list of them is there.
    """

    augmented: str = "SegmentationClassAug"

    def has_part(self, root: Path, part: str) -> bool:
        """Whether the list of a part is there, or for "train" what it is rebuilt from."""
        return self._list_file(root, part) is not None or (part == "train" and self.is_tree(root))

    def list_ids(self, root: Path, part: str) -> list[str]:
        """Ids of a part; those of "train" are sorted.

        Without a list, the training ids are all that have an augmented label and all of `train.txt`, without those of
        `val.txt`: this gives the published list of 10,582. Sorted is the order of that list; copies that the
        augmentation's other public lists come with hold the same ids in other orders, which would give other splits.

        Raises:
            FplError: A list is missing or has an id twice, or there are no images.
        """
        listed = self._list_file(root, part)
        if listed is None and part == "train":
            return self._checked(self._rebuilt(root), root / self.augmented, part)
        if listed is None:
            where = root / self.list_files[0].format(part=part)
            raise FplError(f"the list of {part} images is missing", where=str(where), hint=_VOC_LISTS)
        ids = self._checked(self._read(listed, part), listed, part)
        return sorted(ids) if part == "train" else ids

    def _list_file(self, root: Path, part: str) -> Path | None:
        if part != "train":
            return super()._list_file(root, part)
        paths = (root / f"{_SETS}/{name}.txt" for name in ("train_aug", "trainaug"))
        return next((path for path in paths if path.is_file()), None)

    def _rebuilt(self, root: Path) -> list[str]:
        clean, folder = root / self.subsets["clean"], root / self.augmented
        ids = set(ids_in(folder, (".png",))) if folder.is_dir() else set()
        if clean.is_file():
            ids |= set(self._read(clean, "train"))
        return sorted(ids - set(self.list_ids(root, "val")))


SEGNET = Layout("{part}", (LabelFiles("{part}annot", ".png", CAMVID_VALUES),), (".png", ".jpg"))
"""The SegNet tutorial's copy of CamVid; images may be JPEG."""

_LISTS = ("{part}.txt", "config_new/{part}.txt")

CITYSCAPES = Layout(
    "leftImg8bit/{part}",
    (
        LabelFiles("gtFine/{part}", "_gtFine_labelTrainIds.png", CITYSCAPES_TRAIN_IDS),
        LabelFiles("gtFine/{part}", "_gtFine_labelIds.png", CITYSCAPES_LABEL_IDS),
    ),
    ("_leftImg8bit.png",),
    city_folders=True,
    city_ids=True,
    list_files=_LISTS,
    decoration="_leftImg8bit",
)
"""The official Cityscapes tree, with the trainIds of its scripts or with the labelIds it is delivered with."""

CITYSCAPES_FLAT = Layout(
    "images/{part}",
    (LabelFiles("segmentation/{part}", "_gtFine.png", CITYSCAPES_TRAIN_IDS),),
    (".png",),
    city_ids=True,
    list_files=_LISTS,
    decoration="_leftImg8bit",
)
"""The tree that the lists of the released CPS code name; labels are trainIds."""

VOC = VocLayout(
    "JPEGImages",
    (
        # Training takes the augmented labels; the benchmark is defined on the original ones, with their borders.
        LabelFiles("SegmentationClassAug", ".png", VOC_VALUES, ("train",)),
        # No augmented label stands in for a missing one: it has no border, and the score would be another.
        LabelFiles("SegmentationClass", ".png", VOC_VALUES),
    ),
    (".jpg",),
    list_files=(f"{_SETS}/{{part}}.txt",),
    subsets={"clean": f"{_SETS}/train.txt"},
)
"""The tree of VOC 2012; augmented labels are those of SBD with the original ones where both exist."""
