"""Trees with the published numbers of images, made of empty files, and the public lists where they are at hand."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
LISTS = Path(os.environ.get("FPL_TEST_DATA") or REPOSITORY.parent / "shared" / "data") / "splits"
CITY, VOC = LISTS / "cps/city/config_new", LISTS / "cps/pascal_voc/subset_train_aug"
UNIMATCH = LISTS / "unimatch"


def sha(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def lines_of(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text().splitlines() if line.strip()]


def bare(path: Path) -> list[str]:
    """Ids of a list of any dialect, by plain string work."""
    names = [line.replace("\t", " ").split(" ")[0].rsplit("/", 1)[-1].split(".")[0] for line in lines_of(path)]
    return [name.replace("_leftImg8bit", "") for name in names]


def dialect(ids: Sequence[str]) -> list[str]:
    return [f"/images/train/{i}.png\t/segmentation/train/{i}_gtFine.png" for i in ids]


def city_ids(count: int, seed: int, cities: Sequence[str]) -> list[str]:
    ids = [f"{cities[n % len(cities)]}_{n:06d}_000019" for n in range(count)]
    random.Random(seed).shuffle(ids)
    return ids


def voc_ids(count: int, first: int = 0) -> list[str]:
    return [f"{2007 + n % 5}_{n:06d}" for n in range(first, first + count)]


def touch(path: Path) -> None:
    # Opening is three times as fast as Path.touch.
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def city_tree(root: Path, train: Sequence[str], val: Sequence[str]) -> Path:
    for part, ids in (("train", train), ("val", val)):
        for city in {i.split("_")[0] for i in ids}:
            (root / "leftImg8bit" / part / city).mkdir(parents=True)
        for i in ids:
            touch(root / "leftImg8bit" / part / i.split("_")[0] / f"{i}_leftImg8bit.png")
    return root


def voc_tree(root: Path, train: Sequence[str], clean: Sequence[str], val: Sequence[str]) -> Path:
    """Augmented labels of all but ten clean training images and of the validation images; VOC's own of those."""
    images, labels, sets = root / "JPEGImages", root / "SegmentationClassAug", root / "ImageSets" / "Segmentation"
    own = root / "SegmentationClass"
    for folder in (images, labels, own, sets):
        folder.mkdir(parents=True)
    lacking = frozenset(clean[:10])
    for i in (*clean, *val):
        touch(own / f"{i}.png")
    for i in (*train, *val):
        touch(images / f"{i}.jpg")
        if i not in lacking:
            touch(labels / f"{i}.png")
    (sets / "train.txt").write_text("\n".join(clean))
    (sets / "val.txt").write_text("\n".join(val) + "\n")
    return root
