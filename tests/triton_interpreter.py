"""Triton's interpreter, which replaces the functions of its language anew at every call inside of a kernel.

Once per launch is enough, and a third of the time goes that tests of the GPU kernels need on a machine without one.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any


def replace_once_per_launch() -> None:
    """For all launches from now on. Does nothing where Triton is not installed or works in another way."""
    if importlib.util.find_spec("triton") is None:
        return
    from triton.runtime import interpreter

    replace = getattr(interpreter, "_patch_lang", None)
    if replace is not None and hasattr(getattr(interpreter, "_LangPatchScope", None), "restore"):
        interpreter._patch_lang = _OncePerLaunch(replace, interpreter.tl)


class _OncePerLaunch:
    """Stands for the function that replaces them: a launch calls it first and restores what it gave at its end."""

    def __init__(self, replace: Callable[[Any], Any], language: Any) -> None:
        self._replace = replace
        self._modules = (language, language.core)
        self._replaced: set[tuple[bool, ...]] = set()
        self._seen_by = functools.cache(self._look)

    def __call__(self, function: Any) -> Any:
        seen = self._seen_by(function)
        if seen in self._replaced:
            return None  # of a call inside of a kernel, which restores nothing
        scope = self._replace(function)
        if not self._replaced:
            scope.restore = functools.partial(self._end, scope.restore)
        self._replaced.add(seen)
        return scope

    def _look(self, function: Any) -> tuple[bool, ...]:
        """Which modules of the language the function's module knows: they are the ones that are changed for it."""
        known = {id(value) for value in function.__globals__.values()}
        return tuple(id(module) in known for module in self._modules)

    def _end(self, restore: Callable[[], None]) -> None:
        self._replaced.clear()
        restore()
