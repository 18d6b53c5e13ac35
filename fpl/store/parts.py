"""One Parquet file of the store: its rows under today's schema, and what of it cannot be used.

Files come from older versions, other machines, full disks and strangers. What cannot be used is left out and named;
everything else is shown.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fpl.errors import FplError
from fpl.mirrors import came_damaged, name_of
from fpl.store.columns import SCHEMAS
from fpl.store.left import left_there
from fpl.store.schema import FAILURES, KEYS, NOISE, RUNS, STUDIES, TRIALS
from fpl.store.sealed import is_broken
from fpl.store.usable import ALL, usable
from fpl.store.values import columns_of
from fpl.text import REPLACEMENT, UNPRINTABLE, first_line, printable

SUFFIX = ".parquet"
UNREADABLE = "cannot be read: "
# Tables whose files hold a row at least.
NEVER_EMPTY = (RUNS, FAILURES, NOISE, STUDIES, TRIALS)

HINTS = {
    RUNS: "the run counts as not done: its `fpl train` or `fpl reproduce` puts this file aside and trains it again",
    FAILURES: "it only said that a run failed, and why: remove it",
    NOISE: "remove it, then `fpl reproduce noise` measures it again",
    STUDIES: "the same `fpl search` writes it again",
    TRIALS: "remove it, then the same `fpl search` tries the setting again; runs that are done are not repeated",
}
OF_A_RUN = (
    "the run is done and its scores stand; to get this back, remove the run's file in runs/ too, and the same command "
    "trains it again"
)
PUBLISHED = "it was published: take it from version control, or publish it again with the command that made it"


@dataclass(frozen=True)
class LeftOut:
    """Something in a store that cannot be shown.

    Attributes:
        table: Whose it is.
        path: The file, or the folder of the table.
        what: What is wrong.
    """

    table: str
    path: Path
    what: str

    @property
    def unreadable(self) -> bool:
        """Whether it is the system that does not let it be read: it may be as good as any."""
        return self.what.startswith(UNREADABLE)

    @property
    def hint(self) -> str:
        """What to do about it."""
        if self.unreadable:
            return "mend its permissions, or the disk"
        return PUBLISHED if self.path.stem == ALL else HINTS.get(self.table, OF_A_RUN)

    def __str__(self) -> str:
        return printable(f"left out: {name_of(self.path)}: {self.what}; {self.hint}")

    def error(self) -> FplError:
        """The same for whoever can do nothing without it."""
        return FplError(printable(self.what), where=printable(name_of(self.path)), hint=self.hint)


class DamagedError(Exception):
    """A whole file that cannot be used; the message says why."""


def files_of(folder: Path, table: str) -> list[str]:
    """Names of a table's files, sorted, hidden ones left out; none where there is no such folder.

    Names alone: of ten thousand files only those that are opened need a path. Those on object storage alone are among
    them.

    Raises:
        DamagedError: The folder cannot be listed.
    """
    try:
        names = os.listdir(folder / table)  # noqa: PTH208 - see above
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise DamagedError(f"{UNREADABLE}{error.strerror}") from None
    found = {name for name in names if name.endswith(SUFFIX) and not name.startswith(".")}
    return sorted(found | left_there(folder, table).keys())


def read_part(path: Path, table: str, *, keys: bool = False) -> tuple[pa.Table, list[str]]:
    """The rows of one file that can be used, all columns of the schema, and what is wrong with the others.

    Their text is as it was written: `clean` it before it is shown. With `keys` only the columns that are looked at
    are read, and the others are null.
    """
    schema = SCHEMAS[table]
    columns = columns_of(table) if keys else schema.names
    try:
        try:
            part = _under_schema(open_part(path, table), schema, columns)
        except DamagedError:
            if not came_damaged(path):
                raise
            part = _under_schema(open_part(path, table), schema, columns)
    except FileNotFoundError:
        return schema.empty_table(), []  # the record of a failure goes when its run succeeds
    except DamagedError as error:
        return schema.empty_table(), [str(error)]
    return usable(part, table, path.stem)


def open_part(path: Path, table: str) -> pq.ParquetFile:
    """A file whose columns are those of a table; of its rows nothing is read.

    Raises:
        DamagedError: It is none.
        FileNotFoundError: It is gone.
    """
    try:
        if path.is_dir():
            raise DamagedError("is a folder, no file")
        if path.exists() and not path.is_file():
            raise DamagedError("is no ordinary file")
        content = path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise DamagedError("is a link to nothing") from None
        if path.name in left_there(path.parent.parent, table):
            raise DamagedError(f"{UNREADABLE}it is on object storage alone: name the store by its URL") from None
        raise
    except OSError as error:
        raise DamagedError(f"{UNREADABLE}{error.strerror}") from None
    if not content:
        raise DamagedError("is empty, zero bytes")
    if is_broken(content):
        raise DamagedError("is damaged: its checksum is not that of its bytes")
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        found, rows = file.schema_arrow, file.metadata.num_rows
    except Exception as error:
        # The reader of bytes from anywhere raises almost anything: ArrowException, OSError, UnicodeDecodeError ...
        raise DamagedError(f"is no Parquet file, or a damaged one: {first_line(error)}") from None
    if problem := _drift(found, table):
        raise DamagedError(problem)
    if not rows and table in NEVER_EMPTY:
        raise DamagedError("holds no row")
    return file


def _drift(found: pa.Schema, table: str) -> str:
    """How the columns of a file differ from those of a table so that it cannot be read as one; empty if not."""
    schema = SCHEMAS[table]
    if found.equals(schema):
        return ""
    if not set(found.names) & set(schema.names):
        return f"is a Parquet file of something else, with the columns {', '.join(found.names[:8]) or '(none)'}"
    if lacking := [name for name in KEYS[table] if name not in found.names]:
        return f"lacks the column{'s' if len(lacking) > 1 else ''} {', '.join(lacking)}"
    for field in schema:
        if found.names.count(field.name) > 1:
            return f"has the column {field.name} twice"
        if field.name in found.names and not _fits(kind := found.field(field.name).type, field.type):
            return f"column {field.name} is {kind}, not {field.type}"
    return ""


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type are those of another, perhaps stored otherwise."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return True
    if pa.types.is_list(wanted):
        lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        return any(test(found) for test in lists) and _fits(found.value_type, wanted.value_type)
    if pa.types.is_string(wanted):
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    if pa.types.is_binary(wanted):
        return bool(pa.types.is_binary(found) or pa.types.is_large_binary(found))
    whole = bool(pa.types.is_integer(found))
    return whole or (pa.types.is_floating(wanted) and bool(pa.types.is_floating(found)))


def _under_schema(file: pq.ParquetFile, schema: pa.Schema, wanted: Collection[str]) -> pa.Table:
    """All columns of a schema; those that a file of an older version lacks are null, others are not read."""
    try:
        held = set(file.schema_arrow.names)
        # Small files: threads cost more than they give.
        whole = file.read(columns=[name for name in wanted if name in held], use_threads=False)
        # Of what another program noted there, an index of pandas would change the frame.
        whole = whole.replace_schema_metadata()
        if not whole.schema.equals(schema):
            found = set(whole.column_names)
            columns: dict[str, Any] = {
                field.name: _cast(whole.column(field.name), field.type)
                if field.name in found
                else pa.nulls(len(whole), field.type)
                for field in schema
            }
            whole = pa.table(columns, schema=schema)
        whole.validate(full=True)
    except Exception as error:
        # As above.
        raise DamagedError(f"holds what cannot be read as this table: {first_line(error)}") from None
    return whole


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


def clean(rows: pa.Table) -> pa.Table:
    """The same rows, their text without what a terminal would obey."""
    return pa.table([_clean(column) for column in rows.columns], schema=rows.schema)


def _clean(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text without what a terminal would obey; anything else as it is."""
    kind = column.type
    texts = pc.list_flatten(column) if pa.types.is_list(kind) else column
    if not pa.types.is_string(texts.type):
        return column
    if not pc.any(pc.match_substring_regex(texts, UNPRINTABLE)).as_py():
        return column
    if texts is column:
        return pc.replace_substring_regex(column, UNPRINTABLE, REPLACEMENT)
    rows = [None if row is None else [item and printable(item) for item in row] for row in column.to_pylist()]
    return pa.chunked_array([pa.array(rows, kind)])
