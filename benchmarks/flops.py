"""The numbers behind `fpl plan`: what networks and losses cost, counted on the real ones beside the closed forms.

    python benchmarks/flops.py

1. GFLOP of a forward pass per megapixel and parameters of every network, counted by torch's FlopCounterMode on the
   built network (on the meta device: nothing is computed), beside `fpl.sweep.plan.convolutions`.
2. Bytes that the operations of each loss, and of what AEL adds to it, read and write per pixel and class, forward and
   backward: `PIXEL_BYTES`, `LABEL_BYTES`, `WEIGHT_BYTES` and `CONFIDENCE_BYTES` of `fpl.sweep.plan.cost`.
3. What the seconds per epoch of the paper's Table A6 say about a V100: `V100` of `fpl.sweep.plan.speed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from fpl.config.sections import ModelConfig
from fpl.losses import PixelLoss, cross_entropy, ohem_cross_entropy
from fpl.losses.pixel import KINDS
from fpl.methods.ael.bank import class_confidence
from fpl.methods.ael.mix import pixel_weights
from fpl.models import build_network
from fpl.sweep.plan.convolutions import auxiliary_layers, layers_of
from fpl.sweep.plan.cost import CONFIDENCE_BYTES, LABEL_BYTES, PIXEL_BYTES, TRAINED, WEIGHT_BYTES
from fpl.text import table

SIDE = 1024
CLASSES = 19
SMALL_HEAD: dict[str, Any] = {"head_channels": 32, "low_level_channels": 16}
AEL: dict[str, Any] = {"network": "ael", "aspp_rates": (12, 24, 36), "low_level_channels": 256}
NETWORKS: dict[str, dict[str, Any]] = {
    "resnet50": {"backbone": "resnet50"},
    "resnet101": {"backbone": "resnet101"},
    "resnet50, AEL": {"backbone": "resnet50", **AEL},
    "resnet101, AEL": {"backbone": "resnet101", **AEL},
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
        layers, auxiliary = layers_of(model, CLASSES), auxiliary_layers(model, CLASSES)
        megapixels = SIDE**2 / 1e6
        rows.append(
            {
                "network": name,
                "GFLOP/MP counted": f"{counter.get_total_flops() / 1e9 / megapixels:.2f}",
                "closed form": f"{sum(layer.flops(SIDE, SIDE) for layer in layers) / 1e9 / megapixels:.2f}",
                "parameters": str(sum(parameter.numel() for parameter in network.parameters())),
                "closed form ": str(sum(layer.parameters for layer in (*layers, *auxiliary))),
                "convolutions": str(len(layers)),
            }
        )
    return rows


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that go into and come out of operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
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
        return lambda: loss.total([loss(student, teacher)])

    counted = {f"pixel loss {kind}": (pixel(kind), PIXEL_BYTES[kind]) for kind in KINDS}
    counted["labels, ce"] = (lambda: cross_entropy(student, label)[0], LABEL_BYTES["ce"])
    counted["labels, ohem"] = (lambda: ohem_cross_entropy(student, label, min_kept=side)[0], LABEL_BYTES["ohem"])

    def per_value(compute: Callable[[], Tensor]) -> float:
        # A gradient that is there already would be added to.
        student.grad = None
        with Traffic() as traffic:
            result = compute()
            if result.requires_grad:
                torch.autograd.backward(result)
        return float(traffic.bytes / student.numel())

    rows = [
        {"loss": name, "bytes": f"{per_value(compute):.0f}", "in use": str(in_use)}
        for name, (compute, in_use) in counted.items()
    ]
    rates, uniform = torch.rand(classes), torch.rand(label.shape)
    loss, everywhere = PixelLoss("ce"), torch.ones(label.shape, dtype=torch.bool)

    def weighted() -> Tensor:
        term = loss(student, teacher, uniform, denominator=1.0, counted=everywhere)
        return loss.total([term])

    found = per_value(lambda: pixel_weights(teacher, student, power=2.0, gate=0.7, rates=rates, uniform=uniform))
    applied = per_value(weighted) - per_value(pixel("ce"))
    sure = per_value(lambda: class_confidence(student, label, groups=1))
    rows.append({"loss": "AEL, weights of pixels", "bytes": f"{found + applied:.0f}", "in use": str(WEIGHT_BYTES)})
    rows.append({"loss": "AEL, confidence", "bytes": f"{sure:.0f}", "in use": str(CONFIDENCE_BYTES)})
    return rows


def table_a6() -> list[dict[str, str]]:
    """One row per data set: what 8 V100 do in the paper's seconds per epoch of AEL (ResNet-101, 1/8).

    Per GPU and step: the student is trained on 2 labeled images and 1 mixed one, with the auxiliary head on the
    labeled ones; the teacher looks at 2 labeled and 2 unlabeled images.
    """
    model = ModelConfig(pretrained="none", backbone="resnet101", **AEL)
    rows = []
    for name, classes, side, seconds, steps in (("cityscapes", 19, 769, 730, 163), ("voc", 21, 513, 835, 579)):
        network, auxiliary = (
            sum(layer.flops(side, side) for layer in layers(model, classes)) for layers in (layers_of, auxiliary_layers)
        )
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
