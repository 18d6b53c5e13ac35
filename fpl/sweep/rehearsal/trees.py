"""Data sets at full size in their exact trees, of a few drawn images under all names: hard links cost nothing."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fpl.data.layout import LabelFiles
from fpl.data.lists import read_record
from fpl.data.objects import class_schedule, draw_objects, voc_colours
from fpl.data.scene import draw_scene
from fpl.data.spec import DatasetSpec
from fpl.errors import FplError, file_error
from fpl.source import source_digest
from fpl.sweep.rehearsal.names import Names

RECORD = "REHEARSAL.json"
# Scenes that stand for all images; a file may have 65,000 links on ext4, and fewer elsewhere.
SCENES = 8
# Street scenes are drawn at a quarter of their size and enlarged: a scene takes seconds otherwise.
ENLARGED = 4
# Height and width of the commonest images of VOC.
OBJECT_SIZES = ((375, 500), (500, 375), (333, 500), (500, 333))

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Scene:
    """One drawn image with its labels: of streets by the ending of their names, of objects with border and without."""

    image: Path
    labels: dict[str, Path]


PLAIN, BORDERED = "plain", "bordered"


def make_tree(spec: DatasetSpec, root: Path, names: Names, say: Callable[[str], None]) -> None:
    """Make the tree of a data set at `root`, unless it is there; a call that was killed leaves nothing of it.

    Cityscapes: PNG of 2048x1024, the cities by turns with labels in trainIds and in labelIds. VOC: JPEG of its usual
    sizes, augmented labels of all training images, and those with borders of the clean and the validation ones.

    Args:
        spec: The data set.
        root: Root folder.
        names: Ids of its images.
        say: Told before something is drawn.

    Raises:
        FplError: Something else stands at `root`, or the file system has no hard links.
    """
    ids = hashlib.sha256("\n".join((*names.train, "", *names.val, "", *names.clean)).encode()).hexdigest()[:16]
    record = {
        "what": f"no {spec.name}: {SCENES} drawn images under all names, made by fpl rehearse",
        "ids": ids,
        "code": source_digest("sweep/rehearsal/trees.py", "data", libraries=("numpy", "pillow")),
    }
    if root.exists():
        found = read_record(root / RECORD)
        if found == record:
            return
        if not found:
            raise FplError("stands where the rehearsal draws", where=str(root), hint="give another --out")
    say(f"drawing {spec.name} in its full size and number in {root}: some seconds")
    root.parent.mkdir(parents=True, exist_ok=True)
    for left in root.parent.glob(f".{root.name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}-", dir=root.parent) as temporary:
        tree = Path(temporary) / "tree"
        scenes = list((_streets if spec.layout.city_folders else _objects)(spec, Path(temporary) / "scenes"))
        _link_all(_files(spec, tree, names, scenes))
        _write_lists(spec, tree, names)
        (tree / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        if root.exists():
            root.rename(Path(temporary) / "old")
        tree.rename(root)


def _files(spec: DatasetSpec, tree: Path, names: Names, scenes: Sequence[Scene]) -> Iterator[tuple[Path, str]]:
    """(drawn file, path in the tree) of all files."""
    layout, label_files = spec.layout, _street_labels if spec.layout.city_folders else _object_labels
    for part, ids in (("train", names.train), ("val", names.val)):
        for number, image_id in enumerate(ids):
            scene = scenes[number % len(scenes)]
            yield scene.image, next(layout.image_candidates(tree, part, image_id))
        for number, image_id, kind, label in label_files(spec, names, part):
            name = next(layout.names(image_id, (kind.ending,)))
            yield scenes[number % len(scenes)].labels[label], f"{tree}/{kind.folder.format(part=part)}/{name}"


# Number of an image in its part, its id, the kind of label file, and which of a scene's labels that is.
LabelOf = tuple[int, str, LabelFiles, str]


def _street_labels(spec: DatasetSpec, names: Names, part: str) -> Iterator[LabelOf]:
    """One label an image, its dialect by turns of the cities: so both are read."""
    ids = names.train if part == "train" else names.val
    cities = sorted({image_id.rsplit("_", 2)[0] for image_id in ids})
    kinds = {city: spec.layout.labels[number % len(spec.layout.labels)] for number, city in enumerate(cities)}
    for number, image_id in enumerate(ids):
        kind = kinds[image_id.rsplit("_", 2)[0]]
        yield number, image_id, kind, kind.ending


def _object_labels(spec: DatasetSpec, names: Names, part: str) -> Iterator[LabelOf]:
    """SBD's labels have no border; VOC's own have one, and stand in both folders."""
    clean = frozenset(names.clean)
    for number, image_id in enumerate(names.train if part == "train" else names.val):
        own = part == "val" or image_id in clean
        for kind in spec.layout.labels:
            # The folder that is for training images alone is the augmented one, which has them all.
            if part in kind.parts and (own or kind.parts == ("train",)):
                yield number, image_id, kind, BORDERED if own else PLAIN


def _link_all(files: Iterable[tuple[Path, str]]) -> None:
    made: set[str] = set()
    for source, path in files:
        folder = path.rpartition("/")[0]
        if folder not in made:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - paths are strings here: thousands of them
            made.add(folder)
        try:
            os.link(source, path)
        except OSError as error:
            lack = file_error(error, Path(path))
            hint = "the rehearsal's --out must be on a file system with hard links, with room for as many inodes"
            raise FplError(lack.what, where=lack.where, hint=hint) from error


def _write_lists(spec: DatasetSpec, tree: Path, names: Names) -> None:
    """The lists that are part of the VOC archive; Cityscapes has none."""
    if spec.layout.city_folders:
        return
    for path, ids in ((spec.layout.subsets["clean"], names.clean), (spec.layout.list_files[0], names.val)):
        file = tree / path.format(part="val")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{image_id}\n" for image_id in ids), encoding="utf-8")


def _streets(spec: DatasetSpec, folder: Path) -> Iterator[Scene]:
    assert spec.image_size is not None
    height, width = spec.image_size
    for number in range(SCENES):
        small = (height // ENLARGED, width // ENLARGED)
        image, label = draw_scene(np.random.default_rng((number, 0)), small, 2.5)
        whole = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
        label = label.repeat(ENLARGED, 0).repeat(ENLARGED, 1)
        labels: dict[str, Path] = {}
        for kind in spec.layout.labels:
            path = folder / f"{number}{kind.ending}"
            labels[kind.ending] = _save(path, Image.fromarray(_values(label, kind)), compress_level=1)
        yield Scene(_save(folder / f"{number}.png", whole, compress_level=1), labels)


def _values(label: Pixels, kind: LabelFiles) -> Pixels:
    """Classes as the values that a kind of label file has for them: the first of each."""
    table = np.zeros(256, dtype=np.uint8)
    for value, meant in sorted(kind.values.items(), reverse=True):
        if 0 <= value < 256:
            table[meant] = value
    return table[label]


def _objects(spec: DatasetSpec, folder: Path) -> Iterator[Scene]:
    schedule = class_schedule(np.random.default_rng(0), SCENES)
    colours = voc_colours()
    for number, classes in enumerate(schedule):
        size = OBJECT_SIZES[number % len(OBJECT_SIZES)]
        image, label, bordered = draw_objects(np.random.default_rng((number, 1)), classes, size, 4.0)
        files: dict[str, Path] = {}
        for name, pixels in ((PLAIN, label), (BORDERED, bordered)):
            picture = Image.fromarray(pixels)
            picture.putpalette(colours)
            files[name] = _save(folder / f"{number}_{name}.png", picture)
        yield Scene(_save(folder / f"{number}.jpg", Image.fromarray(image), quality=90), files)


def _save(path: Path, image: Image.Image, **options: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = io.BytesIO()
    image.save(encoded, "JPEG" if path.suffix == ".jpg" else "PNG", **options)
    path.write_bytes(encoded.getvalue())
    return path
