"""ResNet-50 and ResNet-101 with a deep stem and dilated last stages, as in the released code of CPS or of AEL.

The residual blocks are torchvision's. Parameter names are those of torchvision and of the published deep-stem
weights (`conv1.0`, `conv1.1`, `conv1.3`, `conv1.4`, `conv1.6`, `bn1`, `layer1.0.conv1`, ...): files load by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torchvision
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck

from fpl.models.backbone import Backbone, Features
from fpl.models.initial import initialize
from fpl.models.norm import NormLayer

BLOCKS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}
STEM_WIDTHS = (64, 64, 128)


@dataclass(frozen=True)
class Variant:
    """What differs between the released ResNets.

    Attributes:
        dilated: Which of the stages 2, 3 and 4 trade their stride for dilation.
        layer4_dilations: Dilations of the last stage's three blocks.
        ceil_mode: Whether the max-pooling rounds an even side up: one more position than half of them.
        zero_init: Whether the last norm layer of each block starts at 0, so that the block passes its input through.
    """

    dilated: tuple[bool, bool, bool]
    layer4_dilations: tuple[int, int, int]
    ceil_mode: bool
    zero_init: bool


VARIANTS = {
    "cps": Variant((False, False, True), (2, 4, 8), ceil_mode=False, zero_init=False),
    "ael": Variant((False, True, True), (4, 8, 16), ceil_mode=True, zero_init=True),
}


class DeepStemResNet(Backbone):
    """Backbone of output stride 16 (CPS) or 8 (AEL).

    Three 3x3 convolutions (64, 64, 128 channels) stand in for the 7x7 one. CPS: the last stage trades its stride for
    dilations 2, 4, 8. AEL: the last two do, for dilations 1 and then 2, and 4, 8, 16. Weights are Kaiming-normal
    (fan_out), norm layers start at 1 and 0, as torchvision has it; AEL's last one of each block starts at 0 and 0.

    Args:
        depth: "resnet50" or "resnet101".
        norm: Normalisation layer, called with the number of channels.
        network: Whose ResNet it is.
    """

    out_channels = (256, 1024, 2048)

    def __init__(
        self, depth: Literal["resnet50", "resnet101"], norm: NormLayer, network: Literal["cps", "ael"] = "cps"
    ) -> None:
        super().__init__()
        variant = VARIANTS[network]
        plain = torchvision.models.ResNet(
            Bottleneck,
            list(BLOCKS[depth]),
            norm_layer=norm,
            replace_stride_with_dilation=list(variant.dilated),
        )
        self.conv1 = _deep_stem(norm)
        self.bn1 = norm(STEM_WIDTHS[-1])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1, ceil_mode=variant.ceil_mode)
        self.layer1: nn.Sequential = plain.layer1
        self.layer2: nn.Sequential = plain.layer2
        self.layer3: nn.Sequential = plain.layer3
        self.layer4: nn.Sequential = plain.layer4
        _widen_first_block(self.layer1[0])
        for block, dilation in zip(self.layer4, variant.layer4_dilations, strict=True):
            _dilate(block, dilation)
        if variant.zero_init:
            _silence_blocks(self)

    def forward(self, image: Tensor) -> Features:
        """Map images [B, 3, H, W] to features of 256, 1024 and 2048 channels.

        CPS: [H/4, W/4], then [H/16, W/16] twice, rounded up. AEL: ceil(H/2) // 2 + 1 rows, then half of them, rounded
        up, twice; columns alike.
        """
        stem = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        low: Tensor = self.layer1(stem)
        middle: Tensor = self.layer3(self.layer2(low))
        high: Tensor = self.layer4(middle)
        return Features(low, middle, high)


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


def _silence_blocks(backbone: nn.Module) -> None:
    for block in backbone.modules():
        # A frozen norm layer would stay at 0, and the block would never learn.
        if isinstance(block, Bottleneck) and isinstance(block.bn3.weight, nn.Parameter):
            nn.init.zeros_(block.bn3.weight)


def _convolution(in_channels: int, out_channels: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    convolution = nn.Conv2d(in_channels, out_channels, kernel, stride=stride, padding=kernel // 2, bias=False)
    initialize(convolution, "fan_out")
    return convolution
