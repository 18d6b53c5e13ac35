"""Split files: written once, read before every run, checked each time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpl.config.schema import RunConfig
from fpl.data.lists import list_text, read_ids, read_record
from fpl.data.spec import DatasetSpec, get_spec
from fpl.data.splits.families import get_family, how_to_get
from fpl.data.splits.faults import (
    OnDisk,
    count_faults,
    digest_faults,
    lines_of,
    list_faults,
    published_faults,
    raise_all,
    record_faults,
    set_faults,
)
from fpl.data.splits.split import (
    DROP_FROM_UNLABELED,
    LABELED_FILE,
    RECORD_FILE,
    UNLABELED_FILE,
    Split,
    hold_out,
    parse_folder_name,
    split_folder,
)
from fpl.errors import FplError
from fpl.files import write_atomic


@dataclass(frozen=True)
class Stored:
    """A split as it stands in a folder, unchecked."""

    folder: Path
    split: Split
    record: Mapping[str, Any]


def write_split(split: Split, folder: Path, origin: Mapping[str, Any] | None = None) -> tuple[Path, Path, Path]:
    """Write labeled.txt, unlabeled.txt and split.json; each file appears whole or not at all.

    Args:
        split: What to write.
        folder: The split's own folder (`split_folder`); made if missing.
        origin: Where imported lists came from; None keeps what is recorded there.

    Returns:
        The three paths. Writing the same split again leaves the same bytes.

    Raises:
        FplError: The folder holds another split, to which results may already refer, or an id cannot stand in a list.
    """
    parse = get_spec(split.dataset).canonical_id
    lists = [list_text(ids, parse, str(folder)) for ids in (split.labeled, split.unlabeled)]
    existing = read_record(folder / RECORD_FILE)
    record = _record(split, existing.get("origin") if origin is None else origin)
    differing = [key for key in ("labeled_digest", "unlabeled_digest") if existing.get(key, record[key]) != record[key]]
    if differing:
        raise FplError(
            f"another split stands here: {differing[0]} is {existing[differing[0]]}, to be written is "
            f"{record[differing[0]]}",
            where=str(folder),
            hint="delete the folder first if nothing refers to it, or use another splits folder",
        )
    folder.mkdir(parents=True, exist_ok=True)
    paths = (folder / LABELED_FILE, folder / UNLABELED_FILE, folder / RECORD_FILE)
    for path, content in zip(paths, [*lists, (json.dumps(record, indent=2) + "\n").encode()], strict=True):
        write_atomic(path, content)
    return paths


def read_split(splits_root: Path, dataset: str, family: str, fraction: str, index: int = 0) -> Split:
    """Read a split and check it.

    An id in both lists is an error unless split.json records the repair "drop-from-unlabeled": then it is dropped
    from the unlabeled list, whose digest is that of the repaired list.

    Args:
        splits_root: Folder of all splits.
        dataset: Name of the data set.
        family: Name of the rule.
        fraction: "1/8", or the number of labeled images.
        index: Which of the splits of this fraction.

    Raises:
        FplError: See the checks; every message names the file and the ids.
    """
    stored = load_split(splits_root, dataset, family, fraction, index)
    raise_all(stored_faults(stored))
    return stored.split


def load_split(splits_root: Path, dataset: str, family: str, fraction: str, index: int = 0) -> Stored:
    """The files of a split, with recorded repairs applied and nothing else checked.

    Raises:
        FplError: Unknown data set, family or repair, or a file that is missing or unreadable.
    """
    spec = get_spec(dataset)
    get_family(family, dataset, fraction)
    folder = split_folder(splits_root, dataset, family, fraction, index)
    wanted = Split(dataset, family, fraction, (), (), index=index)
    labeled = _read_ids(spec, folder / LABELED_FILE, wanted)
    unlabeled = _read_ids(spec, folder / UNLABELED_FILE, wanted)
    record = read_record(folder / RECORD_FILE)
    found = record.get("repairs", [])
    if not isinstance(found, list) or any(repair != DROP_FROM_UNLABELED for repair in found):
        what, hint = f"unknown repairs {found!r:.80}", f'allowed: [] or ["{DROP_FROM_UNLABELED}"]'
        raise FplError(what, where=str(folder / RECORD_FILE), hint=hint)
    repairs = tuple(found)
    if DROP_FROM_UNLABELED in repairs:
        known = frozenset(labeled)
        unlabeled = tuple(image_id for image_id in unlabeled if image_id not in known)
    return Stored(folder, Split(dataset, family, fraction, labeled, unlabeled, repairs, index), record)


def stored_faults(
    stored: Stored,
    *,
    root: Path | None = None,
    validation_ids: Sequence[str] = (),
    on_disk: OnDisk | None = None,
) -> Iterator[FplError]:
    """All faults of a split that can be found without applying its rule; arguments as for `set_faults`."""
    split, where = stored.split, str(stored.folder)
    spec = get_spec(split.dataset)
    yield from list_faults(split, stored.folder)
    found = list(set_faults(split, root=root, validation_ids=validation_ids, where=where, on_disk=on_disk))
    if found:
        # The lists are read once more, for their lines, only where there is something to say about them.
        lines = lines_of([stored.folder / LABELED_FILE, stored.folder / UNLABELED_FILE], spec)
        found = list(
            set_faults(split, root=root, validation_ids=validation_ids, where=where, on_disk=on_disk, lines=lines)
        )
    yield from found
    wrong_record = list(record_faults(split, stored.folder, stored.record))
    yield from wrong_record
    # What a record says that is none need not be compared with anything.
    record = {} if wrong_record else stored.record
    wrong_counts = list(count_faults(split, spec, where, record, root))
    yield from wrong_counts
    yield from digest_faults(split, stored.folder, record)
    if not wrong_counts:
        yield from published_faults(split, spec, where)


def resolve_split(config: RunConfig, splits_root: Path) -> tuple[RunConfig, Split]:
    """Read the split a configuration names and pin its digests in the configuration.

    Returns:
        The configuration with `data.split.labeled` and `data.split.unlabeled` filled, and the split. The digests are
        those of the lists in the files; `data.split.holdout` takes its images out of the labeled list only then.

    Raises:
        FplError: The split cannot be read, or the configuration pins other lists, or another number of classes, or
            there are too few labeled images for its `holdout`.
    """
    wanted = config.data.split
    spec = get_spec(config.data.dataset)
    if spec.num_classes != config.data.num_classes:
        what = f"data.num_classes = {config.data.num_classes}, but {spec.name} has {spec.num_classes} classes"
        raise FplError(what, hint=f"data.num_classes = {spec.num_classes}")
    split = read_split(splits_root, config.data.dataset, wanted.family, wanted.fraction, wanted.index)
    folder = split_folder(splits_root, split.dataset, split.family, split.fraction, split.index)
    found = {"labeled": split.labeled_digest, "unlabeled": split.unlabeled_digest}
    for name, digest in found.items():
        pinned = getattr(wanted, name)
        if pinned is not None and pinned != digest:
            raise FplError(
                f"data.split.{name} pins the list {pinned}, the file holds {digest}",
                where=str(folder / f"{name}.txt"),
                hint="restore the list the configuration was made for, or drop the pinned digest",
            )
    data = config.data.model_copy(update={"split": wanted.model_copy(update=found)})
    if wanted.holdout is not None:
        split = hold_out(split, wanted.holdout)
    return config.model_copy(update={"data": data}), split


def _read_ids(spec: DatasetSpec, path: Path, wanted: Split) -> tuple[str, ...]:
    if not path.is_file():
        found = (parse_folder_name(file.parent.name) for file in path.parent.parent.glob(f"*/{LABELED_FILE}"))
        present = sorted({each for each in found if each is not None}, key=lambda each: (len(each[0]), *each))
        listed = ", ".join(fraction + (f" index {index}" if index else "") for fraction, index in present) or "none"
        which = f", index {wanted.index}" if wanted.index else ""
        how = how_to_get(wanted.dataset, wanted.family, wanted.fraction, wanted.index)
        raise FplError(
            f"no split file {path.name} for fraction {wanted.fraction} of {spec.name}{which}",
            where=str(path),
            hint=f"fractions present: {listed}; {how}",
        )
    return tuple(read_ids(path, spec.training_id))


def _record(split: Split, origin: object) -> dict[str, Any]:
    record = {
        "dataset": split.dataset,
        "family": split.family,
        "fraction": split.fraction,
        "index": split.index,
        "rule": get_family(split.family).rule,
        "counts": {"labeled": len(split.labeled), "unlabeled": len(split.unlabeled)},
        "labeled_digest": split.labeled_digest,
        "unlabeled_digest": split.unlabeled_digest,
        "repairs": list(split.repairs),
    }
    return record | ({"origin": origin} if origin else {})
