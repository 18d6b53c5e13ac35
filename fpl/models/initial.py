"""First values of convolutions."""

from __future__ import annotations

from typing import Literal

from torch import nn


def initialize(convolution: nn.Conv2d, mode: Literal["fan_in", "fan_out"]) -> None:
    """Draw the weight of a convolution that feeds a ReLU, in place: normal, of the deviation of He et al. (2015).

    On the device "meta" there is nothing to draw, and trying to would load torch's compiler: three seconds.
    """
    if not convolution.weight.is_meta:
        nn.init.kaiming_normal_(convolution.weight, mode=mode, nonlinearity="relu")


def initialize_glorot(convolution: nn.Conv2d) -> None:
    """Draw the weight of a convolution that nothing rectifies, in place: uniform (Glorot and Bengio 2010)."""
    if not convolution.weight.is_meta:
        nn.init.xavier_uniform_(convolution.weight)
