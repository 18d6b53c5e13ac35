"""Where tables, recipes and scales are: `experiments/` here, else those that travel with the package."""

from __future__ import annotations

from pathlib import Path

import fpl
from fpl.errors import FplError
from fpl.files import check_regular
from fpl.text import meant

NAME = "experiments"


def experiments_folder() -> Path:
    """`experiments` where it stands in the working directory with its tables; else the package's own.

    Returns:
        In an installed package `fpl/experiments`; in a checkout that is used from elsewhere, the checkout's.
    """
    local, package = Path(NAME), Path(fpl.__file__).parent
    if (local / "tables").is_dir():
        return local
    inside = package / NAME
    return inside if inside.is_dir() else package.parent / NAME


def experiment_file(path: Path) -> Path:
    """The file that somebody means by a path or a name.

    Args:
        path: A file; or one below `experiments/`, which may be the package's; or the name of a recipe of
            `experiments/base`, with or without its ending.

    Raises:
        FplError: There is none; with the nearest name.
    """
    if path.is_file():
        return path
    check_regular(path)
    if path.is_dir() and len(path.parts) > 1:
        raise FplError("is a folder", where=str(path), hint="name a recipe in it: a TOML file")
    folder = experiments_folder()
    if path.parts[:1] == (NAME,) and (shipped := folder.joinpath(*path.parts[1:])).is_file():
        return shipped
    base = folder / "base"
    if len(path.parts) == 1 and (recipe := base / f"{path.name.removesuffix('.toml')}.toml").is_file():
        return recipe
    names = sorted(found.stem for found in base.glob("*.toml"))
    hint = f"{meant(path.stem, names)}recipes: the files of {base}"
    raise FplError("cannot read it: there is no such file", where=str(path), hint=hint)
