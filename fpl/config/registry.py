"""The methods there are: packages below `fpl/methods`, and those of other packages by the entry point `fpl.methods`.

A package of one's own adds a method with two lines in its `pyproject.toml`:

    [project.entry-points."fpl.methods"]
    their_teacher = "their_package.their_teacher.options:TheirTeacherOptions"
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
import typing
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny
from pydantic_core import PydanticCustomError

from fpl.config.method import MethodOptions
from fpl.errors import FplError
from fpl.text import first_line

GROUP = "fpl.methods"


@functools.cache
def _places() -> dict[str, str]:
    """Where the options of each method are, by its name: `package.module:Class`, or `package.module` for our own."""
    package = importlib.import_module(GROUP)
    places = {
        item.name: f"{GROUP}.{item.name}.options" for item in pkgutil.iter_modules(package.__path__) if item.ispkg
    }
    for point in importlib.metadata.entry_points(group=GROUP):
        if places.setdefault(point.name, point.value) != point.value:
            raise FplError(
                f"two methods are called {point.name}: {places[point.name]} and {point.value}",
                where=f"entry points {GROUP}",
                hint="rename one of them, or uninstall its package",
            )
    return dict(sorted(places.items()))


def method_names() -> tuple[str, ...]:
    """Names of all methods."""
    return tuple(_places())


@functools.cache
def options_class(name: str) -> type[MethodOptions]:
    """The `[method]` table of a method.

    Raises:
        FplError: There is no such method, or what its entry point names cannot be loaded or is no such table.
    """
    if name not in _places():
        raise FplError(f"there is no method {name}", where="method.name", hint=f"known: {', '.join(_places())}")
    where = f"method {name} ({_places()[name]})"
    found = _load(_places()[name], where)
    if not (inspect.isclass(found) and issubclass(found, MethodOptions)):
        raise FplError("is no MethodOptions", where=where, hint="see fpl.config.method")
    field = found.model_fields.get("name")
    if field is None or typing.get_args(field.annotation) != (name,):
        raise FplError(f'its field name has to be Literal["{name}"]', where=where)
    return found


def all_options() -> dict[str, type[MethodOptions]]:
    """The tables of all methods by their names."""
    return {name: options_class(name) for name in method_names()}


def method_class(options: MethodOptions) -> Any:
    """What trains a method: a class derived from `fpl.methods.base.Method`. Loads torch.

    Raises:
        FplError: What its options name as `implementation` cannot be loaded, or is no class.
    """
    where = f"method {options.name}"
    place = getattr(type(options), "implementation", None)
    if not isinstance(place, str) or ":" not in place:
        raise FplError(f"its implementation is {place!r}", where=where, hint="package.module:Class, as a ClassVar[str]")
    found = _load(place, f"{where} ({place})")
    if not inspect.isclass(found):
        raise FplError("is no class", where=f"{where} ({place})", hint="see fpl.methods.base.Method")
    return found


def _load(place: str, where: str) -> Any:
    module, _, attribute = place.partition(":")
    try:
        loaded = importlib.import_module(module)
        return getattr(loaded, attribute) if attribute else _own_options(loaded)
    except (Exception, SystemExit) as error:  # it runs code of others, which may raise anything
        text = f"cannot be loaded: {type(error).__name__}: {first_line(error)}"
        raise FplError(text, where=where, hint="mend or uninstall its package") from error


def _own_options(module: Any) -> Any:
    own = [
        item
        for item in vars(module).values()
        if inspect.isclass(item) and issubclass(item, MethodOptions) and item.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise AttributeError(f"{module.__name__} defines {len(own)} classes derived from MethodOptions instead of one")
    return own[0]


def _parse(value: Any) -> Any:
    """The table of the method that its `name` chooses; pydantic reports what is wrong inside under `method.`."""
    if isinstance(value, MethodOptions):
        return value
    name = value.get("name") if isinstance(value, Mapping) else None
    if name is None:
        raise PydanticCustomError("missing", "method.name is missing: it chooses the method")
    if name not in method_names():
        known = ", ".join(f"'{each}'" for each in method_names())
        text = "method.name is one of {known}; that of another package is known where it is installed: `fpl doctor`"
        raise PydanticCustomError("no_method", text, {"known": known})
    return options_class(name).model_validate(value)


MethodConfig = SerializeAsAny[Annotated[MethodOptions, BeforeValidator(_parse)]]
