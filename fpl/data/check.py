"""Checks a whole data set: every image, every label, every list; tells all that is wrong, not the first."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from fpl.data.check_files import Decoded, Finding, Pair, decode_pair, relative
from fpl.data.check_report import CheckReport, PartSummary
from fpl.data.contents import file_names
from fpl.data.drawing import changed_files, how_to_draw_again
from fpl.data.layout import PARTS
from fpl.data.lists import duplicates, read_ids
from fpl.data.names import is_utf8, normal
from fpl.data.parallel import run_parallel
from fpl.data.read import orientation_ignored
from fpl.data.spec import DatasetSpec
from fpl.data.splits.published import is_published_order, unpublished
from fpl.errors import FplError
from fpl.files import visible
from fpl.text import enumerate_briefly

SAMPLE = 50
"""Images per part that are decoded where not all are."""


def check_dataset(
    spec: DatasetSpec,
    root: Path,
    *,
    fast: bool = False,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CheckReport:
    """Check every file of the training and the validation part, whatever is wrong with any of them.

    Training images may be without labels, as unlabeled images need none; that is noted. Validation images may not.

    Args:
        spec: The data set.
        root: Its root folder (`find_root`).
        fast: Decode only 50 images of each part, evenly spaced in its list; lists and names are checked in full.
        workers: Processes that decode; None takes one per core. The report does not depend on it.
        progress: Called with the number of decoded images and of all that will be.

    Returns:
        The report; it has faults where the data set is not as it should be.
    """
    began = time.monotonic()
    findings: list[Finding] = []
    ids = {part: _list_ids(spec, root, part, findings) for part in PARTS}
    pairs = {part: _find_pairs(spec, root, part, ids[part], findings) for part in PARTS}
    _check_drawn(spec, root, ids, findings)
    _check_counts(spec, root, ids, findings)
    _check_published(spec, ids["train"], findings)
    _check_overlap(ids, findings)
    _check_unlisted(spec, root, ids, pairs, findings)

    chosen = [pair for part in PARTS for pair in (_sample(pairs[part]) if fast else pairs[part])]
    decoded = run_parallel(partial(decode_pair, spec=spec, root=root), chosen, workers=workers, progress=progress)
    findings += [finding for each in decoded for finding in each.findings]
    _check_copies(root, chosen, decoded, findings)
    _check_turned(chosen, decoded, findings)
    parts = tuple(_summary(spec, part, len(ids[part]), pairs[part], chosen, decoded) for part in PARTS)
    _check_classes(spec, parts, fast, findings)
    findings.sort(key=lambda finding: PARTS.index(finding.part))
    return CheckReport(
        spec.name, root, spec.class_names, parts, tuple(findings), len(chosen) < sum(map(len, pairs.values())),
        time.monotonic() - began,
    )  # fmt: skip


def _list_ids(spec: DatasetSpec, root: Path, part: str, findings: list[Finding]) -> list[str]:
    """Ids of a part; a list that has an id twice is reported and read on."""
    try:
        return spec.list_ids(root, part)
    except FplError as error:
        where = Path(error.where)
        findings.append(Finding("fault", part, "list", relative(where, root), error.what, error.hint or _LIST_REMEDY))
    layout = spec.layout_at(root)
    try:
        if where.is_file():
            return list(dict.fromkeys(read_ids(where, spec.canonical_id)))
        names = sorted(path.name for path in visible(where, "**/*") if is_utf8(path.name))
        endings = layout.image_endings
        found = (name.removesuffix(end) for end in endings for name in names if name.endswith(end))
        return list(dict.fromkeys(map(normal, found)))
    except (FplError, OSError):
        return []


_LIST_REMEDY = "every id must stand for one image: remove the second line of the list, or the second file"


def _find_pairs(spec: DatasetSpec, root: Path, part: str, ids: Sequence[str], findings: list[Finding]) -> list[Pair]:
    pairs, unlabeled = [], []
    for image_id in ids:
        try:
            image = spec.image_path(root, part, image_id)
        except FplError as error:
            file = relative(Path(error.where), root)
            findings.append(Finding("fault", part, "missing images", file, error.what, _MISSING_REMEDY))
            continue
        label = spec.label_path(root, part, image_id)
        if not (there := spec.has_label(root, part, image_id)):
            unlabeled.append(relative(label, root))
        pairs.append(Pair(part, image_id, image, label if there else None))
    if part == "val":
        findings += [
            Finding("fault", part, "missing labels", file, "the label of a validation image is missing", _LABEL_REMEDY)
            for file in unlabeled
        ]
    elif unlabeled:
        what = f"{len(unlabeled)} of {len(pairs)} training images have no label: {enumerate_briefly(unlabeled, 3)}"
        findings.append(Finding("note", part, "labels", part, what, "they can serve as unlabeled images only"))
    return pairs


_MISSING_REMEDY = "copy the image again; if it should not be there, take its id out of the list"
_LABEL_REMEDY = "copy the label again: no validation pixel may be left out"


def _check_drawn(spec: DatasetSpec, root: Path, ids: dict[str, list[str]], findings: list[Finding]) -> None:
    """Files of a drawn set that were changed since."""
    try:
        changed = changed_files(root) if spec.drawn else {}
    except FplError:
        return  # the record is broken, which the check of the counts says
    validation = set(file_names(spec, root, "val", ids["val"]))
    for name, what in changed.items():
        part = "val" if name in validation else "train"
        findings.append(Finding("fault", part, "drawing", name, f"not as drawn: {what}", how_to_draw_again(root)))


def _check_counts(spec: DatasetSpec, root: Path, ids: dict[str, list[str]], findings: list[Finding]) -> None:
    try:
        expected = spec.expected_counts(root) or {}
    except (FplError, OSError, ValueError, KeyError) as error:
        findings.append(Finding("fault", "train", "record", ".", f"the record of the drawing is broken ({error})",
                                "draw the data set again"))  # fmt: skip
        return
    missing = f"something is missing: {spec.remedy.format(folder=root, data_root=root.parent)}"
    many = "remove what is too many: splits and results of another set of images do not compare"
    for part, wanted in expected.items():
        if part in ids and len(ids[part]) != wanted:
            what, remedy = f"{len(ids[part])} ids, {wanted} are expected", missing if len(ids[part]) < wanted else many
            findings.append(Finding("fault", part, "count", part, what, remedy))
    for subset, wanted in spec.subset_counts.items():
        try:
            count = len(spec.subset_ids(root, subset))
        except FplError as error:
            file = relative(Path(error.where), root)
            findings.append(Finding("fault", "train", "subset", file, error.what, error.hint or missing))
            continue
        if count != wanted:
            what = f"the subset {subset} has {count} ids, {wanted} are expected"
            findings.append(Finding("fault", "train", "count", "train", what, missing if count < wanted else many))


def _check_published(spec: DatasetSpec, ids: Sequence[str], findings: list[Finding]) -> None:
    """Whether the training ids are the published ones; Cityscapes' list is not sorted, so that its ids do not tell."""
    if spec.counts is None or len(ids) != spec.counts["train"] or spec.layout.city_ids:
        return
    if not is_published_order(spec.name, ids):
        what, remedy = unpublished(spec.name, ids)
        findings.append(Finding("warning", "train", "not published", "train", what, remedy))


