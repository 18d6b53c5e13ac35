"""From TOML files, a scale and dotted overrides to one `RunConfig`, and from that to the run's identity."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from fpl.config.schema import RunConfig
from fpl.errors import FplError

# Raised when the meaning of a key changes: results of the old meaning must not answer for the new one.
SCHEMA_VERSION = 1

# Tables of an experiment file that are prose for its reader or steer the composition, not the run.
ABOUT, INHERIT = "about", "inherit"
# Of a scale file: how it is shown, how its runs are launched, and layers that depend on what it is put over.
SCALE, LAUNCH, WHERE = "scale", "launch", "where"

# Filled in from the data at hand: they pin a run to its inputs and are no part of its recipe.
PINS = ("data.version", "data.split.labeled", "data.split.unlabeled", "model.pretrained_sha256")

Tree = dict[str, Any]


def load_config(path: Path | str, *, scale: str | None = None, overrides: Iterable[str] = ()) -> RunConfig:
    """Compose a run from an experiment file.

    Later layers win: inherited files, the file itself, the scale, then the overrides. Tables are merged key by key,
    except that a `[method]` with another name replaces the inherited one.

    Args:
        path: TOML file; its `inherit` (one path or a list, relative to the file) names what it builds on.
        scale: Name of a file in the nearest `scale/` folder above `path` (`mini` is `scale/mini.toml`), or a path.
        overrides: `section.key=value` strings; the value is read as TOML, else as a string.

    Raises:
        FplError: A missing or malformed file, an unknown key (with the nearest known one), a value that is not
            allowed, or sections that contradict each other; says in which file and line.
    """
    path = Path(path)
    origins: dict[str, str] = {}
    tree = _read_layer(path, (), origins)
    if scale is not None:
        apply_scale(tree, read_scale(scale_path(path, scale)), origins)
    apply_overrides(tree, overrides, origins)
    return validate(tree, origins, default_origin=str(path))


def read_base(path: Path, origins: dict[str, str] | None = None) -> Tree:
    """A recipe's nested tables, what it inherits included; `origins` collects where each dotted key was set.

    Raises:
        FplError: A missing or malformed file.
    """
    return _read_layer(path, (), {} if origins is None else origins)


def apply_overrides(tree: Tree, overrides: Iterable[str], origins: dict[str, str] | None = None) -> None:
    """Put `section.key=value` texts over a tree, in place."""
    for key, value in map(parse_override, overrides):
        merge(tree, _nested(key, value))
        if origins is not None:
            origins[key] = f"override {key}"


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


def read_scale(path: Path) -> ScaleFile:
    """Read a scale file.

    Raises:
        FplError: A missing or malformed file, or a `[[where]]` without conditions.
    """
    origins: dict[str, str] = {}
    layer = _read_layer(path, (), origins, scale=True)
    shown, launch = layer.pop(SCALE, {}), layer.pop(LAUNCH, {})
    where = []
    for entry in layer.pop(WHERE, []):
        conditions = flatten(entry.pop("when", {}))
        if not conditions:
            raise FplError("a [[where]] needs conditions", where=str(path), hint='when = { data.dataset = "voc" }')
        listed = {key: value if isinstance(value, list) else [value] for key, value in conditions.items()}
        where.append((listed, entry))
    return ScaleFile(path, layer, tuple(where), shown, launch, origins)


def apply_scale(tree: Tree, scale: ScaleFile, origins: dict[str, str] | None = None) -> None:
    """Put a scale over a recipe's tree, in place. Its conditions look at the recipe before the scale."""
    before = flatten(tree)
    merge(tree, scale.layer)
    for conditions, layer in scale.where:
        if all(before.get(key) in values for key, values in conditions.items()):
            merge(tree, layer)
    if origins is not None:
        origins |= scale.origins


def validate(tree: Tree, origins: Mapping[str, str] | None = None, *, default_origin: str = "") -> RunConfig:
    """Build a `RunConfig` from nested tables.

    Args:
        tree: Sections by name.
        origins: Where each dotted key came from, for the messages.
        default_origin: The place named when a key is missing altogether.

    Raises:
        FplError: The first problem that pydantic or a cross-check finds.
    """
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise _explain(error, origins or {}, default_origin) from None


