"""What a run has to do, as numbers: arithmetic, memory traffic, calls, images, and disk. Without torch.

The numbers are counted by `fpl.sweep.plan.count` and kept by `fpl.sweep.plan.costs`. How long it all takes is the
business of `fpl.sweep.plan.speed`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from fpl.config.defaults import BATCH_PIXELS
from fpl.config.schema import RunConfig
from fpl.data.spec import SPECS
from fpl.data.splits.families import get_family, labeled_count

# Bytes per pixel and class of a validation: logits enlarged to the size of the labels in float32, and read.
MAP_BYTES = 10
# Height and width of a typical image; VOC's vary.
IMAGE_SIZES = {
    "camvid": (360, 480),
    "cityscapes": (1024, 2048),
    "synthetic_city": (64, 128),
    "synthetic_voc": (64, 64),
    "voc": (366, 500),
}
# Step checkpoints that a run keeps (`fpl.train.checkpoint.KEEP`), and its rows in the store: measured at scale mini.
KEPT_STEPS = 2
STORE_BYTES = 60_000


@dataclass(frozen=True)
class Work:
    """An amount of work. Amounts add up, and multiply with a number.

    Attributes:
        calls: Convolutions and matrix products, whatever their size: overhead goes with it. In a backward pass there is
            one per gradient.
        gflop: Their arithmetic, in 10^9 operations.
        gigabytes: Memory traffic of all that is done beside the passes through networks, in 10^9 bytes.
        images: Training images read and augmented.
    """

    calls: float = 0.0
    gflop: float = 0.0
    gigabytes: float = 0.0
    images: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))

    def __mul__(self, times: float) -> Work:
        return Work(*(getattr(self, item.name) * times for item in fields(self)))


@dataclass(frozen=True)
class Memory:
    """Bytes that computing takes on a device, besides what is trained and its optimizers' states.

    Attributes:
        step: Of a step on the global batch in float32 at its fullest; workers share it.
        step_bf16: The same with `train.precision = "bf16"`.
        copies_bf16: What each worker has besides with bf16: copies of weights.
        gradients: Of all that is trained.
        look: Of a look of the evaluated network at one window, in float32.
    """

    step: int
    step_bf16: int
    copies_bf16: int
    gradients: int
    look: int


@dataclass(frozen=True)
class Cost:
    """What a kind of run takes.

    Attributes:
        step: One step on the global batch.
        look: A look of the evaluated network at one window of an image.
        weights: Bytes of the method's state: parameters and buffers of all its networks.
        optimizer: Bytes of its optimizers' states.
        memory: What it takes on a device besides.
    """

    step: Work
    look: Work
    weights: int
    optimizer: int
    memory: Memory

    @property
    def kept_bytes(self) -> int:
        """Disk that a finished run keeps: its best and last weights, and its rows."""
        return 2 * self.weights + STORE_BYTES

    @property
    def running_bytes(self) -> int:
        """Disk that a run needs besides while it runs: step checkpoints, one of them being written."""
        return (KEPT_STEPS + 1) * (self.weights + self.optimizer)

    def run(self, config: RunConfig) -> Work:
        """Work of a whole run: its steps and its validations."""
        validations = -(-config.train.steps // config.train.evaluate_every)
        return self.step * config.train.steps + self.validation(config) * validations

    def validation(self, config: RunConfig) -> Work:
        """Work of one validation: the validation images, window by window."""
        height, width = window_of(config)
        count = validation_images(config) * window_count(config)
        # Passes of a CPU; on a GPU, where a call is cheap, there are fewer.
        passes = math.ceil(count / max(1, BATCH_PIXELS["cpu"] // (height * width)))
        values = height * width * config.data.num_classes / 1e9
        return Work(self.look.calls * passes, self.look.gflop * count, values * MAP_BYTES * count)


def window_of(config: RunConfig) -> tuple[int, int]:
    """Height and width of what the network looks at in a validation."""
    if config.eval.protocol == "whole":
        return image_size(config)
    return config.eval.crop or config.data.crop


def window_count(config: RunConfig) -> int:
    """Windows of one image in a validation."""
    if config.eval.protocol != "sliding":
        return 1
    sides = zip(image_size(config), window_of(config), strict=True)
    return math.prod(_windows(length, side, config.eval.stride_rate) for length, side in sides)


def image_size(config: RunConfig, full: bool = False) -> tuple[int, int]:
    """Height and width of a validation image as it is read; with `full`, of its label."""
    height, width = IMAGE_SIZES[config.data.dataset]
    factor = 1 if full else config.data.downscale
    return height // factor, width // factor


def validation_images(config: RunConfig) -> int:
    """Images of one validation, by the data set's published counts: of a drawn set, as many as it has by default."""
    spec, split = SPECS[config.data.dataset], config.data.split
    counts = spec.counts or {}
    if split.holdout is not None:
        pool = spec.subset_counts.get(get_family(split.family).pool, counts.get("train", 0))
        return math.ceil(labeled_count(split.fraction, pool, split.index) / split.holdout)
    count = counts.get("val", 0)
    return count if config.eval.subsample is None else min(count, config.eval.subsample)


def _windows(length: int, side: int, stride_rate: float) -> int:
    """Windows of the sliding protocol along one axis, as `fpl.train.evaluate.window_starts` places them."""
    return 1 if length <= side else math.ceil((length - side) / math.ceil(side * stride_rate)) + 1
