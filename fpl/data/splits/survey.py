"""All splits below a folder, checked at once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fpl.data.parallel import run_parallel
from fpl.data.spec import DatasetSpec, find_root, get_spec
from fpl.data.splits.coverage import Coverage, classes_of, coverage
from fpl.data.splits.faults import OnDisk, images_on_disk, label_faults, lines_of
from fpl.data.splits.importing import rule_faults
from fpl.data.splits.make import validation_ids
from fpl.data.splits.published import digests_like, published_of
from fpl.data.splits.split import LABELED_FILE, Split, parse_folder_name
from fpl.data.splits.store import load_split, stored_faults
from fpl.errors import FplError


@dataclass(frozen=True)
class Finding:
    """What was found in one folder.

    Attributes:
        folder: The folder.
        split: The split; None if it could not be read.
        published: "equal", "differs", or "-" where no lists are published.
        data: Root of the data it was checked against; None if they were not found or not asked for.
        faults: Everything that is wrong.
        coverage: What the labeled images cover; None where the data are not known.
    """

    folder: Path
    split: Split | None
    published: str
    data: Path | None
    faults: tuple[FplError, ...]
    coverage: Coverage | None = None

    @property
    def coverage_row(self) -> dict[str, str]:
        """What the labeled images cover as columns of a table; empty where that is not known."""
        if self.coverage is None:
            return {}
        parts, classes = self.folder.parts[-3:], self.coverage.classes
        return {
            "split": " ".join(parts),
            "groups": "{} of {}".format(*self.coverage.groups),
            "classes": "-" if classes is None else "{} of {}".format(*classes),
            "without label": "-" if self.coverage.unlabeled is None else str(self.coverage.unlabeled),
        }

    @property
    def row(self) -> dict[str, str]:
        """The finding as columns of a table."""
        dataset, family, name = self.folder.parts[-3:]
        fraction, index = parse_folder_name(name) or (name, 0)
        split = self.split
        return {
            "data set": dataset,
            "family": family,
            "fraction": fraction,
            "index": str(index),
            "labeled": str(len(split.labeled)) if split else "-",
            "unlabeled": str(len(split.unlabeled)) if split else "-",
            "lists": f"{split.labeled_digest}/{split.unlabeled_digest}" if split else "-",
            "published": self.published,
            "repairs": ", ".join(split.repairs) or "-" if split else "-",
            "state": f"{len(self.faults)} wrong" if self.faults else "ok",
        }


def survey(
    splits_root: Path,
    dataset: str | None = None,
    family: str | None = None,
    fraction: str | None = None,
    *,
    data_root: Path | None = None,
    classes: bool = False,
) -> Iterator[Finding]:
    """Check every split below a folder, or those asked for.

    Args:
        splits_root: Folder of all splits.
        dataset: Only splits of this data set.
        family: Only splits of this family.
        fraction: Only splits of this fraction.
        data_root: Folder of the data sets: where one is found, ids must be on disk, none may be a validation image,
            and the rule must give the same lists. None checks the lists alone.
        classes: Read all training labels and say which classes the labeled images have.
    """
    data = functools.cache(lambda name: _Data.find(name, data_root, classes))
    for folder in sorted((path for path in splits_root.glob("*/*/*") if path.is_dir()), key=_position):
        if any(part.startswith(".") for part in folder.parts[-3:]):
            continue
        named = parse_folder_name(folder.name) or (folder.name, 0)
        wanted = zip((dataset, family, fraction), (*folder.parts[-3:-1], named[0]), strict=True)
        if all(want in (None, have) for want, have in wanted):
            yield _examine(splits_root, folder, data)


def _position(folder: Path) -> tuple[str, str, int, int, str]:
    """Data set, family, then fractions from many labeled images to few."""
    dataset, family, name = folder.parts[-3:]
    fraction, index = parse_folder_name(name) or ("0", 0)
    size = int(fraction.removeprefix("1/")) if "/" in fraction else -int(fraction)
    return dataset, family, size, index, name


@dataclass(frozen=True)
class _Data:
    """A data set on disk, its ids looked up once for all its splits."""

    spec: DatasetSpec
    root: Path | None = None
    validation: tuple[str, ...] = ()
    on_disk: OnDisk | None = None
    order: tuple[str, ...] = ()
    classes: dict[str, frozenset[int] | None] | None = None

    @classmethod
    def find(cls, name: str, data_root: Path | None, classes: bool) -> _Data:
        spec = get_spec(name)
        try:
            root = find_root(spec, data_root) if data_root is not None else None
        except FplError:
            root = None
        if root is None:
            return cls(spec)
        ids, found = spec.list_ids(root, "train"), None
        if classes:
            found = dict(zip(ids, run_parallel(functools.partial(classes_of, spec=spec, root=root), ids), strict=True))
        validation = tuple(validation_ids(spec, root))
        return cls(spec, root, validation, images_on_disk(spec, root), tuple(ids), found)


def _examine(splits_root: Path, folder: Path, find: functools._lru_cache_wrapper[_Data]) -> Finding:
    dataset, family, name = folder.parts[-3:]
    try:
        parsed = parse_folder_name(name)
        if parsed is None:
            raise FplError(
                f"folder name '{name}' is no fraction", where=str(folder), hint="1-8, 92, or with an index 1-8.2"
            )
        data = find(dataset)
        stored = load_split(splits_root, dataset, family, *parsed)
    except FplError as error:
        located = error if error.where else FplError(error.what, where=str(folder), hint=error.hint)
        return Finding(folder, None, "-", None, (located,))
    split = stored.split
    faults = list(stored_faults(stored, root=data.root, validation_ids=data.validation, on_disk=data.on_disk))
    covered = None
    if data.root is not None:
        covered = coverage(split, data.spec, data.order, data.classes)
        # Where no label was ever unpacked there is none to miss.
        if any(
            (data.root / kind.folder.format(part="train")).is_dir() for kind in data.spec.layout_at(data.root).labels
        ):
            lines = lines_of([folder / LABELED_FILE], data.spec)
            faults += label_faults(split, data.root, str(folder), on_disk=data.on_disk, lines=lines)
    published = published_of(data.spec, family, *parsed)
    equal = published is not None and digests_like(split, published) == published
    if data.root is not None and not equal and not faults:
        try:
            faults += rule_faults(split, data.spec, str(folder), data.root, splits_root)
        except FplError as error:
            faults.append(error)
    state = "-" if published is None else "equal" if equal else "differs"
    return Finding(folder, split, state, data.root, tuple(faults), covered)
