"""ResNet-50 and ResNet-101 with a deep stem and a dilated last stage, as in the released CPS code.

The residual blocks are torchvision's. Parameter names are those of torchvision and of the published deep-stem
weights (`conv1.0`, `conv1.1`, `conv1.3`, `conv1.4`, `conv1.6`, `bn1`, `layer1.0.conv1`, ...): files load by name.
"""

from __future__ import annotations

from typing import Literal

import torchvision
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck

from fpl.models.backbone import Backbone
from fpl.models.norm import NormLayer

BLOCKS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}
STEM_WIDTHS = (64, 64, 128)
LAYER4_DILATIONS = (2, 4, 8)


class DeepStemResNet(Backbone):
    """Backbone of output stride 16.

    Three 3x3 convolutions (64, 64, 128 channels) stand in for the 7x7 one, and the last stage trades its stride for
    dilations 2, 4, 8. Weights are Kaiming-normal (fan_out), norm layers start at 1 and 0, as torchvision has it.

    Args:
        depth: "resnet50" or "resnet101".
        norm: Normalisation layer, called with the number of channels.
    """

    out_channels = (256, 2048)

    def __init__(self, depth: Literal["resnet50", "resnet101"], norm: NormLayer) -> None:
        super().__init__()
        plain = torchvision.models.ResNet(
            Bottleneck,
            list(BLOCKS[depth]),
            norm_layer=norm,
            replace_stride_with_dilation=[False, False, True],
        )
        self.conv1 = _deep_stem(norm)
        self.bn1 = norm(STEM_WIDTHS[-1])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1: nn.Sequential = plain.layer1
        self.layer2: nn.Sequential = plain.layer2
        self.layer3: nn.Sequential = plain.layer3
        self.layer4: nn.Sequential = plain.layer4
        _widen_first_block(self.layer1[0])
        for block, dilation in zip(self.layer4, LAYER4_DILATIONS, strict=True):
            _dilate(block, dilation)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Map images [B, 3, H, W] to features [B, 256, H/4, W/4] and [B, 2048, H/16, W/16], sizes rounded up."""
        stem = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        low: Tensor = self.layer1(stem)
        high: Tensor = self.layer4(self.layer3(self.layer2(low)))
        return low, high


def _deep_stem(norm: NormLayer) -> nn.Sequential:
    first, second, third = STEM_WIDTHS
    return nn.Sequential(
        _convolution(3, first, kernel=3, stride=2),
        norm(first),
        nn.ReLU(inplace=True),
        _convolution(first, second, kernel=3),
        norm(second),
        nn.ReLU(inplace=True),
        _convolution(second, third, kernel=3),
    )


def _widen_first_block(block: Bottleneck) -> None:
    """Let the first residual block take the deep stem's 128 channels instead of 64."""
    width, out_channels = block.conv1.out_channels, block.conv3.out_channels
    block.conv1 = _convolution(STEM_WIDTHS[-1], width, kernel=1)
    block.downsample[0] = _convolution(STEM_WIDTHS[-1], out_channels, kernel=1)


def _dilate(block: Bottleneck, dilation: int) -> None:
    block.conv2.dilation = (dilation, dilation)
    block.conv2.padding = (dilation, dilation)


def _convolution(in_channels: int, out_channels: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    convolution = nn.Conv2d(in_channels, out_channels, kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution
