"""Public and private lists, brought to canonical ids with a record of where they came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpl.data.lists import read_ids, repeated_ids
from fpl.data.spec import DatasetSpec
from fpl.data.splits.families import Family, get_family, without
from fpl.data.splits.faults import count_faults, lines_of, published_faults, raise_all, set_faults
from fpl.data.splits.make import origin_name, pool_of, rebuild, validation_ids
from fpl.data.splits.published import LEAKS, file_digest, published_of
from fpl.data.splits.split import DROP_FROM_UNLABELED, Split
from fpl.errors import FplError
from fpl.text import enumerate_briefly


@dataclass(frozen=True)
class Imported:
    """A split made of lists from elsewhere.

    Attributes:
        split: The split, after repairs.
        origin: For its record: files with their digests, and ids that a repair dropped.
        dropped: Ids that a repair took out of the unlabeled list.
    """

    split: Split
    origin: dict[str, Any]
    dropped: tuple[str, ...]


def import_split(
    spec: DatasetSpec,
    labeled: Path,
    unlabeled: Path | None,
    family: str,
    fraction: str,
    index: int = 0,
    *,
    root: Path | None = None,
    splits_root: Path | None = None,
    repairs: Sequence[str] = (),
) -> Imported:
    """Read public lists in any of their dialects and check them.

    Bare ids, "/image<tab>/label" and "image label" lines are accepted, with folders and endings or without, Windows
    line ends, a byte order mark and a missing last line end. PseudoSeg's published unlabeled lists hold one labeled
    id each: it is dropped, and the repair recorded. Any other overlap is an error unless `repairs` allows it.

    Args:
        spec: The data set.
        labeled: List of labeled images.
        unlabeled: List of unlabeled images; None takes all others of the family's pool, which needs `root`.
        family: Family to file them under.
        fraction: "1/n" or the number of labeled images.
        index: Which of the splits of this fraction.
        root: Root of the data set; None leaves ids on disk and validation ids unchecked.
        splits_root: Folder of all splits, for an imported order of the training list.
        repairs: Repairs that are allowed: "drop-from-unlabeled".

    Raises:
        FplError: A file is unreadable or has ids twice, or the split has faults; all are told at once, with the
            lines of the ids; see `faults`.
    """
    kind = get_family(family, spec.name, fraction)
    if wrong := [repair for repair in repairs if repair != DROP_FROM_UNLABELED]:
        raise FplError(f"unknown repair '{wrong[0]}'", hint=f"allowed: {DROP_FROM_UNLABELED}")
    faults: list[FplError] = []
    files = [labeled] if unlabeled is None else [labeled, unlabeled]
    lists = [_read(spec, file, faults) for file in files]
    ids = lists[0]
    origin: dict[str, Any] = {"labeled": _origin(labeled)}
    dropped: tuple[str, ...] = ()
    if unlabeled is None:
        rest = _complement(kind, spec, ids, labeled, root, splits_root, faults)
        origin["unlabeled"] = "the others"
    else:
        rest = lists[1]
        origin["unlabeled"] = _origin(unlabeled)
        known = frozenset(ids)
        both = tuple(image_id for image_id in rest if image_id in known)
        published_leak = kind.fixed_unlabeled and both == (LEAKS.get(fraction),)
        if both and (published_leak or repairs):
            dropped, rest = both, without(rest, both)
            origin["dropped_from_unlabeled"] = list(both)
    split = Split(spec.name, family, fraction, ids, rest, (DROP_FROM_UNLABELED,) if dropped else (), index)
    faults += set_faults(
        split,
        root=root,
        validation_ids=validation_ids(spec, root) if root else (),
        where=str(labeled),
        lines=lines_of(files, spec),
    )
    raise_all(faults)
    raise_all((*count_faults(split, spec, str(labeled), {}, root), *published_faults(split, spec, str(labeled))))
    if root is not None and published_of(spec, family, fraction, index) is None:
        raise_all(rule_faults(split, spec, str(labeled), root, splits_root))
    return Imported(split, origin, dropped)


def rule_faults(split: Split, spec: DatasetSpec, where: str, root: Path, splits_root: Path | None) -> list[FplError]:
    """A split whose lists are not what its family's rule gives from the data at `root`.

    Raises:
        FplError: The rule cannot be applied: the training list is incomplete or its order is not known.
    """
    by_rule = rebuild(split, spec, root, splits_root)
    if by_rule is None or (by_rule.labeled, by_rule.unlabeled) == (split.labeled, split.unlabeled):
        return []
    same = frozenset(by_rule.labeled) == frozenset(split.labeled)
    same = same and frozenset(by_rule.unlabeled) == frozenset(split.unlabeled)
    return [
        FplError(
            f"not what the rule of {split.family} gives: "
            + ("the same images in another order" if same else f"{split.identity} instead of {by_rule.identity}"),
            where=where,
            hint="make it with fpl splits make; lists from elsewhere belong under --family imported",
        )
    ]


def _complement(
    family: Family,
    spec: DatasetSpec,
    ids: tuple[str, ...],
    where: Path,
    root: Path | None,
    splits_root: Path | None,
    faults: list[FplError],
) -> tuple[str, ...]:
    if root is None:
        raise FplError(
            f"without the data of {spec.name} the unlabeled images are not known",
            where=str(where),
            hint="give --data-root, or the unlabeled list as well",
        )
    pool = pool_of(family, spec, root, splits_root)
    # Those of the validation set are called so by the check of the split.
    known = frozenset(pool).union(validation_ids(spec, root))
    if foreign := [image_id for image_id in ids if image_id not in known]:
        name = "training images" if family.pool == "train" else f"{family.pool} training images"
        lines = lines_of([where], spec)
        faults.append(
            FplError(
                f"{len(foreign)} labeled ids are none of the {len(pool)} {name}: "
                + enumerate_briefly(f"{each} ({lines[each]})" for each in foreign),
                where=str(where),
                hint=f"is this a list of {spec.name}?",
            )
        )
    return without(pool, ids)


def _read(spec: DatasetSpec, path: Path, faults: list[FplError]) -> tuple[str, ...]:
    """Ids of a list, each once; those that stand twice are a fault."""
    ids = read_ids(path, spec.training_id)
    if repeated := repeated_ids(path, ids, spec.canonical_id):
        what = f"ids that stand twice: {enumerate_briefly(repeated)}"
        faults.append(FplError(what, where=str(path), hint="keep one of each"))
    return tuple(dict.fromkeys(ids))


def _origin(path: Path) -> dict[str, str]:
    return {"file": origin_name(path), "file_digest": file_digest(path.read_bytes())}
