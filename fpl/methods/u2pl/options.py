"""The `[method]` table of U2PL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fpl.config.contrast import ContrastOptions
from fpl.config.method import MethodOptions
from fpl.config.section import Fraction, NotNegative

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig


class U2plOptions(MethodOptions):
    """Pseudo-labels of reliable pixels, and a contrast in which unreliable ones are negatives.

    "Paper" is Wang et al., CVPR 2022; "released" is the branch main of their code, `train_semi.py`.
    """

    implementation: ClassVar[str] = "fpl.methods.u2pl.method:U2pl"
    # The second as the released code computes the contrast.
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"contrast.anchors": 16, "contrast.negatives": 8, "contrast.queue": 300, "contrast.channels": 8},
        {
            **{"contrast.anchors": 8, "contrast.negatives": 4, "contrast.queue": 50, "contrast.channels": 8},
            **{"contrast.definition": "released", "teacher_copies": 0.4},
        },
    )

    name: Literal["u2pl"]
    # Of the cross-entropy with pseudo-labels (released: `loss_weight`, never set); by itself it is all pixels over the
    # reliable ones (lambda_u), so that what is dropped makes the others weigh more.
    weight: NotNegative = 1.0
    # Share of the pixels of unlabeled images, those of the highest entropy, that are no target at first (alpha_0; the
    # released `drop_percent` is what is left). It falls linearly over training to 0, here at every step, elsewhere at
    # every epoch. 0 drops none.
    unreliable: Fraction = 0.2
    # Chance of a group of images to be mixed in a step: into every unlabeled image a box of the next one, half as large
    # as the image (released: `apply_aug: cutmix`). 0 is the paper's row without CutMix.
    cutmix_probability: Fraction = 0.5
    # Share of training in which the student learns from labels alone (released: `sup_only_epoch`): none on Cityscapes,
    # 1 of 80 epochs on VOC. The teacher is its copy there, so that the one that is evaluated is always trained.
    warm_up: Fraction = 0.0
    # Share of training behind it in which the teacher is still its copy after every step: 1 epoch as released, which is
    # 0.005 on Cityscapes and 0.0125 on VOC.
    teacher_copies: Fraction = 0.005
    # Of the moving average from then on: min(1 - 1 / (k + 1), this), k being the steps behind the warm-up.
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    # The contrast; with contrast.weight = 0 there is none.
    contrast: ContrastOptions = ContrastOptions()

    @model_validator(mode="after")
    def _normalise(self) -> U2plOptions:
        if self.warm_up >= 1.0:
            raise ValueError(
                f"warm_up = {self.warm_up:g} is all of training: no unlabeled image would be looked at; set a share "
                'below 1, or method.name = "supervised"'
            )
        return self

    @property
    def label(self) -> str:
        """What captions call it."""
        return "U2PL"

    def problems(self, config: RunConfig) -> list[str]:
        """Those of the contrast."""
        return self.contrast.problems("method.contrast", config)

    def warnings(self, config: RunConfig) -> list[str]:
        """Also those of the contrast, that nothing is mixed, and that the pixels dropped are those that FPL is for."""
        found = [*super().warnings(config), *self.contrast.warnings("method.contrast")]
        data = config.data
        if self.cutmix_probability and data.unlabeled_batch == data.groups:
            found.append(
                f"method.cutmix_probability = {self.cutmix_probability:g} does nothing: each of data.groups = "
                f"{data.groups} has one of data.unlabeled_batch = {data.unlabeled_batch} images, which is mixed with "
                "itself; set data.groups so that each has 2 or more, or method.cutmix_probability = 0"
            )
        if self.unreliable and config.loss.kind == "fpl":
            found.append(
                f"method.unreliable = {self.unreliable:g} with loss.kind = fpl: the pixels of the highest entropy, "
                "which are dropped, are those with the most fuzzy positives; method.unreliable = 0 leaves them to FPL"
            )
        return found
