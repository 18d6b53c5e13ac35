"""Checks of data and split before the first step: a bad label must not become an assertion on a GPU after hours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fpl.config.schema import RunConfig
from fpl.data.contents import data_contents, data_version, file_names
from fpl.data.drawing import check_drawn
from fpl.data.images import Images
from fpl.data.label_facts import LabelFacts, label_facts
from fpl.data.read import Header, check_pair, foreign_colours, orientation_ignored, read_header, read_label_size
from fpl.data.spec import IGNORE, DatasetSpec
from fpl.data.splits import Split
from fpl.data.splits.coverage import coverage
from fpl.data.splits.faults import label_faults, raise_all, set_faults
from fpl.errors import FplError
from fpl.text import enumerate_briefly

Value = TypeVar("Value")

# Labeled images are all decoded where they have fewer pixels together (a few seconds); else those of the first batch.
DECODE_PIXELS = 50_000_000


def check_data(config: RunConfig, split: Split, images: Images) -> list[str]:
    """Check everything that can be checked in a few seconds.

    All ids must have an image on disk, labeled, validation and held-out ones also a label, and no id may be in two
    sets. Of all images the headers are read, of labels those of training too. The labels of validation and held-out
    images are decoded: the first look at them would otherwise be after hours of training. Labeled images are decoded
    where that takes a few seconds, else those of the first batch. Labels of unlabeled images are never opened. What is
    read of a drawn set must be as it was drawn.

    Validation labels take 5 s of CPU for the 500 of Cityscapes and 1.5 s for the 1,449 of VOC, once in a process; all
    else takes 0.7 and 0.8 s with 1/8 labeled.

    Args:
        config: The run.
        split: Its split.
        images: Its training images; what is decoded here stays in them if they keep it.

    Returns:
        Warnings, one sentence each: what is allowed but rarely meant.

    Raises:
        FplError: What is wrong, with its file, all at once: of lists and missing files or, where these are in order,
            of what the files hold.
    """
    # Only now: they load all that trains, and data are checked for runs that are not done.
    from fpl.data.validation import validated_on, validation_faults

    spec, root, part = images.spec, images.root, images.part
    scored = {"val": spec.list_ids(root, "val"), part: split.held_out}
    if spec.drawn:
        read = {name for each, ids in scored.items() for name in file_names(spec, root, each, ids)}
        read.update(file_names(spec, root, part, split.labeled))
        read.update(file_names(spec, root, part, split.unlabeled, labels=False))
        check_drawn(root, read)
    raise_all(
        (
            *set_faults(split, root=root, validation_ids=scored["val"]),
            *label_faults(split, root, f"split {split.name}"),
            *(fault for each, ids in scored.items() for fault in validation_faults(spec, root, each, ids)),
        )
    )
    look = _Look(spec, root)
    for image_id in (*split.labeled, *split.unlabeled):
        look.header(part, image_id)
    facts = {each: {image_id: look.scored(each, image_id) for image_id in ids} for each, ids in scored.items()}
    chosen, histogram = _decode(config, split, images, look)
    measured, ids = validated_on(split, spec, root, config.eval.subsample)
    found = [facts[measured][image_id] for image_id in ids]
    if not any(each is None or each.classes for each in found):
        look.faults.append(_all_ignored(len(found), "validation" if measured == "val" else "held-out", str(root)))
    whole = chosen is split.labeled
    if whole and not look.faults and not histogram[: spec.num_classes].any():
        look.faults.append(_all_ignored(len(chosen), "labeled", f"split {split.name}"))
    raise_all(look.faults)
    covered = coverage(split, spec, spec.list_ids(root, part)).warnings
    return [*look.warnings(), *covered, *_class_warnings(config, split, spec, histogram, len(chosen), whole)]


class _Look:
    """What files say of themselves, and all that is wrong with them.

    Attributes:
        headers: Of the images, by id.
        faults: One a file.
    """

    def __init__(self, spec: DatasetSpec, root: Path) -> None:
        self.spec, self.root = spec, root
        self.headers: dict[str, Header] = {}
        self.faults: list[FplError] = []
        self._foreign: list[str] = []
        self._decoded = 0

    def attempt(self, read: Callable[[], Value]) -> Value | None:
        """What was read, or None and one more fault."""
        try:
            return read()
        except FplError as error:
            self.faults.append(error)
            return None

    def header(self, part: str, image_id: str) -> None:
        """Look at the header of an image."""
        path = self.spec.image_path(self.root, part, image_id)
        if (header := self.attempt(lambda: read_header(path))) is not None:
            self.headers[image_id] = header

    def scored(self, part: str, image_id: str) -> LabelFacts | None:
        """Look at the header of an image and at its whole label; None where that cannot be read."""
        self.header(part, image_id)
        path = self.spec.label_path(self.root, part, image_id)
        if (facts := self.attempt(lambda: label_facts(path, self.spec))) is not None:
            self._pair(part, image_id, facts.size, path)
            self.coloured(path, facts.foreign)
        return facts

    def label_header(self, part: str, image_id: str) -> None:
        """Look at the header of a label, whose image has been looked at."""
        path = self.spec.label_path(self.root, part, image_id)
        if (size := self.attempt(lambda: read_label_size(path))) is not None:
            self._pair(part, image_id, size, path)

    def coloured(self, label: Path, foreign: bool) -> None:
        """Remember a label that was decoded, and whether its palette is another than the data set's."""
        self._decoded += 1
        self._foreign += [label.name] * foreign

    def warnings(self) -> Iterator[str]:
        """What is allowed but rarely meant."""
        if turned := [image_id for image_id, header in self.headers.items() if header.orientation != 1]:
            yield orientation_ignored(turned)
        if self._foreign:
            yield (
                f"the palettes of {len(self._foreign)} of {self._decoded} labels have other colours than "
                f"{self.spec.name}: only their indices count: {enumerate_briefly(self._foreign, 3)}"
            )

    def _pair(self, part: str, image_id: str, size: tuple[int, int], label: Path) -> None:
        if (header := self.headers.get(image_id)) is not None:
            image = self.spec.image_path(self.root, part, image_id)
            self.attempt(lambda: check_pair(header, size, image, label))


