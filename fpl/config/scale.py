"""Scales: sizes and steps that are put over the recipes, and how their tables are shown and their runs launched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpl.config.layers import LAUNCH, SCALE, WHERE, Tree, flatten, merge, read_base
from fpl.errors import FplError
from fpl.files import visible
from fpl.names import RULE, is_name
from fpl.text import meant


@dataclass(frozen=True)
class ScaleFile:
    """A scale: sizes and steps that are put over a recipe without changing its structure.

    Attributes:
        path: Where it was read.
        layer: What it sets in every recipe.
        where: (conditions, layer) pairs: the layer is put over recipes that have one of the values of every condition.
        shown: Its `[scale]` table: name, notes for the head of each table and defaults of the commands.
        launch: Its `[launch]` table: how runs are launched; nothing of it changes a result.
        origins: Where each dotted key was set.
    """

    path: Path
    layer: Tree
    where: tuple[tuple[dict[str, list[Any]], Tree], ...]
    shown: Tree
    launch: Tree
    origins: dict[str, str]

    @property
    def name(self) -> str:
        """What folders of results and heads of tables call it: `name` of its `[scale]`, else that of its file."""
        return str(self.shown.get("name", self.path.stem))

    @property
    def seeds(self) -> int:
        """Runs per cell unless a command says otherwise: `seeds` of its `[scale]`, else 1."""
        return int(self.shown.get("seeds", 1))

    @property
    def comparable(self) -> bool:
        """Whether the numbers measure what the paper's do; a scale that does not say so measures something else."""
        return bool(self.shown.get("comparable", False))

    @property
    def proves(self) -> str:
        """What its tables can show; empty for nothing to say."""
        return str(self.shown.get("proves", ""))

    @property
    def proves_not(self) -> str:
        """What they cannot."""
        return str(self.shown.get("proves_not", ""))


def read_scale(path: Path) -> ScaleFile:
    """Read a scale file.

    Raises:
        FplError: A missing or malformed file, a name that is none, or a `[[where]]` without conditions.
    """
    origins: dict[str, str] = {}
    layer = read_base(path, origins, scale=True)
    shown, launch = layer.pop(SCALE, {}), layer.pop(LAUNCH, {})
    cases = layer.pop(WHERE, [])
    for key, value in ((SCALE, shown), (LAUNCH, launch)):
        if not isinstance(value, dict):
            raise FplError(f"{key} = {value!r} is no table", where=str(path), hint=f"write [{key}]")
    if not (isinstance(cases, list) and all(isinstance(entry, dict) for entry in cases)):
        raise FplError(f"{WHERE} is no list of tables", where=str(path), hint=f"write [[{WHERE}]]")
    _check_shown(shown, path)
    where = []
    for entry in cases:
        when = entry.pop("when", {})
        conditions = flatten(when) if isinstance(when, dict) else {}
        if not conditions:
            raise FplError("a [[where]] needs conditions", where=str(path), hint='when = { data.dataset = "voc" }')
        listed = {key: value if isinstance(value, list) else [value] for key, value in conditions.items()}
        where.append((listed, entry))
    found = ScaleFile(path, layer, tuple(where), shown, launch, origins)
    if not is_name(found.name):
        raise FplError(f"{found.name!r} is no name of a scale", where=str(path), hint=f"[scale] name: {RULE}")
    return found


def scale_path(config_path: Path, scale: str) -> Path:
    """File of a scale given by name (in the nearest `scale/` folder above `config_path`) or by its own path."""
    if scale.endswith(".toml"):
        return Path(scale)
    folders = [parent / "scale" for parent in config_path.resolve().parents]
    for folder in folders:
        if (candidate := folder / f"{scale}.toml").is_file():
            return candidate
    known = sorted(file.stem for folder in folders for file in visible(folder, "*.toml"))
    nearest = next((folder for folder in folders if folder.is_dir()), folders[0])
    guess = meant(scale, known)
    raise FplError(
        f"no scale {scale!r} in {nearest}",
        where="--scale",
        hint=f"{guess}there are: {', '.join(known) or 'none'}; or give the path of a TOML file",
    )


def apply_scale(tree: Tree, scale: ScaleFile, origins: dict[str, str] | None = None) -> None:
    """Put a scale over a recipe's tree, in place. Its conditions look at the recipe before the scale."""
    before = flatten(tree)
    if origins is not None:
        # How the scale is shown and launched is no part of the tree: a key of that name there is the recipe's.
        origins |= {key: scale.origins[key] for key in flatten(scale.layer) if key in scale.origins}
    merge(tree, scale.layer, origins)
    for conditions, layer in scale.where:
        if all(before.get(key) in values for key, values in conditions.items()):
            if origins is not None:
                case = " and ".join(f"{key} = {' or '.join(map(str, values))}" for key, values in conditions.items())
                origins |= dict.fromkeys(flatten(layer), f"{scale.path}, where {case}")
            merge(tree, layer, origins)


def _check_shown(shown: Tree, path: Path) -> None:
    """Refuse a `[scale]` whose defaults of the commands are of another type."""
    kinds = {"name": str, "seeds": int, "controls": bool, "comparable": bool}
    for key, kind in kinds.items():
        if key in shown and type(shown[key]) is not kind:
            raise FplError(f"{SCALE}.{key} = {shown[key]!r} is no {kind.__name__}", where=str(path))
