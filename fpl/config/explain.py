"""Files of `experiments/` as models; a problem of one is one error that names the entry and the nearest known key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fpl.errors import FplError
from fpl.text import meant

Model = TypeVar("Model", bound=BaseModel)
# Section of a file -> its model, what one entry of a list is called (empty: no list), and the key that names it.
Parts = Mapping[str, tuple[type[BaseModel], str, str]]


def validated(whole: type[Model], tree: Mapping[str, Any], where: str, parts: Parts) -> Model:
    """The model of what a file holds.

    Args:
        whole: Model of the whole file.
        tree: What it is given, nested as the file is.
        where: File, or another place that the tree is from.
        parts: Models of its sections. An entry of a list is called by its name if it has one, else by its number.

    Raises:
        FplError: The first of pydantic's problems.
    """
    try:
        return whole.model_validate(tree)
    except ValidationError as error:
        raise _explain(error, tree, where, whole, parts) from None


def check_names(kind: str, names: Sequence[str], files: Sequence[Path]) -> None:
    """Refuse two files whose `kind` has one name.

    Args:
        kind: What a file holds, in a word.
        names: Of each file.
        files: They.

    Raises:
        FplError: A name is in two files.
    """
    places: dict[str, Path] = {}
    for name, path in zip(names, files, strict=True):
        if (first := places.setdefault(name, path)) != path:
            raise FplError(f"{kind} {name!r} is in two files", where=str(path), hint=f"the other is {first}")


def _explain(
    error: ValidationError, tree: Mapping[str, Any], where: str, whole: type[BaseModel], parts: Parts
) -> FplError:
    # An unknown key is the likeliest cause of a missing one.
    problem = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    location = [str(part) for part in problem["loc"]]
    model = whole
    if len(location) > 1 and location[0] in parts:
        model, word, name = parts[location[0]]
        if word:
            entry = tree[location[0]][int(location[1])]
            given = entry.get(name) if isinstance(entry, dict) else None
            location[:2] = [f"{word} {given or int(location[1]) + 1}"]
    *places, key = location or [""]
    before = f"{'.'.join(places)}: " if places else ""
    if problem["type"] != "extra_forbidden":
        text = problem["msg"].removeprefix("Value error, ")
        return FplError(f"{before}{key}: {text}" if key else text, where=where)
    known = [field.alias or name for name, field in model.model_fields.items()]
    guess = meant(key, known)
    return FplError(f"{before}unknown key {key}", where=where, hint=f"{guess}known here: {', '.join(known)}")
