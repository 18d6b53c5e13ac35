"""Logits below the loss's resolution, and two teachers that share a picture: what tensors make of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses.checks import check_mask, check_pair, constant, to_compute

# In pixels: what kernels count with ends far above it, and no image is near.
LONGEST_SIDE = 2**20


def enlarge(logits: Tensor, size: tuple[int, int] | None) -> Tensor:
    """Enlarge [B, C, h, w] to [B, C, *size] bilinearly, corners aligned, as segmentation networks end; None: as is."""
    if size is None or tuple(logits.shape[-2:]) == tuple(size):
        return logits
    return F.interpolate(logits, size=tuple(size), mode="bilinear", align_corners=True)


def check_size(scores: Tensor, size: tuple[int, int] | None) -> tuple[int, ...]:
    """Return the shape [B, *spatial] of the loss's resolution.

    Raises:
        TypeError: ``size`` is given and holds no whole numbers.
        ValueError: ``size`` is given and the scores are not [B, C, h, w], or a side of either is below 1.
    """
    if size is None:
        return (scores.shape[0], *scores.shape[2:])
    try:
        sides: tuple[object, ...] = tuple(size)
    except TypeError:
        sides = (None,)
    if not all(hasattr(side, "__index__") for side in sides):
        raise TypeError(f"size is {size!r}; allowed: (H, W), two whole numbers")
    if max(size) > LONGEST_SIDE:
        raise ValueError(f"size is {size!r}; allowed: sides up to {LONGEST_SIDE}")
    if scores.ndim != 4 or len(size) != 2 or min(*size, *scores.shape[2:]) < 1:
        raise ValueError(
            f"size is {size!r} with logits of shape {list(scores.shape)}; "
            "allowed: (H, W) >= 1 with [B, C, h, w], h and w >= 1"
        )
    return (scores.shape[0], *size)


class Teaching(NamedTuple):
    """Whose logits teach which pixels."""

    teacher: Tensor
    """[B, C, *spatial] or, with ``size``, [B, C, h, w]; detached."""
    second: Tensor | None = None
    """Of the same shape; teaches the pixels of ``inside``."""
    inside: Tensor | None = None
    """bool [B, *spatial] at the loss's resolution."""
    size: tuple[int, int] | None = None
    """Resolution of the loss; None is that of the logits."""

    def mixed(self) -> Tensor:
        """The teacher's logits [B, C, *spatial] at the loss's resolution, float32 or float64."""
        teacher = enlarge(to_compute(self.teacher), self.size)
        if self.second is None or self.inside is None:
            return teacher
        return torch.where(self.inside.unsqueeze(1), enlarge(to_compute(self.second), self.size), teacher)


def make_teaching(
    student_logits: Tensor,
    teacher_logits: Tensor,
    second: Tensor | None = None,
    inside: Tensor | None = None,
    size: tuple[int, int] | None = None,
) -> Teaching:
    """Check teachers against their student.

    Raises:
        ValueError: A tensor has another shape, dtype or device, or only one of ``second`` and ``inside`` is given.
    """
    check_pair(student_logits, teacher_logits)
    if (second is None) != (inside is None):
        raise ValueError("second and inside go together; allowed: both or neither")
    check_size(student_logits, size)
    if second is not None and inside is not None:
        check_pair(student_logits, second)
        check_mask("inside", inside, student_logits, size)
        second, inside = constant(second), constant(inside)
    same = size is not None and tuple(student_logits.shape[-2:]) == tuple(size)
    return Teaching(constant(teacher_logits), second, inside, None if same else size)
