"""What the files of a data set hold, as digests: a result must not outlive the data that made it.

Label files count byte by byte. Of image files the size counts: reading all of Cityscapes takes minutes, and a changed
PNG or JPEG of the same length is a rare thing. A drawn set has checksums of all its files besides.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from fpl.data.layout import first_file
from fpl.data.lists import read_record
from fpl.data.spec import DRAWING_CODE, DRAWING_RECORD, DatasetSpec
from fpl.data.splits import Split


def data_version(spec: DatasetSpec, root: Path) -> str:
    """What is measured on: 16 hex digits over the validation ids, their labels and images, and a drawn set's record."""
    record = read_record(root / DRAWING_RECORD)
    record.pop(DRAWING_CODE, None)
    ids = sorted(spec.list_ids(root, "val"))  # the order of validation images changes no score
    return _digest(
        [json.dumps(record, sort_keys=True), *_labels(spec, root, "val", ids), *_images(spec, root, "val", ids)]
    )


def data_contents(spec: DatasetSpec, root: Path, split: Split) -> str:
    """What is learned from: 16 hex digits over the labels of the labeled images, held-out ones too, and all images."""
    labeled = (*split.labeled, *split.held_out)
    return _digest(
        [*_labels(spec, root, "train", labeled), *_images(spec, root, "train", (*labeled, *split.unlabeled))]
    )


def file_names(spec: DatasetSpec, root: Path, part: str, ids: Sequence[str], *, labels: bool = True) -> Iterator[str]:
    """Names below the root that the images of some ids may have, and their labels."""
    layout, start = spec.layout_at(root), len(f"{root}/")
    for image_id in ids:
        yield from (path[start:] for path in layout.image_candidates(root, part, image_id))
        if labels:
            yield from (path[start:] for path in layout.label_candidates(root, part, image_id))


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _labels(spec: DatasetSpec, root: Path, part: str, ids: Sequence[str]) -> Iterator[str]:
    layout = spec.layout_at(root)
    for image_id in ids:
        digest = "-"  # `check_data` names what is missing
        if (found := first_file(layout.label_candidates(root, part, image_id))) is not None:
            path, status = found
            digest = _file_digest(path, status.st_size, status.st_mtime_ns, status.st_ino)
        yield f"{image_id} {digest}"


@functools.lru_cache(maxsize=100_000)
def _file_digest(path: str, size: int, changed: int, inode: int) -> str:
    """Read once in a process: all runs of a campaign share their labels."""
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()


def _images(spec: DatasetSpec, root: Path, part: str, ids: Sequence[str]) -> Iterator[str]:
    layout = spec.layout_at(root)
    for image_id in ids:
        found = first_file(layout.image_candidates(root, part, image_id))
        yield f"{image_id} {'-' if found is None else found[1].st_size}"
