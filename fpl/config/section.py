"""What all tables of a configuration share: frozen, without unknown keys, equal where the training is equal."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

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


class Part(BaseModel):
    """A frozen table of a file of `experiments/` that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Section(BaseModel):
    """A frozen table of the configuration that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    def _set(self, **values: Any) -> None:
        """Normalise fields while the section is being validated: equal trainings must have equal values."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _forget(self, *names: str) -> None:
        """Set keys that nothing reads beside the others back to their defaults."""
        self._set(**{name: type(self).model_fields[name].default for name in names})
