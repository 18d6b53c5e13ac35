"""DeepLabV3+ as in the released CPS code, for any backbone.

It differs from the original DeepLabV3+ in three points: the image-level branch of the spatial pyramid is added to the
other branches instead of concatenated, the pyramid's activations are leaky, and there is no dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fpl.models.backbone import Backbone, Features
from fpl.models.initial import initialize
from fpl.models.network import SegmentationNetwork, resize, unit
from fpl.models.norm import NormLayer

LEAK = 0.01


class CpsDeepLab(SegmentationNetwork):
    """DeepLabV3+: backbone, spatial pyramid, decoder, and a 1x1 classifier at a quarter of the input's size.

    Convolutions of the head are Kaiming-normal (fan_in), its norm layers start at 1 and 0; the classifier's bias keeps
    PyTorch's default. Random numbers come from torch's global generator.

    Args:
        backbone: Source of the low and high features.
        num_classes: Number of logits per pixel, 2 or more.
        norm: Normalisation layer, called with the number of channels.
        aspp_rates: Dilations of the pyramid's three 3x3 branches, in pixels of the high features.
        head_channels: Width of the pyramid's branches and of the decoder.
        low_level_channels: Channels to which the low features are reduced.
    """

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        *,
        norm: NormLayer,
        aspp_rates: tuple[int, int, int] = (6, 12, 18),
        head_channels: int = 256,
        low_level_channels: int = 48,
    ) -> None:
        super().__init__(backbone)
        low_channels, _, high_channels = backbone.out_channels
        self.fused_channels = head_channels + low_level_channels
        self.pyramid = SpatialPyramid(high_channels, head_channels, aspp_rates, norm)
        self.low_level = unit(low_channels, low_level_channels, norm, kernel=1)
        self.decoder = nn.Sequential(
            unit(self.fused_channels, head_channels, norm, kernel=3),
            unit(head_channels, head_channels, norm, kernel=3),
        )
        self.classifier = nn.Conv2d(head_channels, num_classes, 1)
        for part in (self.pyramid, self.low_level, self.decoder, self.classifier):
            for module in part.modules():
                if isinstance(module, nn.Conv2d):
                    initialize(module, "fan_in")

    def fuse(self, features: Features) -> Tensor:
        """Concatenate context and reduced low features, [B, head_channels + low_level_channels, H/4, W/4]."""
        coarse = resize(self.pyramid(features.high), features.low.shape[-2:])
        return torch.cat([coarse, self.low_level(features.low)], dim=1)


class SpatialPyramid(nn.Module):
    """Atrous spatial pyramid pooling with an image-level branch that is added to the others.

    Args:
        in_channels: Channels of the high features.
        channels: Channels of each branch and of the result.
        rates: Dilations of the three 3x3 branches.
        norm: Normalisation layer, called with the number of channels.
    """

    def __init__(self, in_channels: int, channels: int, rates: tuple[int, int, int], norm: NormLayer) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.Conv2d(in_channels, channels, 1, bias=False)])
        for rate in rates:
            self.branches.append(
                nn.Conv2d(in_channels, channels, 3, padding=rate, dilation=rate, bias=False),
            )
        self.reduce = nn.Sequential(
            norm(len(self.branches) * channels),
            nn.LeakyReLU(LEAK, inplace=True),
            nn.Conv2d(len(self.branches) * channels, channels, 1, bias=False),
        )
        self.image_level = nn.Sequential(
            nn.Conv2d(in_channels, channels, 1, bias=False),
            norm(channels),
            nn.LeakyReLU(LEAK, inplace=True),
            nn.Conv2d(channels, channels, 1, bias=False),
        )
        self.normalise = nn.Sequential(norm(channels), nn.LeakyReLU(LEAK, inplace=True))

    def forward(self, high: Tensor) -> Tensor:
        """Map high features [B, in_channels, h, w] to context features [B, channels, h, w]."""
        local = self.reduce(torch.cat([branch(high) for branch in self.branches], dim=1))
        image_level = self.image_level(high.mean((2, 3), keepdim=True))
        context: Tensor = self.normalise(local + image_level)
        return context