def _check_overlap(ids: dict[str, list[str]], findings: list[Finding]) -> None:
    validation = set(ids["val"])
    if both := [image_id for image_id in ids["train"] if image_id in validation]:
        what = f"{len(both)} ids are in both train and val: {enumerate_briefly(both)}"
        findings.append(Finding("fault", "val", "both", "val", what, "a validation image must not be trained on"))


def _check_unlisted(
    spec: DatasetSpec,
    root: Path,
    ids: dict[str, list[str]],
    pairs: dict[str, list[Pair]],
    findings: list[Finding],
) -> None:
    """Files beside the images and labels of the lists that no list names."""
    known = {image_id for part in PARTS for image_id in ids[part]}
    # Where both parts share a folder, only the lists say what belongs to the data set, and there may be more.
    shared = bool({pair.image.parent for pair in pairs["train"]} & {pair.image.parent for pair in pairs["val"]})
    seen: set[Path] = set()
    for part in PARTS:
        images = [(pair.image_id, pair.image) for pair in pairs[part]]
        labels = [(pair.image_id, pair.label) for pair in pairs[part] if pair.label is not None]
        for kind, files in (("images", images), ("labels", labels)):
            unlisted = sorted(path for path in _beside(files, known) if path not in seen)
            seen.update(unlisted)
            names = [relative(path, root) for path in unlisted]
            if names and shared:
                folder = relative(unlisted[0].parent, root)
                what = f"{len(names)} of the {kind} here are in no list and not used"
                findings.append(Finding("note", part, f"unlisted {kind}", folder, what))
            elif names:
                what = "no list or image has this name; it is not used"
                findings += [
                    Finding("warning", part, f"unlisted {kind}", name, what, "is an image or a line of the list lost?")
                    for name in names
                ]


