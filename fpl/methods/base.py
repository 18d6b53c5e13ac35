"""What a training method is: one module that answers four questions.

What does it want per step (`draws`, `pair`), which optimizers does it need (`optimizers`), what are its losses
(`losses`), and what happens after the step (`after_step`). Everything that a checkpoint must hold is a parameter, a
buffer or a submodule, so `state_dict()` is the method's whole memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fpl.config.schema import OptimConfig, RunConfig
from fpl.data.batches import Batch, PasteRequest
from fpl.losses import PixelLoss, PixelTerm, cross_entropy, ohem_cross_entropy
from fpl.losses.rules import Rules
from fpl.models import SegmentationNetwork
from fpl.models.network import Raw, resize

NetworkBuilder = Callable[[], SegmentationNetwork]


class Workers(Protocol):
    """What a method may ask of the processes that share the global batch."""

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""

    @property
    def world_size(self) -> int:
        """Their number."""

    def average(self, value: Tensor) -> Tensor:
        """Mean of a detached tensor over all of them; the same bits everywhere."""

    def concatenate(self, value: Tensor) -> Tensor:
        """Tensors [n, ...] of equal shape in the order of the ranks, [world_size * n, ...]."""


class ImageSource(Protocol):
    """Unlabeled training images by their number in the split's list."""

    @property
    def count(self) -> int:
        """How many there are."""

    def read(self, index: int, position: int) -> tuple[Tensor, Tensor]:
        """An augmented crop, uint8 [3, h, w], and where it shows image, bool [h, w].

        The augmentation is drawn for `position`.
        """

    def truth(self, index: int, position: int) -> Tensor:
        """The label of what `read` gives, uint8 [h, w], for diagnostics; 255 where it is unknown."""


@dataclass(frozen=True)
class Clock:
    """Where training stands: `step` of `total` steps is about to be taken (0-based)."""

    step: int
    total: int

    @property
    def progress(self) -> float:
        """Share of training that is over, in [0, 1)."""
        return self.step / self.total

    def ramp(self, share: float) -> float:
        """Factor of a weight that rises linearly from 0 to 1 over a share of training; 1 where the share is 0."""
        return min(1.0, self.progress / share) if share else 1.0


@dataclass
class Losses:
    """What a method returns for one step.

    Attributes:
        objectives: One scalar to minimise per optimizer, by the optimizer's name.
        supervised: Weighted supervised part of the main objective; with `unsupervised` it serves to tell how much
            of the gradient comes from unlabeled images.
        unsupervised: Weighted unsupervised part, or None for a method without one.
        terms: Named scalars for the history, unweighted, as the method's publication names them.
        pixel_terms: The pixel loss's results by direction (`"12"`: network 1 taught by network 2).
    """

    objectives: dict[str, Tensor]
    supervised: Tensor
    unsupervised: Tensor | None = None
    terms: dict[str, Tensor] = field(default_factory=dict)
    pixel_terms: dict[str, PixelTerm] = field(default_factory=dict)


