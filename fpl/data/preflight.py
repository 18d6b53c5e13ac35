"""Cheap checks of data and split before the first step: a bad label must not become an assertion on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fpl.config.methods import AelConfig
from fpl.config.schema import RunConfig
from fpl.data.lists import enumerate_briefly
from fpl.data.read import Images, read_size
from fpl.data.spec import IGNORE, DatasetSpec, data_version
from fpl.data.splits import Split, check_split
from fpl.errors import FplError

# Labeled images are all decoded where they have fewer pixels together (a few seconds); else those of the first batch.
DECODE_PIXELS = 50_000_000


def check_data(
    config: RunConfig, split: Split, images: Images, validation_ids: Sequence[str] | None = None
) -> list[str]:
    """Check everything that can be checked in a few seconds.

    All ids must have an image on disk (validation and held-out ids also a label), no id may be in two sets, and the
    labeled images are decoded: all of them if that takes a few seconds, else those of the first batch. Labels of
    unlabeled images are never opened.

    Args:
        config: The run.
        split: Its split.
        images: Its training images; what is decoded here stays in them if they keep it.
        validation_ids: Ids of the validation part; None takes the data set's list, an empty sequence skips them.

    Returns:
        Warnings, one sentence each: what is allowed but rarely meant.

    Raises:
        FplError: The first thing that is wrong, with its file.
    """
    # Only now: they load all that trains, and data are checked for runs that are not done.
    from fpl.data.batches import Order
    from fpl.data.validation import check_validation_files

    spec, root = images.spec, images.root
    ids = spec.list_ids(root, "val") if validation_ids is None else list(validation_ids)
    check_split(split, root=root, validation_ids=ids)
    check_validation_files(spec, root, "val", ids)
    check_validation_files(spec, root, images.part, split.held_out)

    labeled, batch = split.labeled, config.data.labeled_batch
    height, width = read_size(spec.image_path(root, images.part, labeled[0]))
    decode_all = len(labeled) * height * width <= DECODE_PIXELS
    order = Order(config.seed, 0, len(labeled))
    chosen = labeled if decode_all else [labeled[order.index(position)] for position in range(batch)]
    histogram = np.zeros(256, dtype=np.int64)
    for image_id in chosen:
        images.image(image_id)
        histogram += np.bincount(images.label(image_id).ravel(), minlength=256)
    if split.unlabeled:
        images.image(split.unlabeled[0])

    warnings = []
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
        method = config.method
        if isinstance(method, AelConfig) and method.copy_paste:
            targets = np.setdiff1d(np.arange(spec.num_classes), method.paste_excluded)
            if not histogram[targets].any():
                names = enumerate_briefly([spec.class_names[number] for number in targets])
                warnings.append(
                    f"none of {len(chosen)} labeled images holds a class that may be pasted ({names}): "
                    "method.copy_paste does nothing"
                )
    return warnings


def pin_data(config: RunConfig, spec: DatasetSpec, root: Path) -> RunConfig:
    """Fill in what the run is measured on; another drawing or validation list makes another run.

    Raises:
        FplError: The configuration pins another version than the one at `root`.
    """
    version = data_version(spec, root)
    if config.data.version not in (None, version):
        raise FplError(
            f"data.version pins {config.data.version}, the data on disk are {version}",
            where=str(root),
            hint="another drawing or validation list gives another score: restore the data that the configuration was "
            "made for, or drop the pinned version",
        )
    return config.model_copy(update={"data": config.data.model_copy(update={"version": version})})
