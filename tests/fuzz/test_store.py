"""Damaged and foreign Parquet files in a store: every table of it is read, or the file is named."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpl.store.read import Results
from fpl.store.schema import CLASSES, FUZZINESS, HISTORY, RUNS
from tests.fuzz.damage import damaged
from tests.fuzz.outcome import files_in, result_or_error
from tests.store.test_store import add

TABLES = [RUNS, HISTORY, CLASSES, FUZZINESS]
COLUMNS = st.sampled_from(
    [
        pa.array([None]),
        pa.array(["../../x"]),
        pa.array([-1]),
        pa.array([2**62]),
        pa.array([b"\xff\xfe"]),
        pa.array([[1, 2]]),
        pa.array([{"a": 1}]),
        pa.array(["{}"]),
        pa.array(["[" * 3000]),
        pa.array([float("nan")]),
    ]
)


def read_all(folder: Path) -> list[pd.DataFrame]:
    results = Results(folder)
    return [getattr(results, table) for table in TABLES]


@st.composite
def drifted(draw: Callable[[Any], Any], table: pa.Table) -> pa.Table:
    """A table without a row, without a column, or with one retyped, renamed, null or nested."""
    kind = draw(st.sampled_from(["empty", "missing", "renamed", "retyped", "twice"]))
    if kind == "empty":
        return table.slice(0, 0)
    at = draw(st.integers(0, table.num_columns - 1))
    name = table.column_names[at]
    if kind == "missing":
        return table.remove_column(at)
    if kind == "renamed":
        return table.rename_columns(["odd" if each == name else each for each in table.column_names])
    if kind == "twice":
        return table.append_column(name, table.column(at))
    return table.slice(0, 1).set_column(at, name, draw(COLUMNS))


@pytest.mark.parametrize("table", TABLES)
@given(data=st.data())
def test_damaged_files(table: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "out"
        run = add(folder, "a")
        before = files_in(Path(name))
        path = folder / table / f"{run}.parquet"
        path.write_bytes(data.draw(damaged(path.read_bytes())))
        result_or_error(lambda: read_all(folder), path)
        assert files_in(Path(name)) == before


@pytest.mark.parametrize("table", TABLES)
@given(data=st.data())
def test_foreign_and_drifted_files(table: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "out"
        run = add(folder, "a")
        path = folder / table / f"{run}.parquet"
        pq.write_table(data.draw(drifted(pq.read_table(path))), path)
        result_or_error(lambda: read_all(folder), path)
