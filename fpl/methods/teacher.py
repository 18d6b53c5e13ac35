"""Teachers whose weights follow a student's: how they are made, how they move, and in which mode they look."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self, TypeVar

from torch import Tensor, nn

from fpl.config.schema import RunConfig
from fpl.methods.base import Clock, Method, NetworkBuilder, Workers
from fpl.models.ema import move_teacher, warm_decay
from fpl.models.norm import hold_statistics

Module = TypeVar("Module", bound=nn.Module)


def teacher_of(student: Module) -> Module:
    """A copy of a student that no optimizer moves; nothing is drawn for it."""
    return copy.deepcopy(student).requires_grad_(False)


@dataclass(frozen=True)
class Ema:
    """How a teacher follows its student: an exponential moving average.

    Attributes:
        decay: Share of the teacher in its next self, 0 <= decay < 1.
        warm_up: Whether the share rises to it as min(1 - 1 / (step + 1), decay) (PixelSSL, U2PL), or is it from the
            start (mean teacher of TorchSemiSeg, CutMix-Seg).
        buffers: Whether running statistics of norm layers are averaged too (CutMix-Seg). If not, a teacher in train
            mode gathers its own, and they are a part of its memory.
        mode: Of the teacher while the student trains: "train" normalises by batch statistics.
    """

    decay: float
    warm_up: bool = False
    buffers: bool = False
    mode: Literal["train", "eval"] = "train"

    def decay_at(self, step: int) -> float:
        """Share of the teacher at a step, which is counted from the first one that it follows."""
        return warm_decay(step, self.decay) if self.warm_up else self.decay

    def update(self, teacher: nn.Module, student: nn.Module, step: int, *, overwrite: bool = False) -> None:
        """Move a teacher towards its student, in place; both may be networks or any modules of one structure.

        Args:
            teacher: What `teacher_of` has given.
            student: As it is now.
            step: From 0, the first step that the teacher follows.
            overwrite: Make it equal to the student instead, as at a warm-up's steps. Buffers follow if they do at all.
        """
        move_teacher(teacher, student, 0.0 if overwrite else self.decay_at(step), buffers=self.buffers)

    def set_mode(self, teacher: nn.Module, training: bool) -> None:
        """Put a teacher into its mode; to be called by the method's `train`, which has put all of it into one."""
        teacher.train(training and self.mode == "train")


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Within this context a module is in eval mode: no statistics are gathered, nothing is dropped.

    Every submodule gets its own mode back.
    """
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


class TaughtMethod(Method):
    """Base of methods with one student, which is trained, and one teacher, which follows it after every step.

    Args:
        config: This and the next two are those of `Method`.
        build_network: Makes the student.
        workers: The processes that share the global batch.
        ema: How the teacher follows.
        evaluated: Which of the two is evaluated and kept as the best.
        held: Whose batch norms use their running statistics in training too, and leave them as they are: those of
            neither network, of both backbones, or all.
        build_teacher: Makes the teacher, after the student; None: it begins as a copy of the student.
    """

    def __init__(
        self,
        config: RunConfig,
        build_network: NetworkBuilder,
        workers: Workers,
        ema: Ema,
        evaluated: Literal["student", "teacher"] = "teacher",
        held: Literal["none", "backbone", "all"] = "none",
        build_teacher: NetworkBuilder | None = None,
    ) -> None:
        super().__init__(config, build_network, workers)
        self.ema = ema
        self.evaluated = evaluated
        self.held = held
        self.teacher = teacher_of(self.network) if build_teacher is None else build_teacher().requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Switch between training and evaluation; the teacher follows as its mode has it, held batch norms do not."""
        super().train(mode)
        self.ema.set_mode(self.teacher, mode)
        if self.held != "none":
            for network in (self.network, self.teacher):
                hold_statistics(network if self.held == "all" else network.backbone)
        return self

    def after_step(self, clock: Clock) -> None:
        """Move the teacher towards the student."""
        self.ema.update(self.teacher, self.network, clock.step)

    def predict(self, image: Tensor) -> Tensor:
        """Logits `[B, C, H, W]` of the one that is evaluated."""
        logits: Tensor = (self.network if self.evaluated == "student" else self.teacher)(image)
        return logits

    def teaching_logits(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `[B, C, H, W]` of the student and of the teacher."""
        return self.network(image), self.teacher(image)
