"""Makes `SegmentationClassAug` of PASCAL VOC 2012: the labels of SBD as palette PNGs beside VOC's own."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from fpl.config.classes import IGNORE
from fpl.data.lists import enumerate_briefly
from fpl.data.parallel import run_parallel
from fpl.data.read import Bytes, read_label, read_size
from fpl.data.spec import DatasetSpec
from fpl.errors import FplError
from fpl.files import visible, write_atomic

FOLDER = "SegmentationClassAug"
BORDER = (224, 224, 192)
"""Colour of the pixels to ignore in VOC's own files."""

_UNPACK = "unpack benchmark.tgz of SBD again; fpl data download voc fetches it"


@dataclass(frozen=True)
class Prepared:
    """What was done.

    Attributes:
        converted: Labels written from SBD.
        copied: Labels written from VOC's own.
        kept: Labels that were there and good.
        without_image: Ids of SBD of which VOC 2012 has no image; they are left out.
        train: Training ids of the tree now (`train_aug`).
        val: Validation ids.
    """

    converted: int
    copied: int
    kept: int
    without_image: tuple[str, ...]
    train: int
    val: int

    def is_complete(self, spec: DatasetSpec) -> bool:
        """Whether the numbers of ids are the published ones."""
        return spec.counts is None or {"train": self.train, "val": self.val} == dict(spec.counts)


def prepared_text(done: Prepared, spec: DatasetSpec) -> str:
    """What was done, in lines for people."""
    counts = spec.counts or {}
    lines = [
        f"{done.converted} labels converted from SBD, {done.copied} copied from VOC, {done.kept} were there",
        f"{done.train} training ids (train_aug) and {done.val} validation ids",
    ]
    if done.without_image:
        count, names = len(done.without_image), enumerate_briefly(done.without_image, 3)
        lines.append(f"{count} annotations of SBD have no image in JPEGImages and are left out: {names}")
    if not done.is_complete(spec):
        lines.append(
            f"  -> {counts['train']} and {counts['val']} are expected: are all 11355 .mat files of SBD there, and "
            "train.txt, val.txt, JPEGImages and SegmentationClass as in the VOC archive?"
        )
    return "\n".join(lines)


@dataclass(frozen=True)
class _Task:
    image_id: str
    source: Path
    image: Path
    target: Path


