"""From TOML files, a scale and dotted overrides to one `RunConfig`, and what to say when they do not make one."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from fpl.config.layers import Tree, apply_overrides, flatten, parse_override, read_base
from fpl.config.method import MethodOptions
from fpl.config.registry import all_options, method_names, options_class
from fpl.config.scale import apply_scale, read_scale, scale_path
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.text import nearest


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
    tree = read_base(path, origins)
    if scale is not None:
        apply_scale(tree, read_scale(scale_path(path, scale)), origins)
    apply_overrides(tree, overrides, origins)
    return validate(tree, origins, default_origin=str(path))


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
        raise _explain(error, origins or {}, default_origin, _method_of(tree)) from None


def without_effect(config: RunConfig, overrides: Iterable[str]) -> list[str]:
    """Overrides that the other settings make meaningless, so that nobody sweeps a key that nothing reads."""
    flat = flatten(config.model_dump(mode="json"))
    notes = []
    for key, value in map(parse_override, overrides):
        applied = flat.get(key)
        if key in flat and not _means(value, applied):
            notes.append(f"{key} = {value!r} has no effect with these settings; the run has {key} = {applied!r}")
    return notes


def _means(value: object, applied: object) -> bool:
    """Whether a value that was written is the one that it became."""
    if isinstance(value, list) and isinstance(applied, list):
        return sorted(map(str, value)) == sorted(map(str, applied)) or sorted(value, key=str) == sorted(
            applied, key=str
        )
    if value == applied or str(value) == str(applied):
        return True
    try:
        return bool(TypeAdapter(type(applied)).validate_python(value) == applied)
    except ValidationError:
        return False


def _method_of(tree: Tree) -> str:
    """The method that a configuration chooses; empty where it chooses none that there is."""
    section = tree.get("method")
    name = section.get("name") if isinstance(section, Mapping) else None
    return name if isinstance(name, str) and name in method_names() else ""


def _explain(error: ValidationError, origins: Mapping[str, str], default_origin: str, method: str) -> FplError:
    """The first of pydantic's problems in the words of this project."""
    # An unknown key is the likeliest cause of everything else that is wrong.
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    location = [str(part) for part in problem["loc"]]
    if problem["type"] == "missing" and isinstance(problem["loc"][-1], int):
        del location[-1]  # a list that is too short is not a missing key
        problem = {**problem, "type": "too_short", "msg": f"{len(problem['input'])} values are too few"}
    key = ".".join(location)
    place = _place(key, problem["msg"], origins) or default_origin
    if problem["type"] == "extra_forbidden":
        known = known_keys(location[:-1], method)
        like = nearest(location[-1], known)
        elsewhere = [leaf for leaf in leaves() if leaf.split(".")[-1] == location[-1] and leaf != key]
        guesses = elsewhere or ([".".join([*location[:-1], like])] if like else [])
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


def known_keys(location: Sequence[str], method: str = "") -> list[str]:
    """Keys that the section at `location` knows; for `["method"]` those of a method, or of all where none is named."""
    models: list[type[BaseModel]] = [RunConfig]
    for part in location:
        models = [inner for model in models if part in model.model_fields for inner in _models_in(model, part, method)]
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


def _models_in(model: type[BaseModel], field: str, method: str) -> list[type[BaseModel]]:
    annotation = model.model_fields[field].annotation
    if annotation is MethodOptions and method:
        return [options_class(method)]
    candidates = all_options().values() if annotation is MethodOptions else typing.get_args(annotation) or (annotation,)
    return [kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)]
