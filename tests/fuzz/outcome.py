"""The property of all fuzz tests: a valid result, or an error of our own that names the place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fpl.errors import FplError


def result_or_error(call: Callable[[], Any], *names: str | Path) -> Any:
    """What `call` returns, or the `FplError` it raised, whose text has one of `names`; anything else is raised."""
    try:
        return call()
    except FplError as error:
        assert any(str(name) in error.message for name in names), error.message
        assert "\x1b" not in error.message
        return error


def files_in(folder: Path) -> set[Path]:
    """Everything below a folder."""
    return set(folder.rglob("*"))
