"""From a working store to what is published: equal results stay as they are, to the byte."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from fpl.errors import FplError
from fpl.files import remove, write_atomic
from fpl.store.collect import read_parts, read_table
from fpl.store.lease import alone
from fpl.store.parts import SUFFIX
from fpl.store.read import Results
from fpl.store.remote import open_store
from fpl.store.schema import CIRCUMSTANCES, FAILURES, NOISE, OF_ONE_RUN, RUNS, STUDIES, TRIALS
from fpl.store.sealed import encoded
from fpl.store.usable import ALL
from fpl.text import say

# One file per table instead of one per run.
NAME = f"{ALL}{SUFFIX}"
Tables = Mapping[str, pa.Table]
Check = Callable[[], None]
# Seconds for which another process that publishes at the same place is waited for.
PATIENCE = 300.0


@dataclass(frozen=True)
class Published:
    """What publishing did.

    Attributes:
        same: Runs or studies whose results were published already: left as they are.
        new: Those that were not there, or with other results.
        gone: Those that were taken out.
        repeated: Whether the repetitions of a run changed.
    """

    same: int
    new: int
    gone: int
    repeated: bool = False

    @property
    def changed(self) -> bool:
        """Whether anything published is not what it was."""
        return bool(self.new or self.gone or self.repeated)


def publish_runs(source: Path, target: Path, taken: Collection[str], *, whole: bool = False) -> Published:
    """Put runs of the store `source` into `TABLE/all.parquet` below `target`.

    A run whose results equal the published ones (all columns but `CIRCUMSTANCES`) leaves them as they are, with when
    and by what they were made. One of a recipe that is published under another id, of other inputs, replaces it.

    Args:
        source: Store with one file per run.
        target: Folder of the published tables.
        taken: Ids of the runs, failed ones among them.
        whole: Whether these are all that is to be published: others go. Else others stay, and a failure replaces none.

    Raises:
        FplError: `source` and `target` are the same folder, or what `target` holds cannot be used and would be lost.
        TakenError: Another process publishes there, for minutes.
    """
    with _alone(source, target) as check:
        return _publish_runs(source, target, taken, whole, check)


def _publish_runs(source: Path, target: Path, taken: Collection[str], whole: bool, check: Check) -> Published:
    theirs = {table: read_table(target, table) for table in OF_ONE_RUN}
    # A failure whose run has finished since may still be there: a kill came between the two writes.
    failed = set(Results(source).failures["run_id"])
    if not whole:
        finished = set(theirs[RUNS]["run_id"].to_pylist())
        taken = set(taken) - (failed & finished)
    ours = {table: _rows(read_parts(source, table)[0], "run_id", set(taken)) for table in OF_ONE_RUN}
    ours[FAILURES] = _rows(ours[FAILURES], "run_id", failed)
    held = {recipe: run for run, recipe in Results(source).runs[["run_id", "recipe"]].values if run in taken}
    old = {run for run, recipe in Results(target).runs[["run_id", "recipe"]].values if held.get(recipe, run) != run}
    check()
    done = _merge(target, ours, theirs, "run_id", old, whole)
    # The repetitions of a run have its id, and may be published without it.
    noise = {NOISE: _rows(read_parts(source, NOISE)[0], "run_id", set(taken))}
    repeated = _merge(target, noise, {NOISE: read_table(target, NOISE)}, "run_id", old, whole)
    return replace(done, repeated=repeated.changed)


def publish_searches(source: Path, target: Path, studies: Collection[str] | None = None) -> Published:
    """Put studies and their trials from the store `source` into `TABLE/all.parquet` below `target`.

    They replace those of the same id, unless their results are equal; what else `target` holds stays. The trials' runs
    are not taken along.

    Args:
        source: Store with one file per trial and study.
        target: Folder of the published tables.
        studies: Ids of the studies to take; None for all.

    Raises:
        FplError: `source` and `target` are the same folder.
        TakenError: Another process publishes there, for minutes.
    """
    with _alone(source, target) as check:
        ours = {table: read_parts(source, table)[0] for table in (TRIALS, STUDIES)}
        held = set(ours[STUDIES]["study"].to_pylist())
        taken = held if studies is None else held & set(studies)
        ours = {table: _rows(rows, "study", taken) for table, rows in ours.items()}
        theirs = {table: read_table(target, table) for table in ours}
        check()
        return _merge(target, ours, theirs, "study", set(), False)


@contextlib.contextmanager
def _alone(source: Path, target: Path) -> Iterator[Check]:
    """Keep others from publishing there from what is read to what is written: they would lose each other's rows."""
    check_apart(source, target)
    with alone(target / ".lock", "published", "publishes there", say, PATIENCE) as check:
        open_store(target)
        yield check


def _merge(target: Path, ours: Tables, theirs: Tables, key: str, old: set[str], whole: bool) -> Published:
    """Write `theirs` with what `ours` has anew; nothing where there is nothing new."""
    now, before = _digests(ours, key), _digests(theirs, key)
    same = {name for name in now.keys() & before.keys() if now[name] == before[name]}
    new = now.keys() - same
    gone = {name for name in before.keys() - now.keys() if whole or name in old}
    if new or gone:
        for table in ours:
            kept = _rows(theirs[table], key, before.keys() - new - gone)
            merged = pa.concat_tables([kept, _rows(ours[table], key, new)])
            order = [(key, "ascending"), *([("number", "ascending")] if table == TRIALS else [])]
            # A stable sort: rows of one run stay in their order.
            _write(target, table, merged.sort_by(order))
    return Published(len(same), len(new), len(gone))


def check_apart(source: Path, target: Path) -> None:
    """Refuse to publish a store into itself.

    Raises:
        FplError: Both are the same folder.
    """
    if source.resolve() == target.resolve():
        raise FplError(
            "results cannot be published into their own store", where=str(target), hint="name another folder"
        )


def _write(target: Path, table: str, rows: pa.Table) -> None:
    """One table as one file; no file for no rows."""
    if not len(rows):
        remove(target / table / NAME)
        return
    write_atomic(target / table / NAME, encoded(rows))


def _rows(rows: pa.Table, key: str, names: Collection[str]) -> pa.Table:
    return rows.filter(pa.array([name in names for name in rows[key].to_pylist()], pa.bool_()))


def _digests(tables: Tables, key: str) -> dict[str, str]:
    """Id -> digest of its results in all of the tables."""
    found: dict[str, hashlib._Hash] = {}
    for table, rows in sorted(tables.items()):
        results = rows.drop_columns([name for name in CIRCUMSTANCES.get(table, ()) if name in rows.column_names])
        for name, row in zip(rows[key].to_pylist(), results.to_pylist(), strict=True):
            # The text of a float gives its last bit, and that of NaN equals itself.
            found.setdefault(name, hashlib.sha256()).update(f"{table} {row!r}\n".encode())
    return {name: digest.hexdigest() for name, digest in found.items()}
