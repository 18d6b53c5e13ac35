"""Small tables beside the store, each one Parquet file that is written anew as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fpl.errors import FplError
from fpl.files import write_atomic
from fpl.store.sealed import encoded, is_broken


def read_rows(path: Path, schema: pa.Schema, remedy: str) -> list[dict[str, Any]]:
    """Rows of a table; none without the file.

    Raises:
        FplError: The file is damaged or lacks a column; its hint is `remedy`.
    """
    if not path.is_file():
        return []
    try:
        content = path.read_bytes()
        if is_broken(content):
            raise pa.ArrowInvalid("damaged: its checksum is not that of its bytes")
        rows: list[dict[str, Any]] = pq.read_table(pa.BufferReader(content), schema=schema).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise FplError(f"no {path.stem}: {error}", where=str(path), hint=remedy) from None
    return rows


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write a table, whole or not at all.

    Raises:
        FplError: It cannot be written.
    """
    write_atomic(path, encoded(pa.Table.from_pylist(list(rows), schema=schema)))
