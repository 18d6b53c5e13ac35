"""DeepLabV3+ as in the released AEL code (`semseg/models`), for any backbone.

Unlike CPS's: all branches of the spatial pyramid are concatenated and reduced by a 3x3 convolution, whole channels are
dropped in training, and an auxiliary head looks at the middle features. On a ResNet the output stride is 8.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fpl.models.backbone import Backbone, Features
from fpl.models.network import SegmentationNetwork, resize, unit
from fpl.models.norm import NormLayer


class AelDeepLab(SegmentationNetwork):
    """DeepLabV3+ with an auxiliary head. The heads keep PyTorch's default initialisation, as released.

    Random numbers come from torch's global generator.

    Args:
        backbone: Source of the features.
        num_classes: Number of logits per pixel, 2 or more.
        norm: Normalisation layer, called with the number of channels.
        aspp_rates: Dilations of the pyramid's three 3x3 branches, in pixels of the high features.
        head_channels: Width of the pyramid's branches, of the decoder, and of the auxiliary head.
        low_level_channels: Channels to which the low features are brought.
        dropout: Share of the channels that are dropped in training, 0 <= dropout < 1.
    """

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        *,
        norm: NormLayer,
        aspp_rates: tuple[int, int, int] = (12, 24, 36),
        head_channels: int = 256,
        low_level_channels: int = 256,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(backbone)
        low_channels, middle_channels, high_channels = backbone.out_channels
        self.fused_channels = head_channels + low_level_channels
        self.pyramid = ConcatenatedPyramid(high_channels, head_channels, aspp_rates, norm)
        self.reduce = unit(self.pyramid.out_channels, head_channels, norm, kernel=3, dropout=dropout)
        # From here on the released convolutions have a bias, although a norm layer follows.
        self.low_level = unit(low_channels, low_level_channels, norm, kernel=1, bias=True)
        self.decoder = nn.Sequential(
            unit(self.fused_channels, head_channels, norm, kernel=3, bias=True, dropout=dropout),
            unit(head_channels, head_channels, norm, kernel=3, bias=True, dropout=dropout),
        )
        self.classifier = nn.Conv2d(head_channels, num_classes, 1)
        self.auxiliary = nn.Sequential(
            unit(middle_channels, head_channels, norm, kernel=3, bias=True, dropout=dropout),
            nn.Conv2d(head_channels, num_classes, 1),
        )

    def fuse(self, features: Features) -> Tensor:
        """Concatenate reduced low features and context, [B, low_level_channels + head_channels, h, w]."""
        low = self.low_level(features.low)
        coarse = resize(self.reduce(self.pyramid(features.high)), low.shape[-2:])
        return torch.cat([low, coarse], dim=1)


class ConcatenatedPyramid(nn.Module):
    """Atrous spatial pyramid pooling: image-level, 1x1 and three dilated 3x3 branches, concatenated in this order.

    Args:
        in_channels: Channels of the high features.
        channels: Channels of each branch.
        rates: Dilations of the three 3x3 branches.
        norm: Normalisation layer, called with the number of channels.

    Attributes:
        out_channels: Channels of the result, five times `channels`.
    """

    def __init__(self, in_channels: int, channels: int, rates: tuple[int, int, int], norm: NormLayer) -> None:
        super().__init__()
        self.image_level = unit(in_channels, channels, norm, kernel=1)
        self.branches = nn.ModuleList([unit(in_channels, channels, norm, kernel=1)])
        self.branches.extend(unit(in_channels, channels, norm, kernel=3, dilation=rate) for rate in rates)
        self.out_channels = (1 + len(self.branches)) * channels

    def forward(self, high: Tensor) -> Tensor:
        """Map high features [B, in_channels, h, w] to context features [B, out_channels, h, w]."""
        # Enlarging a single value repeats it.
        image_level = self.image_level(high.mean((2, 3), keepdim=True)).expand(-1, -1, *high.shape[-2:])
        return torch.cat([image_level, *(branch(high) for branch in self.branches)], dim=1)
