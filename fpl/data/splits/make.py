"""Splits that a rule gives."""

from __future__ import annotations

import json
from pathlib import Path

from fpl.data.lists import list_text, read_ids, read_record, repeated_ids
from fpl.data.spec import DatasetSpec
from fpl.data.splits.families import Family, get_family, how_to_get, without
from fpl.data.splits.faults import published_faults, raise_all, set_faults
from fpl.data.splits.published import ORDERS, cps_lines, file_digest, is_published_order, unpublished
from fpl.data.splits.split import Split, digest_ids
from fpl.errors import FplError
from fpl.files import write_atomic
from fpl.text import enumerate_briefly

ORDER_FILE, ORDER_RECORD = "order.txt", "order.json"

_ORDER_SOURCE = (
    "import the training list of the released CPS code once: fpl splits import-order {dataset} train.txt "
    "(city/config_new/train.txt in the DATA download of github.com/charlesCXK/TorchSemiSeg)"
)


def make_split(
    spec: DatasetSpec, root: Path, family: str, fraction: str, index: int = 0, *, splits_root: Path | None = None
) -> Split:
    """Make a split from the training list of a data set.

    Args:
        spec: The data set.
        root: Its root folder (`find_root`).
        family: Name of the rule; see `FAMILIES`.
        fraction: "1/n" or, for ael-random, also a number of labeled images.
        index: every-nth: which of the n splits of this fraction, 0..n-1, the published lists being number 0;
            ael-random: the seed, from 1.
        splits_root: Folder of all splits, where an imported order of the training list is kept.

    Raises:
        FplError: Unknown family or fraction, a family without rule, a wrong number or order of images, images that
            are missing or also validation, or lists that are not the published ones.
    """
    rule = get_family(family, spec.name, fraction)
    if rule.pick is None:
        raise FplError(
            f"family {family} is no rule: its lists are imported", hint=how_to_get(spec.name, family, fraction, index)
        )
    labeled, unlabeled = rule.pick(pool_of(rule, spec, root, splits_root), fraction, index)
    split = Split(spec.name, family, fraction, labeled, unlabeled, index=index)
    raise_all(set_faults(split, root=root, validation_ids=validation_ids(spec, root)))
    for fault in published_faults(split, spec, str(root)):
        raise fault
    return split


def rebuild(split: Split, spec: DatasetSpec, root: Path, splits_root: Path | None = None) -> Split | None:
    """The split as its family's rule gives it from the data at `root`; None where no rule gives a list.

    Raises:
        FplError: The training list cannot be had.
    """
    family = get_family(split.family)
    if family.pick is not None:
        labeled, unlabeled = family.pick(pool_of(family, spec, root, splits_root), split.fraction, split.index)
    elif family.fixed_unlabeled:
        labeled, unlabeled = split.labeled, without(pool_of(family, spec, root, splits_root), split.labeled)
    else:
        return None
    return Split(split.dataset, split.family, split.fraction, labeled, unlabeled, index=split.index)


def pool_of(family: Family, spec: DatasetSpec, root: Path, splits_root: Path | None = None) -> list[str]:
    """All images that a family shares out, labeled and unlabeled, in their order."""
    if family.pool == "train":
        return training_list(spec, root, splits_root)
    ids = spec.subset_ids(root, family.pool)
    wanted = spec.subset_counts.get(family.pool)
    if wanted is not None and len(ids) != wanted:
        raise FplError(f"{spec.name} has {len(ids)} {family.pool} images instead of {wanted}", where=str(root))
    return ids


def validation_ids(spec: DatasetSpec, root: Path) -> list[str]:
    """Ids of the validation part; none where it is not there."""
    return spec.list_ids(root, "val") if spec.has_part(root, "val") else []


