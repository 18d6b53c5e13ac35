"""What all tables of a configuration share: frozen, without unknown keys, equal where the training is equal."""

from __future__ import annotations

import functools
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fpl.config.defaults import MOST_CHANNELS, MOST_SIDE, MOST_STEPS

# Limits far above anything that trains: what lies beyond is a slip of the keyboard, and would end in want of memory.
Side = Annotated[int, Field(ge=1, le=MOST_SIDE)]
ImageCount = Annotated[int, Field(ge=1, le=4096)]
Count = Annotated[int, Field(ge=1, le=65_536)]
Width = Annotated[int, Field(ge=1, le=MOST_CHANNELS)]
Length = Annotated[int, Field(ge=1, le=MOST_STEPS)]
# Weights, rates and the like; the bound is that of float32.
NotNegative = Annotated[float, Field(ge=0.0, le=1e30)]
AboveZero = Annotated[float, Field(gt=0.0, le=1e30)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Scale = Annotated[float, Field(gt=0.0, le=10.0)]
Size = tuple[Side, Side]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


def is_unset(value: object) -> bool:
    """Whether a key has no value; for `exclude_if`, so that it is no part of a run's identity then."""
    return value is None


class _Flag(str):
    """`true` or `false` where a number is expected, told as it was written."""

    def __repr__(self) -> str:
        return str(self)


class _Table(BaseModel):
    @model_validator(mode="before")
    @classmethod
    def _flags_are_no_numbers(cls, data: Any) -> Any:
        """Pydantic takes `true` for 1; as the text that it was written as, it is refused where a number is expected."""
        flags = {
            name: _as_texts(value)
            for name, value in (data.items() if isinstance(data, dict) else ())
            if _has_flag(value) and name in cls.model_fields and not _takes_flags(cls, name)
        }
        return {**data, **flags} if flags else data


def _has_flag(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_has_flag, value)))


def _as_texts(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_texts(item) for item in value]
    return _Flag(str(value).lower()) if isinstance(value, bool) else value


@functools.cache
def _takes_flags(table: type[BaseModel], name: str) -> bool:
    """Whether a key may be true or false, or is of a class that has its own say."""
    todo: list[Any] = [table.model_fields[name].annotation]
    while todo:
        kind = todo.pop()
        plain = isinstance(kind, type) and issubclass(kind, int | float | type(None)) and kind is not bool
        if kind is Any or isinstance(kind, bool) or (isinstance(kind, type) and not plain):
            return True
        todo += get_args(kind)
    return False


class Part(_Table):
    """A frozen table of a file of `experiments/` that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Section(_Table):
    """A frozen table of the configuration that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    def _set(self, **values: Any) -> None:
        """Normalise fields while the section is being validated: equal trainings must have equal values."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _forget(self, *names: str) -> None:
        """Set keys that nothing reads beside the others back to their defaults."""
        self._set(**{name: type(self).model_fields[name].default for name in names})