def prepare_voc(
    spec: DatasetSpec,
    root: Path,
    sbd: Path,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Prepared:
    """Write `SegmentationClassAug/<id>.png` for every image that VOC or SBD (Hariharan et al., ICCV 2011) labels.

    Images of VOC's own `train.txt` and `val.txt` keep VOC's labels, with their borders; SBD's labels, which are
    coarser and have no borders, serve the others. Each file is written whole or not at all, and good files that are
    there already are kept: the same command continues where it was stopped.

    Args:
        spec: The data set "voc".
        root: Its root, `VOCdevkit/VOC2012`.
        sbd: The unpacked SBD archive, or its folder `dataset`, or the folder of the `.mat` files.
        workers: Processes; None takes one per core.
        progress: Called with the number of finished files and of all.

    Raises:
        FplError: SBD or a list is not there, or files cannot be converted; all others are done.
    """
    own = {*spec.subset_ids(root, "clean"), *spec.list_ids(root, "val")}
    annotations = {path.stem: path for path in _annotations_in(find_annotations(sbd))}
    sources = {image_id: root / "SegmentationClass" / f"{image_id}.png" for image_id in sorted(own)}
    sources |= {image_id: path for image_id, path in annotations.items() if image_id not in sources}
    tasks, without_image = [], []
    for image_id, source in sources.items():
        image = root / "JPEGImages" / f"{image_id}.jpg"
        if image.is_file() or image_id in own:
            tasks.append(_Task(image_id, source, image, root / FOLDER / f"{image_id}.png"))
        else:
            without_image.append(image_id)
    outcomes = run_parallel(partial(_make, spec=spec), tasks, workers=workers, progress=progress)
    if errors := [outcome for outcome in outcomes if isinstance(outcome, FplError)]:
        raise _all_errors(errors, len(tasks))
    return Prepared(
        converted=outcomes.count("converted"),
        copied=outcomes.count("copied"),
        kept=outcomes.count("kept"),
        without_image=tuple(without_image),
        train=len(spec.list_ids(root, "train")),
        val=len(spec.list_ids(root, "val")),
    )


def find_annotations(sbd: Path) -> Path:
    """The folder of SBD's class annotations (`cls/*.mat`) at or below `sbd`.

    Raises:
        FplError: There is none.
    """
    for below in ("benchmark_RELEASE/dataset/cls", "dataset/cls", "cls", "."):
        if _annotations_in(sbd / below):
            return sbd / below
    raise FplError("no SBD annotations (benchmark_RELEASE/dataset/cls/*.mat)", where=str(sbd), hint=_UNPACK)


def _annotations_in(folder: Path) -> list[Path]:
    return visible(folder, "*.mat")


def read_annotation(path: Path) -> Bytes:
    """The label in an SBD annotation: uint8 [H, W], 0..20.

    Raises:
        FplError: The file is not a MATLAB 5 file whose struct `GTcls` has such a `Segmentation`.
    """
    # Imported late: no other command that imports this module needs it.
    from scipy.io import loadmat

    try:
        values = np.asarray(loadmat(str(path), variable_names=["GTcls"])["GTcls"]["Segmentation"][0, 0])
    except Exception as error:
        # Broken files make the reader raise whatever it pleases.
        reason = f"{type(error).__name__}: {error}"
        raise FplError(f"cannot be read as an SBD annotation ({reason})", where=str(path), hint=_UNPACK) from error
    if values.ndim != 2 or values.dtype.kind not in "ui":
        what = f"Segmentation is {values.dtype} {list(values.shape)}, not a matrix of class indices"
        raise FplError(what, where=str(path), hint=_UNPACK)
    if foreign := sorted({int(value) for value in np.unique(values)} - set(range(21))):
        what = f"values that are no class of VOC: {enumerate_briefly(foreign)}"
        raise FplError(what, where=str(path), hint="SBD's class annotations hold 0..20")
    return values.astype(np.uint8)


def _make(task: _Task, spec: DatasetSpec) -> Literal["converted", "copied", "kept"] | FplError:
    try:
        return _convert(task, spec) if task.source.suffix == ".mat" else _copy(task, spec)
    except FplError as error:
        return error
    except OSError as error:
        return FplError(f"cannot be written ({error.strerror})", where=str(task.target))


def _copy(task: _Task, spec: DatasetSpec) -> Literal["copied", "kept"]:
    label = read_label(task.source, spec)
    if task.target.is_file():
        try:
            if np.array_equal(read_label(task.target, spec), label):
                return "kept"
        except FplError:
            pass
    write_atomic(task.target, task.source.read_bytes())
    return "copied"


def _convert(task: _Task, spec: DatasetSpec) -> Literal["converted", "kept"]:
    size = read_size(task.image)
    if task.target.is_file():
        try:
            if read_label(task.target, spec).shape == size:
                return "kept"
        except FplError:
            pass
    label = read_annotation(task.source)
    if label.shape != size:
        what = f"annotation is {label.shape[0]}x{label.shape[1]}, image {task.image.name} is {size[0]}x{size[1]}"
        raise FplError(f"{what} (height x width)", where=str(task.source), hint=_UNPACK)
    image = Image.fromarray(label)
    colours = [*spec.palette, *[(0, 0, 0)] * (IGNORE - len(spec.palette)), BORDER]
    image.putpalette([channel for colour in colours for channel in colour])
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    write_atomic(task.target, buffer.getvalue())
    return "converted"


def _all_errors(errors: list[FplError], tasks: int) -> FplError:
    def lines() -> Iterator[str]:
        for error in errors[:10]:
            yield f"{error.where}: {error.what}"
        if len(errors) > 10:
            yield f"and {len(errors) - 10} more"

    hints = dict.fromkeys(error.hint for error in errors if error.hint)
    what = f"{len(errors)} of {tasks} labels could not be made; the others are done\n    " + "\n    ".join(lines())
    return FplError(what, hint="; ".join([*hints, "then give the same command again"]))
