"""The `[method]` table of mean teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fpl.config.method import MethodOptions


class MeanTeacherOptions(MethodOptions):
    """The student learns from an average of its own past on unlabeled images."""

    implementation: ClassVar[str] = "example_methods.mean_teacher.method:MeanTeacher"
    native_kind: ClassVar[str] = "mse"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"decay": 0.5})

    name: Literal["example_mean_teacher"]
    weight: Annotated[float, Field(ge=0.0)] = 1.0
    decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99

    @property
    def word(self) -> str:
        """What run ids call it."""
        return "examplemt"

    @property
    def label(self) -> str:
        """What captions call it."""
        return "mean teacher of an example"
