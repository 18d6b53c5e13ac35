"""One file with the rows of many: a store of ten thousand runs is read by opening one file a table.

The single files stay what counts. `compact/TABLE.parquet` says of each file whose rows it holds its name, size and
time of change. Who reads takes from it the rows of files that are still just so, and opens the others: a file that was
removed, written anew or damaged is what it would be without it, two writers at once lose nothing but work, and the
folder may be removed at any moment. Commands that carry out runs write it; those that only show never do.

On object storage it lies beside the single files, and who only shows a store there fetches it first, then those of the
others that it does not hold as they are (`fpl.store.left`).
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count, pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fpl.files import write_atomic
from fpl.store.columns import SCHEMAS
from fpl.store.left import Version, left_there
from fpl.store.parts import SUFFIX, DamagedError, files_of, read_part
from fpl.store.schema import OF_ONE_RUN
from fpl.store.usable import ALL, is_sound

FOLDER = "compact"
INDEX = b"fpl.compact"
# Raised when the index becomes another, or files that were fit to be shown before may not be any more.
FORMAT = 2
# So many files are opened in a fraction of a second: fewer are not worth writing everything again.
ENOUGH = 64
# Tables that are joined at a time.
AT_ONCE = 500
# Seconds. A file that changed just now may change again within one tick of the clock that its time is by, which is
# another than ours where disks are shared.
SETTLED = 60.0


class Rows:
    """Rows of many files one after the other: ten thousand small tables would take many times the memory of their rows.

    Args:
        schema: Of each of them.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._joined: list[pa.Table] = [schema.empty_table()]
        self._parts: list[pa.Table] = []

    def add(self, part: pa.Table) -> None:
        """Put rows behind the others."""
        self._parts.append(part)
        if len(self._parts) == AT_ONCE:
            self._joined.append(pa.concat_tables(self._parts).combine_chunks())
            self._parts.clear()

    def whole(self) -> pa.Table:
        """All of them."""
        return pa.concat_tables([*self._joined, *self._parts])


@dataclass(frozen=True)
class Index:
    """Files whose rows a compacted file holds, in the order of their rows: names, versions as read, rows of each."""

    names: Sequence[str] = ()
    versions: Sequence[Version] = ()
    rows: Sequence[int] = ()


@dataclass(frozen=True)
class Held:
    """What a compacted file holds of a table's files as they are now.

    Attributes:
        places: Name of each file that is as it was -> its first row, and the first of the next.
        index: All files that it has rows of, those that are gone or changed among them.
    """

    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    index: Index = field(default_factory=Index)
    _file: pq.ParquetFile | None = None

    def rows(self, table: str) -> pa.Table | None:
        """All its rows; None where they are not what `read_part` gives of good files."""
        if self._file is None:
            return None
        try:
            rows = self._file.read()
            rows.validate(full=True)
        except Exception:
            # The reader of damaged bytes raises almost anything. Whatever it is, the single files have the rows.
            return None
        return rows if self._owned(rows, table) and is_sound(rows, table) else None

    def pieces(self, names: Iterable[str]) -> list[str | tuple[int, int]]:
        """Some files in their order: rows from and to where they are held, as few pieces as can be; else the name."""
        found: list[str | tuple[int, int]] = []
        for name in names:
            place = self.places.get(name)
            last = found[-1] if found else None
            if place and isinstance(last, tuple) and last[1] == place[0]:
                found[-1] = (last[0], place[1])
            else:
                found.append(place or name)
        return found

    def _owned(self, rows: pa.Table, table: str) -> bool:
        """Whether each file has rows of the run that it is called after alone."""
        if table not in OF_ONE_RUN:
            return True
        names = pa.array([name.removesuffix(SUFFIX) for name in self.index.names], pa.string())
        wanted = np.repeat(np.arange(len(names)), self.index.rows)
        found = pc.index_in(rows["run_id"], value_set=names)
        return not found.null_count and np.array_equal(found.to_numpy(), wanted)


def held(folder: Path, table: str, names: Iterable[str]) -> Held:
    """What of some files of a table its compacted file holds; nothing where there is none that can be used.

    Of the compacted file only the index is read.
    """
    found = _open(folder, table)
    if found is None:
        return Held()
    file, index = found
    ends = list(accumulate(index.rows, initial=0))
    known = dict(zip(index.names, zip(index.versions, pairwise(ends), strict=True), strict=True))
    here, left = folder / table, left_there(folder, table)
    places = {
        name: known[name][1]
        for name in names
        if name in known and (version_of(f"{here}/{name}") or left.get(name)) == known[name][0]
    }
    return Held(places, index, file)


