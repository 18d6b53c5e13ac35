"""Several batches in one pass through a network, normalised as if they had come one after the other.

Convolutions take a concatenated batch as it is; batch norm would take its statistics over all of it. Within
`sub_batches` every norm layer treats the parts in turn: outputs, running statistics and gradients are those of one pass
per part, up to the rounding of the convolutions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fpl.models.dropout import GlobalDropout2d


def prepare_sub_batches(network: nn.Module) -> None:
    """Let `sub_batches` reach a network: its batch norm layers of every kind, and its dropout, which is drawn per part.

    Names, parameters and what the layers compute outside of `sub_batches` stay as they are.
    """
    for layer in _layers(network):
        layer.sub_batches = None
        # Of the instance alone: the layers are of many classes, some of them timm's.
        layer.forward = MethodType(_in_turn, layer)


@contextlib.contextmanager
def sub_batches(network: nn.Module, sizes: Sequence[int]) -> Iterator[None]:
    """Within this context the network's batches are made of parts of so many images, in this order.

    Args:
        network: What `prepare_sub_batches` has seen.
        sizes: Images of each part, 1 or more; their sum is the size of the batch.
    """
    layers = _layers(network)
    assert all(hasattr(layer, "sub_batches") for layer in layers), "call prepare_sub_batches first"
    _set(layers, tuple(sizes))
    try:
        yield
    finally:
        _set(layers, None)


def _layers(network: nn.Module) -> list[Any]:
    return [module for module in network.modules() if isinstance(module, _BatchNorm | GlobalDropout2d)]


def _set(layers: list[Any], sizes: tuple[int, ...] | None) -> None:
    for layer in layers:
        layer.sub_batches = sizes


def _in_turn(layer: Any, input: Tensor) -> Tensor:
    forward = type(layer).forward
    if layer.sub_batches is None or not layer.training:
        whole: Tensor = forward(layer, input)
        return whole
    return torch.cat([forward(layer, part) for part in torch.split(input, list(layer.sub_batches))])
