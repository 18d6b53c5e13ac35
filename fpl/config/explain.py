"""Problems that pydantic finds in a file, as one error that names the entry and the nearest known key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from fpl.errors import FplError
from fpl.text import meant

# Section of a file -> its model, what one entry of a list is called (empty: no list), and the key that names it.
Parts = Mapping[str, tuple[type[BaseModel], str, str]]


def explain(
    error: ValidationError, tree: Mapping[str, Any], where: str, whole: type[BaseModel], parts: Parts
) -> FplError:
    """Make an `FplError` of the first of pydantic's problems.

    Args:
        error: What pydantic raised.
        tree: What it was given, nested as the file is.
        where: File, or another place that the tree is from.
        whole: Model of the whole file.
        parts: Models of its sections. An entry of a list is called by its name if it has one, else by its number.
    """
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
