"""What a training method is: one module that answers four questions.

What does it want per step (`request`), which optimizers does it need (`optimizers`), what are its losses
(`losses`), and what happens after the step (`after_step`). Everything that a checkpoint must hold is a parameter, a
buffer or a submodule, so `state_dict()` is the method's whole memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, BatchRequest
from fpl.losses import PixelLoss, PixelTerm, cross_entropy, ohem_cross_entropy
from fpl.losses.checks import to_compute
from fpl.losses.rules import Rules
from fpl.methods.banks import Bank
from fpl.methods.labeled_threshold import LabeledThreshold
from fpl.methods.optimizers import Scheduled, sgd
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

    def ramp(self, share: float, shape: Literal["linear", "sigmoid", "log"] = "linear") -> float:
        """Factor of a weight that rises over a share of training and then stays; 1 where the share is 0.

        With t from 0 to 1 over the share: "linear" is t, "sigmoid" exp(-5 (1 - t)^2), which begins at 0.0067, slowly,
        and "log" 1 - exp(-5 t), which begins fast and ends at 0.9933 (published code of CCT, `utils/ramps.py`).
        """
        if not share:
            return 1.0
        t = min(1.0, self.progress / share)
        if shape == "sigmoid":
            return math.exp(-5.0 * (1.0 - t) ** 2)
        return 1.0 - math.exp(-5.0 * t) if shape == "log" else t


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

    # What every step's batch has to hold.
    request = BatchRequest()

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        super().__init__()
        self.config = config
        self.workers = workers
        self.pixel_loss = _pixel_loss(config)
        # A T that follows from labeled pixels; None where it is set by hand.
        by_hand = config.loss.threshold_rule == "hand"
        self.labeled_threshold = None if by_hand else LabeledThreshold(config.loss.threshold)
        # Groups of images of this worker, which holds whole ones.
        self.groups = (config.data.groups or 1) // workers.world_size
        self.network = build_network()

    def networks(self) -> list[SegmentationNetwork]:
        """The networks that SGD trains."""
        return [self.network]

    def optimizers(self) -> dict[str, Scheduled]:
        """Fresh optimizers by name; the engine has each set its learning rate at every step."""
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
        return self.enlarged(network.raw(image), image)

    def enlarged(self, raw: Raw, image: Tensor) -> Tensor:
        """The `train_logits` of a pass over images of this size."""
        return resize(to_compute(raw.logits), self._thin_size(image))

    def labeled_loss(self, network: SegmentationNetwork, raw: Raw, label: Tensor) -> tuple[Tensor, Tensor]:
        """The `train_logits` of labeled images, and the supervised loss of all heads that the network has.

        Args:
            network: Whose pass it is.
            raw: What it computed of the images.
            label: Their labels, int64 `[B, H, W]`.
        """
        size = self._thin_size(label)
        # Enlarged in float32 where the pass was in bfloat16: its 8 bits would make steps between the positions.
        logits = resize(to_compute(raw.logits), size)
        loss = self.supervised_loss(logits, label)
        if self.labeled_threshold is not None:
            self.labeled_threshold.observe(logits, self.thin(label))
        if network.auxiliary is not None:
            auxiliary = self.supervised_loss(network.classify_auxiliary(raw, size), label)
            loss = loss + self.config.loss.auxiliary_weight * auxiliary
        return logits, loss

    def _thin_size(self, image: Tensor) -> tuple[int, int]:
        stride = self.config.loss.stride
        return -(-image.shape[-2] // stride), -(-image.shape[-1] // stride)

    def by_group(self, first: Tensor, second: Tensor) -> Tensor:
        """Both batches [B, ...] as one [2 B, ...], in which the images of each group follow one another."""
        parts = zip(first.chunk(self.groups), second.chunk(self.groups), strict=True)
        return torch.cat([part for pair in parts for part in pair])

    def apart(self, joint: Tensor, first: int, second: int) -> tuple[Tensor, Tensor]:
        """Two batches of so many images, which `by_group` made one [first + second, ...]: its opposite."""
        parts = torch.split(joint, [first // self.groups, second // self.groups] * self.groups)
        return torch.cat(parts[::2]), torch.cat(parts[1::2])

    def raw_apart(self, joint: Raw, first: int, second: int) -> tuple[Raw, Raw]:
        """What a network computed of two batches of so many images that `by_group` made one."""
        parts = [self.apart(part, first, second) for part in joint]
        return Raw(*(part[0] for part in parts)), Raw(*(part[1] for part in parts))

    def thin(self, pixels: Tensor) -> Tensor:
        """Labels, masks or images `[..., H, W]` at the positions of `train_logits`: the nearest pixel of each."""
        return nearest_aligned(pixels, self._thin_size(pixels))

    def kept_state(self) -> dict[str, Tensor]:
        """What the files of the best and the last weights hold: `state_dict` without the memory of a `Bank`."""
        state = self.state_dict()
        for name, module in self.named_modules():
            if isinstance(module, Bank):
                for buffer in module.state_dict():
                    del state[f"{name}.{buffer}"]
        return state

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


def nearest_aligned(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Labels, masks or images `[..., H, W]` at `size` places that lie at equal distances from corner to corner.

    `resize` enlarges from the same places; the nearest pixel of each is taken.
    """
    for axis, kept in zip((-2, -1), size, strict=True):
        if kept != (side := pixels.shape[axis]):
            places = torch.linspace(0, side - 1, kept, device=pixels.device).round().long()
            pixels = pixels.index_select(axis, places)
    return pixels


def _pixel_loss(config: RunConfig) -> PixelLoss:
    loss = config.loss
    # The training loop says how far it is.
    rules = {name: getattr(loss, name) for name in Rules._fields if name != "progress"}
    return PixelLoss(loss.kind, balance=bool(loss.balance), negative_threshold=loss.negative_threshold, **rules)
