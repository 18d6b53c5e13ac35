"""Gates on a teacher's confidence: weights for the pixel loss."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fpl.methods.base import Workers


@torch.no_grad()
def gate(teacher_logits: Tensor, threshold: float, kind: Literal["pixel", "mean"], workers: Workers) -> Tensor:
    """Weights float32 [B, *spatial] by how sure a teacher is: its highest probability against a threshold.

    A pixel of weight 0 does not count: give the pixel loss a denominator where its mean is to be over all pixels, as in
    CutMix-Seg. A teacher that is no number passes, so that the loss sees it.

    Args:
        teacher_logits: [B, C, *spatial].
        threshold: Least confidence, 0..1; 0 is no gate, all weights are 1.
        kind: "pixel": 1 for each pixel that is sure enough, 0 for all others. "mean": for all pixels alike the share of
            those in the global batch (CutMix-Seg, `train_seg_semisup_mask_mt.py` without `--conf_per_pixel`).
        workers: Those that share the batch, equally.
    """
    sure = (~(teacher_logits.float().softmax(1).amax(1) < threshold)).float()
    return sure if kind == "pixel" else workers.average(sure.mean()).expand_as(sure)
