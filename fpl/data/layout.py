"""Where a data set keeps its files. Nothing here opens an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fpl.data.lists import duplicates, enumerate_briefly, read_lines
from fpl.errors import FplError

PARTS = ("train", "val")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".PNG", ".JPG")


@dataclass(frozen=True)
class Layout:
    """File names of a data set below its root folder; `{part}` stands for "train" or "val".

    Attributes:
        images: Folder of the images.
        labels: Folder of the labels.
        image_endings: What may follow an id in the name of an image, the preferred one first.
        label_ending: What follows an id in the name of a label.
        city_folders: Whether ids are `<city>_<sequence>_<frame>` and lie in a folder per city.
        list_file: File whose lines give the ids and their order; used where it exists.
    """

    images: str
    labels: str
    image_endings: tuple[str, ...]
    label_ending: str
    city_folders: bool = False
    list_file: str = "{part}.txt"

    @property
    def description(self) -> str:
        """The expected tree in one line, for error messages."""
        name = "<city>/<city>_<sequence>_<frame>" if self.city_folders else "<id>"
        images = " or ".join(f"{self.images}/{name}{ending}" for ending in self.image_endings)
        tree = f"{images}; {self.labels}/{name}{self.label_ending}"
        return tree.replace("{part}annot", "{train,val}annot").replace("{part}", "{train,val}")

    def image_folder(self, root: Path, part: str) -> Path:
        """Folder of the images of a part."""
        return root / self.images.format(part=part)

    def image_candidates(self, root: Path, part: str, image_id: str) -> tuple[Path, ...]:
        """Paths at which an image may lie, the preferred one first."""
        folder = self.image_folder(root, part) / self._city(image_id)
        return tuple(folder / f"{image_id}{ending}" for ending in self.image_endings)

    def label_path(self, root: Path, part: str, image_id: str) -> Path:
        """Path of a label, whether it exists or not."""
        return root / self.labels.format(part=part) / self._city(image_id) / f"{image_id}{self.label_ending}"

    def is_tree(self, root: Path) -> bool:
        """Whether the folder of the training images of this layout stands below `root`."""
        return self.image_folder(root, "train").is_dir()

    def canonical_id(self, line: str) -> str:
        """Id of a line of a list file: the first column without folders and ending.

        Published lists write x, x.png or x_leftImg8bit.png, with or without folders in front and a label path behind.
        """
        column = line.split("\t")[0].strip() if "\t" in line else line.split()[0]
        name = PurePosixPath(column.replace("\\", "/")).name
        suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")
        stem = name.removesuffix(suffix)
        return stem.removesuffix(PurePosixPath(self.image_endings[0]).stem) if self.city_folders else stem

    def list_ids(self, root: Path, part: str) -> list[str]:
        """Ids in the order of the list file where it exists, else sorted by file name.

        The order is part of a split: the published rule takes every n-th line of the list.

        Raises:
            FplError: No such folder, no images, or an id that stands twice.
        """
        where = root / self.list_file.format(part=part)
        if where.is_file():
            ids = [self.canonical_id(line) for line in read_lines(where)]
        else:
            where = self.image_folder(root, part)
            if not where.is_dir():
                raise FplError(f"no folder of {part} images", where=str(where), hint=f"expected {self.description}")
            ids = self._scan(where)
        if not ids:
            raise FplError(f"no {part} images", where=str(where), hint=f"expected {self.description}")
        if repeated := duplicates(ids):
            raise FplError(f"image ids that stand twice: {enumerate_briefly(repeated)}", where=str(where))
        return ids

    def _city(self, image_id: str) -> str:
        return image_id.rsplit("_", 2)[0] if self.city_folders else ""

    def _scan(self, folder: Path) -> list[str]:
        folders = sorted(path for path in folder.iterdir() if path.is_dir()) if self.city_folders else [folder]
        return [image_id for each in folders for image_id in sorted(self._ids_in(each))]

    def _ids_in(self, folder: Path) -> Sequence[str]:
        # Archives from other systems leave "._name.png" companions that are no images.
        names = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
        return [name.removesuffix(ending) for ending in self.image_endings for name in names if name.endswith(ending)]


SEGNET = Layout("{part}", "{part}annot", (".png", ".jpg"), ".png")
"""The SegNet tutorial's copy of CamVid; images may be JPEG."""

CITYSCAPES = Layout(
    "leftImg8bit/{part}", "gtFine/{part}", ("_leftImg8bit.png",), "_gtFine_labelTrainIds.png", city_folders=True
)
"""The official Cityscapes tree with the trainIds of its scripts."""
