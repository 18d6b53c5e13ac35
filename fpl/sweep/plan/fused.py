"""What a fused loss holds in memory, without computing it: counts are the same with and without a compiler or a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from fpl.losses.kernels.contract import SUMS, Mapped, Pixels, Settings, Summed


class Fused:
    """An implementation of the fuzzy positive loss that is 0 everywhere (`fpl.losses.kernels.contract.Implementation`).

    Its results are as large as those of the kernels, which store nothing else.
    """

    NAME = "counted"

    def summed(
        self, settings: Settings, pixels: Pixels, *, scale: Tensor | None, cross_entropy: bool, gradient: bool
    ) -> Summed:
        """Sums and a gradient of zeros."""
        device = pixels.student.device
        return Summed(
            torch.zeros(len(SUMS), dtype=torch.float64, device=device),
            torch.zeros(settings.classes, dtype=torch.int64, device=device),
            torch.zeros_like(pixels.student) if gradient else None,
        )

    def mapped(self, settings: Settings, student: Tensor, teacher: Tensor) -> Mapped:
        """A loss and a weight of 0 for every pixel, and K = 1; the state is a mask of positives."""
        zeros = torch.zeros_like(student[:, 0], dtype=torch.float32)
        ones = torch.ones_like(zeros, dtype=torch.int64)
        return Mapped(zeros, torch.zeros_like(zeros), ones, (torch.zeros_like(zeros, dtype=torch.int32),))

    def mapped_gradient(
        self, settings: Settings, student: Tensor, teacher: Tensor, state: tuple[Tensor, ...], upstream: Tensor
    ) -> Tensor:
        """A gradient of zeros."""
        return torch.zeros_like(student)

    def rescale(self, gradient: Tensor, factor: Tensor) -> Tensor:
        """The gradient, as it is: any multiple of 0."""
        return gradient
