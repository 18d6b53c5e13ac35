"""Where a data set keeps its files and what its label files hold. Nothing here opens an image."""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
        columns = _columns(line)
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

    def listed_id(self, line: str, part: str) -> str:
        """`canonical_id` of a line of the list of a part.

        Raises:
            FplError: As there, or the folders in front are those of another part, or of another city than the id's.
        """
        found = self.canonical_id(line)
        for column in map(str.strip, _columns(line)):
            named, city = self._told(column.replace("\\", "/").split("/")[:-1])
            if named not in ("", part):
                what = f"a file of {named} in a list of {part}: {shortened(repr(column), 80)}"
                raise FplError(what, hint=f"{part} lists name files of {part}, or ids without folders")
            if city and city != found.rsplit("_", 2)[0]:
                what = f"{found} lies in no folder {city}: {shortened(repr(column), 80)}"
                raise FplError(what, hint="an image lies in the folder of its city")
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
        return self._checked(self._scan(where) if listed is None else self._read(listed, part), where, part)

    def subset_ids(self, root: Path, name: str) -> list[str]:
        """Ids of a named subset of the training images, in the order of its list file.

        Raises:
            FplError: There is no such subset, or its list is missing, empty or has an id twice.
        """
        if name not in self.subsets:
            hint = f"there are: {', '.join(self.subsets)}" if self.subsets else "this data set has no subsets"
            raise FplError(f"no subset '{name}'", where=str(root), hint=hint)
        where = root / self.subsets[name]
        return self._checked(self._read(where, "train"), where, name)

    def _checked(self, ids: list[str], where: Path, part: str) -> list[str]:
        if not ids:
            raise FplError(f"no {part} images", where=str(where), hint=f"expected {self.description}")
        if repeated := repeated_ids(where, ids, self.canonical_id):
            raise FplError(f"image ids that stand twice: {enumerate_briefly(repeated)}", where=str(where))
        return ids

    def _list_file(self, root: Path, part: str) -> Path | None:
        paths = (root / name.format(part=part) for name in self.list_files)
        return next((path for path in paths if path.is_file()), None)

    def _read(self, path: Path, part: str) -> list[str]:
        return read_ids(path, lambda line: self.listed_id(line, part))

    def _told(self, folders: Sequence[str]) -> tuple[str, str]:
        """Part and city that the folders in front of a file's name tell; empty where they tell none."""
        named = [folder for folder in (self.images, *(kind.folder for kind in self.labels)) if "{part}" in folder]
        for part in (*PARTS, "test") if folders else ():
            of_part = [folder.format(part=part).rpartition("/")[2] for folder in named]
            if folders[-1] in of_part:
                return part, ""
            if self.city_ids and folders[-2:-1] and folders[-2] in of_part:
                return part, folders[-1]
        return "", ""

    def _city(self, image_id: str) -> str:
        return image_id.rsplit("_", 2)[0] if self.city_folders else ""

    def _scan(self, folder: Path) -> list[str]:
        folders = [folder]
        if self.city_folders:
            folders = sorted(path for path in folder.iterdir() if path.is_dir() and not is_hidden(path.name))
            check_utf8((path.name for path in folders), folder)
        return [image_id for each in folders for image_id in sorted(ids_in(each, self.image_endings))]


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


def _columns(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else line.split()


def _file_name(column: str) -> str:
    return column.strip().replace("\\", "/").rsplit("/", 1)[-1]


def _suffix(name: str) -> str:
    """The ending of an image's name, whatever its case; empty if it has none."""
    return next((name[-len(suffix) :] for suffix in _SUFFIXES if name.lower().endswith(suffix)), "")
