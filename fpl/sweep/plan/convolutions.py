"""The convolutions of every network, as numbers: what a pass costs and how much a checkpoint holds, without torch.

The lists are exact (`python benchmarks/flops.py` counts the built networks beside them). FLOPs are twice the
multiply-adds of the convolutions; everything else in these networks is under one percent of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from fpl.config.sections import ModelConfig

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
        wide_pooling: Whether its positions come, at strides of 4 and more, from a max-pooling that rounds an even side
            up: one position more than half of them.
    """

    inputs: int
    outputs: int
    kernel: int
    stride: int
    groups: int = 1
    norm: int = 0
    bias: bool = False
    wide_pooling: bool = False

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
        return 2 * self.weights * self._positions(height) * self._positions(width)

    def _positions(self, length: int) -> int:
        if self.wide_pooling and self.stride >= 4:
            pooled = (length + 1) // 2 // 2 + 1
            return -(-pooled // (self.stride // 4))
        return -(-length // self.stride)


class _Body(NamedTuple):
    """A backbone: its layers, the channels of its features, and the stride of the middle and the high ones."""

    layers: tuple[Layer, ...]
    low: int
    middle: int
    high: int
    stride: int


def layers_of(model: ModelConfig, num_classes: int) -> tuple[Layer, ...]:
    """Convolutions of a forward pass through the network that `build_network` makes from a configuration."""
    body = _body(model)
    head = _ael_head if model.network == "ael" else _cps_head
    return _pooled(model, (*body.layers, *head(body, model, num_classes)))


def auxiliary_layers(model: ModelConfig, num_classes: int) -> tuple[Layer, ...]:
    """Convolutions of the auxiliary head, through which only the training on labels passes; none without one."""
    if model.network != "ael":
        return ()
    body, channels = _body(model), model.head_channels
    unit = Layer(body.middle, channels, 3, body.stride, norm=channels, bias=True)
    return _pooled(model, (unit, Layer(channels, num_classes, 1, body.stride, bias=True)))


def _body(model: ModelConfig) -> _Body:
    if model.backbone == "tiny":
        width = model.tiny_width
        return _Body(tuple(_tiny(width, model.tiny_depth)), 2 * width, 4 * width, 4 * width, 8)
    if model.backbone == "efficientnet_lite0":
        return _Body(tuple(_lite0()), 24, 112, 320, 16)
    strides = (4, 8, 8, 8) if model.network == "ael" else (4, 8, 16, 16)
    return _Body(tuple(_resnet(model.backbone, strides)), 256, 1024, 2048, strides[-1])


def _pooled(model: ModelConfig, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """The layers as they lie behind the backbone's max-pooling."""
    if model.network == "ael" and model.backbone in RESNET_BLOCKS:
        return tuple(replace(layer, wide_pooling=True) for layer in layers)
    return layers


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


def _resnet(name: str, strides: tuple[int, int, int, int]) -> Iterator[Layer]:
    for inputs, outputs in ((3, 64), (64, 64), (64, 128)):
        yield _conv(inputs, outputs, 3, 2)
    channels, before = 128, 4
    for blocks, width, stride in zip(RESNET_BLOCKS[name], RESNET_WIDTHS, strides, strict=True):
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


def _cps_head(body: _Body, model: ModelConfig, num_classes: int) -> Iterator[Layer]:
    channels, low_channels, stride = model.head_channels, model.low_level_channels, body.stride
    yield from (Layer(body.high, channels, kernel, stride) for kernel in (1, 3, 3, 3))
    # Its norm layer comes first, on the four branches together.
    yield Layer(4 * channels, channels, 1, stride, norm=4 * channels)
    yield Layer(body.high, channels, 1, 0, norm=channels)
    yield Layer(channels, channels, 1, 0, norm=channels)
    yield _conv(body.low, low_channels, 1, 4)
    yield _conv(channels + low_channels, channels, 3, 4)
    yield _conv(channels, channels, 3, 4)
    yield Layer(channels, num_classes, 1, 4, bias=True)


def _ael_head(body: _Body, model: ModelConfig, num_classes: int) -> Iterator[Layer]:
    channels, low_channels, stride = model.head_channels, model.low_level_channels, body.stride
    yield _conv(body.high, channels, 1, 0)
    yield from (_conv(body.high, channels, kernel, stride) for kernel in (1, 3, 3, 3))
    yield _conv(5 * channels, channels, 3, stride)
    yield Layer(body.low, low_channels, 1, 4, norm=low_channels, bias=True)
    yield Layer(channels + low_channels, channels, 3, 4, norm=channels, bias=True)
    yield Layer(channels, channels, 3, 4, norm=channels, bias=True)
    yield Layer(channels, num_classes, 1, 4, bias=True)
