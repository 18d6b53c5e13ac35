"""A flipped bit anywhere in a file of the store: found, or without any effect."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fpl.errors import FplError
from fpl.store.parts import read_part
from fpl.store.schema import CLASSES
from fpl.store.sealed import encoded, is_broken
from fpl.store.write import write_table
from fpl.sweep.plan.rows import read_rows, write_rows

ROWS = [{"run_id": "a", "choice": "best", "class_index": 1, "iou": 12.5}]


def flipped(content: bytes, bit: int) -> bytes:
    return content[: bit // 8] + bytes([content[bit // 8] ^ (1 << bit % 8)]) + content[bit // 8 + 1 :]


def test_no_bit_changes_a_row_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / CLASSES / "a.parquet"
    write_table(path, CLASSES, ROWS)
    content, (rows, problems) = path.read_bytes(), read_part(path, CLASSES)
    assert not problems and len(rows) == 1
    unseen = 0
    for bit in range(0, 8 * len(content), 3):
        path.write_bytes(flipped(content, bit))
        found, problems = read_part(path, CLASSES)
        if not problems:
            assert found.equals(rows), bit
            unseen += 1
    # A seal is no seal any more where its own mark has another letter.
    assert unseen <= 8 * 40 / 3


def test_everybody_else_reads_a_sealed_file(tmp_path: Path) -> None:
    rows = pa.table({"x": pa.array([1.5, None, -2.0]), "y": ["a", "b", None], "z": [[1, 2], [], None]})
    content = encoded(rows)
    assert pq.read_table(io.BytesIO(content)).equals(rows)
    (tmp_path / "x.parquet").write_bytes(content)
    assert pd.read_parquet(tmp_path / "x.parquet")["y"].tolist()[:2] == ["a", "b"]
    assert not is_broken(content)


def test_files_of_other_programs_have_no_seal() -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"x": [1]}), buffer)
    assert not is_broken(buffer.getvalue()) and not is_broken(b"") and not is_broken(b"text")


def test_small_tables_beside_the_store_are_sealed_too(tmp_path: Path) -> None:
    schema, path = pa.schema([("name", pa.string()), ("seconds", pa.float64())]), tmp_path / "costs.parquet"
    write_rows(path, [{"name": "a", "seconds": 2.5}], schema)
    assert read_rows(path, schema, "remove it") == [{"name": "a", "seconds": 2.5}]
    content = path.read_bytes()
    path.write_bytes(flipped(content, 8 * 30))
    with pytest.raises(FplError, match="checksum"):
        read_rows(path, schema, "remove it")
