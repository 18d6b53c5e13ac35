"""The `[method]` table of CutMix-Seg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fpl.config.consistency import ConsistencyOptions
from fpl.config.section import NotNegative
from fpl.config.teachers import check_teacher

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig


class CutMixSegOptions(ConsistencyOptions):
    """CutMix-Seg (French et al.): consistency under CutMix.

    Defaults are those of the released code and its scripts (cutmix-semisup-seg, `train_seg_semisup_mask_mt.py`).
    """

    implementation: ClassVar[str] = "fpl.methods.cutmix_seg.method:CutMixSeg"
    native_kind: ClassVar[str] = "mse"
    # Both the consistency's and the supervised loss leave padding out.
    ignores_padding: ClassVar[bool] = True
    # Gates that part of the pixels of an untrained network pass; no published one opens in a few steps.
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"confidence_gate": 0.08},
        {"confidence_gate": 0.08, "gate_kind": "pixel", "optimizer": "adam", "held_statistics": "backbone"},
    )

    name: Literal["cutmix_seg"]
    # Of the consistency: 1 of squared errors summed over classes; PixelSSL has 20 of their mean (class_sum = false).
    weight: NotNegative = 1.0
    # Whether squared errors (loss.kind = "mse", by itself their mean over the classes) are summed over the classes, as
    # released: the term is num_classes times as large, 19 or 21 times. Other kinds take no such factor.
    class_sum: bool = True
    # Area of the one box of the second image, as a share of the crop (released: --mask_prop_range).
    box_area: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    # Whether the teacher's running statistics are averages of the student's, as all floating entries of the released
    # teacher are; PixelSSL averages parameters alone.
    ema_buffers: bool = True
    # Whether the decay rises as min(1 - 1/(step + 1), ema_decay): PixelSSL; the released teacher begins as a copy.
    ema_warm_up: bool = False
    # Batch norms of the teacher that are not held: by the batch's statistics as in both codes, or by running ones.
    teacher_mode: Literal["train", "eval"] = "train"

    @model_validator(mode="after")
    def _normalise(self) -> CutMixSegOptions:
        check_teacher(self.teacher_mode, self.ema_buffers)
        return self

    @property
    def label(self) -> str:
        """What captions call it."""
        return "CutMix-Seg"

    def adapted(self, config: RunConfig) -> Mapping[str, Any]:
        """Also the sum over classes, set back where errors are not squared."""
        sections = dict(super().adapted(config))
        if config.loss.kind != "mse":
            sections["method"] = sections["method"].model_copy(update={"class_sum": True})
        return sections
