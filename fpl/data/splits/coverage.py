"""What the labeled images of a split cover of all its images: groups, classes, and the order of the list.

A list is suspicious where it misses what a random draw of as many images would have had: whole cities, whole classes,
or all but one stretch of the list. The rule is one probability for all three, `UNLIKELY`, under drawing n of N images
without replacement: of missing a group or class that K images have, hypergeometric with 0 hits, and of all n lying
within s lines on end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fpl.data.read import read_label
from fpl.data.spec import DatasetSpec
from fpl.data.splits.split import Split
from fpl.errors import FplError
from fpl.text import enumerate_briefly

UNLIKELY = 1e-3


@dataclass(frozen=True)
class Coverage:
    """What the labeled images of a split have, of what all of its images have.

    Attributes:
        groups: Groups (cities, sequences, years: what stands before the first `_` of an id) with a labeled image, all.
        classes: Classes in the labels of labeled images, and in those of all images; None where they were not read.
        unlabeled: Images of the split without a label on disk; None where they were not looked for.
        warnings: What a random draw would hardly have given.
    """

    groups: tuple[int, int]
    classes: tuple[int, int] | None
    unlabeled: int | None
    warnings: tuple[str, ...]


def coverage(
    split: Split,
    spec: DatasetSpec,
    order: Sequence[str] = (),
    classes: Mapping[str, frozenset[int] | None] | None = None,
) -> Coverage:
    """Compare the labeled images of a split with all of its images.

    Args:
        split: The split.
        spec: The data set.
        order: Training list of the data set; empty leaves the place in it out.
        classes: Id -> classes of its label, None without a readable one; None leaves classes out.
    """
    ids = (*split.labeled, *split.unlabeled)
    warnings: list[str] = []
    members = Counter(map(_group, ids))
    seen = set(map(_group, split.labeled))
    # Where every image has its own, the beginning of an id names no group.
    if 2 * len(members) <= len(ids):
        warnings += _absent(
            "group", {name: count for name, count in members.items() if name not in seen}, split, len(ids)
        )
    with_class, unlabeled = None, None
    if classes is not None:
        known = {image_id: found for image_id in ids if (found := classes.get(image_id)) is not None}
        unlabeled = len(ids) - len(known)
        images = Counter(index for found in known.values() for index in found)
        have = {index for image_id in split.labeled for index in known.get(image_id, ())}
        missing = {spec.class_names[index]: count for index, count in sorted(images.items()) if index not in have}
        labeled = sum(image_id in known for image_id in split.labeled)
        warnings += _absent("class", missing, split, len(known), labeled)
        with_class = (len(have), len(images))
    place = {image_id: number for number, image_id in enumerate(order)}
    lines = sorted(place[image_id] for image_id in split.labeled if image_id in place)
    pool = sum(image_id in place for image_id in ids)
    # Only where the split is of the whole list: a part of it may lie anywhere.
    if len(lines) == len(split.labeled) > 1 and pool == len(order):
        span = lines[-1] - lines[0] + 1
        if (chance := within(len(order), len(lines), span)) < UNLIKELY:
            warnings.append(
                f"all {len(lines)} labeled images are lines {lines[0] + 1} to {lines[-1] + 1} of the {len(order)} of "
                f"the training list: by chance with probability {chance:.1e}"
            )
    return Coverage((len(seen), len(members)), with_class, unlabeled, tuple(warnings))


def within(total: int, drawn: int, span: int) -> float:
    """Probability that all of `drawn` numbers out of 1..total, without replacement, lie within `span` on end.

    Of the sets within a stretch of s numbers, those within s - 1 are counted once too often per step.
    """
    fitting = (total - span + 1) * math.comb(span, drawn) - (total - span) * math.comb(span - 1, drawn)
    return fitting / math.comb(total, drawn)


def missed(total: int, with_it: int, drawn: int) -> float:
    """Probability that none of `drawn` images out of `total` is one of the `with_it` that have something."""
    # Imported late: it takes a second, and most commands that import this module never ask.
    from scipy.stats import hypergeom

    return float(hypergeom.pmf(0, total, with_it, drawn))


def classes_of(image_id: str, spec: DatasetSpec, root: Path) -> frozenset[int] | None:
    """Classes in the label of a training image; None where there is no readable one."""
    try:
        values = np.bincount(read_label(spec.label_path(root, "train", image_id), spec).ravel(), minlength=256)
    except FplError:
        # `fpl data check` says what is wrong with it.
        return None
    return frozenset(np.flatnonzero(values[: spec.num_classes]).tolist())


def _group(image_id: str) -> str:
    return image_id.split("_", 1)[0]


def _absent(
    kind: str, missing: Mapping[str, int], split: Split, total: int, labeled: int | None = None
) -> Iterable[str]:
    drawn = len(split.labeled) if labeled is None else labeled
    rare = {name: count for name, count in missing.items() if missed(total, count, drawn) < UNLIKELY}
    if rare:
        named = enumerate_briefly(f"{name} (in {count} of {total} images)" for name, count in rare.items())
        plural = kind if len(rare) == 1 else f"{kind}es" if kind.endswith("s") else f"{kind}s"
        yield (
            f"no labeled image has the {plural} {named}: {drawn} images drawn at random would, but for a probability "
            f"below {UNLIKELY:g}"
        )
