"""The `[launch]` table of a scale file: how its runs are launched; nothing of it changes a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from fpl.config.defaults import (
    MOST_DEVICES,
    MOST_GPUS,
    MOST_LOADER_WORKERS,
    MOST_PICTURES,
    MOST_STEPS,
    MOST_THREADS,
    MOST_WORKERS,
)
from fpl.config.section import Section
from fpl.errors import FplError

Launcher = Literal["inline", "gang", "train"]
_Workers = Annotated[int, Field(ge=1, le=MOST_WORKERS)]
_Cpus = Annotated[float, Field(ge=0.0, le=MOST_THREADS)]
_Steps = Annotated[int, Field(ge=1, le=MOST_STEPS)]


class _Launch(Section):
    """What the keys may be; what they mean is said at `fpl.sweep.execution.Execution`.

    Attributes:
        gang: Patterns of the names of cells whose runs go to a gang.
    """

    model_config = ConfigDict(strict=True)

    gang: list[str] | None = None
    launcher: Launcher | None = None
    workers: _Workers | None = None
    cpus_per_worker: _Cpus | None = None
    gpus_per_worker: Annotated[float, Field(ge=0.0, le=MOST_GPUS)] | None = None
    gang_workers: _Workers | None = None
    gang_cpus_per_worker: _Cpus | None = None
    concurrency: Annotated[int, Field(ge=1, le=MOST_DEVICES)] | None = None
    max_failures: Annotated[int, Field(ge=0, le=1000)] | None = None
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] | None = None
    loader_workers: Annotated[int, Field(ge=0, le=MOST_LOADER_WORKERS)] | None = None
    checkpoint_every: _Steps | None = None
    log_every: _Steps | None = None
    diagnose_every: Annotated[int, Field(ge=0, le=MOST_STEPS)] | None = None
    examples: Annotated[int, Field(ge=0, le=MOST_PICTURES)] | None = None
    tensorboard: bool | None = None
    callbacks: list[str] | None = None
    local: bool | None = None
    address: str | None = None


def check_launch(table: Mapping[str, Any], where: str) -> None:
    """Refuse a `[launch]` with which nothing could be launched.

    Args:
        table: It.
        where: The scale file.

    Raises:
        FplError: An unknown key, or a value of another type or beyond its range.
    """
    try:
        _Launch.model_validate(dict(table))
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            known = ", ".join(_Launch.model_fields)
            raise FplError(f"[launch] has no key {key}", where=where, hint=f"known: {known}") from None
        what = f"[launch] {key} = {problem['input']!r} is not allowed"
        raise FplError(what, where=where, hint=problem["msg"]) from None