class Method(nn.Module):
    """Base of all methods.

    Args:
        config: The run.
        build_network: Gives a fresh network with pretrained backbone and new random head at each call.
        workers: The processes that share the global batch.
    """

    # Independent unlabeled images per slot of the batch, and whether a second draw is another image or the same one.
    draws: int = 0
    pair: str = "other"
    # Labeled images to paste from, one per slot; None for none.
    paste: PasteRequest | None = None

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        super().__init__()
        self.config = config
        self.workers = workers
        self.pixel_loss = _pixel_loss(config)
        # Groups of images of this worker, which holds whole ones.
        self.groups = (config.data.groups or 1) // workers.world_size
        self.network = build_network()

    def networks(self) -> list[SegmentationNetwork]:
        """The networks that SGD trains."""
        return [self.network]

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Fresh optimizers by name; the engine sets their learning rates from the schedule at every step."""
        return {"main": sgd(self.networks(), self.config.optim)}

    def attach(self, source: ImageSource) -> None:
        """Take the source of the images that the method chooses by itself; called once, before training."""

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Forward passes and losses of one step on this worker's share of the batch."""
        raise NotImplementedError

    def after_step(self, clock: Clock) -> None:
        """What follows the optimizer step, under `no_grad`: an EMA teacher's update, for example."""

    def predict(self, image: Tensor) -> Tensor:
        """Logits `[B, C, H, W]` for normalised images `[B, 3, H, W]`; the network that is evaluated."""
        logits: Tensor = self.network(image)
        return logits

    def teaching_logits(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `[B, C, H, W]` of a student and of who teaches it, for pictures; for one network twice the same."""
        logits: Tensor = self.network(image)
        return logits, logits

    def train_logits(self, network: SegmentationNetwork, image: Tensor) -> Tensor:
        """Logits `[B, C, h, w]` that the losses see: one per `loss.stride` pixels of each axis, corners aligned."""
        return resize(network.raw(image).logits, self._thin_size(image))

    def labeled_loss(self, network: SegmentationNetwork, raw: Raw, label: Tensor) -> tuple[Tensor, Tensor]:
        """The `train_logits` of labeled images, and the supervised loss of all heads that the network has.

        Args:
            network: Whose pass it is.
            raw: What it computed of the images.
            label: Their labels, int64 `[B, H, W]`.
        """
        size = self._thin_size(label)
        logits = resize(raw.logits, size)
        loss = self.supervised_loss(logits, label)
        if network.auxiliary is not None:
            auxiliary = self.supervised_loss(network.classify_auxiliary(raw, size), label)
            loss = loss + self.config.loss.auxiliary_weight * auxiliary
        return logits, loss

    def _thin_size(self, image: Tensor) -> tuple[int, int]:
        stride = self.config.loss.stride
        return -(-image.shape[-2] // stride), -(-image.shape[-1] // stride)

    def thin(self, pixels: Tensor) -> Tensor:
        """Labels, masks or images `[..., H, W]` at the positions of `train_logits`: the nearest pixel of each."""
        stride = self.config.loss.stride
        if stride == 1:
            return pixels
        for axis in (-2, -1):
            size = pixels.shape[axis]
            kept = torch.linspace(0, size - 1, -(-size // stride), device=pixels.device).round().long()
            pixels = pixels.index_select(axis, kept)
        return pixels

    def probe_parameters(self) -> list[nn.Parameter]:
        """Parameters on which the shares of the two loss parts are compared: the classifiers, cheap to reach."""
        return [parameter for network in self.networks() for parameter in network.classifier.parameters()]

    def supervised_loss(self, logits: Tensor, label: Tensor) -> Tensor:
        """The configured supervised loss of one network's `train_logits`, independent of the number of workers.

        Means are taken, and hard pixels chosen, inside groups of images that never span workers.
        """
        loss = self.config.loss
        label = self.thin(label)
        if loss.supervised == "ohem":
            value, _ = ohem_cross_entropy(
                logits, label, threshold=loss.ohem_threshold, min_kept=loss.ohem_min_kept, groups=self.groups
            )
        else:
            value, _ = cross_entropy(logits, label, groups=self.groups)
        return value


def _pixel_loss(config: RunConfig) -> PixelLoss:
    loss = config.loss
    # The training loop says how far it is.
    rules = {name: getattr(loss, name) for name in Rules._fields if name != "progress"}
    return PixelLoss(loss.kind, balance=bool(loss.balance), negative_threshold=loss.negative_threshold, **rules)


def sgd(networks: Iterable[SegmentationNetwork], optim: OptimConfig) -> torch.optim.SGD:
    """SGD over backbones and heads, with and without weight decay.

    Each group carries `lr_multiplier`: the schedule's rate times it is the group's rate at every step. Where all
    parameters allow it one fused kernel updates them; it takes a gradient to lie in memory as its parameter does, which
    autograd sees to.
    """
    groups: list[dict[str, Any]] = []
    for network in networks:
        parts = ((network.backbone_parameters(), 1.0), (network.head_parameters(), optim.head_lr_multiplier))
        for parameters, multiplier in parts:
            for decayed, members in _split_by_decay(parameters).items():
                decay = optim.weight_decay if decayed or optim.decay_norm_and_bias else 0.0
                groups.append({"params": members, "weight_decay": decay, "lr_multiplier": multiplier})
    everything = [parameter for group in groups for parameter in group["params"]]
    fused = all(item.is_floating_point() and item.device.type in ("cpu", "cuda") for item in everything)
    optimizer = torch.optim.SGD(
        [group for group in groups if group["params"]], lr=optim.lr, momentum=optim.momentum, fused=fused or None
    )
    if fused and optim.momentum:
        # The first gradient then only adds to 0. Left to itself, the kernel cannot take a parameter whose first
        # gradient comes later than that of others.
        for parameter in everything:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    optimizer.register_load_state_dict_pre_hook(_keep_kernel)
    return optimizer


def _keep_kernel(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Load a checkpoint without its choice of a kernel: that is up to this process and its device."""
    pairs = zip(state["param_groups"], optimizer.param_groups, strict=True)
    return {**state, "param_groups": [{**saved, "fused": own["fused"]} for saved, own in pairs]}


def _split_by_decay(parameters: Iterator[nn.Parameter]) -> dict[bool, list[nn.Parameter]]:
    """Convolution and linear weights (True) apart from biases and normalisation (False), by their dimensions."""
    split: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for parameter in parameters:
        if parameter.requires_grad:
            split[parameter.ndim > 1].append(parameter)
    return split
