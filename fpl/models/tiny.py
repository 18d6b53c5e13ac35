"""A backbone small enough to train on one CPU core in seconds: the real recipe at toy cost."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from fpl.models.backbone import Backbone, Features
from fpl.models.initial import initialize
from fpl.models.norm import NormLayer

DILATION = 2


class TinyBackbone(Backbone):
    """Residual backbone with low features of stride 4, and middle and high features of stride 8.

    Stride 8 instead of the ResNets' 16 leaves 8 x 8 positions of a 64 x 64 crop for the pyramid to look around in;
    the last unit is dilated, as the ResNets' last stage is. Weights are Kaiming-normal (fan_out).

    Args:
        width: Channels of the stem; the features have 2, 4 and 4 times as many.
        depth: Residual blocks per stage, 1 or more.
        norm: Normalisation layer, called with the number of channels.
    """

    def __init__(self, width: int, depth: int, norm: NormLayer) -> None:
        super().__init__()
        low_channels, high_channels = 2 * width, 4 * width
        self.out_channels = (low_channels, high_channels, high_channels)
        self.stem = _unit(3, width, norm, stride=2)
        self.low = _stage(width, low_channels, depth, norm)
        self.high = _stage(low_channels, high_channels, depth, norm)
        self.context = _unit(high_channels, high_channels, norm, dilation=DILATION)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                initialize(module, "fan_out")

    def forward(self, image: Tensor) -> Features:
        """Map images [B, 3, H, W] to features [B, 2w, H/4, W/4] and twice [B, 4w, H/8, W/8], sizes rounded up."""
        low: Tensor = self.low(self.stem(image))
        middle: Tensor = self.high(low)
        high: Tensor = self.context(middle)
        return Features(low, middle, high)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes.

    torchvision's `BasicBlock` would do, had it a shortcut of its own.
    """

    def __init__(self, in_channels: int, out_channels: int, norm: NormLayer, *, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = norm(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = norm(out_channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), norm(out_channels)
            )

    def forward(self, features: Tensor) -> Tensor:
        """Map [B, in_channels, h, w] to [B, out_channels, h/stride, w/stride]."""
        hidden = F.relu(self.bn1(self.conv1(features)), inplace=True)
        return F.relu(self.bn2(self.conv2(hidden)) + self.shortcut(features), inplace=True)


def _stage(in_channels: int, out_channels: int, depth: int, norm: NormLayer) -> nn.Sequential:
    blocks = [ResidualBlock(in_channels, out_channels, norm, stride=2)]
    blocks += [ResidualBlock(out_channels, out_channels, norm) for _ in range(depth - 1)]
    return nn.Sequential(*blocks)


def _unit(in_channels: int, out_channels: int, norm: NormLayer, *, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, stride, padding=dilation, dilation=dilation, bias=False),
        norm(out_channels),
        nn.ReLU(inplace=True),
    )
