"""Images and full-size labels for validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fpl.data.cache import Cache
from fpl.data.images import Images
from fpl.data.spec import DatasetSpec
from fpl.data.splits import Split, seeded_sample
from fpl.data.splits.faults import raise_all
from fpl.errors import FplError
from fpl.text import enumerate_briefly

# What AEL's released loader of VOC's validation images draws with, whatever the seed of the run is.
VALIDATION_SEED = 0
# Part -> what its images are called that are validated on.
VALIDATED = {"val": "validation", "train": "held-out"}


class ValidationSet:
    """Iterable over (id, image, label) of what a run is validated on.

    image: uint8 [3, h, w], reduced by `downscale`; label: uint8 [H, W] at its own size, 0..C-1 or 255, so that every
    pixel of the original label counts.

    Args:
        spec: The data set.
        root: Its root folder (`find_root`).
        downscale: See `Images`.
        part: "val", or "train" for held-out images.
        ids: Images of the part, in this order (`validated_on`); None takes all, in the order of its list.
        rank: Number of this worker: it gets the images rank, rank + world_size, ...
        world_size: Number of workers.
        keep: Keep decoded arrays in memory for the next pass.
        cache: Decoded arrays of the part to use (`Images`).

    Attributes:
        total: Number of images of all workers together.

    Raises:
        FplError: An image or a label is missing; the message has its name.
    """

    def __init__(
        self,
        spec: DatasetSpec,
        root: Path,
        downscale: int = 1,
        *,
        part: str = "val",
        ids: Sequence[str] | None = None,
        rank: int = 0,
        world_size: int = 1,
        keep: bool = False,
        cache: Cache | None = None,
    ) -> None:
        ids = spec.list_ids(root, part) if ids is None else ids
        raise_all(validation_faults(spec, root, part, ids))
        self.total = len(ids)
        self.ids = tuple(ids[rank::world_size])
        self.images = Images(spec, root, part, downscale, keep, cache)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        for image_id in self.ids:
            # Copies: arrays of a cache are read-only, which torch has no notion of.
            image = np.array(self.images.image(image_id).transpose(2, 0, 1), order="C")
            yield image_id, torch.from_numpy(image), torch.from_numpy(self.images.full_label(image_id).copy())


def validated_on(
    split: Split, spec: DatasetSpec, root: Path, subsample: int | None = None
) -> tuple[str, Sequence[str]]:
    """Part and ids of the images that a run is validated on: those held out of its split, else the validation part.

    Held-out images are scored on their labels of the train part. In VOC these are the augmented ones: no border, and
    mostly drawn by SBD's annotators, so such a score stands beside others of its kind, not beside the benchmark's.

    Args:
        split: The run's split.
        spec: The data set.
        root: Its root folder.
        subsample: See `validation_ids`; without meaning for held-out images.
    """
    if split.held_out:
        return "train", split.held_out
    return "val", validation_ids(spec, root, subsample)


def validation_ids(spec: DatasetSpec, root: Path, subsample: int | None = None) -> list[str]:
    """Ids of the validation part that are validated on.

    The original AEL code for VOC validates on as many images as are labeled: `random.sample` of the list after
    `random.seed(0)`, for its loader of validation images is not told the run's seed, and on the whole list where that
    is shorter. Runs that differ in their seed are thus scored on the same images.

    Args:
        spec: The data set.
        root: Its root folder.
        subsample: Number of images (`eval.subsample`), in the order drawn; None, or as many as there are, takes all, in
            the order of the list.
    """
    ids = spec.list_ids(root, "val")
    if subsample is None or subsample >= len(ids):
        return ids
    return list(seeded_sample(ids, subsample, VALIDATION_SEED)[0])


def validation_faults(spec: DatasetSpec, root: Path, part: str, ids: Sequence[str]) -> Iterator[FplError]:
    """Ids to validate on without image or label on disk: without labels a score would be 0 and mean nothing.

    Args:
        spec: The data set.
        root: Its root folder.
        part: "val", or "train" for held-out images.
        ids: The ids.

    Returns:
        At most one fault of images and one of labels; each names the ids and the first path.
    """
    kind = VALIDATED[part]
    lost: dict[str, FplError] = {}
    for image_id in ids:
        try:
            spec.image_path(root, part, image_id)
        except FplError as error:
            lost[image_id] = error
    for first in list(lost.values())[:1]:
        what = f"{len(lost)} of {len(ids)} {kind} images are not on disk: {enumerate_briefly(lost)}"
        yield FplError(what, where=first.where, hint=first.hint)
    if bare := [image_id for image_id in ids if not spec.has_label(root, part, image_id)]:
        yield FplError(
            f"{len(bare)} of {len(ids)} {kind} images have no label: {enumerate_briefly(bare)}",
            where=str(spec.label_path(root, part, bare[0])),
            hint=f"validation needs them all; expected {spec.layout.description}",
        )
