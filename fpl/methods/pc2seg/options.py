"""The `[method]` table of PC2Seg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fpl.config.method import MethodOptions
from fpl.config.section import AboveZero, Count, Fraction, NotNegative

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig

# What nothing reads without the contrast.
OF_CONTRAST = (
    *("temperature", "anchors", "negatives", "negative_images", "debiased", "negative_confidence"),
    "projector_channels",
)


class Pc2SegOptions(MethodOptions):
    """PC2Seg (Zhong et al., ICCV 2021): consistency of pixels in label space, contrast of pixels in feature space.

    There is no public code. Its abstract names a pixel-level L2 loss between views, a pixel contrastive loss, and ways
    of sampling negatives, against their cost and against false ones, with DeepLabV3+. Everything below that is not
    said to be its own is our reading: a choice of this suite, not a reproduction.
    """

    implementation: ClassVar[str] = "fpl.methods.pc2seg.method:Pc2Seg"
    native_kind: ClassVar[str] = "mse"
    ignores_padding: ClassVar[bool] = True
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"anchors": 16, "negatives": 12, "projector_channels": 8},
        {"anchors": 16, "negatives": 12, "projector_channels": 8, "negative_images": "any", "debiased": False}
        | {"negative_confidence": 0.06, "ramp": 0.5, "cutout_side": 0.0},
        {"contrast_weight": 0.0},
    )

    name: Literal["pc2seg"]
    # Of the consistency: squared differences of probabilities, summed over classes (loss.kind = "mse", which is by
    # itself their mean). Other kinds take no such factor.
    weight: NotNegative = 1.0
    # Of the contrast; 0 is none. CAC and the released U2PL with AEL give theirs 0.1.
    contrast_weight: NotNegative = 0.1
    # Share of training over which both rise (sigmoid).
    ramp: Fraction = 0.0
    # What similarities are divided by, cosines. Usual values of contrastive learning are 0.07 to 0.2.
    temperature: AboveZero = 0.1
    # Pixels of each image that are contrasted, and how many negatives each has; drawn anew at every step.
    anchors: Count = 256
    negatives: Count = 200
    # Whose pixels are negatives: those of "other" images of the global batch, or of "any".
    negative_images: Literal["other", "any"] = "other"
    # Whether a negative j of a pixel i weighs 1 - p_i . p_j, the chance that both are of different classes by the
    # prediction of the weak view; else 1.
    debiased: bool = True
    # Pixels whose highest probability is less are no negatives (the paper's uncertainty, as we read it); 0: all are.
    negative_confidence: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    # Of the features that are contrasted, behind two 1x1 convolutions on the embedding.
    projector_channels: Annotated[int, Field(ge=1, le=4096)] = 128
    # Sides of the box that is cut out of the strong view, in those of the crop. Colours and box are those of PseudoSeg,
    # whose splits and network the paper shares.
    cutout_side: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.195

    @model_validator(mode="after")
    def _normalise(self) -> Pc2SegOptions:
        if not self.contrast_weight:
            self._forget(*OF_CONTRAST)
        return self

    @property
    def label(self) -> str:
        """What captions call it."""
        return "PC2Seg"

    def problems(self, config: RunConfig) -> list[str]:
        """A batch without another image."""
        if not self.contrast_weight or self.negative_images == "any" or config.data.unlabeled_batch > 1:
            return []
        return [
            'method.negative_images = "other" with data.unlabeled_batch = 1: there is no other image. Ways out: '
            'data.unlabeled_batch = 2 or more, method.negative_images = "any", or method.contrast_weight = 0'
        ]

    def warnings(self, config: RunConfig) -> list[str]:
        """Without consistency unlabeled images still have pixels to contrast."""
        return [] if not self.weight and self.contrast_weight else super().warnings(config)
