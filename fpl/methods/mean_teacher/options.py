"""The `[method]` table of mean teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fpl.config.method import MethodOptions
from fpl.config.section import Fraction, NotNegative
from fpl.config.teachers import check_teacher


class MeanTeacherOptions(MethodOptions):
    """Mean teacher: the student is drawn to the predictions of the average of its own past.

    Defaults are those of TorchSemiSeg, whose authors made the numbers that papers on segmentation cite
    (`exp.voc/voc8.res50v3+.MeanTeacher`). PixelSSL's re-implementation (`ssl_mt.py`) is `weight = 1`,
    `loss.kind = "mse_logits"`, `on_labeled = false`, `ramp` of 3 to 5 epochs, `ema_warm_up = true` and
    `ema_moment = "after_step"`; that it passes labeled and unlabeled images jointly is not offered.
    """

    implementation: ClassVar[str] = "fpl.methods.mean_teacher.method:MeanTeacher"
    native_kind: ClassVar[str] = "mse"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        {"on_labeled": False, "ema_moment": "after_step", "ema_buffers": True, "evaluated": "teacher", "ramp": 0.5},
    )

    name: Literal["mean_teacher"]
    # Weight of the consistency, which for the squared difference of probabilities is a mean over classes too.
    weight: NotNegative = 100.0
    # Whether labeled images have a part in the consistency: there every pixel of both batches counts alike.
    on_labeled: bool = True
    # Share of training over which the weight rises, as exp(-5 (1 - t)^2) in the publication; TorchSemiSeg has no ramp.
    ramp: Fraction = 0.0
    # Share of the teacher in its next self; with a warm-up it is min(1 - 1 / (step + 1), decay).
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    ema_warm_up: bool = False
    # TorchSemiSeg averages parameters alone; its teacher stays in train mode and gathers statistics of its own.
    ema_buffers: bool = False
    teacher_mode: Literal["train", "eval"] = "train"
    # When it moves. "forward": after it has seen the labeled images and before it sees the unlabeled ones, so towards
    # the student before this step (TorchSemiSeg). "after_step": towards the student after it (the publication).
    ema_moment: Literal["forward", "after_step"] = "forward"
    # TorchSemiSeg evaluates the student, the publication the teacher.
    evaluated: Literal["student", "teacher"] = "student"

    @model_validator(mode="after")
    def _check(self) -> MeanTeacherOptions:
        check_teacher(self.teacher_mode, self.ema_buffers)
        return self

    @property
    def label(self) -> str:
        """What captions call it."""
        return "mean teacher"
