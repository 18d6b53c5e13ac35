"""One file per table instead of one per run: what is committed and published."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fpl.errors import FplError
from fpl.files import write_atomic
from fpl.store.read import read_parts, read_table
from fpl.store.schema import RUNS, SCHEMAS, STUDIES, TRIALS

NAME = "all.parquet"


def compact(source: Path, target: Path, keep: set[str] | None = None) -> int:
    """Write each table of the store `source` as one file `TABLE/all.parquet` below `target`, sorted by run.

    The files hold what `load_results` gives for `source`, but for its searches: those are published by themselves
    (`publish_searches`), and what `target` has of them stays. What cannot be used of `source` is left out; its
    `Results.warnings` name it.

    Args:
        source: Store with one file per run.
        target: Folder of the compacted tables; those there are replaced, `runs` last.
        keep: Ids of the runs to take; None for all.

    Returns:
        Number of runs.

    Raises:
        FplError: `source` and `target` are the same folder.
    """
    _check_apart(source, target)
    count = 0
    for table in sorted(SCHEMAS.keys() - {STUDIES, TRIALS}, key=lambda name: (name == RUNS, name)):
        merged, _ = read_parts(source, table)
        if keep is not None:
            merged = merged.filter(pa.array([value in keep for value in merged["run_id"].to_pylist()], pa.bool_()))
        if table == RUNS:
            count = len(merged)
        _write(target, table, merged)
    return count


def publish_searches(source: Path, target: Path, studies: Collection[str] | None = None) -> int:
    """Put studies and their trials from the store `source` into `TABLE/all.parquet` below `target`.

    They replace those of the same id; what else `target` holds stays. The trials' runs are not taken along, nor is what
    cannot be used of `source`.

    Args:
        source: Store with one file per trial and study.
        target: Folder of the compacted tables.
        studies: Ids of the studies to take; None for all.

    Returns:
        Number of studies taken.

    Raises:
        FplError: `source` and `target` are the same folder, or what `target` holds cannot be used and would be lost.
    """
    _check_apart(source, target)
    held = read_parts(source, STUDIES)[0]["study"].to_pylist()
    taken = {study for study in held if studies is None or study in studies}
    for table in (TRIALS, STUDIES):
        ours = _of_studies(read_parts(source, table)[0], taken, True)
        theirs = _of_studies(read_table(target, table), taken, False)
        order = [("study", "ascending"), *([("number", "ascending")] if table == TRIALS else [])]
        _write(target, table, pa.concat_tables([theirs, ours]).sort_by(order))
    return len(taken)


def _of_studies(rows: pa.Table, studies: Collection[str], within: bool) -> pa.Table:
    return rows.filter(pa.array([(study in studies) == within for study in rows["study"].to_pylist()], pa.bool_()))


def _check_apart(source: Path, target: Path) -> None:
    if source.resolve() == target.resolve():
        raise FplError(
            "results cannot be published into their own store", where=str(target), hint="name another folder"
        )


def _write(target: Path, table: str, rows: pa.Table) -> None:
    """One table as one file; no file for no rows."""
    if not len(rows):
        (target / table / NAME).unlink(missing_ok=True)
        return
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, compression="zstd")
    write_atomic(target / table / NAME, buffer.getvalue().to_pybytes())


def compare(ours: pd.DataFrame, theirs: pd.DataFrame, metric: str) -> pd.Series:
    """Absolute differences of a metric between two `runs` frames, by recipe, where both have it."""
    both = ours[["recipe", metric]].merge(theirs[["recipe", metric]], on="recipe", suffixes=("_ours", "_theirs"))
    difference: pd.Series = (both[f"{metric}_ours"] - both[f"{metric}_theirs"]).abs()
    return difference.dropna()
