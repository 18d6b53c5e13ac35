"""The `[method]` table of adversarial learning for semi-supervised segmentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fpl.config.method import MethodOptions
from fpl.config.section import AboveZero, Fraction, NotNegative

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig

Channels = Annotated[int, Field(ge=1, le=1024)]


class AdvSemSegOptions(MethodOptions):
    """A segmenter and a discriminator of its label maps, whose verdict chooses the self-labels.

    "Paper" is Hung et al., BMVC 2018; "released" is `train.py` of their code, run as its README says. PixelSSL has the
    method as AdvSSL. Where only one is named the others agree, or have nothing to say.
    """

    implementation: ClassVar[str] = "fpl.methods.advsemseg.method:AdvSemSeg"
    # The second with the discriminator as PixelSSL has it unless told otherwise: labeled images of the batch alone.
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"start": 0.0, "discriminator_channels": 8},
        {"start": 0.0, "discriminator_channels": 8, "real_labels": "same", "unlabeled_fakes": False},
    )

    name: Literal["advsemseg"]
    # Of the self-labels' loss (lambda_semi). PixelSSL has no such loss: self_labels = false.
    weight: AboveZero = 0.1
    self_labels: bool = True
    # Where the discriminator gives a pixel a smaller probability to be true, its self-label does not count (T_semi).
    discriminator_threshold: Fraction = 0.2
    # Share of training after which self-labels count: 5,000 of 20,000 steps. Until then their loss is for the history.
    start: Fraction = 0.25
    # Of fooling the discriminator on labeled images (lambda_adv): paper, README and PixelSSL's script of DeepLabV2
    # (that of PSPNet: a tenth of this and the next). Without being told, the released code takes 0.1, PixelSSL none.
    adversarial_weight: NotNegative = 0.01
    # The same on unlabeled images.
    unlabeled_adversarial_weight: NotNegative = 0.001
    # Share of training after which that counts: as released; in the paper it begins with the self-labels, at 0.25,
    # which by the paper's author (discussion 32 of the released code) makes little difference.
    unlabeled_adversarial_start: Fraction = 0.0
    # Whose labels are true maps. "other": those of a stream of labeled images of its own, as released; "same": those of
    # the batch, as in PixelSSL, which reads fewer images.
    real_labels: Literal["other", "same"] = "other"
    # Whether predictions of unlabeled images are false maps too: as released, and in PixelSSL's scripts. By the paper,
    # and in PixelSSL without being told, the discriminator learns on labeled images alone, which by the paper's author
    # (discussion 27 of the released code) makes little difference.
    unlabeled_fakes: bool = True
    # Of Adam at the first step.
    discriminator_lr: Annotated[float, Field(gt=0.0, le=1.0)] = 1e-4
    # Of the discriminator's first layer; the next three have 2, 4 and 8 times as many.
    discriminator_channels: Channels = 64

    @model_validator(mode="after")
    def _normalise(self) -> AdvSemSegOptions:
        if not self.self_labels:
            self._forget("weight", "discriminator_threshold", "start")
        if not self.unlabeled_adversarial_weight:
            self._forget("unlabeled_adversarial_start")
        return self

    @property
    def label(self) -> str:
        """What captions call it."""
        return "AdvSemSeg"

    def problems(self, config: RunConfig) -> list[str]:
        """A pixel loss that has no place."""
        if self.self_labels or config.loss.kind == self.native_kind:
            return []
        return [
            f'method.self_labels = false leaves no place for loss.kind = "{config.loss.kind}": '
            "set self_labels = true, or leave loss.kind unset"
        ]

    def warnings(self, config: RunConfig) -> list[str]:
        """Also unlabeled images, or a discriminator, without any influence."""
        found = super().warnings(config)
        taught = self.self_labels and self.start < 1.0
        fooled = bool(self.unlabeled_adversarial_weight) and self.unlabeled_adversarial_start < 1.0
        if not (taught or fooled):
            influence = "reach it through the discriminator alone"
            if not (self.unlabeled_fakes and self.adversarial_weight):
                influence = "have no influence on this run"
            found.append(f"method has no loss of the network on unlabeled images: they {influence}")
        if taught and self.discriminator_threshold == 0.0:
            found.append("method.discriminator_threshold = 0: every self-label counts, whatever the discriminator says")
        return found
