"""Cheap checks of data and split before the first step: a bad label must not become an assertion on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fpl.config.schema import RunConfig
from fpl.data.contents import data_contents, data_version
from fpl.data.formats import other_colours
from fpl.data.images import Images
from fpl.data.read import Header, orientation_ignored, read_header, read_palette
from fpl.data.spec import IGNORE, DatasetSpec
from fpl.data.splits import Split
from fpl.data.splits.faults import label_faults, raise_all, set_faults
from fpl.errors import FplError
from fpl.text import enumerate_briefly

# Labeled images are all decoded where they have fewer pixels together (a few seconds); else those of the first batch.
DECODE_PIXELS = 50_000_000


def check_data(config: RunConfig, split: Split, images: Images) -> list[str]:
    """Check everything that can be checked in a few seconds.

    All ids must have an image on disk (validation and held-out ids also a label), no id may be in two sets, and the
    labeled images are decoded: all of them if that takes a few seconds, else those of the first batch. Of the other
    images the headers are read; labels of unlabeled images are never opened.

    Args:
        config: The run.
        split: Its split.
        images: Its training images; what is decoded here stays in them if they keep it.

    Returns:
        Warnings, one sentence each: what is allowed but rarely meant.

    Raises:
        FplError: What is wrong, with its file: of lists, missing files and headers all at once, of pixels the first.
    """
    # Only now: they load all that trains, and data are checked for runs that are not done.
    from fpl.data.order import Order
    from fpl.data.validation import check_validation_files

    spec, root = images.spec, images.root
    ids = spec.list_ids(root, "val")
    where = f"split {split.name}"
    raise_all((*set_faults(split, root=root, validation_ids=ids), *label_faults(split, root, where)))
    check_validation_files(spec, root, "val", ids)
    check_validation_files(spec, root, images.part, split.held_out)

    labeled, batch = split.labeled, config.data.labeled_batch
    headers = _read_headers(spec, root, images.part, (*labeled, *split.unlabeled, *split.held_out))
    height, width = headers[labeled[0]].size
    decode_all = len(labeled) * height * width <= DECODE_PIXELS
    order = Order(config.seed, 0, len(labeled))
    chosen = labeled if decode_all else [labeled[order.index(position)] for position in range(batch)]
    histogram = np.zeros(256, dtype=np.int64)
    foreign = []
    for image_id in chosen:
        images.image(image_id)
        counts = np.bincount(images.label(image_id).ravel(), minlength=256)
        histogram += counts
        label = spec.label_path(root, images.part, image_id)
        present = np.flatnonzero(counts[: spec.num_classes]).tolist()
        palette = read_palette(label)
        if palette is not None and other_colours(palette, present, spec, spec.values_of(label)):
            foreign.append(label.name)
    if split.unlabeled:
        images.image(split.unlabeled[0])

    warnings = []
    if turned := [image_id for image_id, header in headers.items() if header.orientation != 1]:
        warnings.append(orientation_ignored(turned))
    if foreign:
        warnings.append(
            f"the palettes of {len(foreign)} of {len(chosen)} labels have other colours than {spec.name}: only their "
            f"indices count: {enumerate_briefly(foreign, 3)}"
        )
    if len(labeled) < batch:
        warnings.append(f"{len(labeled)} labeled images are fewer than the batch of {batch}: images repeat within it")
    if not histogram[: spec.num_classes].any():
        warnings.append(f"all label pixels of {len(chosen)} labeled images are {IGNORE} (ignore)")
    elif decode_all:
        absent = [name for name, count in zip(spec.class_names, histogram, strict=False) if not count]
        if absent:
            warnings.append(f"never seen in {len(chosen)} labeled images: {', '.join(absent)}")
        if spec.num_classes > 2 and len(absent) == spec.num_classes - 1 and histogram[0]:
            warnings.append("the labels hold only class 0 and ignore: is this a binary mask with 0 and 255?")
        warnings += config.method.data_warnings(histogram, spec.class_names, len(chosen))
    return warnings


def _read_headers(spec: DatasetSpec, root: Path, part: str, ids: Sequence[str]) -> dict[str, Header]:
    """The headers of all training images: what is wrong with one of them is told before the first step.

    Raises:
        FplError: Names all files that are no image, too large, or of a kind that is not taken.
    """
    headers, faults = {}, []
    for image_id in ids:
        try:
            headers[image_id] = read_header(spec.image_path(root, part, image_id))
        except FplError as error:
            faults.append(error)
    raise_all(faults)
    return headers


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
