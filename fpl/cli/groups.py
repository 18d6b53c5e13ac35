"""Options that go together as one parameter of a command: a dataclass whose fields are options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

# Metadata of a field: its option stands behind all others in the help of the command.
LAST = {"last": True}


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters of a dataclass type are that dataclass's fields on the command line.

    The command can be called with the fields too, by name: `plan(scale="mini", seeds=3)`.

    Args:
        function: Its parameters are annotated with what Typer takes, or with a dataclass whose fields are annotated
            so. No two of all these options may have the same name.
    """
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    last: list[inspect.Parameter] = []
    hints = get_type_hints(function, include_extras=True)
    for given in inspect.signature(function).parameters.values():
        kind = hints[given.name]
        if not is_dataclass(kind) or not isinstance(kind, type):
            parameters.append(given.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[given.name] = kind
        options = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            assert field.default is not MISSING, f"{kind.__name__}.{field.name}: an option of a group has a default"
            option = inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=options[field.name]
            )
            (last if field.metadata.get("last") else parameters).append(option)
    signature = inspect.Signature([*parameters, *last])

    @wraps(function)
    def command(**given: Any) -> None:
        bound = signature.bind(**given)
        bound.apply_defaults()
        values = dict(bound.arguments)
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        function(**values)

    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    return command
