"""One file with the rows of many: a store of ten thousand runs is read by opening one file a table.

The single files stay what counts. `.compact/TABLE.parquet` says of each file whose rows it holds its name, size and
time of change. Who reads takes from it the rows of files that are still just so, and opens the others: a file that was
removed, written anew or damaged is what it would be without it, two writers at once lose nothing but work, and the
folder may be removed at any moment. Commands that carry out runs write it; those that only show never do.
"""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fpl.files import write_atomic
from fpl.store.parts import SUFFIX, DamagedError, files_of, is_sound, read_part
from fpl.store.schema import OF_ONE_RUN, SCHEMAS

FOLDER = ".compact"
INDEX = b"fpl.compact"
# Raised when the index becomes another, or files that were fit to be shown before may not be any more.
FORMAT = 1
# So many files are opened in a fraction of a second: fewer are not worth writing everything again.
ENOUGH = 64
# Seconds. A file that changed just now may change again within one tick of the clock that its time is by, which is
# another than ours where disks are shared.
SETTLED = 60.0


class Version(NamedTuple):
    """What changes with the content of a file: its size in bytes, and when it changed in ns of the file system."""

    size: int
    changed: int


class Entry(NamedTuple):
    """A file in the index: its name, its version as it was read, how many rows it has."""

    name: str
    version: Version
    rows: int


@dataclass(frozen=True)
class Held:
    """What a compacted file holds of a table's files as they are now.

    Attributes:
        places: Name of each file that is as it was -> its first row, and the first of the next.
        entries: All files that it has rows of, those that are gone or changed among them.
    """

    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    entries: Sequence[Entry] = ()
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

    def pieces(self, paths: Iterable[Path]) -> list[Path | tuple[int, int]]:
        """Some files in their order: rows from and to where they are held, as few pieces as can be; else the file."""
        found: list[Path | tuple[int, int]] = []
        for path in paths:
            place = self.places.get(path.name)
            last = found[-1] if found else None
            if place and isinstance(last, tuple) and last[1] == place[0]:
                found[-1] = (last[0], place[1])
            else:
                found.append(place or path)
        return found

    def _owned(self, rows: pa.Table, table: str) -> bool:
        """Whether each file has rows of the run that it is called after alone."""
        if table not in OF_ONE_RUN:
            return True
        names = pa.array([entry.name.removesuffix(SUFFIX) for entry in self.entries], pa.string())
        wanted = np.repeat(np.arange(len(names)), [entry.rows for entry in self.entries])
        found = pc.index_in(rows["run_id"], value_set=names)
        return not found.null_count and np.array_equal(found.to_numpy(), wanted)


def held(folder: Path, table: str, paths: Iterable[Path]) -> Held:
    """What of some files of a table its compacted file holds; nothing where there is none that can be used.

    Of the compacted file only the index is read.
    """
    path = folder / FOLDER / f"{table}{SUFFIX}"
    if not path.is_file():
        return Held()
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        if not file.schema_arrow.equals(SCHEMAS[table]):
            return Held()  # of another version: what it lacks may stand in the single files
        entries = _entries(file.metadata)
    except Exception:
        # As above. What carries out runs writes it again.
        return Held()
    ends = accumulate(entry.rows for entry in entries)
    known = {entry.name: (entry.version, (end - entry.rows, end)) for entry, end in zip(entries, ends, strict=True)}
    places = {
        one.name: known[one.name][1] for one in paths if one.name in known and version_of(one) == known[one.name][0]
    }
    return Held(places, entries, file)


def _entries(metadata: pq.FileMetaData) -> list[Entry]:
    """The index.

    Raises:
        Exception: There is none, or one that does not fit the rows.
    """
    found = json.loads(metadata.metadata[INDEX])
    entries = [Entry(str(name), Version(int(size), int(time)), int(rows)) for name, size, time, rows in found["files"]]
    if found["format"] != FORMAT or sum(entry.rows for entry in entries) != metadata.num_rows:
        raise ValueError("the index is of other rows")
    if any(entry.rows < 0 for entry in entries):
        raise ValueError("less than no row")
    return entries


def version_of(path: Path) -> Version | None:
    """The version of an ordinary file; None of anything else."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Version(found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


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
            paths = files_of(folder, table)
        except DamagedError:
            continue  # whoever reads the table names it
        before = held(folder, table, paths)
        settled = time.time_ns() - int(SETTLED * 1e9)
        # Before they are read: what changes from here on is another version.
        versions = {path: version_of(path) for path in paths if path.name not in before.places}
        new = {path: version for path, version in versions.items() if version and version.changed <= settled}
        if len(new) >= ENOUGH:
            work.append((table, paths, before, new))
    total, steps = sum(len(new) for *_, new in work), count(1)
    for each in work:
        _write(folder, *each, lambda: progress(next(steps), total) if progress else None)


def _write(
    folder: Path,
    table: str,
    paths: Sequence[Path],
    before: Held,
    new: Mapping[Path, Version],
    read: Callable[[], object],
) -> None:
    """Write the compacted file of one table: what it had, and `new` files in which nothing is wrong."""
    rows = before.rows(table)
    known = {entry.name: entry for entry in before.entries if entry.name in before.places}
    if rows is None:
        # Those that it claims to have are left for the next time.
        rows, known = SCHEMAS[table].empty_table(), {}
    entries: list[Entry] = []
    parts: list[pa.Table] = []
    for path in paths:
        if path.name in known:
            first, last = before.places[path.name]
            entries.append(known[path.name])
            parts.append(rows.slice(first, last - first))
        elif path in new:
            part, problems = read_part(path, table)
            read()
            if not problems:
                entries.append(Entry(path.name, new[path], len(part)))
                parts.append(part)
    if not parts:
        return
    # Not yet as it is shown: that is the reader's, as of any file.
    whole = pa.concat_tables(parts).combine_chunks()
    files = [(entry.name, *entry.version, entry.rows) for entry in entries]
    index = json.dumps({"format": FORMAT, "files": files}, separators=(",", ":"))

    def write(stream: BinaryIO) -> None:
        with pq.ParquetWriter(stream, whole.schema, compression="zstd", write_page_checksum=True) as writer:
            writer.write_table(whole)
            writer.add_key_value_metadata({INDEX: index.encode()})

    write_atomic(folder / FOLDER / f"{table}{SUFFIX}", write)
