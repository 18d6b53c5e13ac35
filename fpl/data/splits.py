"""Which images are labeled: splits as files that exist before a training starts. Works without torch."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpl.config.schema import RunConfig
from fpl.data.lists import duplicates, enumerate_briefly, read_lines, read_record
from fpl.data.spec import DatasetSpec, get_spec, unknown_name
from fpl.errors import FplError
from fpl.files import write_atomic

FAMILIES = {
    "every-nth": "labeled: lines i, i + n, i + 2n, ... of the training list (i = index); unlabeled: the others, in the "
    "list's order (index 0 is the rule behind the lists of the released CPS code)",
}
DROP_FROM_UNLABELED = "drop-from-unlabeled"
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


def every_nth(ids: Sequence[str], n: int, index: int = 0) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labeled (index, index + n, ...) and unlabeled ids (the rest), both in the order of `ids`.

    With index 0 it gives ceil(N/n) labeled ids and splits that are nested for n = 2, 4, 8, ..., and reproduces the
    Cityscapes and VOC train_aug lists of the released CPS code from their training lists. The n splits of one
    fraction share no labeled image.
    """
    labeled = tuple(ids[index::n])
    unlabeled = tuple(image_id for number, image_id in enumerate(ids) if number % n != index)
    return labeled, unlabeled


def split_folder(splits_root: Path, dataset: str, family: str, fraction: str, index: int = 0) -> Path:
    """Folder of a split: `splits_root/dataset/family/1-8`, for another index than 0 `.../1-8.2`."""
    name = fraction.replace("/", "-") + (f".{index}" if index else "")
    return splits_root / dataset / family / name


def make_split(spec: DatasetSpec, root: Path, family: str, fraction: str, index: int = 0) -> Split:
    """Make a split from the training list of a data set.

    Args:
        spec: The data set.
        root: Its root folder (`find_root`).
        family: Name of the rule; see `FAMILIES`.
        fraction: "1/n".
        index: Which of the n splits of this fraction, 0..n-1; the published lists are number 0.

    Raises:
        FplError: Unknown family or fraction, a wrong number of images, images that are missing or also validation.
    """
    _check_family(family)
    match = re.fullmatch(r"1/([1-9]\d*)", fraction)
    if match is None:
        raise FplError(f"fraction '{fraction}' is not of the form 1/n", hint=f"family {family} labels one of n images")
    if not 0 <= index < int(match[1]):
        raise FplError(f"there is no split {index} of {fraction}", hint=f"0..{int(match[1]) - 1} are allowed")
    ids = spec.list_ids(root, "train")
    counts = spec.expected_counts(root)
    if counts is not None and len(ids) != counts["train"]:
        raise FplError(
            f"{spec.name} has {len(ids)} training images instead of {counts['train']}",
            where=str(root),
            hint="complete the data set: a split of another list would be another split",
        )
    labeled, unlabeled = every_nth(ids, int(match[1]), index)
    split = Split(spec.name, family, fraction, labeled, unlabeled, index=index)
    has_validation = spec.layout.image_folder(root, "val").is_dir()
    check_split(split, root=root, validation_ids=spec.list_ids(root, "val") if has_validation else ())
    return split


def write_split(split: Split, folder: Path) -> tuple[Path, Path, Path]:
    """Write labeled.txt, unlabeled.txt and split.json; each file appears whole or not at all.

    Args:
        split: What to write.
        folder: The split's own folder (`split_folder`); made if missing.

    Returns:
        The three paths. Writing the same split again leaves the same bytes.

    Raises:
        FplError: The folder holds another split: results may already refer to it.
    """
    existing = read_record(folder / RECORD_FILE)
    record = _record(split)
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
    lists = ["".join(f"{image_id}\n" for image_id in ids) for ids in (split.labeled, split.unlabeled)]
    for path, text in zip(paths, [*lists, json.dumps(record, indent=2) + "\n"], strict=True):
        write_atomic(path, text.encode())
    return paths


def read_split(
    splits_root: Path,
    dataset: str,
    family: str,
    fraction: str,
    index: int = 0,
    *,
    root: Path | None = None,
    validation_ids: Sequence[str] = (),
) -> Split:
    """Read a split and check it.

    An id in both lists is an error unless split.json records the repair "drop-from-unlabeled": then it is dropped
    from the unlabeled list, whose digest is that of the repaired list.

    Args:
        splits_root: Folder of all splits.
        dataset: Name of the data set.
        family: Name of the rule.
        fraction: "1/8", or the number of labeled images.
        index: Which of the splits of this fraction.
        root: Root of the data set; if given, all ids must be on disk.
        validation_ids: Ids that must not be in the split.

    Raises:
        FplError: See the checks; every message names the file and the ids.
    """
    spec = get_spec(dataset)
    _check_family(family)
    folder = split_folder(splits_root, dataset, family, fraction, index)
    labeled = _read_ids(spec, folder / LABELED_FILE, fraction, index)
    unlabeled = _read_ids(spec, folder / UNLABELED_FILE, fraction, index)
    record = read_record(folder / RECORD_FILE)
    repairs = tuple(record.get("repairs", ()))
    if unknown := [repair for repair in repairs if repair != DROP_FROM_UNLABELED]:
        where = str(folder / RECORD_FILE)
        raise FplError(f"unknown repair '{unknown[0]}'", where=where, hint=f"allowed: {DROP_FROM_UNLABELED}")
    if DROP_FROM_UNLABELED in repairs:
        known = frozenset(labeled)
        unlabeled = tuple(image_id for image_id in unlabeled if image_id not in known)
    split = Split(dataset, family, fraction, labeled, unlabeled, repairs, index)
    check_split(split, root=root, validation_ids=validation_ids, where=str(folder))
    _check_counts(split, spec, record, folder, root)
    return split


