"""TOML files and overrides as layers of nested tables that are put over each other."""

from __future__ import annotations

import copy
import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpl.errors import FplError
from fpl.files import check_regular
from fpl.text import printable_tree, shortened

# Tables of an experiment file that are prose for its reader or steer the composition, not the run.
ABOUT, INHERIT = "about", "inherit"
# Of a scale file: how it is shown, how its runs are launched, and layers that depend on what it is put over.
SCALE, LAUNCH, WHERE = "scale", "launch", "where"

Tree = dict[str, Any]
# What has no keys, whatever else may have some.
LEAVES = frozenset({str, int, float, bool, list, tuple, type(None)})

# Nothing that is configured lies deeper than four tables; some of what reads them calls itself for each.
DEEPEST = 20
# Parts of a dotted key, ahead of reading it: prose has dots as well.
LONGEST_KEY = 200
_DOTTED = re.compile(r"[\w.\- \t\"']+")
# Keys of a table that an error names.
SHOWN = 3


def read_base(path: Path, origins: dict[str, str] | None = None, *, scale: bool = False) -> Tree:
    """Nested tables of a recipe or a scale, what it inherits included.

    Args:
        path: The file.
        origins: Collects where each dotted key was set.
        scale: Whether it is a scale, which inherits how another is shown and launched and its cases too.

    Raises:
        FplError: A missing or malformed file.
    """
    layer = _read_layer(path, (), {}, scale=scale)
    if origins is not None:
        origins |= layer.origins
    return layer.tree


def read_tables(path: Path) -> Tree:
    """A TOML file as nested tables, without inheritance.

    Raises:
        FplError: A missing or malformed file.
    """
    return _read_toml(path)[0]


def apply_overrides(tree: Tree, overrides: Iterable[str], origins: dict[str, str] | None = None) -> None:
    """Put `section.key=value` texts over a tree, in place."""
    for key, value in map(parse_override, overrides):
        if origins is not None:
            origins[key] = f"override {key}"
        merge(tree, nested(key, value), origins)


def parse_override(text: str) -> tuple[str, Any]:
    """Split `section.key=value`; the value is TOML where it parses (`[64, 64]`, `0.9`, `true`), else a string."""
    key, separator, value = text.partition("=")
    key = key.strip()
    if not separator or not re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)*", key) or key.count(".") > DEEPEST:
        raise FplError(f"{text!r} is no override", hint="overrides look like loss.threshold=0.85 or data.crop=[64,64]")
    try:
        parsed = _parse(f"value = {value}", f"override {key}")
    except tomllib.TOMLDecodeError:
        return key, value.strip()
    # A line end begins another key or table, which nobody would miss.
    if len(parsed) > 1:
        raise FplError(f"{text!r} holds more than one override", hint="one argument for each")
    return key, parsed["value"]


def merge(base: Tree, top: Mapping[str, Any], origins: Mapping[str, str] | None = None, prefix: str = "") -> None:
    """Put `top` over `base` in place, table by table.

    Args:
        base: Is changed.
        top: Is not.
        origins: Where each dotted key was set last, for the error.
        prefix: Of the keys of both, for the error.

    Raises:
        FplError: A value would take the place of a table, or a table that of a value: all of the table would go.
    """
    for key, value in top.items():
        below = base.get(key)
        if isinstance(below, dict) and isinstance(value, Mapping):
            # Keys of one method mean nothing to another: a new name starts from nothing.
            if key == "method" and value.get("name", below.get("name")) != below.get("name"):
                below.clear()
            merge(below, value, origins, f"{prefix}{key}.")
        elif isinstance(below, dict) or (below is not None and isinstance(value, Mapping)):
            dotted, alone = f"{prefix}{key}", value if isinstance(below, dict) else below
            table = ", ".join(list(below if isinstance(below, dict) else value)[:SHOWN]) or "keys"
            raise FplError(
                f"{dotted} = {shortened(repr(alone), 80)} is no table, as it is in another layer (of {table})",
                where=(origins or {}).get(dotted, ""),
                hint=f"write a key of the table: {dotted}.KEY = VALUE",
            )
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


@dataclass(frozen=True)
class _Layer:
    """Tables of a file with those that it inherits, and where each dotted key was set."""

    tree: Tree
    origins: dict[str, str]


def _read_layer(path: Path, above: tuple[Path, ...], known: dict[Path, _Layer], *, scale: bool) -> _Layer:
    """One file, of a recipe or a scale, on top of what it inherits; `known` keeps what several files inherit."""
    if "\0" in str(path):
        raise FplError(f"{str(path)!r} is no path", where=f"inherited by {above[-1]}" if above else "")
    resolved = path.resolve()
    if resolved in above:
        chain = " -> ".join(str(step) for step in [*above, resolved])
        raise FplError(f"files inherit from each other in a circle: {chain}", where=str(path))
    if len(above) > DEEPEST:
        what = f"inherits over more than {DEEPEST} files: {above[0].name} -> ... -> {path.name}"
        raise FplError(what, where=str(above[0]), hint="put the settings of some of them together")
    if resolved in known:
        return known[resolved]
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
    origins: dict[str, str] = {}
    for parent in parents:
        layer = _read_layer(path.parent / parent, (*above, resolved), known, scale=scale)
        origins |= layer.origins
        merge(tree, copy.deepcopy(layer.tree), origins)
    lines = _line_numbers(text)
    origins |= {key: f"{path}:{lines[key]}" if key in lines else str(path) for key in flatten(own)}
    merge(tree, own, origins)
    known[resolved] = _Layer(tree, origins)
    return known[resolved]


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
    # Dotted keys of many parts take the reader minutes.
    if any(key.count(".") > LONGEST_KEY for key in _DOTTED.findall(text)):
        raise _too_deep(where)
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
