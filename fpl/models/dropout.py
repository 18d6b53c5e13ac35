"""Random numbers and dropout that do not depend on how many workers share the global batch.

All workers are seeded alike (`fpl.train.runtime.seed_training`). Each draws for the global batch, from torch's global
generator of the device, and keeps the numbers of its own images: so the generators stay alike, too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn


def global_uniform(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Draw numbers in [0, 1), float32, for this worker's images.

    With several workers, which must call it equally often and with equal shapes, worker r gets rows r * B to
    (r + 1) * B - 1 of what one worker would draw for all images.

    Args:
        shape: [B, ...], B being the images of this worker.
        device: Whose generator draws.
    """
    return _own_rows(torch.rand, shape, device)


def global_normal(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Draw numbers of mean 0 and variance 1, float32, for this worker's images: see `global_uniform`."""
    return _own_rows(torch.randn, shape, device)


def drawn_numbers(uniform: Tensor, counts: Tensor) -> Tensor:
    """Whole numbers int64 from 0 to a count - 1, all as likely; 0 where the count is.

    Args:
        uniform: Numbers in [0, 1) that decide.
        counts: int64, of a shape that broadcasts with theirs.
    """
    # A number next to 1 may round up to the count.
    return torch.minimum((uniform * counts).long(), (counts - 1).clamp_min(0))


def _own_rows(draw: Callable[..., Tensor], shape: tuple[int, ...], device: torch.device) -> Tensor:
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return draw(shape, device=device)
    count = shape[0]
    everyone = draw((dist.get_world_size() * count, *shape[1:]), device=device)
    return everyone[dist.get_rank() * count :][:count]


class GlobalDropout2d(nn.Module):
    """`nn.Dropout2d`, drawn for the global batch: in training drops whole channels, and enlarges the others.

    Args:
        p: Share of the channels that are dropped, 0 <= p < 1.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, features: Tensor) -> Tensor:
        """Multiply each channel of [B, C, h, w] by 0 or 1 / (1 - p); in eval mode or with p = 0 nothing is drawn."""
        if not self.training or self.p == 0.0:
            return features
        kept = global_uniform(tuple(features.shape[:2]), features.device) >= self.p
        return features * (kept / (1 - self.p)).to(features.dtype)[:, :, None, None]

    def extra_repr(self) -> str:
        """Show the share in the network's text form."""
        return f"p={self.p}"
