"""Callbacks of Ray Tune that a user names: the loggers of Ray for W&B or MLflow, or a class of one's own."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence

from ray import tune

from fpl.errors import FplError
from fpl.text import first_line

OPTION = "--callback"
HINT = "package.module:NAME of a tune.Callback, or of a function that returns one, which is called without arguments"


def make_callbacks(names: Sequence[str]) -> list[tune.Callback]:
    """Callbacks from `package.module:NAME`, made anew.

    Raises:
        FplError: A name that is none, cannot be imported or called, or does not give a callback.
    """
    return [_make(name) for name in names]


@contextlib.contextmanager
def heard_out(names: Sequence[str]) -> Iterator[None]:
    """While callbacks are called: one that ends the process, as clients of trackers do, is an error of it.

    Raises:
        FplError: One did; with its exit code 0 the command would have seemed to be done.
    """
    try:
        yield
    except SystemExit as error:
        raise FplError(
            f"one of them ended the command by sys.exit({error.code!r})",
            where=f"{OPTION} {', '.join(names)}",
            hint="mend it, or leave it out: the same command continues",
        ) from error


def _make(name: str) -> tune.Callback:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise FplError(f"{name!r} names nothing", where=OPTION, hint=HINT)
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # it runs code of others, which may raise anything
        hint = f"for {module}.py in this folder: PYTHONPATH=. before the command"
        raise FplError(
            f"{module} cannot be imported: {first_line(error)}", where=f"{OPTION} {name}", hint=hint
        ) from error
    make = getattr(found, attribute, None)
    if not callable(make):
        raise FplError(f"{module} has no class or function {attribute}", where=f"{OPTION} {name}", hint=HINT)
    try:
        made = make()
    except (Exception, SystemExit) as error:  # as above
        hint = "what needs arguments goes into a function of your own that gives them"
        raise FplError(f"{attribute}() fails: {first_line(error)}", where=f"{OPTION} {name}", hint=hint) from error
    if not isinstance(made, tune.Callback):
        raise FplError(f"{attribute}() gives a {type(made).__name__}", where=f"{OPTION} {name}", hint=HINT)
    return made
