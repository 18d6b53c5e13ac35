"""Where a data set keeps its files and what its label files hold. Nothing here opens an image."""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fpl.config.classes import CAMVID_VALUES, CITYSCAPES_LABEL_IDS, CITYSCAPES_TRAIN_IDS, VOC_VALUES
from fpl.data.lists import read_ids, repeated_ids
from fpl.data.names import check_utf8, forms, normal
from fpl.errors import FplError
from fpl.files import is_hidden
from fpl.text import enumerate_briefly, shortened

PARTS = ("train", "val")
BLANKS = "lists separate columns by blanks: rename the file, for example with _ for each blank"
COLUMNS = (
    "a line has an image, or an image and its label; of VOC take the lists of ImageSets/Segmentation, those of "
    "ImageSets/Main are of classes"
)
_SUFFIXES = (".png", ".jpg", ".jpeg")
# With an ending, an id may be longer than any name.
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


@dataclass(frozen=True)
class LabelFiles:
    """One kind of label file.

    Attributes:
        folder: Folder below the root.
        ending: What follows an id in the name.
        values: Value in the file -> class, or `IGNORE`. Any other value is refused.
        parts: Parts it serves.
    """

    folder: str
    ending: str
    values: Mapping[int, int] = field(hash=False)
    parts: tuple[str, ...] = PARTS


@dataclass(frozen=True)
class Layout:
    """File names of a data set below its root folder; `{part}` stands for "train" or "val".

    Attributes:
        images: Folder of the images.
        labels: Kinds of label files, the preferred one first; which kind is taken is decided file by file.
        image_endings: What may follow an id in the name of an image, the preferred one first.
        city_folders: Whether ids lie in a folder per city.
        city_ids: Whether ids are `<city>_<sequence>_<frame>`.
        list_files: Files whose lines give the ids and their order; the first that exists is used.
        decoration: What published lists put between id and suffix.
        subsets: Name -> list file of a named subset of the training images.
    """

    images: str
    labels: tuple[LabelFiles, ...]
    image_endings: tuple[str, ...]
    city_folders: bool = False
    city_ids: bool = False
    list_files: tuple[str, ...] = ("{part}.txt",)
    decoration: str = ""
    subsets: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def description(self) -> str:
        """The expected tree in one line, for error messages."""
        name = "<city>_<sequence>_<frame>" if self.city_ids else "<id>"
        name = f"<city>/{name}" if self.city_folders else name
        images = " or ".join(f"{self.images}/{name}{ending}" for ending in self.image_endings)
        files = dict.fromkeys(f"{kind.folder}/{name}{kind.ending}" for kind in self.labels)
        tree = f"{images}; {' or '.join(files)}"
        return tree.replace("{part}annot", "{train,val}annot").replace("{part}", "{train,val}")

    def image_folder(self, root: Path, part: str) -> Path:
        """Folder of the images of a part."""
        return root / self.images.format(part=part)

    def image_candidates(self, root: Path, part: str, image_id: str) -> Iterator[str]:
        """Paths at which an image may lie, the preferred one first."""
        # Strings: joining paths takes ten times as long as looking for a file, and data sets have thousands.
        place = f"{root}/{self.images.format(part=part)}"
        return (f"{place}/{name}" for name in self.names(image_id, self.image_endings))

    def names(self, image_id: str, endings: Sequence[str]) -> Iterator[str]:
        """Names that a file of an image may have below the folder of its part, the preferred one first.

        Endings may be in capitals, as cameras write them, and letters composed or decomposed, as disks do.
        """
        stem = f"{self._city(image_id)}/{image_id}" if self.city_folders else image_id
        for form in forms(stem):
            for ending in endings:
                yield f"{form}{ending}"
                yield f"{form}{_capital(ending)}"

    def image_place(self, root: Path, part: str, image_id: str) -> str:
        """Folder in which an image lies: that of its part or, there, of its city."""
        return f"{root}/{self.images.format(part=part)}/{self._city(image_id)}".rstrip("/")

    def label_candidates(self, root: Path, part: str, image_id: str) -> Iterator[str]:
        """Paths at which a label may lie, the preferred one first."""
        return (
            f"{root}/{kind.folder.format(part=part)}/{name}"
            for kind in self.labels
            if part in kind.parts
            for name in self.names(image_id, (kind.ending,))
        )

    def label_path(self, root: Path, part: str, image_id: str) -> Path:
        """Path of the preferred label, whether it exists or not."""
        return Path(next(self.label_candidates(root, part, image_id)))

    def is_tree(self, root: Path) -> bool:
        """Whether the folder of the training images of this layout stands below `root`."""
        return os.path.isdir(f"{root}/{self.images.format(part='train')}")  # noqa: PTH112 - asked for every file

    def has_part(self, root: Path, part: str) -> bool:
        """Whether a part is there at all: its list or its folder of images."""
        return self._list_file(root, part) is not None or self.image_folder(root, part).is_dir()

    def canonical_id(self, line: str) -> str:
        """Id of a line of a list file: the first column without folders and ending.

        Published lists write x, x.png or x_leftImg8bit.png, with or without folders in front and a label path behind.
        Ids are in Unicode's composed form, so that a list finds its images on every disk.

        Raises:
            FplError: The line is a file name with a blank in it, or has a column that is no label of its image.
        """
        columns = line.split("\t") if "\t" in line else line.split()
        name = _file_name(columns[0])
        if _suffix(columns[-1]) and not _suffix(name):
            raise FplError(f"a name with a blank in it: {shortened(repr(line), 80)}", hint=BLANKS)
        found = normal(name.removesuffix(_suffix(name)).removesuffix(self.decoration))
        for column in filter(None, map(str.strip, columns[1:])):
            # Behind the id may stand what tells labels from images.
            label = normal(_file_name(column))
            if not label.startswith(found) or label[len(found) : len(found) + 1].isalnum():
                raise FplError(f"{shortened(repr(column), 80)} is no label of {found}", hint=COLUMNS)
        return found

    def list_ids(self, root: Path, part: str) -> list[str]:
        """Ids in the order of the list file where it exists, else sorted by file name.

        The order is part of a split: the published rule takes every n-th line of the list.

        Raises:
            FplError: No such folder, no images, or an id that stands twice.
        """
        listed = self._list_file(root, part)
        where = listed or self.image_folder(root, part)
        if listed is None and not where.is_dir():
            raise FplError(f"no folder of {part} images", where=str(where), hint=f"expected {self.description}")
        return self._checked(self._scan(where) if listed is None else self._read(listed), where, part)

    def subset_ids(self, root: Path, name: str) -> list[str]:
        """Ids of a named subset of the training images, in the order of its list file.

        Raises:
            FplError: There is no such subset, or its list is missing, empty or has an id twice.
        """
        if name not in self.subsets:
            hint = f"there are: {', '.join(self.subsets)}" if self.subsets else "this data set has no subsets"
            raise FplError(f"no subset '{name}'", where=str(root), hint=hint)
        where = root / self.subsets[name]
        return self._checked(self._read(where), where, name)

    def _checked(self, ids: list[str], where: Path, part: str) -> list[str]:
        if not ids:
            raise FplError(f"no {part} images", where=str(where), hint=f"expected {self.description}")
        if repeated := repeated_ids(where, ids, self.canonical_id):
            raise FplError(f"image ids that stand twice: {enumerate_briefly(repeated)}", where=str(where))
        return ids

    def _list_file(self, root: Path, part: str) -> Path | None:
        paths = (root / name.format(part=part) for name in self.list_files)
        return next((path for path in paths if path.is_file()), None)

    def _read(self, path: Path) -> list[str]:
        return read_ids(path, self.canonical_id)

    def _city(self, image_id: str) -> str:
        return image_id.rsplit("_", 2)[0] if self.city_folders else ""

    def _scan(self, folder: Path) -> list[str]:
        folders = [folder]
        if self.city_folders:
            folders = sorted(path for path in folder.iterdir() if path.is_dir() and not is_hidden(path.name))
            check_utf8((path.name for path in folders), folder)
        return [image_id for each in folders for image_id in sorted(ids_in(each, self.image_endings))]


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
        ids = self._checked(self._read(listed), listed, part)
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
            ids |= set(self._read(clean))
        return sorted(ids - set(self.list_ids(root, "val")))


