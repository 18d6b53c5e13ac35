"""The loss in mmsegmentation 1.x: a segmentor that learns from its own view of cleaner pictures (FixMatch).

Import this file by `custom_imports` of a config and put `FuzzyPositiveSegmentor` in place of `EncoderDecoder`::

    custom_imports = dict(imports=["mmsegmentation_snippet"])
    model = dict(type="FuzzyPositiveSegmentor", fuzzy_threshold=0.9, fuzzy_weight=1.0)

Unlabeled pictures take part in the same batches, with a `gt_sem_seg` that is 255 everywhere.
"""

from __future__ import annotations

from typing import Any

import torch
from mmseg.models.segmentors import EncoderDecoder
from mmseg.registry import MODELS
from torch import Tensor

from fpl.losses import fuzzy_positive_loss


@MODELS.register_module()
class FuzzyPositiveSegmentor(EncoderDecoder):
    """EncoderDecoder with an unsupervised loss beside those of its heads."""

    def __init__(
        self, *arguments: Any, fuzzy_threshold: float = 0.9, fuzzy_weight: float = 1.0, **keywords: Any
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.fuzzy_threshold = fuzzy_threshold
        self.fuzzy_weight = fuzzy_weight

    def loss(self, inputs: Tensor, data_samples: list[Any]) -> dict[str, Tensor]:
        """Losses by name, pictures normalised [B, 3, H, W]; mmengine adds up those whose name has "loss" in it."""
        losses: dict[str, Tensor] = super().loss(inputs, data_samples)
        with torch.no_grad():
            teacher = self._forward(inputs)
        student = self._forward(inputs + 0.2 * torch.randn_like(inputs))
        losses["loss_fuzzy"] = self.fuzzy_weight * fuzzy_positive_loss(student, teacher, threshold=self.fuzzy_threshold)
        return losses
