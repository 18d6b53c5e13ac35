"""The `[method]` table of labeled images alone."""

from __future__ import annotations

from typing import ClassVar, Literal

from fpl.config.method import MethodOptions


class SupervisedOptions(MethodOptions):
    """Labeled images alone: the control of every table."""

    implementation: ClassVar[str] = "fpl.methods.supervised.method:Supervised"
    unlabeled: ClassVar[bool] = False
    ignores_padding: ClassVar[bool] = True

    name: Literal["supervised"]

    @property
    def label(self) -> str:
        """What captions call it."""
        return "labels alone"
