"""The names of a data set's images: from lists that somebody has, else made up. Works without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fpl.data.lists import read_ids
from fpl.data.spec import DatasetSpec
from fpl.data.splits.published import ORDERS, is_published_order
from fpl.errors import FplError
from fpl.files import visible

CLEAN = "clean"


@dataclass(frozen=True)
class Names:
    """Ids of a data set.

    Attributes:
        train: Training ids, in the order that splits are made from.
        val: Validation ids.
        clean: The cleanly annotated training ids; empty where the data set knows no such.
        published: Whether `train` is the published training list in its order, so that splits meet their digests.
    """

    train: tuple[str, ...]
    val: tuple[str, ...]
    clean: tuple[str, ...] = ()
    published: bool = False


def find_names(spec: DatasetSpec, folders: Sequence[Path]) -> Names | None:
    """The published names of a data set, from text files anywhere below some folders; None where they are not there.

    The training list is known by its digest, or put together from a split's two lists; the validation list and that
    of the clean images by their lengths. Of these two, one that is not there is made up.

    Args:
        spec: The data set, one whose training list is published.
        folders: Where public lists, or those that were imported, may be.
    """
    assert spec.name in ORDERS and spec.counts is not None
    lists = list(_lists(spec, folders))
    train = next((ids for ids in _training_lists(lists) if is_published_order(spec.name, ids)), None)
    if train is None:
        return None
    known, made = frozenset(train), make_names(spec)
    count, clean_count = spec.counts["val"], spec.subset_counts.get(CLEAN, 0)
    sorts = [ids for _, ids in lists if len(set(ids)) == len(ids)]
    val = next((ids for ids in sorts if len(ids) == count and not known & set(ids)), made.val)
    clean = next((ids for ids in sorts if clean_count == len(ids) and known >= set(ids)), train[:clean_count])
    return Names(tuple(train), val, clean, published=True)


def make_names(spec: DatasetSpec) -> Names:
    """Names of the right pattern and number that no image of the data set has."""
    counts = spec.counts or {}
    if spec.layout.city_ids:
        train, val = (
            tuple(f"{word}{n % towns:02d}_{n // towns:06d}_000019" for n in range(counts[part]))
            for word, part, towns in (("madeup", "train", 18), ("madeupval", "val", 3))
        )
        # The published order is not that of the files either.
        return Names(tuple(reversed(train)), val)
    train, val = (
        tuple(f"{year}_{n:06d}" for n in range(counts[part])) for year, part in ((1907, "train"), (1908, "val"))
    )
    return Names(train, val, train[:: counts["train"] // spec.subset_counts[CLEAN]][: spec.subset_counts[CLEAN]])


def _lists(spec: DatasetSpec, folders: Sequence[Path]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    for folder in folders:
        for path in visible(folder, "**/*.txt"):
            try:
                yield path, tuple(read_ids(path, spec.canonical_id))
            except FplError:
                continue  # a text, but no list: there may be anything beside lists


def _training_lists(lists: Sequence[tuple[Path, tuple[str, ...]]]) -> Iterator[tuple[str, ...]]:
    yield from (ids for _, ids in lists)
    by_path = dict(lists)
    for path, ids in lists:
        # What both lists of a split hold together, in the order that the training list has where it is sorted.
        other = by_path.get(path.with_name(path.name.replace("labeled", "unlabeled")))
        if other is not None and "unlabeled" not in path.name:
            yield tuple(sorted({*ids, *other}))
