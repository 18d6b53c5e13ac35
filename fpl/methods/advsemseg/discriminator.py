"""The discriminator of AdvSemSeg: which pixels of a map of class probabilities look like a true one."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.losses.checks import to_compute
from fpl.models.network import resize

# Five layers halve a map; a smaller one would have nothing left.
LEAST_SIDE = 2**5


class Discriminator(nn.Module):
    """A fully convolutional network from maps of class probabilities to one verdict per pixel.

    Five 4x4 convolutions of stride 2 and padding 1, leaky ReLU (0.2) between them, no normalisation; the verdicts, one
    per 32 x 32 pixels, are enlarged bilinearly to the map's size, corners aligned (paper, section 3; `train.py` of the
    released code). Sides below 32 are filled up with zeros, at the bottom and the right, to 32: no class, as where a
    label is unknown. A map whose sides are all below 64 gets one verdict for all of it.

    Args:
        classes: C, channels of the maps.
        channels: Of the first layer; the next three have 2, 4 and 8 times as many.
    """

    def __init__(self, classes: int, channels: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise((classes, channels, 2 * channels, 4 * channels, 8 * channels, 1)):
            layers += [nn.Conv2d(inputs, outputs, 4, stride=2, padding=1), nn.LeakyReLU(0.2, inplace=True)]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, maps: Tensor) -> Tensor:
        """Compute verdicts [B, h, w] of maps [B, C, h, w] of any size: logits of the chance to be of a label."""
        height, width = maps.shape[-2:]
        filled = F.pad(maps, (0, max(0, LEAST_SIDE - width), 0, max(0, LEAST_SIDE - height)))
        return resize(to_compute(self.layers(filled)), (height, width)).squeeze(1)


def true_maps(label: Tensor, classes: int) -> Tensor:
    """Maps float32 [B, C, h, w] of labels int64 [B, h, w]: 1 for the class of a pixel; 0 for all where it has none."""
    numbers = torch.arange(classes, device=label.device)
    return (label.unsqueeze(1) == numbers[:, None, None]).float()
