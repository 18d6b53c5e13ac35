"""Auxiliary decoders: from the main decoder's features to logits."""

from __future__ import annotations

import torch
from torch import nn

from fpl.methods.cct.options import CctOptions
from fpl.models.initial import initialize

# From a quarter of the image's size, where all networks of this suite have their embedding, to the image's own.
STEPS = 2


def auxiliary_decoders(options: CctOptions, channels: int, num_classes: int) -> nn.ModuleDict:
    """Make all decoders, in the paper's order of their perturbations: "noise_1", "noise_2", ...

    Args:
        options: Which, and how many of each kind.
        channels: Of the embedding.
        num_classes: Logits per pixel.
    """
    decoders = nn.ModuleDict()
    for kind, count in options.counts.items():
        for number in range(1, count + 1):
            if options.decoders == "original":
                decoders[f"{kind}_{number}"] = pixel_shuffle_decoder(channels, num_classes, STEPS)
            else:
                decoders[f"{kind}_{number}"] = bilinear_decoder(channels, num_classes)
    return decoders


def bilinear_decoder(channels: int, num_classes: int) -> nn.Conv2d:
    """The decoder of TorchSemiSeg, which leaves the (bilinear) enlargement of its logits to the loss.

    Its weight is Kaiming-normal (fan_in), its bias PyTorch's default, like those of the main classifier.
    """
    decoder = nn.Conv2d(channels, num_classes, 1)
    initialize(decoder, "fan_in")
    return decoder


def pixel_shuffle_decoder(channels: int, num_classes: int, steps: int) -> nn.Sequential:
    """CCT's own decoder: a 1x1 convolution without bias, then steps that double both sides (`models/decoders.py`).

    A step is a 1x1 convolution from C to 4 C channels, ReLU, and a pixel shuffle. At first it repeats each pixel four
    times but for the bias (ICNR, Aitken et al. 2017). The original has three steps, from an eighth of the image's size.
    """
    first = nn.Conv2d(channels, num_classes, 1, bias=False)
    initialize(first, "fan_in")
    return nn.Sequential(first, *(_doubling(num_classes) for _ in range(steps)))


def _doubling(channels: int) -> nn.Sequential:
    convolution, one = nn.Conv2d(channels, 4 * channels, 1), nn.Conv2d(channels, channels, 1)
    initialize(one, "fan_in")
    with torch.no_grad():
        # Channels 4 c .. 4 c + 3 become the four pixels of channel c.
        convolution.weight.copy_(one.weight.repeat_interleave(4, 0))
    return nn.Sequential(convolution, nn.ReLU(inplace=True), nn.PixelShuffle(2))
