"""What can be wrong with a split, each fault with its own message."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fpl.data.lists import lines_by_id, repeated_ids
from fpl.data.spec import DatasetSpec, get_spec
from fpl.data.splits.families import expected_counts, get_family, how_to_get
from fpl.data.splits.published import digests_like, published_of
from fpl.data.splits.split import DROP_FROM_UNLABELED, LABELED_FILE, RECORD_FILE, UNLABELED_FILE, Split
from fpl.errors import FplError
from fpl.text import enumerate_briefly, one_line

OnDisk = Callable[[str], bool]
_NAMED = 10
# By how much of all images a list from elsewhere may miss the share that it is called by, beside one image.
ROUNDING = 0.05
# Id -> file and line where it stands: `labeled.txt, line 3`.
Lines = Mapping[str, str]
NOWHERE: Lines = MappingProxyType({})
_DIGESTS = ("labeled_digest", "unlabeled_digest")
_REQUIRED = ("counts", *_DIGESTS)
_BY_HAND = {"repairs", "counts"}
_KINDS = {"dataset": str, "family": str, "fraction": str, "index": int, **dict.fromkeys(_DIGESTS, str)}
_WORDS = {str: "text", int: "whole number"}
_NO_COUNTS = {"labeled": 0, "unlabeled": 0}


def raise_all(faults: Iterable[FplError]) -> None:
    """Raise the fault if there is one, and one error that says them all if there are more.

    Raises:
        FplError: There is one.
    """
    found = list(faults)
    if len(found) > 1:
        what = "".join(f"\n    {one_line(f'{fault.where}: {fault.what}')}" for fault in found[:_NAMED])
        what += f"\n    and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        hints = dict.fromkeys(fault.hint for fault in found if fault.hint)
        raise FplError(f"{len(found)} faults{what}", where=found[0].where, hint="; ".join(hints))
    for fault in found:
        raise fault


def set_faults(
    split: Split,
    *,
    root: Path | None = None,
    validation_ids: Sequence[str] = (),
    where: str = "",
    on_disk: OnDisk | None = None,
    lines: Lines = NOWHERE,
) -> Iterator[FplError]:
    """Faults of the two sets of ids: empty, overlap, validation images in training, images that are not on disk.

    Args:
        split: The split.
        root: Root of the data set; None leaves the files alone.
        validation_ids: Ids that must not be in the split.
        where: Where the split stands, for the messages.
        on_disk: Whether an id has an image; None looks for each.
        lines: Where ids stand, for the messages.
    """

    def named(ids: Sequence[str]) -> str:
        return enumerate_briefly(_with_line(each, lines) for each in ids)

    where = where or f"split {split.name}"
    if not split.labeled:
        yield FplError(
            "the split has no labeled image", where=where, hint="make or import it again: a split needs at least one"
        )
    known = frozenset(split.labeled)
    if both := [image_id for image_id in split.unlabeled if image_id in known]:
        yield FplError(
            f"{len(both)} ids are labeled and unlabeled at once: {named(both)}",
            where=where,
            hint=f'mend the lists, or put "repairs": ["{DROP_FROM_UNLABELED}"] into {RECORD_FILE}; '
            f"fpl splits import --repair {DROP_FROM_UNLABELED} does it, too",
        )
    training = known.union(split.unlabeled, split.held_out)
    if leaked := [image_id for image_id in validation_ids if image_id in training]:
        yield FplError(
            f"{len(leaked)} validation ids are in the training lists: {named(leaked)}",
            where=where,
            hint="take them out: a score on training images says nothing",
        )
    if root is None:
        return
    spec, ids = get_spec(split.dataset), (*split.labeled, *split.unlabeled, *split.held_out)
    exists = on_disk or images_on_disk(spec, root)
    # A validation id has its image elsewhere, which has been said.
    known_elsewhere = frozenset(leaked)
    missing = [image_id for image_id in ids if not exists(image_id) and image_id not in known_elsewhere]
    if missing:
        yield FplError(
            f"{len(missing)} of {len(ids)} training images are not on disk: {named(missing)}",
            where=where,
            hint=f"looked in {spec.layout_at(root).image_folder(root, 'train')}: complete the data set",
        )


def label_faults(
    split: Split, root: Path, where: str = "", *, on_disk: OnDisk | None = None, lines: Lines = NOWHERE
) -> Iterator[FplError]:
    """Labeled images that have no label on disk; arguments as for `set_faults`."""
    spec = get_spec(split.dataset)
    exists = on_disk or images_on_disk(spec, root)
    labeled = [image_id for image_id in split.labeled if exists(image_id)]
    if bare := [image_id for image_id in labeled if not spec.has_label(root, "train", image_id)]:
        yield FplError(
            f"{len(bare)} of {len(labeled)} labeled images have no label: "
            + enumerate_briefly(_with_line(each, lines) for each in bare),
            where=where or f"split {split.name}",
            hint=f"looked for {spec.label_path(root, 'train', bare[0])}: complete the labels, or label other images",
        )


def _with_line(image_id: str, lines: Lines) -> str:
    return f"{image_id} ({lines[image_id]})" if image_id in lines else image_id


def lines_of(files: Iterable[Path], spec: DatasetSpec) -> Lines:
    """Where each id stands first in some list files."""
    return {
        image_id: f"{file.name}, line {numbers[0]}"
        for file in reversed(list(files))
        for image_id, numbers in lines_by_id(file, spec.canonical_id).items()
    }


def images_on_disk(spec: DatasetSpec, root: Path) -> OnDisk:
    """Whether a training id has an image file at `root`; each folder is listed once, which shared disks like better."""

    @functools.cache
    def files(folder: str) -> frozenset[str]:
        try:
            with os.scandir(folder) as entries:
                # Only of symbolic links does this ask the disk: they may lead nowhere.
                return frozenset(entry.name for entry in entries if entry.is_file())
        except OSError:
            return frozenset()

    def exists(image_id: str) -> bool:
        for layout in spec.layouts:
            place = layout.image_folder(root, "train")
            for name in layout.names(image_id, layout.image_endings):
                folder, _, file = f"{place}/{name}".rpartition("/")
                if file in files(folder):
                    return True
        return False

    return exists


def list_faults(split: Split, folder: Path) -> Iterator[FplError]:
    """Ids that stand twice in one list."""
    for name, ids in ((LABELED_FILE, split.labeled), (UNLABELED_FILE, split.unlabeled)):
        if repeated := repeated_ids(folder / name, ids, get_spec(split.dataset).canonical_id):
            yield FplError(
                f"ids that stand twice: {enumerate_briefly(repeated)}",
                where=str(folder / name),
                hint="keep one of each: the others would count double",
            )


def record_faults(split: Split, folder: Path, record: Mapping[str, Any]) -> Iterator[FplError]:
    """A record that lacks what was written to it: nobody would see by it that the lists were changed."""
    path = folder / RECORD_FILE
    # Whoever brings lists of their own needs none, and may write down no more than a repair.
    if not path.is_file() or (record and record.keys() <= _BY_HAND):
        faults = []
    else:
        faults = [f"{key} is missing" for key in _REQUIRED if key not in record]
    for key, kind in _KINDS.items():
        # An exact type: true is no number.
        if key in record and type(record[key]) is not kind:
            faults.append(f"{key} is {record[key]!r:.80}, which is no {_WORDS[kind]}")
    counts = record.get("counts", _NO_COUNTS)
    if not isinstance(counts, dict) or any(type(counts.get(key)) is not int for key in _NO_COUNTS):
        faults.append(f"counts is {counts!r:.80}, where the whole numbers labeled and unlabeled should be")
    if faults:
        yield FplError(
            f"no record of a split: {'; '.join(faults)}",
            where=str(path),
            hint=how_to_get(split.dataset, split.family, split.fraction, split.index),
        )


def count_faults(
    split: Split, spec: DatasetSpec, where: str, record: Mapping[str, Any], root: Path | None
) -> Iterator[FplError]:
    """Numbers of ids against the record and against what the family gives for the data set's size."""
    found = (len(split.labeled), len(split.unlabeled))
    wanted: list[tuple[tuple[int, int], str]] = []
    if isinstance(counts := record.get("counts"), dict):
        wanted.append(((counts.get("labeled", -1), counts.get("unlabeled", -1)), RECORD_FILE))
    # Without its root, the size of a drawn set is known only from the record.
    sizes = spec.expected_counts(root) if root is not None or not spec.drawn else None
    family = get_family(split.family)
    by_rule = expected_counts(spec, family, split.fraction, split.index, sizes["train"] if sizes else None)
    if by_rule is not None:
        pool = spec.subset_counts.get(family.pool) or (sizes["train"] if sizes else 0)
        wanted.append((by_rule, f"{split.fraction} of {pool} training images"))
    if family.name == "imported" and "/" in split.fraction and (said := _not_the_fraction(split)):
        yield FplError(said, where=where, hint=f"import it under the number of its images: --fraction {found[0]}")
        return
    for expected, source in wanted:
        if found == expected:
            continue
        hint = how_to_get(split.dataset, split.family, split.fraction, split.index)
        if family.fixed_unlabeled and found[0] == expected[0]:
            hint = f"leave the unlabeled list out, it follows from the labeled one; {hint}"
        yield FplError(
            f"{found[0]} labeled + {found[1]} unlabeled ids instead of {expected[0]} + {expected[1]} ({source})",
            where=where,
            hint=hint,
        )
        return


