"""A split as a value, and the names of its files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DROP_FROM_UNLABELED = "drop-from-unlabeled"
"""The one repair: an id in both lists stays in the labeled one only."""

LABELED_FILE, UNLABELED_FILE, RECORD_FILE = "labeled.txt", "unlabeled.txt", "split.json"


def digest_ids(ids: Sequence[str]) -> str:
    """First 16 hex digits of the SHA-256 of the ids joined by line feeds."""
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Split:
    """Labeled and unlabeled image ids of one training set, after the repairs named in `repairs`."""

    dataset: str
    family: str
    fraction: str
    labeled: tuple[str, ...]
    unlabeled: tuple[str, ...]
    repairs: tuple[str, ...] = ()
    index: int = 0

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


def split_folder(splits_root: Path, dataset: str, family: str, fraction: str, index: int = 0) -> Path:
    """Folder of a split: `splits_root/dataset/family/1-8`, for another index than 0 `.../1-8.2`."""
    name = fraction.replace("/", "-") + (f".{index}" if index else "")
    return splits_root / dataset / family / name


def parse_folder_name(name: str) -> tuple[str, int] | None:
    """Fraction and index that a folder of `split_folder` stands for; None for other names."""
    match = re.fullmatch(r"(1-[1-9]\d*|[1-9]\d*)(?:\.([1-9]\d*))?", name)
    return (match[1].replace("-", "/"), int(match[2] or 0)) if match else None