def parse_override(text: str) -> tuple[str, Any]:
    """Split `section.key=value`; the value is TOML where it parses (`[64, 64]`, `0.9`, `true`), else a string."""
    key, separator, value = text.partition("=")
    key = key.strip()
    if not separator or not re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)*", key):
        raise FplError(f"{text!r} is no override", hint="overrides look like loss.threshold=0.85 or data.crop=[64,64]")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value.strip()


def canonical(config: RunConfig) -> str:
    """The configuration as JSON with sorted keys: equal text means equal run."""
    tree = {"schema": SCHEMA_VERSION, **config.model_dump(mode="json")}
    return json.dumps(tree, sort_keys=True, separators=(",", ":"))


def digest(config: RunConfig) -> str:
    """First 16 hex digits of the SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(config).encode()).hexdigest()[:16]


def recipe_digest(tree: Mapping[str, Any]) -> str:
    """Digest of a configuration without its pins (`PINS`): what two runs of one recipe on different data share.

    Args:
        tree: `RunConfig.model_dump(mode="json")`, or the JSON of `canonical` as nested tables.
    """
    flat = {key: value for key, value in flatten(tree).items() if key not in PINS and key != "schema"}
    return hashlib.sha256(json.dumps(flat, sort_keys=True).encode()).hexdigest()[:16]


def run_id(config: RunConfig) -> str:
    """The run's identity: readable words, then 8 digits of the digest (`camvid-cps-fpl-lite0-1_8-s0-3fa91c02`).

    Raises:
        FplError: The split's digests are not filled in: lists of equal length could be confused.
    """
    split = config.data.split
    if split.labeled is None or split.unlabeled is None:
        raise FplError(
            "the run has no identity before its split is read",
            where="data.split",
            hint="call fpl.data.splits.resolve_split(config, splits_root) first",
        )
    backbone = {"resnet50": "r50", "resnet101": "r101", "efficientnet_lite0": "lite0"}.get(
        config.model.backbone, config.model.backbone
    )
    method: str = config.method.name
    if config.method.name == "cps" and config.method.cutmix:
        method += "cutmix"
    kind = [config.loss.kind.replace("+", "_")] if method != "supervised" else []
    words = [
        config.data.dataset,
        method,
        *kind,
        backbone,
        split.fraction.replace("/", "_"),
        f"s{config.seed}",
    ]
    return "-".join([*words, digest(config)[:8]])


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys: `{"loss": {"kind": "fpl"}}` becomes `{"loss.kind": "fpl"}`."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def without_effect(config: RunConfig, overrides: Iterable[str]) -> list[str]:
    """Overrides that the other settings make meaningless, so that nobody sweeps a key that nothing reads."""
    flat = flatten(config.model_dump(mode="json"))
    notes = []
    for key, value in map(parse_override, overrides):
        applied = flat.get(key)
        same = applied == value or (isinstance(applied, float) and isinstance(value, int) and applied == float(value))
        if key in flat and not same:
            notes.append(f"{key} = {value!r} has no effect with these settings; the run has {key} = {applied!r}")
    return notes


def _read_layer(path: Path, above: tuple[Path, ...], origins: dict[str, str], *, scale: bool = False) -> Tree:
    """One file, of a recipe or a scale, on top of what it inherits; `origins` collects where each key was set."""
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
    tree: Tree = {}
    for parent in [parents] if isinstance(parents, str) else parents:
        merge(tree, _read_layer(path.parent / str(parent), (*above, resolved), origins, scale=scale))
    merge(tree, own)
    lines = _line_numbers(text)
    for key in flatten(own):
        origins[key] = f"{path}:{lines[key]}" if key in lines else str(path)
    return tree


def read_tables(path: Path) -> Tree:
    """A TOML file as nested tables, without inheritance.

    Raises:
        FplError: A missing or malformed file.
    """
    return _read_toml(path)[0]


def _read_toml(path: Path, where: str = "") -> tuple[Tree, str]:
    """Tables and text of a TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FplError(
            f"cannot read {path}: {error.strerror}", where=where, hint="give the path of a TOML file"
        ) from None
    except UnicodeDecodeError as error:
        raise FplError(f"not a UTF-8 text file: {error.reason}", where=str(path)) from None
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        raise FplError(f"not valid TOML: {error}", where=str(path)) from None


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