def training_list(spec: DatasetSpec, root: Path, splits_root: Path | None = None) -> list[str]:
    """All training ids in the order that splits are made from: the published one where one is known.

    Raises:
        FplError: A wrong number of images, or ids or an order that are not the published ones.
    """
    ids = spec.list_ids(root, "train")
    counts = spec.expected_counts(root)
    if counts is not None and len(ids) != counts["train"]:
        raise FplError(
            f"{spec.name} has {len(ids)} training images instead of {counts['train']}",
            where=str(root),
            hint="complete the data set: a split of another list would be another split; "
            + spec.remedy.format(folder=root, data_root=root.parent),
        )
    order = read_order(spec, splits_root) if splits_root is not None else None
    if order is not None:
        _check_same(order, ids, root)
        return order
    if counts is None or is_published_order(spec.name, ids):
        return ids
    if spec.name == "cityscapes":
        raise FplError(
            "the order of the training list is not known: the published one is not sorted, and every n-th line of "
            "another order is another split",
            where=str(root),
            hint=_ORDER_SOURCE.format(dataset=spec.name),
        )
    what, remedy = unpublished(spec.name, ids)
    raise FplError(what, where=str(root), hint=remedy)


def import_order(spec: DatasetSpec, file: Path, splits_root: Path) -> list[str]:
    """Keep the published order of a training list below the splits folder, with its origin.

    Args:
        spec: The data set.
        file: The published list, in any of the public dialects.
        splits_root: Folder of all splits.

    Returns:
        The ids in order; they are in `<splits_root>/<dataset>/order.txt`.

    Raises:
        FplError: The file is not the published list, or the data set needs none.
    """
    if spec.name not in ORDERS:
        raise FplError(
            f"the training list of {spec.name} has an order of its own",
            hint=f"an order is imported for: {', '.join(sorted(ORDERS))}",
        )
    ids = read_ids(file, spec.training_id)
    if repeated := repeated_ids(file, ids, spec.canonical_id):
        raise FplError(f"ids that stand twice: {enumerate_briefly(repeated)}", where=str(file))
    if not is_published_order(spec.name, ids):
        wanted = f" instead of {spec.counts['train']}" if spec.counts and spec.counts["train"] != len(ids) else ""
        digest = digest_ids(cps_lines(spec.name, ids))
        raise FplError(
            f"not the published training list: {len(ids)} ids{wanted}, digest {digest} instead of {ORDERS[spec.name]}",
            where=str(file),
            hint=_ORDER_SOURCE.format(dataset=spec.name),
        )
    record = {"file": origin_name(file), "file_digest": file_digest(file.read_bytes()), "ids_digest": digest_ids(ids)}
    folder = splits_root / spec.name
    write_atomic(folder / ORDER_FILE, list_text(ids, spec.canonical_id, str(file)))
    write_atomic(folder / ORDER_RECORD, (json.dumps(record, indent=2) + "\n").encode())
    return ids


def read_order(spec: DatasetSpec, splits_root: Path) -> list[str] | None:
    """The imported order of a training list; None if none was imported.

    Raises:
        FplError: The file was changed.
    """
    path = splits_root / spec.name / ORDER_FILE
    if not path.is_file():
        return None
    ids = read_ids(path, spec.training_id)
    wanted = read_record(path.with_name(ORDER_RECORD)).get("ids_digest")
    if wanted != digest_ids(ids) or not is_published_order(spec.name, ids):
        raise FplError(
            f"the imported order was changed: digest {digest_ids(ids)} instead of {wanted}",
            where=str(path),
            hint=_ORDER_SOURCE.format(dataset=spec.name),
        )
    return ids


def origin_name(file: Path) -> str:
    """The last three parts of a path: enough to recognise a public list by, without the places of a machine."""
    return "/".join(file.absolute().parts[-3:])


def _check_same(order: list[str], ids: list[str], root: Path) -> None:
    listed, present = frozenset(order), frozenset(ids)
    absent = [image_id for image_id in order if image_id not in present]
    foreign = [image_id for image_id in ids if image_id not in listed]
    if absent or foreign:
        texts = [f"{len(absent)} are missing: {enumerate_briefly(absent)}"] if absent else []
        texts += [f"{len(foreign)} are not in the list: {enumerate_briefly(foreign)}"] if foreign else []
        raise FplError(
            f"the training images are not those of the imported list: {'; '.join(texts)}",
            where=str(root),
            hint="complete the data set, and take out what does not belong to it",
        )
