"""DeepLabV3+ as in the released CPS code, for any backbone with low-level and high-level features.

It differs from the original DeepLabV3+ in three points: the image-level branch of the spatial pyramid is added to the
other branches instead of concatenated, the pyramid's activations are leaky, and there is no dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.models.backbone import Backbone
from fpl.models.norm import NormLayer

LEAK = 0.01


class SegmentationNetwork(nn.Module):
    """DeepLabV3+: backbone, spatial pyramid, decoder, and a 1x1 classifier at a quarter of the input's size.

    Convolutions of the head are Kaiming-normal (fan_in), its norm layers start at 1 and 0; the classifier's bias keeps
    PyTorch's default. Random numbers come from torch's global generator.

    Args:
        backbone: Source of the low-level and high-level features.
        num_classes: Number of logits per pixel, 2 or more.
        norm: Normalisation layer, called with the number of channels.
        aspp_rates: Dilations of the pyramid's three 3x3 branches, in pixels of the high-level features.
        head_channels: Width of the pyramid's branches and of the decoder.
        low_level_channels: Channels to which the low-level features are reduced.
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
        super().__init__()
        low_channels, high_channels = backbone.out_channels
        self.backbone = backbone
        self.pyramid = SpatialPyramid(high_channels, head_channels, aspp_rates, norm)
        self.low_level = _unit(low_channels, low_level_channels, norm, kernel=1)
        self.decoder = nn.Sequential(
            _unit(head_channels + low_level_channels, head_channels, norm, kernel=3),
            _unit(head_channels, head_channels, norm, kernel=3),
        )
        self.classifier = nn.Conv2d(head_channels, num_classes, 1)
        for convolution in self._head_convolutions():
            nn.init.kaiming_normal_(convolution.weight, mode="fan_in", nonlinearity="relu")

    def features(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the backbone's low-level and high-level features of images [B, 3, H, W].

        The low-level ones are [B, C_low, ceil(H/4), ceil(W/4)]; the stride of the high-level ones is the backbone's.
        """
        features: tuple[Tensor, Tensor] = self.backbone(image)
        return features

    def embed(self, low: Tensor, high: Tensor) -> Tensor:
        """Fuse the features into an embedding [B, head_channels, H/4, W/4] of the low-level features' size."""
        coarse = resize(self.pyramid(high), low.shape[-2:])
        embedding: Tensor = self.decoder(torch.cat([coarse, self.low_level(low)], dim=1))
        return embedding

    def classify(self, embedding: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
        """Compute logits [B, num_classes, *size] from an embedding, enlarged bilinearly (align_corners=True)."""
        return resize(self.classifier(embedding), size)

    def forward(self, image: Tensor) -> Tensor:
        """Compute logits [B, num_classes, H, W] of normalised images [B, 3, H, W], any size from 33 x 33 on.

        In training mode with batch norm the workers together need 2 images or more: the image-level branch holds one
        value per image and channel.
        """
        low, high = self.features(image)
        return self.classify(self.embed(low, high), image.shape[-2:])

    def backbone_parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over the parameters that pretraining fills."""
        return self.backbone.parameters()

    def head_parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over all other parameters: pyramid, decoder, classifier."""
        return chain.from_iterable(part.parameters() for part in self._head_parts())

    def _head_parts(self) -> tuple[nn.Module, ...]:
        return self.pyramid, self.low_level, self.decoder, self.classifier

    def _head_convolutions(self) -> Iterator[nn.Conv2d]:
        for part in self._head_parts():
            yield from (module for module in part.modules() if isinstance(module, nn.Conv2d))


class SpatialPyramid(nn.Module):
    """Atrous spatial pyramid pooling with an image-level branch that is added to the others.

    Args:
        in_channels: Channels of the high-level features.
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
        """Map high-level features [B, in_channels, h, w] to context features [B, channels, h, w]."""
        local = self.reduce(torch.cat([branch(high) for branch in self.branches], dim=1))
        image_level = self.image_level(high.mean((2, 3), keepdim=True))
        context: Tensor = self.normalise(local + image_level)
        return context


def resize(tensor: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    """Resize [B, C, h, w] bilinearly with aligned corners to [B, C, *size]; equal sizes pass through."""
    if tuple(tensor.shape[-2:]) == tuple(size):
        return tensor
    return F.interpolate(tensor, size=tuple(size), mode="bilinear", align_corners=True)


def _unit(in_channels: int, out_channels: int, norm: NormLayer, *, kernel: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel, padding=kernel // 2, bias=False),
        norm(out_channels),
        nn.ReLU(inplace=True),
    )
