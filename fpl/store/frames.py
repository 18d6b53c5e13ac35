"""From rows of the store to frames that can be filtered, grouped and sorted as their columns mean it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pandas as pd
import pyarrow as pa

from fpl.store.columns import Meaning
from fpl.store.rows import Parsed, amount
from fpl.store.schema import FUZZINESS, TIMES

TIME = "datetime64[us, UTC]"


class Dictionary(dict[str, Meaning]):
    """Column -> unit and description, as `frame.attrs["columns"]`.

    pandas copies `attrs` deeply for each frame that it makes of another: all of them share this one, so change a copy
    (`dict(...)`).
    """

    def __deepcopy__(self, memo: Mapping[int, Any]) -> Dictionary:
        return self


def described(frame: pd.DataFrame, *meanings: Mapping[str, Meaning]) -> pd.DataFrame:
    """The frame with what is known of its columns in `attrs["columns"]`; of several meanings the first."""
    known = {name: meaning for each in reversed(meanings) for name, meaning in each.items()}
    frame.attrs["columns"] = Dictionary({name: known[name] for name in frame.columns if name in known})
    return frame


def table_frame(rows: pa.Table, table: str) -> pd.DataFrame:
    """The rows of one table of the store: times in UTC, lists as tuples."""
    frame: pd.DataFrame = rows.to_pandas()
    for field in rows.schema:
        # Of few values each, and so that frames can be grouped by them; statistics stay arrays.
        if pa.types.is_list(field.type) and table != FUZZINESS:
            frame[field.name] = pd.Series(map(hashable, rows[field.name].to_pylist()), frame.index, dtype=object)
        elif field.name in TIMES:
            # What is no time is not known.
            frame[field.name] = pd.to_datetime(frame[field.name], utc=True, format="ISO8601", errors="coerce").astype(
                TIME
            )
    return frame


def config_frame(configs: Sequence[Parsed], index: pd.Index) -> pd.DataFrame:
    """Configurations as columns: flags without holes of another type, lists as tuples."""
    # One row for all that differ in their seed alone, and each of these as often as there are runs of it.
    distinct = {id(config.flat): config.flat for config in configs}
    places = {key: number for number, key in enumerate(distinct)}
    rows = [{key: hashable(value) for key, value in flat.items()} for flat in distinct.values()]
    frame = pd.DataFrame(rows)
    # Flags with holes are objects to pandas.
    loose = [name for name, kind in frame.dtypes.items() if kind in (bool, object)]
    flags = [name for name in loose if set(map(type, frame[name].dropna())) == {bool}]
    for name in flags:
        # One by one: `astype` of all leaves each column by itself, which makes every later step slower.
        frame[name] = frame[name].astype("boolean")
    frame = frame.take([places[id(config.flat)] for config in configs])
    frame.index = index
    if any(config.seed is not None for config in configs):
        frame["seed"] = pd.DataFrame([_seed(config) for config in configs], index=index)["seed"]
    return frame


def _seed(config: Parsed) -> dict[str, Any]:
    """The seed, where there is one."""
    if config.seed is not None:
        return {"seed": config.seed}
    return {key: hashable(config.flat[key]) for key in ("seed",) if key in config.flat}


def hashable(value: Any) -> Any:
    """Lists as tuples: frames are grouped by hashable values, and compared by them."""
    if isinstance(value, list):
        return tuple(map(hashable, value))
    return tuple((key, hashable(item)) for key, item in value.items()) if isinstance(value, dict) else value


def fractions(values: pd.Series) -> pd.Series:
    """Shares or counts of labeled images (`1/16`, `full`) as an ordered categorical, smallest first, as papers do."""
    return values.astype(pd.CategoricalDtype(sorted(set(values.dropna()), key=_size), ordered=True))


def _size(fraction: Any) -> tuple[bool, Fraction, str]:
    try:
        return False, amount(fraction), ""
    except ValueError:
        return True, Fraction(0), str(fraction)


def latest(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs by when they were done, the newest last; one of an older version that does not say is older."""
    return runs.sort_values(["finished_at", "run_id"], na_position="first")


def in_order(sequences: Iterable[Sequence[str]]) -> list[str]:
    """Names of several sequences in one order: new ones beside their neighbours; where two contradict, the first holds.

    >>> in_order([["a", "c", "e"], ["c", "d", "e"], ["b", "c"]])
    ['a', 'b', 'c', 'd', 'e']
    """
    order: list[str] = []
    for names in sequences:
        known = [name for name in names if name in order]
        place = order.index(known[0]) if known else len(order)
        for name in names:
            if name in order:
                place = order.index(name) + 1
            else:
                order.insert(place, name)
                place += 1
    return order
