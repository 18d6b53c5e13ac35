"""Which rows of one file of the store can be used, and what is wrong with the others."""

from __future__ import annotations

import pyarrow as pa

from fpl.names import is_name
from fpl.store.rows import LOOKED_AT, problem_of
from fpl.store.schema import KEYS, NOISE
from fpl.store.values import impossible, repeated

# The file of a table that is not one per run: what is published.
ALL = "all"
# So many rows of a kind are named, and no more.
SHOWN = 3


def usable(part: pa.Table, table: str, stem: str) -> tuple[pa.Table, list[str]]:
    """The rows that can be used, and what is wrong with the others: each problem once, with the first of its rows."""
    problems: dict[str, list[str]] = {}
    right = []
    differ, again = repeated(part, table)
    for number, found in enumerate(_problems(part, table, stem)):
        what = found or differ.get(number, "")
        right.append(not what and number not in again)
        if what:
            problems.setdefault(what, []).append(_label(part, number))
    if all(right):
        return part, []
    told = []
    for what, rows_of in problems.items():
        labels = list(dict.fromkeys(rows_of))
        more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        rows = f"{', '.join(labels[:SHOWN])}{more}: " if len(part) > 1 else ""
        told.append(f"{rows}{what}")
    return part.filter(pa.array(right, pa.bool_())), told


def is_sound(rows: pa.Table, table: str) -> bool:
    """Whether nothing is wrong with any of the rows of several files of a table."""
    return not any(_problems(rows, table, ALL)) and not any(repeated(rows, table))


def _problems(part: pa.Table, table: str, stem: str) -> list[str]:
    """Per row what is wrong with it; empty if nothing is."""
    if table in LOOKED_AT:
        found = [problem_of(table, row) for row in part.select(LOOKED_AT[table]).to_pylist()]
    else:
        found = _without_keys(part, table)
    for number, what in impossible(part, table).items():
        found[number] = found[number] or what
    if "run_id" not in KEYS[table]:
        return found
    # A file of a run holds that run alone; those of repetitions are called by their number too.
    alone = stem != ALL and table != NOISE
    ids = part["run_id"]
    wrong = {
        name: f"a row of another run, {name}" if is_name(name) else f"run_id {name!r} is no name"
        for name in ids.unique().to_pylist()
        if name is not None and (not is_name(name) or (alone and name != stem))
    }
    if wrong:
        found = [what or wrong.get(name, "") for what, name in zip(found, ids.to_pylist(), strict=True)]
    return found


def _without_keys(part: pa.Table, table: str) -> list[str]:
    found = [""] * len(part)
    for name in KEYS[table]:
        if part[name].null_count:
            nulls = part[name].is_null().to_pylist()
            found = [what or f"no {name}" * null for what, null in zip(found, nulls, strict=True)]
    return found


def _label(part: pa.Table, number: int) -> str:
    """What a row is called where it is named."""
    keys = ("study", "number") if "study" in part.column_names else ("run_id",)
    values = [part[key][number].as_py() for key in keys if key in part.column_names]
    return " ".join(map(str, values)) if is_name(values[0]) else f"row {number + 1}"
