"""Stores on object storage: where commands and Python open them, and what of them is brought here when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fpl.errors import check_name
from fpl.files import write_changed
from fpl.mirrors import MARK, attach, check_own, mirror_of
from fpl.storage import url_of
from fpl.store.columns import SCHEMAS
from fpl.store.compact import FOLDER, versions_held
from fpl.store.left import leave_there
from fpl.store.parts import SUFFIX
from fpl.store.schema import OF_ONE_RUN
from fpl.text import say


def open_store(path: Path | str, say: Callable[[str], None] = say, *, whole: bool = False) -> Path:
    """The folder of a store: its own, or of one on object storage its mirror here, whose tables are up to date.

    Files whose rows the compacted files there hold stay there: of ten thousand runs a few files are fetched.

    Args:
        path: A folder, the mirror of one, or `s3://BUCKET/PATH` (s3, gs, file), as a `Path` too.
        say: Takes a line for the user when many files are fetched.
        whole: Whether all files are fetched, as who carries out runs needs them: a run is done when its file is here.

    Raises:
        FplError: The object storage cannot be opened, or does not answer.
    """
    place = folder_of(path)
    if (mirror := mirror_of(place)) is not None:
        place.mkdir(parents=True, exist_ok=True)
        write_changed(place / MARK, mirror.url.encode())
        # First the compacted files: what changes meanwhile is then newer than they are.
        for folder in (place, place / FOLDER):
            mirror.pull(folder, say)
        for table in SCHEMAS:
            spared = {} if whole else versions_held(place, table)
            leave_there(place, table, mirror.pull(place / table, say, spared))
    return place


def bring_left(place: Path, table: str) -> bool:
    """Bring all files of a table here, those too that were left on object storage; whether that is possible.

    Raises:
        FplError: The object storage does not answer.
    """
    if (mirror := mirror_of(place)) is None:
        return False
    leave_there(place, table, mirror.pull(place / table, say))
    return True


def folder_of(path: Path | str) -> Path:
    """The folder of a store, or the one that is its mirror from now on; nothing is asked for or brought yet.

    Raises:
        FplError: A URL that names no folder, a name that no folder can have, or a mirror that is named as a folder.
    """
    check_name(path)
    if (url := url_of(path)) is not None:
        return attach(url).folder
    check_own(Path(path))
    return Path(path)


def check_writable(*stores: Path | None) -> None:
    """Before work begins: those of the stores that are on object storage can be written.

    Raises:
        FplError: One cannot.
    """
    for store in stores:
        if store is not None and (mirror := mirror_of(store)) is not None:
            mirror.check()


def refresh_run(out: Path, run_id: str) -> None:
    """Bring the rows of one run here, where another machine may have written them; nothing for a store of this one."""
    if (mirror := mirror_of(out)) is None:
        return
    for table in OF_ONE_RUN:
        mirror.fetch(out / table / f"{run_id}{SUFFIX}")
