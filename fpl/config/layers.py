"""TOML files, scales and overrides as layers of nested tables that are put over each other."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpl.errors import FplError
from fpl.files import check_regular, visible
from fpl.names import RULE, is_name
from fpl.text import meant, printable_tree

# Tables of an experiment file that are prose for its reader or steer the composition, not the run.
ABOUT, INHERIT = "about", "inherit"
# Of a scale file: how it is shown, how its runs are launched, and layers that depend on what it is put over.
SCALE, LAUNCH, WHERE = "scale", "launch", "where"

Tree = dict[str, Any]
# What has no keys, whatever else may have some.
LEAVES = frozenset({str, int, float, bool, list, tuple, type(None)})

# Nothing that is configured lies deeper than four tables; some of what reads them calls itself for each.
DEEPEST = 20


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


def read_base(path: Path, origins: dict[str, str] | None = None) -> Tree:
    """A recipe's nested tables, what it inherits included; `origins` collects where each dotted key was set.

    Raises:
        FplError: A missing or malformed file.
    """
    return _read_layer(path, (), {} if origins is None else origins)


def read_tables(path: Path) -> Tree:
    """A TOML file as nested tables, without inheritance.

    Raises:
        FplError: A missing or malformed file.
    """
    return _read_toml(path)[0]


def read_scale(path: Path) -> ScaleFile:
    """Read a scale file.

    Raises:
        FplError: A missing or malformed file, a name that is none, or a `[[where]]` without conditions.
    """
    origins: dict[str, str] = {}
    layer = _read_layer(path, (), origins, scale=True)
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
    merge(tree, scale.layer)
    if origins is not None:
        origins |= scale.origins
    for conditions, layer in scale.where:
        if all(before.get(key) in values for key, values in conditions.items()):
            merge(tree, layer)
            if origins is not None:
                case = " and ".join(f"{key} = {' or '.join(map(str, values))}" for key, values in conditions.items())
                origins |= dict.fromkeys(flatten(layer), f"{scale.path}, where {case}")


def apply_overrides(tree: Tree, overrides: Iterable[str], origins: dict[str, str] | None = None) -> None:
    """Put `section.key=value` texts over a tree, in place."""
    for key, value in map(parse_override, overrides):
        merge(tree, nested(key, value))
        if origins is not None:
            origins[key] = f"override {key}"


def parse_override(text: str) -> tuple[str, Any]:
    """Split `section.key=value`; the value is TOML where it parses (`[64, 64]`, `0.9`, `true`), else a string."""
    key, separator, value = text.partition("=")
    key = key.strip()
    if not separator or not re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)*", key) or key.count(".") > DEEPEST:
        raise FplError(f"{text!r} is no override", hint="overrides look like loss.threshold=0.85 or data.crop=[64,64]")
    try:
        return key, _parse(f"value = {value}", f"override {key}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value.strip()


def merge(base: Tree, top: Mapping[str, Any]) -> None:
    """Put `top` over `base` in place, table by table."""
    for key, value in top.items():
        below = base.get(key)
        if isinstance(below, dict) and isinstance(value, Mapping):
            # Keys of one method mean nothing to another: a new name starts from nothing.
            if key == "method" and value.get("name", below.get("name")) != below.get("name"):
                below.clear()
            merge(below, value)
        else:
            base[key] = dict(value) if isinstance(value, Mapping) else value


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys: `{"loss": {"kind": "fpl"}}` becomes `{"loss.kind": "fpl"}`."""
    flat: dict[str, Any] = {}
    for name, value in zip(_dotted(prefix, tuple(tree)), tree.values(), strict=True):
        # Asking whether it is a mapping takes longer than all the rest.
        if type(value) not in LEAVES and isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


