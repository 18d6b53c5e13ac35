"""A query sees the columns, and nothing of the program that carries it out."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fpl.errors import FplError
from fpl.report.query import rows_of

FRAME = pd.DataFrame(
    {
        "run_id": ["a-fpl", "b@c", "d"],
        "seed": [0, 1, 2],
        "loss.kind": ["fpl", "ce", "ce"],
        "data": pd.array([True, False, True], "boolean"),
        "finished_at": pd.to_datetime(["2025-01-01", "2026-01-02", "2026-03-04"], utc=True),
    }
)


@pytest.mark.parametrize(
    "query",
    [
        "@pd.io.common.os.system('touch {file}')",
        "seed == @query",
        "seed in @ frame.seed",
        "__pd_eval_local_pd.io.common.os.system('touch {file}')",
        "run_id.to_csv('{file}')",
        "`loss.kind`.to_pickle('{file}')",
        "run_id.__class__.__base__.__subclasses__()",
        "''.__class__ == 1",
        "datetime.__class__ == 1",
        "seed.map(datetime) == 0",
        "seed.pipe(list) == 0",
        "seed == 0 or run_id.str._orig.to_csv('{file}')",
        "run_id == 'x`' or @pd.io.common.os.system('touch {file}') == '`'",
        "x = run_id.to_csv('{file}')\nseed == 0",
        "  seed == 0\n  @pd.x",
    ],
)
def test_refused(tmp_path: Path, query: str) -> None:
    file = tmp_path / "written"
    with pytest.raises(FplError) as caught:
        rows_of(FRAME, query.replace("{file}", str(file)))
    assert "which no query may" in caught.value.what and caught.value.where == "--query"
    assert "run_id.str.contains" in caught.value.hint and not file.exists()


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("`loss.kind` == 'fpl' and seed < 3", [0]),
        ("run_id == 'b@c'", [1]),
        ("run_id == \"b@c\" or `loss.kind` == 'it`s'", [1]),
        ("run_id.str.contains('fpl')", [0]),
        ("not run_id.str.upper().str.startswith('A')", [1, 2]),
        ("`loss.kind`.str.len() == 2", [1, 2]),
        ("seed.isin([0, 2]) & ~seed.isna()", [0, 2]),
        ("seed.between(1, 2) and data", [2]),
        ("finished_at.dt.year == 2026", [1, 2]),
        ("finished_at > '2026-02-01 00:00Z'", [2]),
        ("seed == seed.max()", [2]),
        ("index > 0 and sqrt(seed) == 1", [1]),
    ],
)
def test_allowed(query: str, rows: list[int]) -> None:
    assert list(rows_of(FRAME, query).index) == rows


@pytest.mark.parametrize(
    "query",
    [
        "loss.kind == 'fpl'",
        "seed ==",
        "nothing == 3",
        "seed",
        "seed + 1",
        "seed % 2",
        "2 - seed",
        "1",
        "`seed == 0",
        "'",
        "(" * 5000,
    ],
)
def test_what_is_none_is_told(query: str) -> None:
    with pytest.raises(FplError) as caught:
        rows_of(FRAME, query)
    assert caught.value.where == "--query" and caught.value.hint
    assert "loss" not in query or "loss.kind without backticks" in caught.value.what
