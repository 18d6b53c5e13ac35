"""The data dictionary is whole."""

from __future__ import annotations

import pytest

from fpl.store.columns import COLUMNS, SCHEMAS, TABLES


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_column_is_explained(table: str) -> None:
    assert TABLES[table]
    assert all(what for _, what in COLUMNS[table].values())