def first_file(paths: Iterable[str]) -> tuple[str, os.stat_result] | None:
    """The first path at which a file is, and what the system knows of it; None if there is none.

    Raises:
        OSError: The system does not say, for want of a right or because a disk fails.
    """
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - asked thousands of times
        except OSError as error:
            if error.errno not in _NOTHING_THERE:
                raise
        else:
            if stat.S_ISREG(status.st_mode):
                return path, status
    return None


def ids_in(folder: Path, endings: Sequence[str]) -> list[str]:
    """Names of the files of a folder that have one of the endings, without it; hidden files are left out.

    Raises:
        FplError: Names that are not UTF-8.
    """
    # Archives from other systems leave "._name.png" companions that are no images.
    names = [name for name in os.listdir(folder) if not is_hidden(name)]  # noqa: PTH208 - ten times as fast
    endings = [each for ending in endings for each in (ending, _capital(ending))]
    found = [name.removesuffix(ending) for ending in endings for name in names if name.endswith(ending)]
    check_utf8(found, folder)
    return [normal(image_id) for image_id in found]


@functools.lru_cache
def _capital(ending: str) -> str:
    """`_gtFine.png` -> `_gtFine.PNG`."""
    stem, dot, suffix = ending.rpartition(".")
    return f"{stem}{dot}{suffix.upper()}"


def _file_name(column: str) -> str:
    return column.strip().replace("\\", "/").rsplit("/", 1)[-1]


def _suffix(name: str) -> str:
    """The ending of an image's name, whatever its case; empty if it has none."""
    return next((name[-len(suffix) :] for suffix in _SUFFIXES if name.lower().endswith(suffix)), "")


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

_SETS = "ImageSets/Segmentation"
_VOC_LISTS = f"{_SETS}/train.txt and {_SETS}/val.txt are part of the VOC 2012 archive: fpl data prepare voc takes them"

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
