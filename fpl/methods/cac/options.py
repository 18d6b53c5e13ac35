"""The `[method]` table of directional context-aware consistency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from fpl.config.method import MethodOptions, same_scale
from fpl.config.section import AboveZero, Fraction, NotNegative

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig

# Pixels of a side for which the features that are compared have one position (released code: `stride`).
CELL = 8
# Views are of whole positions, and networks take images from 33 pixels on.
LEAST_SIDE = 40


class CacOptions(MethodOptions):
    """Directional context-aware consistency (CAC; Lai et al., CVPR 2021): two contexts of one place agree.

    Defaults are those of the released code and its configuration for VOC with ResNet-101
    (`voc_cac_deeplabv3+_resnet101_1over8_*.json`), with which the paper agrees where nothing else is said. CAC has no
    place for another pixel loss: `consistency_weight` and `fuzzy_negatives` are two readings of FPL+CAC, of this suite.
    """

    implementation: ClassVar[str] = "fpl.methods.cac.method:Cac"
    # A network of a few steps is not as sure as 0.75 of anything.
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"start": 0.0, "confidence_gate": 0.05, "bank_size": 300, "projection_channels": 8},
        {"start": 0.0, "confidence_gate": 0.05, "bank_size": 300, "projection_channels": 8}
        | {"fuzzy_negatives": True, "consistency_weight": 0.5, "averaged_over": "overlap"},
    )

    name: Literal["cac"]
    # Of the contrast, the sum of both directions (`weight_unsup`).
    weight: NotNegative = 0.1
    # Share of training in which the network learns from labels alone: 5 of 80 epochs (`epoch_start_unsup`).
    start: Fraction = 0.0625
    # A position is pulled towards its counterpart only if that one's highest probability is above this
    # (`pos_thresh_value`; the paper's gamma) and above its own.
    confidence_gate: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.75
    # Of the similarities (`temp`).
    temperature: AboveZero = 0.1
    # Channels of what is compared (`proj_final_dim`).
    projection_channels: Annotated[int, Field(ge=1, le=1024)] = 128
    # Features that negatives are taken from, those of the present step included. The released code counts steps: 3 of
    # 25,600 features with ResNet-101 on VOC, 2 with ResNet-50 (51,200), 1 of 129,600 on Cityscapes.
    bank_size: Annotated[int, Field(ge=1, le=10_000_000)] = 76_800
    # What the contrast is a mean over. "kept": the positions that learn, of the whole batch, as released. "overlap":
    # all positions of an image's overlap, and then over images, as the paper writes it.
    averaged_over: Literal["kept", "overlap"] = "kept"
    # Least intersection over union of the two views (`iou_bound`).
    least_overlap: Fraction = 0.1
    # Both sides of what the views are cut from, in sides of a view. Of this suite: released views lie anywhere in the
    # image, so 1.82 would be as free; views 0.5 apart on both axes have an intersection over union of 0.14.
    crop_scale: Annotated[float, Field(ge=1.0, le=3.0)] = 1.5
    # Whether the views have other colours, each its own, as released.
    strong_colours: bool = True
    # FPL+CAC, our first reading, with loss.kind = "fpl" alone: features of every class among an anchor's fuzzy
    # positives, not of its predicted class alone, are no negatives.
    fuzzy_negatives: bool = False
    # FPL+CAC, our second reading: weight of the pixel loss on the overlap, in which the less sure view learns what the
    # surer one predicts, however sure that is. Unset: 0 with loss.kind = "ce", as published, and with fuzzy_negatives;
    # 1 with all others, which it gives a place. The control of FPL is loss.kind = "ce" with the same weight set.
    consistency_weight: NotNegative | None = None

    @property
    def label(self) -> str:
        """What captions call it."""
        return "CAC"

    def view_size(self, crop: tuple[int, int]) -> tuple[int, int]:
        """Height and width of a view: those of the crop, as far as positions of the features fill them."""
        return crop[0] // CELL * CELL, crop[1] // CELL * CELL

    def adapted(self, config: RunConfig) -> Mapping[str, Any]:
        """The place of the pixel loss decided; no fuzzy negatives without FPL."""
        kind = config.loss.kind
        fuzzy = self.fuzzy_negatives and kind == "fpl"
        consistency = self.consistency_weight
        if consistency is None:
            consistency = 0.0 if fuzzy or kind == self.native_kind else 1.0
        return {"method": self.model_copy(update={"fuzzy_negatives": fuzzy, "consistency_weight": consistency})}

    def problems(self, config: RunConfig) -> list[str]:
        """Crops too small to be viewed, and a pixel loss that has no place."""
        found = []
        if min(config.data.crop) < LEAST_SIDE:
            found.append(
                f"data.crop = {list(config.data.crop)}: views are cut in steps of {CELL} pixels; both sides have to be "
                f"{LEAST_SIDE} or more"
            )
        if not self.consistency_weight and not self.fuzzy_negatives and config.loss.kind != self.native_kind:
            found.append(
                f'method.consistency_weight = 0 leaves no place for loss.kind = "{config.loss.kind}": leave it unset '
                'or set it above 0, set method.fuzzy_negatives = true (with "fpl" alone), or set loss.kind = "ce"'
            )
        return found

    def warnings(self, config: RunConfig) -> list[str]:
        """Unlabeled images without influence, a weight of another scale, a bank that a step overflows."""
        found = []
        if self.start == 1.0 or not (self.weight or self.consistency_weight):
            key = "method.start = 1" if self.start == 1.0 else "method.weight = 0"
            found.append(f"{key}: the unlabeled images have no influence on this run")
        if self.consistency_weight and not same_scale(self.native_kind, config.loss.kind):
            found.append(
                f"method.consistency_weight = {self.consistency_weight:g} with loss.kind = {config.loss.kind}: it is "
                "meant for values of cross-entropy's scale"
            )
        height, width = self.view_size(config.data.crop)
        features = 2 * config.data.unlabeled_batch * (height // CELL) * (width // CELL)
        if self.bank_size < features:
            found.append(
                f"method.bank_size = {self.bank_size}: a step has {features} features, and those of its first images "
                f"are never negatives; set it to {features} or more"
            )
        return found
