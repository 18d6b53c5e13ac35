"""Stores on object storage: where commands and Python open them, and what of them is brought here when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fpl.mirror import attach, mirror_of, url_of
from fpl.store.parts import SUFFIX
from fpl.store.schema import OF_ONE_RUN, SCHEMAS
from fpl.text import say


def open_store(path: Path | str, say: Callable[[str], None] = say) -> Path:
    """The folder of a store: its own, or of one on object storage its mirror here, whose tables are up to date.

    Args:
        path: A folder, the mirror of one, or `s3://BUCKET/PATH` (s3, gs, hdfs, abfs, file), as a `Path` too.
        say: Takes a line for the user when many files are fetched.

    Raises:
        FplError: The object storage cannot be opened, or does not answer.
    """
    place = folder_of(path)
    if (mirror := mirror_of(place)) is not None:
        place.mkdir(parents=True, exist_ok=True)
        for folder in (place, *(place / table for table in SCHEMAS)):
            mirror.pull(folder, say)
    return place


def folder_of(path: Path | str) -> Path:
    """The folder of a store, or the one that is its mirror from now on; nothing is asked for or brought yet.

    Raises:
        FplError: A URL that names no folder.
    """
    url = url_of(path)
    return Path(path) if url is None else attach(url).folder


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
