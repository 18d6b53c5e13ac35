"""A split as a value, and the names of its files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fpl.data.splits.families import every_nth
from fpl.errors import FplError
from fpl.text import plural

DROP_FROM_UNLABELED = "drop-from-unlabeled"
"""The one repair: an id in both lists stays in the labeled one only."""

LABELED_FILE, UNLABELED_FILE, RECORD_FILE = "labeled.txt", "unlabeled.txt", "split.json"


def digest_ids(ids: Sequence[str]) -> str:
    """First 16 hex digits of the SHA-256 of the ids joined by line feeds."""
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Split:
    """Labeled and unlabeled image ids of one training set, after the repairs named in `repairs`.

    `held_out` are labeled images that are in neither list: not trained on, but validated on (`hold_out`).
    """

    dataset: str
    family: str
    fraction: str
    labeled: tuple[str, ...]
    unlabeled: tuple[str, ...]
    repairs: tuple[str, ...] = ()
    index: int = 0
    held_out: tuple[str, ...] = ()

    @property
    def labeled_digest(self) -> str:
        """Identity of the labeled list; see `digest_ids`."""
        return digest_ids(self.labeled)

    @property
    def unlabeled_digest(self) -> str:
        """Identity of the unlabeled list; see `digest_ids`."""
        return digest_ids(self.unlabeled)

    @property
    def identity(self) -> str:
        """Family and digests of both lists: `every-nth 6d7a1b2c3d4e5f60/0123456789abcdef`. Stands in every table."""
        return f"{self.family} {self.labeled_digest}/{self.unlabeled_digest}"

    @property
    def name(self) -> str:
        """What it is called: data set, family, fraction and, if it is not 0, index."""
        return f"{self.dataset} {self.family} {self.fraction}" + (f" index {self.index}" if self.index else "")


def hold_out(split: Split, every: int) -> Split:
    """The split with some labeled images kept from training (`data.split.holdout`).

    Held out are the positions 0, every, 2 * every, ... of the labeled list: of L images ceil(L / every). What remains
    stays in its order, and the unlabeled images stay as they are. The list and `every` decide which they are, so the
    digest of the whole list pins them.

    Args:
        split: A split as its files have it.
        every: 2 to L.

    Raises:
        FplError: No labeled image would remain, or `every` is larger than L, where it would mean the same as L.
    """
    count = len(split.labeled)
    if not 2 <= every <= count:
        raise FplError(
            f"data.split.holdout = {every} of {plural(count, 'labeled image', spec='d')}",
            where=f"split {split.name}",
            hint=f"2 to {count} are allowed, where {count} holds out one image"
            if count > 1
            else "one must be held out and one remain: take a split with at least 2 labeled images",
        )
    held_out, labeled = every_nth(split.labeled, every)
    return replace(split, labeled=labeled, held_out=held_out)


def split_folder(splits_root: Path, dataset: str, family: str, fraction: str, index: int = 0) -> Path:
    """Folder of a split: `splits_root/dataset/family/1-8`, for another index than 0 `.../1-8.2`."""
    if not 0 <= index < 10**9:
        raise FplError("the index of a split is 0 to 999999999", hint="it counts the splits of one fraction")
    name = fraction.replace("/", "-") + (f".{index}" if index else "")
    return splits_root / dataset / family / name


def parse_folder_name(name: str) -> tuple[str, int] | None:
    """Fraction and index that a folder of `split_folder` stands for; None for other names."""
    match = re.fullmatch(r"(1-[1-9][0-9]*|[1-9][0-9]*)(?:\.([1-9][0-9]*))?", name)
    return (match[1].replace("-", "/"), int(match[2] or 0)) if match else None
