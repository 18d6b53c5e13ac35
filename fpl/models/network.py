"""What all segmentation networks share: a backbone, an embedding at a quarter of the input's size, a classifier.

A loss may stop at the embedding or at any size of logits; it need not know which network it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.models.backbone import Backbone, Features
from fpl.models.dropout import GlobalDropout2d
from fpl.models.norm import NormLayer


class Raw(NamedTuple):
    """What a network computes of images before anything is enlarged.

    Attributes:
        logits: [B, num_classes, h, w], one per position of the embedding.
        middle: The backbone's middle features, which the auxiliary head looks at.
    """

    logits: Tensor
    middle: Tensor


class Details(NamedTuple):
    """What a network computes of images, for a method that looks inside; `Raw` is what all others need.

    Attributes:
        logits: [B, num_classes, h, w], one per position of the embedding.
        features: The backbone's, at three depths.
        fused: What the decoder sees, [B, C_fused, h, w]: low features and the pyramid's.
        embedding: What the classifier sees, [B, head_channels, h, w].
    """

    logits: Tensor
    features: Features
    fused: Tensor
    embedding: Tensor

    @property
    def raw(self) -> Raw:
        """The part that every pass has."""
        return Raw(self.logits, self.features.middle)

    def split(self, sizes: Sequence[int]) -> list[Details]:
        """Take a batch apart into parts of so many images, in this order; their sum is the size of the batch."""
        low, middle, high = (torch.split(part, list(sizes)) for part in self.features)
        features = [Features(*parts) for parts in zip(low, middle, high, strict=True)]
        logits, fused, embedding = (
            torch.split(part, list(sizes)) for part in (self.logits, self.fused, self.embedding)
        )
        return [Details(*parts) for parts in zip(logits, features, fused, embedding, strict=True)]


class SegmentationNetwork(nn.Module):
    """Base class. A network adds its head and says in `fuse` and `decoder` what the head does.

    Args:
        backbone: Source of the features.

    Attributes:
        backbone: What pretraining fills.
        fused_channels: Channels of the fused features.
        decoder: From the fused features to the embedding.
        classifier: 1x1 convolution from the embedding to logits.
        auxiliary: Second head, on the middle features, that only training on labels looks at; None for none.
    """

    fused_channels: int
    decoder: nn.Module
    classifier: nn.Conv2d
    auxiliary: nn.Module | None

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.auxiliary = None
        self._compiled: Callable[[Tensor], Raw] | None = None
        self._compiled_details: Callable[[Tensor], Details] | None = None

    def compile(self, *args: Any, **options: Any) -> None:
        """Compile `raw` and `details` in training mode with `torch.compile`, in place: parameters keep their names.

        Evaluation is left alone: the sizes of its images vary, and each would be compiled anew.
        """
        # Each is traced when it is first called, so a method pays for what it calls alone.
        self._compiled = torch.compile(self._raw, *args, **options)
        self._compiled_details = torch.compile(self._details, *args, **options)

    def raw(self, image: Tensor) -> Raw:
        """Compute logits of normalised images [B, 3, H, W] at the classifier's own resolution."""
        if self._compiled is not None and self.training:
            return self._compiled(image)
        return self._raw(image)

    def details(self, image: Tensor) -> Details:
        """Compute what `raw` does, to the same bits, and keep what it passes through on the way."""
        if self._compiled_details is not None and self.training:
            return self._compiled_details(image)
        return self._details(image)

    def _raw(self, image: Tensor) -> Raw:
        features = self.encode(image)
        return Raw(self.classifier(self.decode(features)), features.middle)

    def _details(self, image: Tensor) -> Details:
        features = self.encode(image)
        fused = self.fuse(features)
        embedding = self.decoder(fused)
        return Details(self.classifier(embedding), features, fused, embedding)

    def encode(self, image: Tensor) -> Features:
        """Compute the backbone's features of normalised images [B, 3, H, W]."""
        features: Features = self.backbone(image)
        return features

    def fuse(self, features: Features) -> Tensor:
        """Bring low and high features together, [B, C_fused, h, w] of the low features' size, for the decoder."""
        raise NotImplementedError

    def decode(self, features: Features) -> Tensor:
        """Turn features into an embedding [B, head_channels, h, w] of the low features' size."""
        embedding: Tensor = self.decoder(self.fuse(features))
        return embedding

    def classify(self, embedding: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
        """Compute logits [B, num_classes, *size] from an embedding, enlarged bilinearly (align_corners=True)."""
        return resize(self.classifier(embedding), size)

    def classify_auxiliary(self, features: Features | Raw, size: tuple[int, int] | torch.Size) -> Tensor:
        """Compute the auxiliary head's logits [B, num_classes, *size], enlarged in the same way.

        Only for a network whose `auxiliary` is not None.
        """
        assert self.auxiliary is not None, "the network has no auxiliary head"
        return resize(self.auxiliary(features.middle), size)

    def forward(self, image: Tensor) -> Tensor:
        """Compute logits [B, num_classes, H, W] of normalised images [B, 3, H, W], any size from 33 x 33 on.

        In training mode with batch norm the workers together need 2 images or more: the image-level branch of the
        pyramid holds one value per image and channel.
        """
        return resize(self.raw(image).logits, image.shape[-2:])

    def backbone_parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over the parameters that pretraining fills."""
        return self.backbone.parameters()

    def head_parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over all other parameters, those of the auxiliary head included."""
        parts = (part for part in self.children() if part is not self.backbone)
        return chain.from_iterable(part.parameters() for part in parts)


def unit(
    in_channels: int,
    out_channels: int,
    norm: NormLayer,
    *,
    kernel: int,
    dilation: int = 1,
    bias: bool = False,
    dropout: float = 0.0,
) -> nn.Sequential:
    """Convolution, norm layer and ReLU that keep the size; with `dropout` > 0, dropout of whole channels behind."""
    padding = dilation * (kernel // 2)
    layers: list[nn.Module] = [
        nn.Conv2d(in_channels, out_channels, kernel, padding=padding, dilation=dilation, bias=bias),
        norm(out_channels),
        nn.ReLU(inplace=True),
    ]
    if dropout:
        layers.append(GlobalDropout2d(dropout))
    return nn.Sequential(*layers)


def resize(tensor: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    """Resize [B, C, h, w] bilinearly with aligned corners to [B, C, *size]; equal sizes pass through."""
    if tuple(tensor.shape[-2:]) == tuple(size):
        return tensor
    return F.interpolate(tensor, size=tuple(size), mode="bilinear", align_corners=True)


def nearest(pixels: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    """Labels or masks [B, H, W] of any dtype at [B, *size] positions: at y the row floor(y * H / h), columns alike."""
    if tuple(pixels.shape[-2:]) == tuple(size):
        return pixels
    # Not every device has an operator for the dtype; float32 holds labels of a byte as they are.
    chosen = F.interpolate(pixels.unsqueeze(1).float(), size=tuple(size), mode="nearest")
    return chosen.squeeze(1).to(pixels.dtype)


def projector(channels: int, projected: int) -> nn.Sequential:
    """From embeddings [B, channels, h, w] to features [B, projected, h, w] of a contrast: two convolutions of 1 x 1."""
    return nn.Sequential(nn.Conv2d(channels, channels, 1), nn.ReLU(inplace=True), nn.Conv2d(channels, projected, 1))
