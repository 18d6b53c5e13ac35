"""The embedded data sets, drawn in the official trees of Cityscapes and PASCAL VOC: everything runs without a download.

An image is a function of seed, part, number, size and separation alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fpl.data.drawing import Progress, draw_tree
from fpl.data.objects import class_schedule, draw_objects, voc_colours
from fpl.data.scene import draw_scene
from fpl.errors import FplError

CITY_SIZE, VOC_SIZE = (64, 128), (64, 64)
CITY_COUNTS, VOC_COUNTS = (320, 100), (640, 150)
VOC_CLEAN = 160

_CITIES = {
    "train": ("alderbrook", "birchwick", "cedarholm", "dunmarsh", "elmcastle", "fernhaven", "greywater", "hollowgate"),
    "val": ("ivybridge", "juniperton"),
}
# Frame number at which Cityscapes annotates each sequence.
_FRAME = 19
_VOC_YEARS = {"train": 2008, "val": 2009}


def draw_city(
    root: Path,
    *,
    train: int = CITY_COUNTS[0],
    validation: int = CITY_COUNTS[1],
    size: tuple[int, int] = CITY_SIZE,
    seed: int = 0,
    separation: float = 2.5,
    progress: Progress | None = None,
) -> Path:
    """Draw street scenes with the 19 Cityscapes classes below `root`, unless they are there already.

    Args:
        root: Root folder of the data set, usually `<data root>/synthetic_city`.
        train: Number of training images.
        validation: Number of validation images.
        size: Height and width in pixels.
        seed: Seed of the drawing.
        separation: Distance between the colours of similar classes: 1 hard, 3 easy.
        progress: Called with (images drawn, images in all).

    Returns:
        `root`.

    Raises:
        FplError: `root` holds a tree with other parameters, or one with changed files, or something else.
    """
    parameters = {
        "train": train,
        "validation": validation,
        "size": list(size),
        "seed": seed,
        "separation": separation,
    }

    def draw(tree: Path) -> Iterator[None]:
        for part, count in (("train", train), ("val", validation)):
            for number in range(count):
                _draw_street(tree, part, number, size, seed, separation)
                yield

    return draw_tree(root, parameters, draw, progress)


def draw_voc(
    root: Path,
    *,
    train: int = VOC_COUNTS[0],
    clean: int = VOC_CLEAN,
    validation: int = VOC_COUNTS[1],
    size: tuple[int, int] = VOC_SIZE,
    seed: int = 0,
    separation: float = 4.0,
    progress: Progress | None = None,
) -> Path:
    """Draw object scenes with the 21 PASCAL VOC classes below `root`, unless they are there already.

    As in the augmented set of the papers, `train_aug` holds all training images and `train` the clean ones among them;
    only clean and validation labels have the 255 border around objects and stand in SegmentationClass.

    Args:
        root: Root folder of the data set, usually `<data root>/synthetic_voc`.
        train: Number of training images.
        clean: Number of clean ones among them.
        validation: Number of validation images.
        size: Height and width in pixels.
        seed: Seed of the drawing.
        separation: Distance between the colours of similar classes: 1 hard, 4 easy.
        progress: Called with (images drawn, images in all).

    Returns:
        `root`.

    Raises:
        FplError: `root` holds a tree with other parameters, or one with changed files, or something else; or more clean
            than training images.
    """
    if not 0 < clean <= train:
        raise FplError(f"{clean} clean images among {train} training images", hint=f"1 to {train} are possible")
    parameters = {
        "train": train,
        "clean": clean,
        "validation": validation,
        "size": list(size),
        "seed": seed,
        "separation": separation,
    }
    # A random subset: with every fourth image, every image of a 1/4 or 1/8 split would be clean or none.
    chosen = set(np.random.default_rng((seed, 2)).permutation(train)[:clean].tolist())

    def draw(tree: Path) -> Iterator[None]:
        names: dict[str, list[str]] = {"train": [], "val": [], "train_aug": []}
        for part, count in (("train", train), ("val", validation)):
            schedule = class_schedule(np.random.default_rng((seed, 3, list(_VOC_YEARS).index(part))), count)
            for number, classes in enumerate(schedule):
                image_id = f"{_VOC_YEARS[part]}_{number:06d}"
                is_clean = part == "val" or number in chosen
                scene = draw_objects(_generator(seed, part, number), classes, size, separation)
                _save_objects(tree, image_id, is_clean, *scene)
                names["train_aug"] += [image_id] * (part == "train")
                names[part] += [image_id] * is_clean
                yield
        names["trainval"] = sorted(names["train"] + names["val"])
        folder = tree / "ImageSets" / "Segmentation"
        folder.mkdir(parents=True)
        for name, ids in names.items():
            (folder / f"{name}.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")

    return draw_tree(root, parameters, draw, progress)


def _draw_street(tree: Path, part: str, number: int, size: tuple[int, int], seed: int, separation: float) -> None:
    cities = _CITIES[part]
    city = cities[number % len(cities)]
    name = f"{city}_{number // len(cities):06d}_{_FRAME:06d}"
    image, label = draw_scene(_generator(seed, part, number), size, separation)
    _save(tree / "leftImg8bit" / part / city / f"{name}_leftImg8bit.png", Image.fromarray(image), compress_level=1)
    _save(tree / "gtFine" / part / city / f"{name}_gtFine_labelTrainIds.png", Image.fromarray(label), compress_level=1)


def _save_objects(
    tree: Path,
    image_id: str,
    clean: bool,
    image: NDArray[np.uint8],
    label: NDArray[np.uint8],
    bordered: NDArray[np.uint8],
) -> None:
    # Full colour resolution: at 64 pixels, halved colour would smear the classes into each other.
    _save(tree / "JPEGImages" / f"{image_id}.jpg", Image.fromarray(image), quality=95, subsampling=0)
    _save_palette(tree / "SegmentationClassAug" / f"{image_id}.png", bordered if clean else label)
    if clean:
        _save_palette(tree / "SegmentationClass" / f"{image_id}.png", bordered)


def _generator(seed: int, part: str, number: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence((seed, list(_CITIES).index(part), number)))


def _save_palette(path: Path, label: NDArray[np.uint8]) -> None:
    image = Image.fromarray(label)
    image.putpalette(_PALETTE)
    _save(path, image, compress_level=1)


_PALETTE = voc_colours()


def _save(path: Path, image: Image.Image, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
