"""A teacher whose weights are the moving average of a student's."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


def warm_decay(step: int, max_decay: float) -> float:
    """Decay min(1 - 1 / (step + 1), max_decay) of a step, from 0.

    It is 0 at step 0, after which teacher and student are equal, so that the teacher may start from any weights; up to
    the maximum it makes the teacher the plain mean of all students (released AEL code, `train.py`).
    """
    return min(1 - 1 / (step + 1), max_decay)


@torch.no_grad()
def move_teacher(teacher: nn.Module, student: nn.Module, decay: float, *, buffers: bool = False) -> None:
    """Make the teacher's parameters decay * teacher + (1 - decay) * student, in place.

    Args:
        teacher: Module of the student's structure.
        student: What it moves to.
        decay: 0 <= decay < 1; with 0 the teacher becomes the student.
        buffers: Whether floating buffers (running statistics of norm layers) are averaged too and others copied.
    """
    average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    average(list(teacher.parameters()), list(student.parameters()), 0)
    if not buffers:
        return
    pairs = list(zip(teacher.buffers(), student.buffers(), strict=True))
    floating = [pair for pair in pairs if pair[0].is_floating_point()]
    if floating:
        average([own for own, _ in floating], [other for _, other in floating], 0)
    for own, other in pairs:
        if not own.is_floating_point():
            own.copy_(other)
