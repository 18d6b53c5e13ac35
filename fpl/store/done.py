"""Whether a run is done, and what it reached, from the file of that run, or what was published."""

from __future__ import annotations

import functools
import os
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from fpl.files import move
from fpl.mirrors import name_of
from fpl.store.parts import SUFFIX, LeftOut, clean, read_part
from fpl.store.schema import FAILURES, METRICS, OF_ONE_RUN, RUNS
from fpl.store.usable import ALL
from fpl.store.write import failure_path, run_path


def run_row(path: Path) -> dict[str, Any]:
    """The row of one finished run from its file.

    Raises:
        FplError: There is none, or none that can be used.
    """
    part, problems = read_part(path, RUNS)
    if not len(part):
        published = read_part(path.with_stem(ALL), RUNS)[0]
        part = published.filter(pc.equal(published["run_id"], path.stem))
    if not len(part):
        raise LeftOut(RUNS, path, problems[0] if problems else "is not there").error()
    row: dict[str, Any] = clean(part).to_pylist()[0]
    return row


def read_run(path: Path) -> dict[str, float]:
    """Metrics (those that were measured, mIoU in percent) and `train_seconds` from the file of one finished run.

    Raises:
        FplError: There is none, or none that can be used.
    """
    row = run_row(path)
    return {name: row[name] for name in (*METRICS, "train_seconds") if row[name] is not None}


def is_done(out: Path, run_id: str) -> bool:
    """Whether a run is done: its row is there and can be read. Everybody who asks, asks here.

    An empty file, a damaged one, or one with the row of another run is no run that is done. Where it has no row of its
    own it may be among those that were published: work goes on in a copy of what was published, too.
    """
    path = run_path(out, run_id)
    return len(read_part(path, RUNS, keys=True)[0]) > 0 or run_id in _published(path.with_stem(ALL))


def _published(path: Path) -> frozenset[str]:
    try:
        found = path.stat()
    except OSError:
        return _ids_in(path, None)
    return _ids_in(path, (found.st_mtime_ns, found.st_size))


@functools.lru_cache(maxsize=8)
def _ids_in(path: Path, version: tuple[int, int] | None) -> frozenset[str]:
    """Runs of a published file, read once in a version; without one it is on object storage, or not there."""
    return frozenset(read_part(path, RUNS, keys=True)[0]["run_id"].to_pylist())


def has_failed(out: Path, run_id: str) -> bool:
    """Whether a run ended with an error when it was tried last."""
    return len(read_part(failure_path(out, run_id), FAILURES, keys=True)[0]) > 0


def put_aside(out: Path, run_id: str) -> list[str]:
    """Rename what is damaged of a run that is to be trained, so that it is neither in the way nor lost.

    Returns:
        What was renamed, and why, for the user.

    Raises:
        FplError: A file that this user or this disk cannot read: it may be as good as any.
    """
    told = []
    for table in OF_ONE_RUN:
        path = out / table / f"{run_id}{SUFFIX}"
        problems = read_part(path, table)[1]
        if not problems:
            continue
        damage = LeftOut(table, path, problems[0])
        if damage.unreadable:
            raise damage.error()
        names = (path.with_name(f"{path.name}.damaged" + (f"-{number}" if number > 1 else "")) for number in count(1))
        aside = next(name for name in names if not os.path.lexists(name))
        move(path, aside)
        told.append(f"{name_of(path)}: {problems[0]}: put aside as {aside.name}")
    return told
