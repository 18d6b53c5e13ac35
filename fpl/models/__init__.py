"""Segmentation networks: `build_network` makes one from its configuration, `load_pretrained` fills its backbone.

Reading order: network.py (what both networks share), deeplab.py (CPS), deeplab_ael.py (AEL), resnet.py, tiny.py,
efficientnet.py (backbones), norm.py, dropout.py, ema.py, pretrained.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fpl.config.sections import ModelConfig
from fpl.models.backbone import Backbone
from fpl.models.deeplab import CpsDeepLab
from fpl.models.deeplab_ael import AelDeepLab
from fpl.models.efficientnet import EfficientNetLite0
from fpl.models.network import SegmentationNetwork
from fpl.models.norm import norm_layer
from fpl.models.pretrained import WeightsReport, load_pretrained
from fpl.models.tiny import TinyBackbone

__all__ = ["SegmentationNetwork", "WeightsReport", "build_network", "load_pretrained", "norm_layer"]


def build_network(
    model: ModelConfig, num_classes: int, *, device_type: str = "cpu", world_size: int = 1
) -> SegmentationNetwork:
    """Build a network with random weights; `load_pretrained` is a second step.

    Numbers are drawn from torch's global generator, backbone first, then the head: the caller seeds. Two networks
    built one after the other differ everywhere, and in the head alone once both hold the pretrained backbone.

    Args:
        model: The network's configuration; `pretrained` and `pretrained_sha256` are not looked at.
        num_classes: Number of logits per pixel.
        device_type: Device type on which it will train: with several workers it decides the batch norm.
        world_size: Number of worker processes that share a global batch.

    Raises:
        FplError: If the backbone needs a package that is not installed.
    """
    backbone = _build_backbone(model, device_type, world_size)
    norm = norm_layer(model.norm, device_type, world_size)
    build: Callable[..., SegmentationNetwork] = CpsDeepLab
    if model.network == "ael":
        build = partial(AelDeepLab, dropout=model.dropout)
    return build(
        backbone,
        num_classes,
        norm=norm,
        aspp_rates=model.aspp_rates,
        head_channels=model.head_channels,
        low_level_channels=model.low_level_channels,
    )


def _build_backbone(model: ModelConfig, device_type: str, world_size: int) -> Backbone:
    if model.backbone == "efficientnet_lite0":
        return EfficientNetLite0(model.norm, device_type, world_size)
    norm = norm_layer(model.norm, device_type, world_size)
    if model.backbone == "tiny":
        return TinyBackbone(model.tiny_width, model.tiny_depth, norm)
    # Imported late: torchvision doubles the start-up time of a process that trains another backbone.
    from fpl.models.resnet import DeepStemResNet

    return DeepStemResNet(model.backbone, norm, model.network)
