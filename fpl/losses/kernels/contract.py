"""What every fused implementation of the fuzzy positive loss takes and gives.

Two forms. The *summed* form reads both networks' logits once and returns sums over pixels with the gradient already
written; it may enlarge low-resolution logits bilinearly and choose between two teachers on the way, so that neither is
ever stored at full resolution. The *mapped* form returns loss, weight and K of every pixel, and takes any gradient of
the losses later.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fpl.losses.assignment import RELEASED_CAP, fitting_k, step_k
from fpl.losses.rules import Rules
from fpl.losses.weight import convex_coefficient_of

# The strategies as kernels know them: "fixed" and "step" both hand over a number of positives, and "soft" adds a member
# in part to those of n-1.
STRATEGY_CODES = {"n-1": 0, "n": 1, "fixed": 2, "step": 2, "ratio": 3, "soft": 0}
WEIGHT_CODES = {"concave": 0, "linear": 1, "convex": 2, "none": 3}


class Settings(NamedTuple):
    """What decides loss, weight and K, checked against the number of classes."""

    classes: int
    threshold: float
    """What running sums are compared with, `Rules.bound`: infinite for T = 1."""
    strategy: int
    soft: bool
    """Whether the class behind the positives belongs to them in part."""
    k: int
    """K of the strategies that give it, 1 .. C - 1; 1 otherwise."""
    ratio: float
    weight: int
    curvature: float
    convex_coefficient: float
    released: bool
    cap: int
    """K is never larger: min(3, C - 1) as released, else C (the strategy n-1 stops at C - 1 by itself)."""


def make_settings(classes: int, rules: Rules) -> Settings:
    """Turn rules into numbers.

    Raises:
        ValueError: ``fixed_k`` exceeds C - 1.
    """
    k = 1
    if rules.strategy == "fixed":
        k = fitting_k(rules.fixed_k, classes)
    elif rules.strategy == "step":
        k = step_k(rules.progress, classes)
    released = rules.fidelity == "released"
    return Settings(
        classes=classes,
        threshold=rules.bound,
        strategy=STRATEGY_CODES[rules.strategy],
        soft=rules.strategy == "soft",
        k=k,
        ratio=rules.ratio,
        weight=WEIGHT_CODES[rules.weight],
        curvature=rules.curvature,
        convex_coefficient=convex_coefficient_of(rules),
        released=released,
        cap=min(RELEASED_CAP, classes - 1) if released else classes,
    )


class Pixels(NamedTuple):
    """Logits of one direction and what is known about its pixels.

    Logits are float32, bfloat16 or float16 of any strides (contiguous and channels_last without a copy), all of one
    dtype. No tensor has its negative bit set: what memory shows is what is meant. ``[B, *spatial]`` is the resolution
    of the loss: that of the logits, or ``size``.
    """

    student: Tensor
    """[B, C, *spatial], or [B, C, h, w] with ``size``."""
    teacher: Tensor
    """Of the same shape, detached."""
    second: Tensor | None = None
    """A second teacher of the same shape, which teaches the pixels of ``inside``."""
    inside: Tensor | None = None
    """bool [B, *spatial]."""
    weight_map: Tensor | None = None
    """float32 [B, *spatial]."""
    counted: Tensor | None = None
    """bool [B, *spatial]; None: all pixels. A pixel that does not count adds nothing, whatever its logits are."""
    size: tuple[int, int] | None = None
    """Enlarge logits [B, C, h, w] to this (H, W), bilinearly with aligned corners, before anything else."""


# Columns of `Summed.sums`, all over counted pixels: their number; loss * weight * weight map; loss * weight; loss;
# weight; cross-entropy with the teacher's argmax (0 unless asked for).
SUMS = ("pixels", "value", "weighted_loss", "loss", "weight", "cross_entropy")
VALUE = SUMS.index("value")


class Summed(NamedTuple):
    """Result of the summed form."""

    sums: Tensor
    """float64 [len(SUMS)]."""
    histogram: Tensor
    """int64 [C]: how many counted pixels have K = 1 .. C, the nearest of ``soft``."""
    gradient: Tensor | None
    """Gradient of ``scale * value`` with respect to the student's logits, of their shape, dtype and strides."""


class Mapped(NamedTuple):
    """Result of the mapped form; tensors are [B, *spatial]."""

    loss: Tensor
    """float32."""
    weight: Tensor
    """float32."""
    k: Tensor
    """int64, the nearest of ``soft``."""
    state: tuple[Tensor, ...]
    """What ``mapped_gradient`` needs besides the logits."""


class Implementation(Protocol):
    """A module of this package that computes both forms on its kind of device."""

    NAME: str
    """The one that it is chosen by."""

    def summed(
        self, settings: Settings, pixels: Pixels, *, scale: Tensor | None, cross_entropy: bool, gradient: bool
    ) -> Summed:
        """Compute the sums, and the gradient of ``scale * value`` if asked (``scale``: float32 scalar; None is 1)."""

    def mapped(self, settings: Settings, student: Tensor, teacher: Tensor) -> Mapped:
        """Compute loss, weight and K of every pixel."""

    def mapped_gradient(
        self, settings: Settings, student: Tensor, teacher: Tensor, state: tuple[Tensor, ...], upstream: Tensor
    ) -> Tensor:
        """Gradient of SUM ``upstream`` * loss, of the shape, dtype and strides of ``student``.

        ``upstream`` is float32 [B, *spatial].
        """

    def rescale(self, gradient: Tensor, factor: Tensor) -> Tensor:
        """Multiply by a float32 scalar, in place, without traffic where it is 1.

        Zeros stay zeros whatever the scalar is: NaN must not reach pixels that do not count.
        """


KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
