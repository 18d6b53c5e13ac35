"""One file per table instead of one per run: what is committed and published."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fpl.errors import FplError
from fpl.files import write_atomic
from fpl.store.read import read_table
from fpl.store.schema import RUNS, SCHEMAS

NAME = "all.parquet"


def compact(source: Path, target: Path, keep: set[str] | None = None) -> int:
    """Write each table of the store `source` as one file `TABLE/all.parquet` below `target`, sorted by run.

    The files hold what `load_results` gives for `source`; `target` must be another folder than `source`.

    Args:
        source: Store with one file per run.
        target: Folder of the compacted tables; those there are replaced, `runs` last.
        keep: Ids of the runs to take; None for all.

    Returns:
        Number of runs.

    Raises:
        FplError: `source` and `target` are the same folder.
    """
    if source.resolve() == target.resolve():
        raise FplError(
            "results cannot be published into their own store", where=str(target), hint="name another folder"
        )
    count = 0
    for table in sorted(SCHEMAS, key=lambda name: name == RUNS):
        merged = read_table(source, table)
        if keep is not None:
            merged = merged.filter(pa.array([value in keep for value in merged["run_id"].to_pylist()], pa.bool_()))
        if table == RUNS:
            count = len(merged)
        if not len(merged):
            (target / table / NAME).unlink(missing_ok=True)
            continue
        buffer = pa.BufferOutputStream()
        pq.write_table(merged, buffer, compression="zstd")
        write_atomic(target / table / NAME, buffer.getvalue().to_pybytes())
    return count


def compare(ours: pd.DataFrame, theirs: pd.DataFrame, metric: str) -> pd.Series:
    """Absolute differences of a metric between two `runs` frames, by recipe, where both have it."""
    both = ours[["recipe", metric]].merge(theirs[["recipe", metric]], on="recipe", suffixes=("_ours", "_theirs"))
    difference: pd.Series = (both[f"{metric}_ours"] - both[f"{metric}_theirs"]).abs()
    return difference.dropna()
