"""What the segmentation network expects of a backbone."""

from __future__ import annotations

from torch import Tensor, nn


class Backbone(nn.Module):
    """Base class: a module that maps images to features of two resolutions.

    Attributes:
        out_channels: Channels of the low-level and of the high-level features.
    """

    out_channels: tuple[int, int]

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Map normalised images [B, 3, H, W] to features `(low, high)`.

        `low` has stride 4, [B, C_low, ceil(H/4), ceil(W/4)]; `high` has the backbone's own stride, 8 or 16.
        """
        raise NotImplementedError
