"""Writing a finished run: one atomic Parquet file per table, the row of `runs` last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fpl.files import remove, write_atomic
from fpl.store.columns import SCHEMAS
from fpl.store.pictures import encode
from fpl.store.schema import CLASSES, EXAMPLES, FAILURES, FUZZINESS, HISTORY, RUNS
from fpl.store.sealed import encoded

Row = Mapping[str, Any]


def write_run(
    out: Path,
    row: Row,
    history: Sequence[Row],
    classes: Sequence[Row],
    fuzziness: Sequence[Row],
    examples: Sequence[Row] = (),
) -> Path:
    """Put a finished run into the store at `out`.

    Args:
        out: Folder of the store.
        row: Columns of `runs`; those left out are null.
        history: One mapping per logged step: `step` and any metrics.
        classes: Rows of `classes` without `run_id`.
        fuzziness: Rows of `fuzziness` without `run_id`.
        examples: Rows of `examples` without `run_id`, the picture as an `array` (`fpl.store.pictures.encode`).

    Returns:
        The file of the `runs` row. It is written after the others: where it exists, they do.
    """
    run_id = row["run_id"]
    long = [
        {"step": entry["step"], "metric": metric, "value": float(value)}
        for entry in history
        for metric, value in entry.items()
        if metric != "step"
    ]
    for table, rows in ((HISTORY, long), (CLASSES, classes), (FUZZINESS, fuzziness)):
        write_table(out / table / f"{run_id}.parquet", table, [{"run_id": run_id, **entry} for entry in rows])
    pictures = out / EXAMPLES / f"{run_id}.parquet"
    if examples:
        write_table(pictures, EXAMPLES, [{"run_id": run_id, **encode(entry)} for entry in examples])
    else:
        # Few runs keep pictures; those of an earlier run of the same id would not be this one's.
        remove(pictures)
    path = run_path(out, run_id)
    write_table(path, RUNS, [row])
    remove(failure_path(out, run_id))
    return path


def write_failure(out: Path, row: Row) -> Path:
    """Record that a run ended with an error; the next record of the same run replaces it."""
    path = failure_path(out, row["run_id"])
    write_table(path, FAILURES, [row])
    return path


def failure_path(out: Path, run_id: str) -> Path:
    """File whose existence says that the run ended with an error."""
    return out / FAILURES / f"{run_id}.parquet"


def run_path(out: Path, run_id: str) -> Path:
    """File whose existence says that the run is done."""
    return out / RUNS / f"{run_id}.parquet"


def write_table(path: Path, table: str, rows: Sequence[Row]) -> None:
    """Write rows under the table's schema; an unknown column is a programming error."""
    schema = SCHEMAS[table]
    unknown = {name for row in rows for name in row} - set(schema.names)
    if unknown:
        raise KeyError(f"table {table} has no columns {sorted(unknown)}")
    columns = {name: [row.get(name) for row in rows] for name in schema.names}
    write_atomic(path, encoded(pa.table(columns, schema=schema)))