def versions_held(folder: Path, table: str) -> dict[str, Version]:
    """Name and version of each file that the compacted file of a table holds, be it so today or not."""
    found = _open(folder, table)
    return {} if found is None else dict(zip(found[1].names, found[1].versions, strict=True))


def _open(folder: Path, table: str) -> tuple[pq.ParquetFile, Index] | None:
    """The compacted file of a table and its index; None where there is none that can be used."""
    path = folder / FOLDER / f"{table}{SUFFIX}"
    if not path.is_file():
        return None
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        # Of another version: what it lacks may stand in the single files.
        return (file, _index(file.metadata)) if file.schema_arrow.equals(SCHEMAS[table]) else None
    except Exception:
        # As above. What carries out runs writes it again.
        return None


def _index(metadata: pq.FileMetaData) -> Index:
    """The index.

    Raises:
        Exception: There is none, or one that does not fit the rows.
    """
    found = json.loads(metadata.metadata[INDEX])
    names, sizes, times, rows = zip(*found["files"], strict=True)
    if found["format"] != FORMAT or sum(rows) != metadata.num_rows:
        raise ValueError("the index is of other rows")
    if set(map(type, names)) != {str} or set(map(type, rows)) != {int} or min(rows) < 0:
        raise ValueError("names that are none, or less than no row")
    return Index(names, list(zip(sizes, times, strict=True)), rows)


def version_of(path: str) -> Version | None:
    """The version of an ordinary file; None of anything else."""
    try:
        found = os.stat(path)  # noqa: PTH116 - of ten thousand files, each a tenth of the time that a path takes
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def compact(folder: Path, progress: Callable[[int, int], object] | None = None) -> None:
    """Write the compacted files of a store anew where many single files are in none of them yet.

    Args:
        folder: The store.
        progress: Told how many files of how many were read.

    Raises:
        FplError: They cannot be written; what there was stays.
    """
    work = []
    for table in SCHEMAS:
        try:
            names = files_of(folder, table)
        except DamagedError:
            continue  # whoever reads the table names it
        if table in OF_ONE_RUN:
            # What was published is one file already, and not of one run.
            names = [name for name in names if name != f"{ALL}{SUFFIX}"]
        before = held(folder, table, names)
        settled = time.time_ns() - int(SETTLED * 1e9)
        # Before they are read: what changes from here on is another version.
        versions = {name: version_of(f"{folder / table}/{name}") for name in names if name not in before.places}
        new = {name: version for name, version in versions.items() if version and version[1] <= settled}
        if len(new) >= ENOUGH:
            work.append((table, names, before, new))
    total, steps = sum(len(new) for *_, new in work), count(1)
    for each in work:
        _write(folder, *each, lambda: progress(next(steps), total) if progress else None)


def _write(
    folder: Path,
    table: str,
    names: Sequence[str],
    before: Held,
    new: Mapping[str, Version],
    read: Callable[[], object],
) -> None:
    """Write the compacted file of one table: what it had, and `new` files in which nothing is wrong."""
    rows = before.rows(table)
    known = dict(zip(before.index.names, before.index.versions, strict=True))
    if rows is None:
        # Those that it claims to have are left for the next time.
        rows, known = SCHEMAS[table].empty_table(), {}
    files: list[tuple[str, int, int, int]] = []
    parts = Rows(rows.schema)
    for name in names:
        if name in known and name in before.places:
            first, last = before.places[name]
            files.append((name, *known[name], last - first))
            parts.add(rows.slice(first, last - first))
        elif name in new:
            part, problems = read_part(folder / table / name, table)
            read()
            if not problems:
                files.append((name, *new[name], len(part)))
                parts.add(part)
    if not files:
        return
    # Not yet as it is shown: that is the reader's, as of any file.
    whole = parts.whole().combine_chunks()
    index = json.dumps({"format": FORMAT, "files": files}, separators=(",", ":"))

    def write(stream: BinaryIO) -> None:
        with pq.ParquetWriter(stream, whole.schema, compression="zstd", write_page_checksum=True) as writer:
            writer.write_table(whole)
            writer.add_key_value_metadata({INDEX: index.encode()})

    write_atomic(folder / FOLDER / f"{table}{SUFFIX}", write)
