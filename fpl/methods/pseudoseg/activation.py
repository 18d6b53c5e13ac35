"""Class activation maps, and their refinement by what features resemble one another.

After `compute_cam_v2` and `compute_self_att_v2` of the released code. Its Grad-CAM is computed without gradients here:
behind a mean over positions and one linear layer, the gradient of a class is the layer's weight for it, the same at
every position, divided by their number.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.losses.checks import to_compute
from fpl.models.backbone import Features
from fpl.models.initial import initialize, initialize_glorot
from fpl.models.network import nearest, resize

# What released code has in place of minus infinity, and below what a highest activation is read as this.
MASKED = -1e9
LEAST = 1e-5


class ActivationBranch(nn.Module):
    """An image classifier, whose activations become logits of pixels.

    Args:
        middle_channels: Of the features before the backbone's last stage.
        high_channels: Of those behind it, which the classifier sees.
        classes: C of the logits.
        background: Whether class 0 is what objects stand before: it has no tag and no activation, and its score is what
            those of the others leave.
        attention_channels: Of key and query.
    """

    def __init__(
        self, middle_channels: int, high_channels: int, classes: int, *, background: bool, attention_channels: int
    ) -> None:
        super().__init__()
        self.first = int(background)
        self.classifier = nn.Conv2d(high_channels, classes - self.first, 1)
        both = middle_channels + high_channels
        self.key = nn.Conv2d(both, attention_channels, 1, bias=False)
        self.query = nn.Conv2d(both, attention_channels, 1, bias=False)
        scores, norm = nn.Conv2d(classes, classes, 1, bias=False), nn.BatchNorm2d(classes)
        # The released layer shifts and does not scale.
        norm.weight.requires_grad_(False)
        self.calibration = nn.Sequential(scores, norm)
        initialize(self.classifier, "fan_in")
        if self.classifier.bias is not None:
            nn.init.zeros_(self.classifier.bias)
        for layer in (self.key, self.query, scores):
            initialize_glorot(layer)

    def classify(self, features: Features) -> tuple[Tensor, Tensor]:
        """Which classes are in images, and where.

        Args:
            features: Of B images.

        Returns:
            Logits [B, T] of their T tags, with their gradient, and activations [B, T, h, w], 0 or more, constants.
        """
        scores = to_compute(self.classifier(features.high))
        assert self.classifier.bias is not None
        bias = self.classifier.bias.detach().to(scores.dtype).view(-1, 1, 1)
        # The mean over positions of what is linear in each of them is that of their mean.
        return scores.mean((2, 3)), F.relu(scores.detach() - bias)

    def tags(self, label: Tensor) -> Tensor:
        """Which of the T tagged classes are in labels int64 [B, H, W], bool [B, T]."""
        classes = range(self.first, self.first + self.classifier.out_channels)
        return torch.stack([(label == number).flatten(1).any(1) for number in classes], 1)

    def refine(self, features: Features, activations: Tensor, tags: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, C, h, w] of pixels; only key, query and calibration have a gradient from them.

        Args:
            features: Of B images; those before and behind the backbone's last stage say which positions are alike.
            activations: [B, T, h, w].
            tags: bool [B, T]: activations of all other classes are taken for 0.
            valid: bool [B, *size] of any size, false on padding, which nothing looks at.
        """
        maps = normalised_maps(activations, tags)
        size = maps.shape[-2:]
        column = torch.cat([features.high, resize(features.middle, size)], 1).detach()
        key, query = (to_compute(layer(column)).flatten(2) for layer in (self.key, self.query))
        scores = maps + attend(query, key, maps.flatten(2), nearest(valid, size).flatten(1)).view_as(maps)
        if self.first:
            # Of two maps in 0..1.
            scores = torch.cat([2 - scores.amax(1, keepdim=True), scores], 1)
        return to_compute(self.calibration(scores))


def normalised_maps(activations: Tensor, tags: Tensor) -> Tensor:
    """Activations [B, T, h, w] of tagged classes, each map divided by its highest value; 0 for all other classes.

    The released code divides the gradient of a mean, which has the number of positions in its denominator, and values
    below 1e-5 by 1e-5.
    """
    positions = activations.shape[-2] * activations.shape[-1]
    found = activations * tags[:, :, None, None] / positions
    return found / found.amax((2, 3), keepdim=True).clamp_min(LEAST)


def attend(query: Tensor, key: Tensor, values: Tensor, valid: Tensor) -> Tensor:
    """What positions find, [B, T, n]: means of the values of all positions, by how well a key answers a query.

    Args:
        query: [B, D, n].
        key: [B, D, n].
        values: [B, T, n].
        valid: bool [B, n]. Valid positions look at valid ones alone; the others look at all alike.
    """
    # In bfloat16 a mean over thousands of positions would lose most of them.
    with torch.autocast(query.device.type, enabled=False):
        alike = query.transpose(1, 2) @ key / math.sqrt(query.shape[1])
        both = valid.unsqueeze(2) & valid.unsqueeze(1)
        weights = alike.masked_fill(~both, MASKED).softmax(-1)
        return values @ weights.transpose(1, 2)