def _not_the_fraction(split: Split) -> str:
    """Why lists from elsewhere are not the share that they are called by; empty where they are, but for rounding.

    That share heads columns of tables and names runs.
    """
    labeled, total, n = len(split.labeled), len(split.labeled) + len(split.unlabeled), int(split.fraction[2:])
    if abs(labeled * n - total) <= n + total * ROUNDING:
        return ""
    return f"{labeled} labeled of {total} ids are not {split.fraction}, which are about {max(1, round(total / n))}"


def digest_faults(split: Split, folder: Path, record: Mapping[str, Any]) -> Iterator[FplError]:
    """Lists that were changed after their record was written."""
    again = how_to_get(split.dataset, split.family, split.fraction, split.index)
    for name, digest in (("labeled", split.labeled_digest), ("unlabeled", split.unlabeled_digest)):
        if record.get(f"{name}_digest", digest) != digest:
            yield FplError(
                f"the list has digest {digest}, but {RECORD_FILE} was written for {record[f'{name}_digest']}",
                where=str(folder / f"{name}.txt"),
                hint=f"the list was changed; {again}",
            )


def published_faults(split: Split, spec: DatasetSpec, where: str) -> Iterator[FplError]:
    """A split under the name of a published one that is another."""
    published = published_of(spec, split.family, split.fraction, split.index)
    if published is None:
        return
    found = digests_like(split, published)
    if found != published:
        yield FplError(
            f"not the published lists of {split.name}: digests {found} instead of {published}",
            where=where,
            hint=f"{how_to_get(split.dataset, split.family, split.fraction)}; "
            "lists from elsewhere belong under --family imported",
        )
