"""The convolutions of every network, as numbers: what a pass costs and how much a checkpoint holds, without torch.

The lists are exact (`python benchmarks/flops.py` counts the built networks beside them). FLOPs are twice the
multiply-adds of the convolutions; everything else in these networks is under one percent of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fpl.config.schema import ModelConfig

# Residual blocks per stage, and the width inside them; a block's output is four times as wide.
RESNET_BLOCKS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}
RESNET_WIDTHS = (64, 128, 256, 512)
# (expansion, kernel, stride, channels, blocks) of EfficientNet-Lite0; the last stride of 2 is traded for dilation.
LITE0_STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 1, 192, 4),
    (6, 3, 1, 320, 1),
)


@dataclass(frozen=True)
class Layer:
    """One convolution.

    Attributes:
        inputs: Channels that go in.
        outputs: Channels that come out.
        kernel: Side of the kernel.
        stride: Image pixels per position of the output, along one axis; 0 for one position per image.
        groups: Groups of channels that do not see each other; `inputs` for a depthwise convolution.
        norm: Channels of the norm layer that goes with it, before or behind; 0 for none.
        bias: Whether it has a bias.
    """

    inputs: int
    outputs: int
    kernel: int
    stride: int
    groups: int = 1
    norm: int = 0
    bias: bool = False

    @property
    def weights(self) -> int:
        """Numbers in its kernel."""
        return self.inputs // self.groups * self.outputs * self.kernel**2

    @property
    def parameters(self) -> int:
        """Trained numbers: kernel, bias, scale and shift of the norm layer."""
        return self.weights + self.outputs * self.bias + 2 * self.norm

    def flops(self, height: int, width: int) -> int:
        """FLOPs of one image of a size, forward."""
        if self.stride == 0:
            return 2 * self.weights
        return 2 * self.weights * -(-height // self.stride) * -(-width // self.stride)


def layers_of(model: ModelConfig, num_classes: int) -> tuple[Layer, ...]:
    """All convolutions of the network that `build_network` makes from a configuration."""
    if model.backbone == "tiny":
        body, low, high, stride = list(_tiny(model.tiny_width, model.tiny_depth)), 2, 4, 8
        low, high = low * model.tiny_width, high * model.tiny_width
    elif model.backbone == "efficientnet_lite0":
        body, low, high, stride = list(_lite0()), 24, 320, 16
    else:
        body, low, high, stride = list(_resnet(model.backbone)), 256, 2048, 16
    head = _head(low, high, stride, model.head_channels, model.low_level_channels, num_classes)
    return (*body, *head)


def _conv(inputs: int, outputs: int, kernel: int, stride: int) -> Layer:
    """A convolution with its norm layer behind it."""
    return Layer(inputs, outputs, kernel, stride, norm=outputs)


def _tiny(width: int, depth: int) -> Iterator[Layer]:
    yield _conv(3, width, 3, 2)
    for inputs, outputs, stride in ((width, 2 * width, 4), (2 * width, 4 * width, 8)):
        yield from (_conv(inputs, outputs, 3, stride), _conv(outputs, outputs, 3, stride))
        yield _conv(inputs, outputs, 1, stride)
        for _ in range(2 * (depth - 1)):
            yield _conv(outputs, outputs, 3, stride)
    yield _conv(4 * width, 4 * width, 3, 8)


def _resnet(name: str) -> Iterator[Layer]:
    for inputs, outputs in ((3, 64), (64, 64), (64, 128)):
        yield _conv(inputs, outputs, 3, 2)
    channels, before = 128, 4
    for blocks, width, stride in zip(RESNET_BLOCKS[name], RESNET_WIDTHS, (4, 8, 16, 16), strict=True):
        for number in range(blocks):
            # The stride sits in the 3x3 convolution: the first 1x1 of a stage still sees the size before it.
            yield _conv(channels, width, 1, before)
            yield _conv(width, width, 3, stride)
            yield _conv(width, 4 * width, 1, stride)
            if number == 0:
                yield _conv(channels, 4 * width, 1, stride)
            channels, before = 4 * width, stride


def _lite0() -> Iterator[Layer]:
    yield _conv(3, 32, 3, 2)
    channels, stride = 32, 2
    for expansion, kernel, step, outputs, blocks in LITE0_STAGES:
        for number in range(blocks):
            inner, before = channels * expansion, stride
            stride *= step if number == 0 else 1
            if expansion > 1:
                yield _conv(channels, inner, 1, before)
            yield Layer(inner, inner, kernel, stride, groups=inner, norm=inner)
            yield _conv(inner, outputs, 1, stride)
            channels = outputs


def _head(low: int, high: int, stride: int, channels: int, low_channels: int, num_classes: int) -> Iterator[Layer]:
    yield from (Layer(high, channels, kernel, stride) for kernel in (1, 3, 3, 3))
    # Its norm layer comes first, on the four branches together.
    yield Layer(4 * channels, channels, 1, stride, norm=4 * channels)
    yield Layer(high, channels, 1, 0, norm=channels)
    yield Layer(channels, channels, 1, 0, norm=channels)
    yield _conv(low, low_channels, 1, 4)
    yield _conv(channels + low_channels, channels, 3, 4)
    yield _conv(channels, channels, 3, 4)
    yield Layer(channels, num_classes, 1, 4, bias=True)
