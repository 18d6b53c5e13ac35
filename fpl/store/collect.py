"""All rows of one table of a store, file by file, and what of it cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from fpl.config.search import Parameter
from fpl.store.columns import SCHEMAS
from fpl.store.compact import Held, Rows, held
from fpl.store.left import left_there
from fpl.store.parts import SUFFIX, DamagedError, LeftOut, clean, files_of, open_part, read_part
from fpl.store.remote import bring_left
from fpl.store.rows import misfit, read_object, read_space
from fpl.store.schema import OF_ONE_RUN, RUNS, STUDIES, TRIALS
from fpl.store.usable import ALL
from fpl.store.values import differing


def look_over(folder: Path, table: str) -> list[LeftOut]:
    """Files of a table that cannot be used, as far as that shows without reading their rows."""
    found = []
    try:
        names = files_of(folder, table)
    except DamagedError as error:
        return [LeftOut(table, folder / table, str(error))]
    known = held(folder, table, names).places
    for name in names:
        if name in known:
            continue  # it was read as a whole
        path = folder / table / name
        try:
            open_part(path, table)
        except FileNotFoundError:
            continue  # gone meanwhile
        except DamagedError as error:
            found.append(LeftOut(table, path, str(error)))
    return found


def read_parts(folder: Path, table: str) -> tuple[pa.Table, list[LeftOut]]:
    """All rows of one table of a store that can be used, file by file in the order of their names, and what cannot."""
    try:
        names = files_of(folder, table)
    except DamagedError as error:
        return SCHEMAS[table].empty_table(), [LeftOut(table, folder / table, str(error))]
    parts, left_out = Rows(SCHEMAS[table]), list[LeftOut]()
    spaces = _spaces(folder) if table == TRIALS and names else {}
    published: pa.Table | None = None
    known = held(folder, table, names)
    rows = known.rows(table)
    if rows is None or (spaces and _fitting(rows, spaces)[1]):
        # Then each file says what is wrong with it.
        known, rows = Held(), SCHEMAS[table].empty_table()
    if left_there(folder, table).keys() - known.places.keys() and bring_left(folder, table):
        return read_parts(folder, table)
    for piece in known.pieces(names):
        if isinstance(piece, tuple):
            parts.add(rows.slice(piece[0], piece[1] - piece[0]))
            continue
        path = folder / table / piece
        part, problems = read_part(path, table)
        if spaces:
            part, misfits = _fitting(part, spaces)
            problems += misfits
        if path.stem == ALL and table in OF_ONE_RUN:
            published = part
        else:
            parts.add(part)
        left_out += [LeftOut(table, path, problem) for problem in problems]
    whole = parts.whole()
    if published is not None:
        whole, problems = _beside(whole, published, table)
        left_out += [LeftOut(table, folder / table / f"{ALL}{SUFFIX}", problem) for problem in problems]
    # All at once: it takes as long for one file as for a thousand.
    return clean(whole), left_out


def _beside(own: pa.Table, published: pa.Table, table: str) -> tuple[pa.Table, list[str]]:
    """Rows of files of single runs and those that were published, each run once, and what is left out of the latter.

    A run that has a file of its own is that one, as for `fpl.store.done`.
    """
    twice = pc.is_in(published["run_id"], value_set=own["run_id"].combine_chunks())
    told = []
    if table == RUNS and pc.any(twice).as_py():
        told = [
            f"{run_id}: stands with other results in {run_id}{SUFFIX} beside it, which counts"
            for run_id in differing(own, published.filter(twice), table)
        ]
    return pa.concat_tables([own, published.filter(pc.invert(twice))]), told


def _spaces(folder: Path) -> dict[str, dict[str, Parameter]]:
    """Parameters of each study, by key."""
    rows = read_parts(folder, STUDIES)[0].select(["study", "space"]).to_pylist()
    return {row["study"]: {parameter.key: parameter for parameter in read_space(row["space"])} for row in rows}


def _fitting(trials: pa.Table, spaces: Mapping[str, Mapping[str, Parameter]]) -> tuple[pa.Table, list[str]]:
    """Trials without those whose settings are none of their study's, and what is wrong with these."""
    told, right = [], []
    for row in trials.select(["study", "number", "params"]).to_pylist():
        what = misfit(read_object(row["params"]), spaces[row["study"]]) if row["study"] in spaces else ""
        right.append(not what)
        if what:
            told.append(f"trial {row['number']} of {row['study']}: {what}")
    return trials.filter(pa.array(right, pa.bool_())), told


def read_table(folder: Path, table: str) -> pa.Table:
    """All rows of one table of a store.

    Raises:
        FplError: Something of it cannot be used.
    """
    whole, left_out = read_parts(folder, table)
    if left_out:
        raise left_out[0].error()
    return whole
