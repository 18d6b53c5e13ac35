"""The calibrated fusion of PseudoSeg: one soft label from the logits of two sources."""

from __future__ import annotations

import math

import torch
from torch import Tensor

TINY = 1e-8


def fused_label(
    decoder: Tensor, maps: Tensor | None, *, temperature: float, decoder_share: float, normalised: bool, groups: int = 1
) -> Tensor:
    """Log-probabilities [B, C, h, w] of the soft label of each pixel: its logits, for a pixel loss.

    With p = share * softmax(decoder / r) + (1 - share) * softmax(maps / r), and r the root of the mean square of both
    logits, over all pixels and images of a group, the label is p^(1 / temperature), normalised. (Paper, section on
    calibrated prediction fusion; `train_wss.py`, whose groups are processes.)

    Args:
        decoder: Logits [B, C, h, w], float32 or float64.
        maps: Logits of the same shape from refined activations; None for none, and then no r either.
        temperature: Of sharpening, above 0; 1 leaves p.
        decoder_share: 0..1, without the ends.
        normalised: Whether there is an r; else it is 1.
        groups: Groups of consecutive images, a divisor of B.
    """
    if maps is None:
        return (decoder / temperature).log_softmax(1)
    if normalised:
        both = torch.stack([decoder, maps], 1).reshape(groups, -1)
        scale = (both.square().mean(1) + TINY).rsqrt()
        scale = scale.repeat_interleave(len(decoder) // groups).view(-1, 1, 1, 1)
        decoder, maps = decoder * scale, maps * scale
    log_p = torch.logaddexp(
        decoder.log_softmax(1) + math.log(decoder_share), maps.log_softmax(1) + math.log(1 - decoder_share)
    )
    return (log_p / temperature).log_softmax(1)