def _beside(files: Iterable[tuple[str, Path]], known: set[str]) -> set[Path]:
    """Files below the common folder of `files` whose name has one of their endings, but the id of no image."""
    listed = list(files)
    if not listed:
        return set()
    # A disk may hold another form of a name than the id.
    endings = {normal(path.name).removeprefix(image_id) for image_id, path in listed}
    top = Path(os.path.commonpath({path.parent for _, path in listed}))
    return {
        path
        for path in visible(top, "**/*")
        for ending in endings
        if (name := normal(path.name)).endswith(ending) and name.removesuffix(ending) not in known
    }


def _sample(pairs: Sequence[Pair]) -> list[Pair]:
    positions = np.linspace(0, len(pairs) - 1, min(SAMPLE, len(pairs))).round().astype(int)
    return [pairs[position] for position in positions]


def _check_copies(root: Path, pairs: Sequence[Pair], decoded: Sequence[Decoded], findings: list[Finding]) -> None:
    first: dict[str, Pair] = {}
    repeated = set(duplicates([each.digest for each in decoded if each.digest]))
    for pair, each in zip(pairs, decoded, strict=True):
        if each.digest not in repeated:
            continue
        other = first.setdefault(each.digest, pair)
        if other is not pair:
            what = f"the same file as {relative(other.image, root)}"
            file = relative(pair.image, root)
            remedy = "two ids show one image: is one wrong?"
            if other.part != pair.part:
                remedy = "an image of the validation is trained on, under another id: its scores mean nothing"
            findings.append(Finding("warning", pair.part, "copies", file, what, remedy))


def _check_turned(pairs: Sequence[Pair], decoded: Sequence[Decoded], findings: list[Finding]) -> None:
    for part in PARTS:
        turned = [
            pair.image.name for pair, each in zip(pairs, decoded, strict=True) if each.turned and pair.part == part
        ]
        if turned:
            findings.append(Finding("note", part, "orientation", part, orientation_ignored(turned)))


def _summary(
    spec: DatasetSpec, part: str, listed: int, pairs: Sequence[Pair], chosen: Sequence[Pair], decoded: Sequence[Decoded]
) -> PartSummary:
    pixels = np.zeros(spec.num_classes + 1, dtype=np.int64)
    class_images = np.zeros_like(pixels)
    mine = [each for pair, each in zip(chosen, decoded, strict=True) if pair.part == part]
    for each in mine:
        if each.pixels is not None:
            pixels += each.pixels
            class_images += each.pixels > 0
    return PartSummary(
        part=part,
        listed=listed,
        images=len(pairs),
        labels=sum(pair.label is not None for pair in pairs),
        decoded=len(mine),
        sizes=dict(Counter(each.image_size for each in mine if each.image_size is not None)),
        pixels=pixels,
        class_images=class_images,
    )


def _check_classes(spec: DatasetSpec, parts: Sequence[PartSummary], fast: bool, findings: list[Finding]) -> None:
    sample = " in the sample" if fast else ""
    for each in parts:
        if not each.pixels.any():
            continue
        absent = [name for name, count in zip(spec.class_names, each.pixels, strict=False) if not count]
        if len(absent) == spec.num_classes:
            what, remedy = f"every label pixel{sample} is to be ignored", "are these the labels of this data set?"
            # What a sample does not show may be in the other files.
            level: Literal["fault", "warning"] = "warning" if each.decoded < each.images else "fault"
            findings.append(Finding(level, each.part, "classes", each.part, what, remedy))
        elif absent:
            what = f"classes never seen{sample}: {', '.join(absent)}"
            remedy = (
                "is this a binary mask with 0 and 255?"
                if spec.num_classes > 2 and len(absent) == spec.num_classes - 1 and each.pixels[0]
                else "their IoU is undefined; have labels another encoding, or are files missing?"
            )
            findings.append(Finding("warning", each.part, "classes", each.part, what, remedy))