@functools.lru_cache(maxsize=1024)
def _dotted(prefix: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Thousands of configurations have the same keys."""
    return tuple(prefix + name for name in names)


def nested(key: str, value: Any) -> Tree:
    """A dotted key as nested tables: the opposite of `flatten`."""
    *sections, leaf = key.split(".")
    tree: Tree = {leaf: value}
    for section in reversed(sections):
        tree = {section: tree}
    return tree


def _read_layer(path: Path, above: tuple[Path, ...], origins: dict[str, str], *, scale: bool = False) -> Tree:
    """One file, of a recipe or a scale, on top of what it inherits; `origins` collects where each key was set."""
    if "\0" in str(path):
        raise FplError(f"{str(path)!r} is no path", where=f"inherited by {above[-1]}" if above else "")
    resolved = path.resolve()
    if resolved in above:
        chain = " -> ".join(str(step) for step in [*above, resolved])
        raise FplError(f"files inherit from each other in a circle: {chain}", where=str(path))
    own, text = _read_toml(path, f"inherited by {above[-1]}" if above else "")
    own.pop(ABOUT, None)
    if above and not scale:
        # A recipe that builds on a scale's sizes inherits neither how the scale is shown and launched nor its cases.
        for key in (SCALE, LAUNCH, WHERE):
            own.pop(key, None)
    parents = own.pop(INHERIT, [])
    if isinstance(parents, str):
        parents = [parents]
    if not (isinstance(parents, list) and all(isinstance(parent, str) for parent in parents)):
        raise FplError(f"{INHERIT} = {parents!r}", where=str(path), hint="one path, or a list of paths")
    tree: Tree = {}
    for parent in parents:
        merge(tree, _read_layer(path.parent / parent, (*above, resolved), origins, scale=scale))
    merge(tree, own)
    lines = _line_numbers(text)
    for key in flatten(own):
        origins[key] = f"{path}:{lines[key]}" if key in lines else str(path)
    return tree


def _read_toml(path: Path, where: str = "") -> tuple[Tree, str]:
    """Tables and text of a TOML file."""
    check_regular(path)
    try:
        # Editors on Windows put a byte order mark before the text.
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise FplError(
            f"cannot read {path}: {error.strerror}", where=where, hint="give the path of a TOML file"
        ) from None
    except UnicodeDecodeError as error:
        raise FplError(f"not a UTF-8 text file: {error.reason}", where=str(path)) from None
    try:
        return printable_tree(_parse(text, str(path))), text
    except tomllib.TOMLDecodeError as error:
        raise FplError(f"not valid TOML: {error}", where=str(path)) from None


def _parse(text: str, where: str) -> Tree:
    """Tables of a TOML text, no deeper and with no larger integers than anything that reads them can take.

    Raises:
        FplError: They are.
        TOMLDecodeError: The text is no TOML.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # more digits than Python converts
        raise FplError("an integer has thousands of digits", where=where, hint="TOML's have 64 bits") from None
    except RecursionError:
        raise _too_deep(where) from None
    todo: list[tuple[str, int, Any]] = [("", 0, tree)]
    while todo:
        key, depth, value = todo.pop()
        if depth > DEEPEST:
            raise _too_deep(where)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise FplError(f"{key} is beyond 64 bits", where=where, hint="that is what TOML's integers have")
        if isinstance(value, dict):
            todo += [(f"{key}.{name}" if key else name, depth + 1, inner) for name, inner in value.items()]
        elif isinstance(value, list):
            todo += [(key, depth + 1, inner) for inner in value]
    return tree


def _too_deep(where: str) -> FplError:
    return FplError(f"tables or lists lie more than {DEEPEST} deep in each other", where=where)


def _check_shown(shown: Tree, path: Path) -> None:
    """Refuse a `[scale]` whose defaults of the commands are of another type."""
    kinds = {"name": str, "seeds": int, "controls": bool, "comparable": bool}
    for key, kind in kinds.items():
        if key in shown and type(shown[key]) is not kind:
            raise FplError(f"{SCALE}.{key} = {shown[key]!r} is no {kind.__name__}", where=str(path))


def _line_numbers(text: str) -> dict[str, int]:
    """Line of each `key = value` in a TOML text, by dotted key. Inline tables count as their own line."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[([\w.\-]+)\]", line):
            table = header[1] + "."
        elif entry := re.match(r"\s*([\w.\-]+)\s*=", line):
            found.setdefault(table + entry[1], number)
    return found
