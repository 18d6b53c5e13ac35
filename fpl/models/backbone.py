"""What a segmentation network expects of a backbone."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn


class Features(NamedTuple):
    """Features of images [B, 3, H, W] at three depths.

    Attributes:
        low: Stride 4, [B, C_low, h, w].
        middle: What comes before the last stage, [B, C_middle, h', w']; the decoder does not look at it, but an
            auxiliary head or a method may.
        high: The backbone's own stride, 8 or 16, [B, C_high, h', w'].
    """

    low: Tensor
    middle: Tensor
    high: Tensor


class Backbone(nn.Module):
    """Base class: a module that maps images to features of three depths.

    Attributes:
        out_channels: Channels of the low, middle and high features.
    """

    out_channels: tuple[int, int, int]

    def forward(self, image: Tensor) -> Features:
        """Map normalised images [B, 3, H, W], any size from 33 x 33 on, to their features."""
        raise NotImplementedError