def check_split(split: Split, *, root: Path | None = None, validation_ids: Sequence[str] = (), where: str = "") -> None:
    """Check a split against itself, the validation ids and, if `root` is given, the images on disk.

    Raises:
        FplError: No labeled image, an id in both lists or in the validation set, or images that are not on disk.
    """
    where = where or f"split {split.dataset} {split.family} {split.fraction}"
    if not split.labeled:
        raise FplError("the split has no labeled image", where=where)
    known = frozenset(split.labeled)
    if both := [image_id for image_id in split.unlabeled if image_id in known]:
        raise FplError(
            f"{len(both)} ids are labeled and unlabeled at once: {enumerate_briefly(both)}",
            where=where,
            hint=f'mend the lists, or put "repairs": ["{DROP_FROM_UNLABELED}"] into {RECORD_FILE}',
        )
    training = known.union(split.unlabeled)
    if leaked := [image_id for image_id in validation_ids if image_id in training]:
        raise FplError(
            f"{len(leaked)} validation ids are in the training lists: {enumerate_briefly(leaked)}",
            where=where,
            hint="take them out: a score on training images says nothing",
        )
    if root is None:
        return
    layout = get_spec(split.dataset).layout
    ids = (*split.labeled, *split.unlabeled)
    missing = [i for i in ids if not any(path.is_file() for path in layout.image_candidates(root, "train", i))]
    if missing:
        raise FplError(
            f"{len(missing)} of {len(ids)} training images are not on disk: {enumerate_briefly(missing)}",
            where=where,
            hint=f"looked in {layout.image_folder(root, 'train')}",
        )


def resolve_split(config: RunConfig, splits_root: Path) -> tuple[RunConfig, Split]:
    """Read the split a configuration names and pin its digests in the configuration.

    Returns:
        The configuration with `data.split.labeled` and `data.split.unlabeled` filled, and the split.

    Raises:
        FplError: The split cannot be read, or the configuration pins other lists, or another number of classes.
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
    return config.model_copy(update={"data": data}), split


def _check_family(family: str) -> None:
    if family not in FAMILIES:
        raise unknown_name("split family", family, FAMILIES)


def make_command(dataset: str, fraction: str, index: int) -> str:
    """The command that makes a split."""
    which = f" --index {index}" if index else ""
    return f"fpl splits make {dataset} --fraction {fraction}{which} --data-root DIR"


def _read_ids(spec: DatasetSpec, path: Path, fraction: str, index: int) -> tuple[str, ...]:
    if not path.is_file():
        folders = [file.parent.name for file in path.parent.parent.glob(f"*/{LABELED_FILE}")]
        present = sorted(folders, key=lambda name: (len(name), name))
        listed = ", ".join(name.replace("-", "/") for name in present) or "none"
        raise FplError(
            f"no split file {path.name} for fraction {fraction} of {spec.name}" + (f", index {index}" if index else ""),
            where=str(path),
            hint=f"fractions present: {listed}; make it: {make_command(spec.name, fraction, index)}",
        )
    ids = tuple(spec.layout.canonical_id(line) for line in read_lines(path))
    if repeated := duplicates(ids):
        raise FplError(f"ids that stand twice: {enumerate_briefly(repeated)}", where=str(path))
    return ids


def _check_counts(split: Split, spec: DatasetSpec, record: Mapping[str, Any], folder: Path, root: Path | None) -> None:
    """Numbers of ids against split.json, or else against the rule applied to the data set's size."""
    found = {"labeled": len(split.labeled), "unlabeled": len(split.unlabeled)}
    expected, source = record.get("counts"), RECORD_FILE
    counts = spec.expected_counts(root)
    if expected is None and counts is not None:
        total, source = counts["train"], f"{split.fraction} of {counts['train']} training images"
        _, _, n = split.fraction.partition("/")
        # Lines index, index + n, ... of total.
        labeled = -(-(total - split.index) // int(n)) if n else int(split.fraction)
        expected = {"labeled": labeled, "unlabeled": total - labeled}
    remedy = make_command(split.dataset, split.fraction, split.index)
    if expected is not None and found != expected:
        raise FplError(
            f"{found['labeled']} labeled + {found['unlabeled']} unlabeled ids instead of "
            f"{expected.get('labeled')} + {expected.get('unlabeled')} ({source})",
            where=str(folder),
            hint=f"make the lists again: {remedy}",
        )
    for name, digest in (("labeled", split.labeled_digest), ("unlabeled", split.unlabeled_digest)):
        if record.get(f"{name}_digest", digest) != digest:
            raise FplError(
                f"the list has digest {digest}, but {RECORD_FILE} was written for {record[f'{name}_digest']}",
                where=str(folder / f"{name}.txt"),
                hint=f"the list was changed; make it again: {remedy}",
            )


def _record(split: Split) -> dict[str, Any]:
    return {
        "dataset": split.dataset,
        "family": split.family,
        "fraction": split.fraction,
        "index": split.index,
        "rule": FAMILIES.get(split.family, ""),
        "counts": {"labeled": len(split.labeled), "unlabeled": len(split.unlabeled)},
        "labeled_digest": split.labeled_digest,
        "unlabeled_digest": split.unlabeled_digest,
        "repairs": list(split.repairs),
    }
