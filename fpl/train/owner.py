"""Whose the files of a run are: its id stands in them, and is compared with the place that they lie in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fpl.config.compose import validate
from fpl.config.identity import is_of, run_id
from fpl.config.schema import RunConfig
from fpl.errors import FplError, ShortageError
from fpl.text import first_line, shortened
from fpl.train.checkpoint import load

ANOTHER = "give best.pt or last.pt of a run, or train it again"
# Under this key a file has the id of its run.
OWNER = "run"
# The folder of a store that has one folder per run, named by its id.
CHECKPOINTS = "checkpoints"
# Characters of an id that a message shows.
WIDEST = 100


def config_of(state: Mapping[str, Any], path: Path) -> RunConfig:
    """The configuration that a weights file was written with.

    Raises:
        FplError: There is none, none that can be read, or not that of the run that the file names.
    """
    text = state.get("config")
    try:
        tree = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError) as error:
        what = f"its configuration cannot be read: {first_line(error)}"
        raise FplError(what, where=str(path), hint=ANOTHER) from error
    if not isinstance(text, str) or not isinstance(tree, dict):
        what = f"its configuration is a {type(tree).__name__}, no table as text"
        raise FplError(what, where=str(path), hint=ANOTHER)
    owner = state.get(OWNER)
    if isinstance(owner, str) and not is_of(owner, tree):
        what = f"its configuration is not that of run {shortened(owner, WIDEST)}, which it says it is of"
        raise FplError(what, where=str(path), hint=f"the file was changed after it was written: {ANOTHER}")
    return validate(tree, default_origin=str(path))


def owner_of(state: Mapping[str, Any], path: Path) -> str:
    """Id of the run that a file is of; of weights that do not say it, the one that their configuration has today.

    Raises:
        FplError: It is no text, or there is no configuration either.
    """
    if OWNER not in state:  # files of before say it by their configuration alone
        return run_id(config_of(state, path))
    if not isinstance(state[OWNER], str):
        what = f"the part {OWNER!r} is a {type(state[OWNER]).__name__}, no id of a run"
        raise FplError(what, where=str(path), hint=ANOTHER)
    return shortened(state[OWNER], WIDEST)


def check_place(state: Mapping[str, Any], path: Path) -> None:
    """Refuse weights that lie in the folder of another run of a store; elsewhere they may be anybody's.

    Raises:
        FplError: Names both runs.
    """
    folder = path.absolute().parent
    if folder.parent.name != CHECKPOINTS:
        return
    owner, place = owner_of(state, path), folder.name
    # Of weights that do not say it the digits may be of another version: there the words have to suffice.
    compared = (owner, place) if OWNER in state else (owner.rpartition("-")[0], place.rpartition("-")[0])
    if compared[0] != compared[1]:
        raise FplError(
            f"holds weights of run {owner}, in the place of run {place}",
            where=str(path),
            hint=f"put those of {place} back, or train it again; to use these, name run {owner}, or copy the file out "
            "of this store and name the copy",
        )


def check_own(paths: Iterable[Path], run: str, fate: str) -> None:
    """Refuse to replace or remove files of another run that lie among those of a run.

    Args:
        paths: The files; what is not there, or cannot be read, is nobody's.
        run: Id of the run that they would be replaced for.
        fate: What would become of them: `be removed`.

    Raises:
        FplError: Names both runs.
        ShortageError: The system does not let a file be read.
    """
    for path in paths:
        try:
            owner = owner_of(load(path), path) if path.exists() else run
        except ShortageError:
            raise
        except FplError:
            continue
        if owner != run:
            raise FplError(
                f"is a file of run {owner}, in the place of run {run}, and would {fate}",
                where=str(path),
                hint=f"move it to the folder of {owner}, or remove it; the same command then continues",
            )
