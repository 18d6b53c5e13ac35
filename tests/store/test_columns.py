"""The data dictionary is whole."""

from __future__ import annotations

import pytest

from fpl.store.columns import COLUMNS, TABLES
from fpl.store.schema import SCHEMAS


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_column_is_explained(table: str) -> None:
    assert TABLES[table]
    assert list(COLUMNS[table]) == SCHEMAS[table].names
    assert all(what for _, what in COLUMNS[table].values())
