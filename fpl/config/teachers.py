"""What options of an EMA teacher have to agree on."""

from __future__ import annotations

from typing import Literal


def check_teacher(mode: Literal["train", "eval"], buffers: bool) -> None:
    """Refuse a teacher in eval mode that never gets statistics; for the validators of options.

    Args:
        mode: `teacher_mode`: of the teacher while the student trains.
        buffers: `ema_buffers`: whether running statistics are averaged too.

    Raises:
        ValueError: It is one.
    """
    if mode == "eval" and not buffers:
        raise ValueError(
            'teacher_mode = "eval" with ema_buffers = false: the teacher would normalise with the statistics it '
            "began with; set ema_buffers = true"
        )
