"""Values that nothing can have: scores outside of 0 to 100 %, negative times, two rows of one name that differ.

Whole columns are looked at, not rows: a store has ten thousand runs, with thousands of rows each.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from fpl.store.schema import (
    CIRCUMSTANCES,
    CLASSES,
    EXAMPLES,
    FUZZINESS,
    HISTORY,
    KEYS,
    METRICS,
    NOISE,
    RUNS,
    STUDIES,
    TRIALS,
)


@dataclass(frozen=True)
class Range:
    """Numbers from one to another."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


# A mean may be rounded up by a last bit.
_ROUNDING = 1e-9
PERCENT = Range(0, 100)
SHARE = Range(0, 1)
# Seconds or hours, and pixels or steps: more than there can be, and few enough to be added up and drawn.
TIME = Range(0, 1e10)
COUNT = Range(0, 1e15)

RANGES: dict[str, dict[Range, tuple[str, ...]]] = {
    RUNS: {
        PERCENT: (*METRICS, "constant_miou"),
        COUNT: (
            *("best_step", "labeled_images", "unlabeled_images", "validation_images", "pixels_counted"),
            *("workers", "threads"),
        ),
        TIME: ("train_seconds",),
    },
    HISTORY: {COUNT: ("step",)},
    CLASSES: {PERCENT: ("iou",), COUNT: ("class_index", "label_pixels", "predicted_pixels", "right_pixels")},
    FUZZINESS: {
        SHARE: ("share_k1", "impurity", "cosine_fuzzy_positive"),
        COUNT: ("step", "pixels", "mean_k", "labeled_pixels", "case_1_k1_pixels"),
    },
    EXAMPLES: {COUNT: ("step",)},
    NOISE: {PERCENT: METRICS, COUNT: ("repeat", "threads")},
    STUDIES: {COUNT: ("labeled_images", "holdout"), TIME: ("wall_seconds",)},
    TRIALS: {
        PERCENT: ("score", "score_std", "run_scores", "values"),
        COUNT: ("number", "runs_scored", "step", "steps"),
        TIME: ("device_hours", "cost"),
    },
}
# Where a value that is not known may stand as NaN: of what no pixel has, of training that went astray. No score of a
# run may: where no pixel counts, the run has failed.
_UNKNOWN_AS_NAN = (HISTORY, CLASSES, FUZZINESS, TRIALS)
# Of what `history` holds, a method may log any term, and that may be any number; these are percentages.
_SCORES = pa.array(["miou", "pixel_accuracy"])

# By what a row is called, where a file may hold many.
_NAMES = {
    RUNS: ["run_id"],
    HISTORY: ["run_id", "step", "metric"],
    CLASSES: ["run_id", "choice", "class_index"],
    FUZZINESS: ["run_id", "step", "direction"],
    EXAMPLES: ["run_id", "step", "part", "image_id", "kind"],
    NOISE: ["run_id", "repeat"],
    STUDIES: ["study"],
    TRIALS: ["study", "number"],
}


def columns_of(table: str) -> tuple[str, ...]:
    """Columns that are looked at."""
    ranged = (name for names in RANGES.get(table, {}).values() for name in names)
    return tuple(dict.fromkeys((*KEYS[table], *ranged)))


def impossible(part: pa.Table, table: str) -> dict[int, str]:
    """Number of each row with a value that it cannot have -> what is wrong with it."""
    found: dict[int, str] = {}
    for allowed, names in RANGES.get(table, {}).items():
        columns = [_values(part[name]) for name in names]
        # All columns at once: most files are small, and each question costs more than its answer.
        if not _within(_joined(columns), allowed, table):
            for name in names:
                _add(found, part[name], name, allowed, table)
    if table == HISTORY:
        _add(found, _scores(part), "value", PERCENT, table)
    return found


def repeated(part: pa.Table, table: str) -> tuple[dict[int, str], set[int]]:
    """Rows of the same name: those that differ, with what is wrong with them, and those that only say it again."""
    names = _NAMES.get(table)
    if names is None or len(part) < 2:
        return {}, set()
    if _all_differ(part.select(names)):
        return {}, set()
    # Of a table without circumstances everything is told; of the others what is the same wherever it was made.
    circumstances = CIRCUMSTANCES.get(table)
    told = (
        part
        if circumstances is None
        else part.select([name for name in columns_of(table) if name not in circumstances])
    )
    # The text of a float gives its last bit, and that of NaN equals itself.
    rows = list(map(repr, told.to_pylist()))
    places: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(part.select(names).to_pylist()):
        places[repr(row)].append(number)
    differ: dict[int, str] = {}
    again: set[int] = set()
    for numbers in places.values():
        if len({rows[number] for number in numbers}) > 1:
            differ |= dict.fromkeys(numbers, "stands there more than once, with other results")
        else:
            again.update(numbers[1:])
    return differ, again


def _all_differ(rows: pa.Table) -> bool:
    # Most files are small: what counts large ones in no time takes them longer than to look at each row.
    if len(rows) < 1000:
        return len(set(zip(*(column.to_pylist() for column in rows.columns), strict=True))) == len(rows)
    counts = rows.group_by(rows.column_names).aggregate([([], "count_all")])["count_all"]
    return bool(pc.max(counts).as_py() == 1)


def differing(rows: pa.Table, others: pa.Table, table: str) -> list[str]:
    """Names of the runs that two tables without repeated rows have both, with other results."""
    told = [name for name in columns_of(table) if name not in CIRCUMSTANCES.get(table, ())]
    known = {row["run_id"]: repr(row) for row in rows.select(told).to_pylist()}
    return [
        row["run_id"] for row in others.select(told).to_pylist() if known.get(row["run_id"], repr(row)) != repr(row)
    ]


def _add(found: dict[int, str], column: pa.ChunkedArray, name: str, allowed: Range, table: str) -> None:
    """Note the rows of a column whose value is not allowed."""
    values = _values(column)
    if _within(values, allowed, table):
        return
    # A whole number may be larger than what a float has exactly.
    values = values.cast(pa.float64(), safe=False)
    outside = pc.or_(pc.less(values, allowed.low - _ROUNDING), pc.greater(values, allowed.high + _ROUNDING))
    if table not in _UNKNOWN_AS_NAN:
        outside = pc.or_(outside, pc.is_nan(values))
    numbers = pc.indices_nonzero(outside)
    if pa.types.is_list(column.type):
        numbers = pc.take(pc.list_parent_indices(column.combine_chunks()), numbers)
    for number in numbers.to_pylist():
        found.setdefault(number, f"{name} is no number from {allowed}")


def _within(values: pa.ChunkedArray, allowed: Range, table: str) -> bool:
    ends = pc.min_max(values).as_py()
    if ends["min"] is None:
        return True
    # It knows nothing of NaN, which the sum does.
    known = table in _UNKNOWN_AS_NAN or math.isfinite(pc.sum(values).as_py())
    return known and not (ends["min"] < allowed.low - _ROUNDING or ends["max"] > allowed.high + _ROUNDING)


def _joined(columns: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Values of several columns one after the other."""
    kind = pa.float64() if any(pa.types.is_floating(column.type) for column in columns) else pa.int64()
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pa.chunked_array([chunk if chunk.type == kind else chunk.cast(kind, safe=False) for chunk in chunks], kind)


def _values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.list_flatten(column) if pa.types.is_list(column.type) else column


def _scores(part: pa.Table) -> pa.ChunkedArray:
    """The values of `history` that are percentages, null in the other rows."""
    return pc.if_else(pc.is_in(part["metric"], value_set=_SCORES), part["value"], pa.scalar(None, pa.float64()))
