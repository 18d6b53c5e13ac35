"""The `[method]` table of cross pseudo supervision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fpl.config.method import MethodOptions
from fpl.config.section import Fraction, NotNegative


class CpsOptions(MethodOptions):
    """Cross pseudo supervision: two networks, each taught by the other's prediction."""

    implementation: ClassVar[str] = "fpl.methods.cps.method:Cps"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"weight": 1.0, "cutmix": True},
        {"weight": 1.0, "cutmix": False},
    )

    name: Literal["cps"]
    # Weight of the unsupervised term (the lambda of CPS).
    weight: NotNegative
    cutmix: bool
    # "other": CutMix takes two different images; "same": two crops of one image, as the released loaders do.
    pair: Literal["other", "same"] = "other"
    # Whether labeled images join the unsupervised term. Unset: yes without CutMix, no with it, as in the release.
    on_labeled: bool | None = None
    cutmix_boxes: Annotated[int, Field(ge=1, le=1000)] = 3
    cutmix_area: tuple[Fraction, Fraction] = (0.25, 0.5)
    # Share of training over which the unsupervised weight rises linearly from 0; the paper has no ramp.
    ramp: Fraction = 0.0

    @model_validator(mode="after")
    def _normalise(self) -> CpsOptions:
        if self.on_labeled is None:
            self._set(on_labeled=not self.cutmix)
        if not self.cutmix:
            self._forget("pair", "cutmix_boxes", "cutmix_area")
        if self.cutmix and self.on_labeled:
            raise ValueError(
                "on_labeled = true with cutmix = true is no published recipe: "
                "with CutMix the unsupervised term covers the mixed unlabeled images only"
            )
        if self.cutmix_area[0] > self.cutmix_area[1]:
            raise ValueError(f"cutmix_area {list(self.cutmix_area)} is not ordered from small to large")
        return self

    @property
    def word(self) -> str:
        """What run ids call it."""
        return "cpscutmix" if self.cutmix else "cps"

    @property
    def label(self) -> str:
        """What captions call it."""
        return f"CPS {'with' if self.cutmix else 'without'} CutMix"

    @property
    def may_concatenate(self) -> bool:
        """With CutMix both networks see several batches of the same step in the same way."""
        return self.cutmix
