"""Makes a data set of its archives as users get them: what the tree needs is taken out, file by file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import filelock
import numpy as np

from fpl.data.prepare_plan import Job
from fpl.data.read import Bytes, read_label, read_size
from fpl.data.sbd import label_png, read_annotation
from fpl.data.spec import DatasetSpec, find_root
from fpl.errors import FplError, file_error
from fpl.files import check_room, locked, remove_left_overs, write_atomic, write_changed

_LOCK = ".prepare.lock"
_BLOCK = 4096


@dataclass(frozen=True)
class Prepared:
    """What was done.

    Attributes:
        written: Files that were not there, or were others.
        kept: Files that were there and the same.
        replaced: Of those written, files that were there and others.
    """

    written: int
    kept: int
    replaced: int = 0


def place_of(spec: DatasetSpec, data_root: Path) -> Path:
    """The folder of a data set below `data_root`: where it is, or else where it belongs.

    Raises:
        FplError: The data set is drawn and not delivered.
    """
    if spec.drawn:
        hint = spec.how_to_get(data_root)
        raise FplError(f"{spec.name} does not come in archives", hint=hint)
    try:
        root = find_root(spec, data_root)
    except FplError:
        return data_root / spec.folder
    # A tree of another layout in the data root itself is not the one to complete.
    return root if spec.layout.is_tree(root) or root != data_root else data_root / spec.folder


def prepare(
    spec: DatasetSpec, root: Path, jobs: Sequence[Job], progress: Callable[[str, int, int], None] | None = None
) -> Prepared:
    """Do the jobs of `plan_jobs`; files are written whole or not at all, and the same call continues a killed one.

    Args:
        spec: The data set.
        root: Its folder.
        jobs: What to take out.
        progress: Called with "file" or, for annotations, which take longer, "label", and how many are done of all.

    Raises:
        FplError: An archive is damaged, an annotation does not fit its image, another process prepares the same
            data set, or, before anything is written, the disk has no room: a `ShortageError`.
    """
    if not jobs:
        return Prepared(0, 0)
    written = kept = replaced = 0
    try:
        check_jobs(root, jobs)
        with locked(root / _LOCK):
            for folder in {target.parent for job in jobs for target in job.targets}:
                remove_left_overs(folder)
            totals = Counter(map(_unit, jobs))
            done: Counter[str] = Counter()
            for job in jobs:
                there = sum(target.is_file() for target in job.targets)
                count = _do(job, spec)
                written, kept = written + count, kept + len(job.targets) - count
                replaced += there - (len(job.targets) - count)
                done[_unit(job)] += 1
                if progress is not None:
                    progress(_unit(job), done[_unit(job)], totals[_unit(job)])
            os.sync()
    except filelock.Timeout:
        raise FplError(f"another process prepares {spec.name}", where=str(root), hint="wait for its end") from None
    except OSError as error:
        raise file_error(error) from error
    return Prepared(written, kept, replaced)


def check_jobs(root: Path, jobs: Sequence[Job]) -> None:
    """Refuse to begin what the disk at a folder, which need not exist, has no room for.

    An annotation is taken for as large as the label that it becomes.

    Raises:
        ShortageError: Says how much is needed and how much is free.
    """
    targets = [(target, job.source.member.size) for job in jobs for target in job.targets]
    needed = sum(-(-size // _BLOCK) * _BLOCK for target, size in targets if not target.is_file())
    check_room(root, needed, "or name another --data-root")


def _unit(job: Job) -> str:
    return "file" if job.image is None else "label"


def _do(job: Job, spec: DatasetSpec) -> int:
    """How many of the job's files had to be written."""
    content = job.source.archive.read(job.source.member)
    if job.image is None:
        return sum(write_changed(target, content, sync=False) for target in job.targets)
    label = read_annotation(content, job.source.where)
    height, width = read_size(job.image)
    if label.shape != (height, width):
        what = f"annotation is {label.shape[0]}x{label.shape[1]}, image {job.image.name} is {height}x{width}"
        hint = "height x width; is one of the two of another release?"
        raise FplError(what, where=job.source.where, hint=hint)
    stale = [target for target in job.targets if not _holds(target, label, spec)]
    for target in stale:
        write_atomic(target, label_png(label, spec), sync=False)
    return len(stale)


def _holds(path: Path, label: Bytes, spec: DatasetSpec) -> bool:
    """Whether a file shows this label, however it is written."""
    try:
        return path.is_file() and np.array_equal(read_label(path, spec), label)
    except FplError:
        return False