def _decode(config: RunConfig, split: Split, images: Images, look: _Look) -> tuple[Sequence[str], NDArray[np.int64]]:
    """Decode labeled images with their labels, and the first unlabeled one; of the other labels read the headers.

    Returns:
        Ids of the labeled images that were decoded, and how often each value is in their labels: int64 [256].
    """
    from fpl.data.order import Order

    spec, labeled, histogram = images.spec, split.labeled, np.zeros(256, dtype=np.int64)
    sizes = [look.headers[image_id].size for image_id in labeled if image_id in look.headers]
    order = Order(config.seed, 0, len(labeled))
    chosen: Sequence[str] = labeled
    if sum(height * width for height, width in sizes) > DECODE_PIXELS:
        chosen = [labeled[order.index(position)] for position in range(config.data.labeled_batch)]
    for image_id in dict.fromkeys(chosen):
        if image_id not in look.headers or look.attempt(partial(images.image, image_id)) is None:
            continue
        if (label := look.attempt(partial(images.label, image_id))) is None:
            continue
        counts = np.bincount(label.ravel(), minlength=256)
        histogram += counts
        path = spec.label_path(images.root, images.part, image_id)
        look.coloured(path, bool(foreign_colours(path, np.flatnonzero(counts[: spec.num_classes]).tolist(), spec)))
    for image_id in sorted(set(labeled) - set(chosen)):
        look.label_header(images.part, image_id)
    for image_id in split.unlabeled[:1]:
        if image_id in look.headers:
            look.attempt(partial(images.image, image_id))
    return chosen, histogram


def _all_ignored(count: int, kind: str, where: str) -> FplError:
    return FplError(
        f"all label pixels of {count} {kind} images are {IGNORE} (ignore)",
        where=where,
        hint="nothing can be learned from them or scored on them: are these the labels of this data set?",
    )


def _class_warnings(
    config: RunConfig, split: Split, spec: DatasetSpec, histogram: NDArray[np.int64], decoded: int, whole: bool
) -> Iterator[str]:
    """What is remarkable about the classes of `decoded` labeled images; `whole` if these are all that there are."""
    if len(split.labeled) < (batch := config.data.labeled_batch):
        yield f"{len(split.labeled)} labeled images are fewer than the batch of {batch}: images repeat within it"
    if not histogram[: spec.num_classes].any():
        yield f"all label pixels of {decoded} labeled images are {IGNORE} (ignore)"
    elif whole:
        absent = [name for name, count in zip(spec.class_names, histogram, strict=False) if not count]
        if absent:
            yield f"never seen in {decoded} labeled images: {', '.join(absent)}"
        if spec.num_classes > 2 and len(absent) == spec.num_classes - 1 and histogram[0]:
            yield "the labels hold only class 0 and ignore: is this a binary mask with 0 and 255?"
        yield from config.method.data_warnings(histogram, spec.class_names, decoded)


def pin_data(config: RunConfig, spec: DatasetSpec, root: Path, split: Split | None = None) -> RunConfig:
    """Fill in what the run is measured on and learns from; another drawing, list, label or image makes another run.

    Args:
        config: The run.
        spec: Its data set.
        root: Root of the data set.
        split: Its split; None pins what it is measured on alone.

    Raises:
        FplError: The configuration pins another version or other contents than those at `root`.
    """
    found = {"version": data_version(spec, root)}
    if split is not None:
        found["contents"] = data_contents(spec, root, split)
    for key, digest in found.items():
        pinned = getattr(config.data, key)
        if pinned not in (None, digest):
            what = "validation images, labels or drawing" if key == "version" else "training images or labels"
            raise FplError(
                f"data.{key} pins {pinned}, the data on disk are {digest}",
                where=str(root),
                hint=f"other {what} give another score: restore the data that the configuration was made for, or drop "
                "the pinned value",
            )
    return config.model_copy(update={"data": config.data.model_copy(update=found)})