def _nested(key: str, value: Any) -> Tree:
    *sections, leaf = key.split(".")
    tree: Tree = {leaf: value}
    for section in reversed(sections):
        tree = {section: tree}
    return tree


def scale_path(config_path: Path, scale: str) -> Path:
    """File of a scale given by name (in the nearest `scale/` folder above `config_path`) or by its own path."""
    if scale.endswith(".toml"):
        return Path(scale)
    folders = [parent / "scale" for parent in config_path.resolve().parents]
    for folder in folders:
        if (candidate := folder / f"{scale}.toml").is_file():
            return candidate
    known = sorted(file.stem for folder in folders if folder.is_dir() for file in folder.glob("*.toml"))
    raise FplError(
        f"no scale {scale!r} above {config_path}",
        where="--scale",
        hint=f"known here: {', '.join(known) or 'none'}; or give the path of a TOML file",
    )


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


def _explain(error: ValidationError, origins: Mapping[str, str], default_origin: str) -> FplError:
    """The first of pydantic's problems in the words of this project."""
    # An unknown key is the likeliest cause of everything else that is wrong.
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    location = [str(part) for part in problem["loc"]]
    if location[:1] == ["method"] and len(location) > 2:
        del location[1]  # pydantic puts the chosen method's name between the section and the key
    if problem["type"] == "missing" and isinstance(problem["loc"][-1], int):
        del location[-1]  # a list that is too short is not a missing key
        problem = {**problem, "type": "too_short", "msg": f"{len(problem['input'])} values are too few"}
    key = ".".join(location)
    place = _place(key, problem["msg"], origins) or default_origin
    if problem["type"] == "extra_forbidden":
        known = known_keys(location[:-1])
        nearest = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
        elsewhere = [leaf for leaf in leaves() if leaf.split(".")[-1] == location[-1]]
        guesses = elsewhere or [".".join([*location[:-1], name]) for name in nearest]
        guess = f"did you mean {' or '.join(guesses)}? " if guesses else ""
        return FplError(f"unknown key {key}", where=place, hint=f"{guess}known here: {', '.join(known)}")
    if problem["type"] == "missing":
        return FplError(f"{key} is missing", where=place, hint=f"set {key} in the file or on the command line")
    if problem["type"] == "value_error":
        text = str(problem["ctx"]["error"])
        return FplError(text, where=place or key)
    near = difflib.get_close_matches(str(problem["input"]), re.findall(r"'([^']+)'", problem["msg"]), n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return FplError(f"{key} = {problem['input']!r} is not allowed", where=place, hint=guess + problem["msg"])


def _place(key: str, text: str, origins: Mapping[str, str]) -> str:
    """Where the key was set; for a problem between sections, where the first key that its text names was."""
    mentioned = [key] if key else re.findall(r"\b[a-z_]+\.[a-z_.]+[a-z]\b", text)
    places = [
        origins[known] for name in mentioned for known in origins if known == name or known.startswith(f"{name}.")
    ]
    # What was typed just now is the likelier culprit.
    return next((place for place in places if place.startswith("override")), places[0] if places else "")


def known_keys(location: Sequence[str]) -> list[str]:
    """Keys that the section at `location` knows; the union of all methods for `["method"]`."""
    models: list[type[BaseModel]] = [RunConfig]
    for part in location:
        models = [inner for model in models if part in model.model_fields for inner in _models_in(model, part)]
    return list(dict.fromkeys(name for model in models for name in model.model_fields))


def leaves() -> list[str]:
    """Dotted names of all keys, of all methods."""
    sections: list[list[str]] = [[]]
    found = []
    while sections:
        section = sections.pop()
        for key in known_keys(section):
            inner = known_keys([*section, key])
            if inner:
                sections.append([*section, key])
            else:
                found.append(".".join([*section, key]))
    return sorted(found)


def _models_in(model: type[BaseModel], field: str) -> list[type[BaseModel]]:
    annotation = model.model_fields[field].annotation
    candidates = typing.get_args(annotation) or (annotation,)
    return [kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)]
