"""Options of a consistency loss against an EMA teacher, gated by its confidence: for `fpl.methods.consistency`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from fpl.config.gates import gate_warnings
from fpl.config.method import MethodOptions
from fpl.config.section import Fraction, NotNegative

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig

# Above this an Adam at `optim.lr` is a slip: the rate was meant for SGD.
MOST_ADAM = 1e-3


class ConsistencyOptions(MethodOptions):
    """A student that has to predict of a changed image what its EMA teacher predicts of the image itself.

    "Released" is the code of French et al., cutmix-semisup-seg, with the options of its scripts.
    """

    # Of the consistency.
    weight: NotNegative
    # Share of training over which the weight rises (sigmoid, as the released `--rampup`). Its scripts have none.
    ramp: Fraction = 0.0
    # A pixel is sure where the teacher's highest probability is this or more; 0 is no gate (released: --conf_thresh).
    confidence_gate: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.97
    # "mean": all pixels are weighed by the share of sure ones in the global batch, as the scripts and PixelSSL have it;
    # "pixel": only sure pixels teach (released: --conf_per_pixel).
    gate_kind: Literal["mean", "pixel"] = "mean"
    # The student sees other colours than the teacher (released: --aug_strong_colour); not so in PixelSSL.
    strong_colours: bool = True
    # Decay of the teacher (released: --teacher_alpha).
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    # What moves the student, at the rate of [optim]. PixelSSL and re-runs in the setting of CPS: SGD. Released: Adam
    # without decay and schedule, pretrained layers at a tenth of the rate: with "adam" optim.lr=3e-6 (DeepLabV3+: 1e-6)
    # optim.head_lr_multiplier=10 optim.weight_decay=0 optim.poly_power=0.
    optimizer: Literal["sgd", "adam"] = "sgd"
    # Batch norms that keep their statistics, in student and teacher: re-runs: of neither, DeepLabV3+ of the released
    # code: "backbone", its DeepLabV2, whose head has no batch norm: "all" (--freeze_bn).
    held_statistics: Literal["none", "backbone", "all"] = "none"

    def adapted(self, config: RunConfig) -> Mapping[str, Any]:
        """Keys that nothing reads set back: of a gate that is none, of Adam, of layers that are frozen anyway."""
        forgotten = {}
        if not self.confidence_gate:
            forgotten["gate_kind"] = "mean"
        if config.model.norm == "frozen":
            forgotten["held_statistics"] = "none"
        optim = config.optim
        if self.optimizer == "adam":
            optim = optim.model_copy(update={"momentum": type(optim).model_fields["momentum"].default})
        return {"optim": optim, "method": self.model_copy(update=forgotten)}

    def warnings(self, config: RunConfig) -> list[str]:
        """Also a gate beside FPL, the rate of SGD given to Adam, and statistics that nothing was trained for."""
        gate = gate_warnings("method.confidence_gate", self.confidence_gate, config.loss, self.gate_kind)
        found = [*super().warnings(config), *gate]
        if self.optimizer == "adam" and config.optim.lr > MOST_ADAM:
            found.append(
                f"optim.lr = {config.optim.lr:g} with method.optimizer = adam: it is Adam's rate too; the released "
                "code has 3e-6 or 1e-6, and optim.head_lr_multiplier = 10"
            )
        if self.held_statistics == "all" or (self.held_statistics != "none" and config.model.pretrained == "none"):
            found.append(
                f"method.held_statistics = {self.held_statistics}: statistics are held that belong to no weights, mean "
                '0 and variance 1 for ever, in what is not pretrained; "backbone" with pretrained weights holds none '
                "such"
            )
        return found
