"""The numbers behind `fpl plan`: what networks and losses cost, counted on the real ones beside the closed forms.

    python benchmarks/flops.py

1. GFLOP of a forward pass per megapixel and parameters of every network, counted by torch's FlopCounterMode on the
   built network (on the meta device: nothing is computed), beside `fpl.sweep.convolutions`.
2. Bytes that the operations of each loss read and write per pixel and class, forward and backward: `PIXEL_BYTES` and
   `LABEL_BYTES` of `fpl.sweep.cost`.
3. What the seconds per epoch of the paper's Table A6 say about a V100: `V100` of `fpl.sweep.speed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from fpl.config.schema import ModelConfig
from fpl.losses import PixelLoss, cross_entropy, ohem_cross_entropy
from fpl.losses.pixel import KINDS
from fpl.models import build_network
from fpl.sweep.convolutions import RESNET_BLOCKS, RESNET_WIDTHS, Layer, layers_of
from fpl.sweep.cost import LABEL_BYTES, PIXEL_BYTES, TRAINED
from fpl.text import table

SIDE = 1024
CLASSES = 19
SMALL_HEAD: dict[str, Any] = {"head_channels": 32, "low_level_channels": 16}
NETWORKS: dict[str, dict[str, Any]] = {
    "resnet50": {"backbone": "resnet50"},
    "resnet101": {"backbone": "resnet101"},
    "efficientnet_lite0": {"backbone": "efficientnet_lite0"},
    "tiny, width 12, depth 1, head 32": {"backbone": "tiny", "tiny_width": 12, "tiny_depth": 1, **SMALL_HEAD},
    "tiny, width 12, depth 2, head 32": {"backbone": "tiny", "tiny_width": 12, "tiny_depth": 2, **SMALL_HEAD},
}
# Operations that only look at memory in another way.
VIEWS = {
    "_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "expand", "permute", "reshape", "select",
    "slice", "split", "squeeze", "t", "transpose", "unbind", "unsqueeze", "view",
}  # fmt: skip


def networks() -> list[dict[str, str]]:
    """One row per network: counted and closed form."""
    rows = []
    for name, keys in NETWORKS.items():
        model = ModelConfig(pretrained="none", **keys)
        with torch.device("meta"):
            network = build_network(model, CLASSES).eval()
            with FlopCounterMode(display=False) as counter:
                network(torch.empty(1, 3, SIDE, SIDE))
        layers = layers_of(model, CLASSES)
        megapixels = SIDE**2 / 1e6
        rows.append(
            {
                "network": name,
                "GFLOP/MP counted": f"{counter.get_total_flops() / 1e9 / megapixels:.2f}",
                "closed form": f"{sum(layer.flops(SIDE, SIDE) for layer in layers) / 1e9 / megapixels:.2f}",
                "parameters": str(sum(parameter.numel() for parameter in network.parameters())),
                "closed form ": str(sum(layer.parameters for layer in layers)),
                "convolutions": str(len(layers)),
            }
        )
    return rows


class Traffic(TorchDispatchMode):
    """Counts the bytes of all tensors that go into and come out of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ not in VIEWS:
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
            self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return result


def losses(classes: int = 21, side: int = 128) -> list[dict[str, str]]:
    """One row per loss: bytes per pixel and class, counted and in use."""
    student = torch.randn(2, classes, side, side, requires_grad=True)
    teacher = torch.randn(2, classes, side, side)
    label = torch.randint(0, classes, (2, side, side))

    def pixel(kind: str) -> Callable[[], Tensor]:
        loss = PixelLoss(kind)
        return lambda: loss.total([loss(student, teacher)], lambda value: value)

    counted = {f"pixel loss {kind}": (pixel(kind), PIXEL_BYTES[kind]) for kind in KINDS}
    counted["labels, ce"] = (lambda: cross_entropy(student, label)[0], LABEL_BYTES["ce"])
    counted["labels, ohem"] = (lambda: ohem_cross_entropy(student, label, min_kept=side)[0], LABEL_BYTES["ohem"])
    rows = []
    for name, (compute, in_use) in counted.items():
        # A gradient that is there already would be added to.
        student.grad = None
        with Traffic() as traffic:
            compute().backward()
        rows.append({"loss": name, "bytes": f"{traffic.bytes / student.numel():.0f}", "in use": str(in_use)})
    return rows


def ael_layers(classes: int) -> tuple[list[Layer], list[Layer]]:
    """AEL's DeepLabV3+ on ResNet-101 (output stride 8, five branches concatenated), and its auxiliary head."""
    layers = [Layer(3, 64, 3, 2), Layer(64, 64, 3, 2), Layer(64, 128, 3, 2)]
    channels, before = 128, 4
    for blocks, width, stride in zip(RESNET_BLOCKS["resnet101"], RESNET_WIDTHS, (4, 8, 8, 8), strict=True):
        for number in range(blocks):
            layers += [Layer(channels, width, 1, before), Layer(width, width, 3, stride)]
            layers += [Layer(width, 4 * width, 1, stride)]
            layers += [Layer(channels, 4 * width, 1, stride)] if number == 0 else []
            channels, before = 4 * width, stride
    layers += [Layer(2048, 256, 1, 0), Layer(2048, 256, 1, 8), *[Layer(2048, 256, 3, 8)] * 3]
    layers += [Layer(1280, 256, 3, 8), Layer(256, 256, 1, 4), Layer(512, 256, 3, 4), Layer(256, 256, 3, 4)]
    layers += [Layer(256, classes, 1, 4)]
    return layers, [Layer(1024, 256, 3, 8), Layer(256, classes, 1, 8)]


def table_a6() -> list[dict[str, str]]:
    """One row per data set: what 8 V100 do in the paper's seconds per epoch of AEL (ResNet-101, 1/8).

    Per GPU and step: the student is trained on 2 labeled images and 1 mixed one, with the auxiliary head on the
    labeled ones; the teacher looks at 2 labeled and 2 unlabeled images.
    """
    rows = []
    for name, classes, side, seconds, steps in (("cityscapes", 19, 769, 730, 163), ("voc", 21, 513, 835, 579)):
        network, auxiliary = (sum(layer.flops(side, side) for layer in part) for part in ael_layers(classes))
        work = (3 * TRAINED + 4) * network + 2 * TRAINED * auxiliary
        each = seconds / steps
        rows.append(
            {
                "data set": name,
                "s/step": f"{each:.2f}",
                "TFLOP per GPU and step": f"{work / 1e12:.1f}",
                "TFLOP/s": f"{work / each / 1e12:.1f}",
            }
        )
    return rows


def main() -> None:
    """Print the three tables."""
    torch.manual_seed(0)
    for title, rows in (
        ("networks, forward pass", networks()),
        ("losses, bytes per pixel and class, forward and backward", losses()),
        ("Table A6 of the paper, AEL on 8 V100", table_a6()),
    ):
        print(f"{title}\n{table(rows)}\n")


if __name__ == "__main__":
    main()
