"""What a run has to do, counted in closed form: arithmetic, memory traffic, calls, images, and disk. Without torch.

How long that takes is the business of `fpl.sweep.plan.speed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache

from fpl.config.defaults import BATCH_PIXELS
from fpl.config.schema import RunConfig
from fpl.config.sections import ModelConfig
from fpl.data.spec import SPECS
from fpl.data.splits.families import get_family, labeled_count
from fpl.errors import FplError
from fpl.methods.ael.options import AelOptions
from fpl.methods.cps.options import CpsOptions
from fpl.sweep.plan.convolutions import Layer, auxiliary_layers, layers_of

# A trained pass costs a forward pass and twice as much backwards.
TRAINED = 3
# Bytes that the operations of a loss read and write, forward and backward, per pixel and class: counted at C = 21 by
# `python benchmarks/flops.py`, for the pixel losses and the supervised ones.
PIXEL_BYTES = {"ce": 44, "fpl": 237, "soft": 94, "negative": 304, "ce+negative": 351, "mse": 98, "mse_logits": 70}
LABEL_BYTES = {"ce": 34, "ohem": 37}
# The same for what AEL adds: the weight of every pixel of its pixel loss, found and applied, and the student's
# confidence in labeled images.
WEIGHT_BYTES, CONFIDENCE_BYTES = 38, 23
# Logits enlarged to the size of the labels, in float32: written, and for a trained pass read again backwards; the two
# maps of a CutMix teacher are read once more and written as one.
TRAINED_MAP_BYTES, TEACHER_MAP_BYTES = 8, 10
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
        calls: Convolutions carried out, whatever their size, those of a backward pass included: overhead goes with it.
        gflop: Arithmetic of the convolutions, in 10^9 operations.
        gigabytes: Memory traffic of losses and logits at the size of the labels, in 10^9 bytes.
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
class Passes:
    """Passes of one step through one network each.

    Attributes:
        images: Images of each pass.
        trained: How many passes are differentiated.
        teacher: How many are not.
        labels: Whether the trained ones have labels: a supervised loss, and the auxiliary head if there is one.
    """

    images: int
    trained: int = 0
    teacher: int = 0
    labels: bool = False


@dataclass(frozen=True)
class Step:
    """What a method does in one step.

    Attributes:
        passes: Its passes.
        pairs: Images, per step, whose pixels a pixel loss compares with a teacher's, all directions together.
        read: Images that are read from disk, on average.
        students: Networks that hold weights and optimizer states.
        teachers: Networks that hold weights alone.
        more_bytes: Bytes per pixel of the logits and class that it moves beyond those of losses and logits.
    """

    passes: tuple[Passes, ...]
    pairs: int
    read: float
    students: int
    teachers: int = 0
    more_bytes: int = 0

    @property
    def networks(self) -> int:
        """All networks, which hold weights."""
        return self.students + self.teachers


def _supervised(config: RunConfig) -> Step:
    labeled = config.data.labeled_batch
    return Step((Passes(labeled, trained=1, labels=True),), pairs=0, read=labeled, students=1)


def _cps(config: RunConfig) -> Step:
    assert isinstance(config.method, CpsOptions)
    labeled, unlabeled = config.data.labeled_batch, config.data.unlabeled_batch
    cutmix = config.method.cutmix
    compared = unlabeled + (labeled if config.method.on_labeled else 0)
    return Step(
        (Passes(labeled, trained=2, labels=True), Passes(unlabeled, trained=2, teacher=4 if cutmix else 0)),
        pairs=2 * compared,
        read=labeled + unlabeled * (2 if cutmix else 1),
        students=2,
    )


def _ael(config: RunConfig) -> Step:
    """The student on labeled and on mixed images; the teacher on labeled ones, and on both parts of the mixed ones."""
    assert isinstance(config.method, AelOptions)
    labeled, unlabeled = config.data.labeled_batch, config.data.unlabeled_batch
    pasted = config.method.paste_probability * labeled if config.method.copy_paste else 0
    return Step(
        (
            Passes(labeled, trained=1, teacher=1, labels=True),
            Passes(unlabeled, trained=1),
            Passes(2 * unlabeled, teacher=1),
        ),
        pairs=labeled + unlabeled,
        read=labeled + pasted + 2 * unlabeled,
        students=1,
        teachers=1,
        more_bytes=(labeled + unlabeled) * WEIGHT_BYTES + labeled * CONFIDENCE_BYTES,
    )


STEPS: Mapping[str, Callable[[RunConfig], Step]] = {"supervised": _supervised, "cps": _cps, "ael": _ael}


def step_of(config: RunConfig) -> Step:
    """What the configured method does in one step.

    Raises:
        FplError: The cost of the method is not known.
    """
    if config.method.name not in STEPS:
        raise FplError(f"the cost of method {config.method.name} is not known", where="fpl/sweep/plan/cost.py, STEPS")
    return STEPS[config.method.name](config)


def step_work(config: RunConfig) -> Work:
    """Work of one step on the global batch."""
    step, loss = step_of(config), config.loss
    height, width = config.data.crop
    network, auxiliary = _layers(config)
    # Losses see one pixel per `stride` of each axis; so large are the maps of logits, too.
    pixels = -(-height // loss.stride) * -(-width // loss.stride)
    values = pixels * config.data.num_classes / 1e9
    total = Work(gigabytes=values * (step.pairs * PIXEL_BYTES[loss.kind] + step.more_bytes), images=step.read)
    for passes in step.passes:
        total += _passes_work(network, passes, config.data.crop, values)
        if passes.labels:
            compared = passes.images * passes.trained * (2 if auxiliary else 1)
            total += Work(gigabytes=values * compared * LABEL_BYTES[loss.supervised])
        if passes.labels and auxiliary:
            total += _passes_work(auxiliary, replace(passes, teacher=0), config.data.crop, values)
    return total


def _passes_work(layers: tuple[Layer, ...], passes: Passes, size: tuple[int, int], values: float) -> Work:
    """Work of passes through some layers that end in `values` billion logits per image."""
    number = passes.teacher + TRAINED * passes.trained
    map_bytes = passes.trained * TRAINED_MAP_BYTES + passes.teacher * TEACHER_MAP_BYTES
    return Work(
        calls=number * len(layers),
        gflop=number * passes.images * _gflop(layers, size),
        gigabytes=passes.images * values * map_bytes,
    )


def validation_images(config: RunConfig) -> int:
    """Images of one validation, by the data set's published counts: of a drawn set, as many as it has by default."""
    spec, split = SPECS[config.data.dataset], config.data.split
    counts = spec.counts or {}
    if split.holdout is not None:
        pool = spec.subset_counts.get(get_family(split.family).pool, counts.get("train", 0))
        return math.ceil(labeled_count(split.fraction, pool, split.index) / split.holdout)
    count = counts.get("val", 0)
    return count if config.eval.subsample is None else min(count, config.eval.subsample)


def validation_work(config: RunConfig) -> Work:
    """Work of one validation: forward passes of one network over the validation images, window by window."""
    count = validation_images(config)
    height, width = (side // config.data.downscale for side in IMAGE_SIZES[config.data.dataset])
    layers, _ = _layers(config)
    windows = 1
    size = (height, width)
    if config.eval.protocol != "whole":
        size = config.eval.crop or config.data.crop
    if config.eval.protocol == "sliding":
        windows = math.prod(
            _windows(length, side, config.eval.stride_rate) for length, side in zip((height, width), size, strict=True)
        )
    values = windows * size[0] * size[1] * config.data.num_classes / 1e9
    # Passes of a CPU; on a GPU, where a call is cheap, there are fewer.
    passes = math.ceil(count * windows / max(1, BATCH_PIXELS["cpu"] // math.prod(size)))
    return Work(len(layers) * passes, _gflop(layers, size) * windows * count, values * TEACHER_MAP_BYTES * count)


def run_work(config: RunConfig) -> Work:
    """Work of a whole run: its steps and its validations."""
    validations = -(-config.train.steps // config.train.evaluate_every)
    return step_work(config) * config.train.steps + validation_work(config) * validations


def parameters(config: RunConfig) -> int:
    """Trained numbers of one network, those of an auxiliary head included."""
    return sum(layer.parameters for layers in _layers(config) for layer in layers)


def kept_bytes(config: RunConfig) -> int:
    """Disk that a finished run keeps: best and last weights of all its networks, and its rows."""
    return 2 * 4 * parameters(config) * step_of(config).networks + STORE_BYTES


def running_bytes(config: RunConfig) -> int:
    """Disk that a run needs besides while it runs: step checkpoints with weights and momentum, one being written."""
    step = step_of(config)
    return (KEPT_STEPS + 1) * 4 * parameters(config) * (step.networks + step.students)


def step_key(config: RunConfig) -> str:
    """What decides the time of a step, as one word; the batch and the number of workers left aside."""
    data, model, loss, train = config.data, config.model, config.loss, config.train
    network: str = model.backbone
    if network == "tiny":
        network += f"-w{model.tiny_width}-d{model.tiny_depth}"
    if model.network == "ael":
        network += "-ael"
    if isinstance(config.method, CpsOptions):
        method = ("cps-cutmix" if config.method.cutmix else "cps") + f"-{loss.kind}"
    elif isinstance(config.method, AelOptions):
        method = f"ael-{loss.kind}"
    else:
        method = config.method.name
    words = [network, f"h{model.head_channels}", model.norm, method, loss.supervised, f"c{data.num_classes}"]
    words += [f"{data.crop[0]}x{data.crop[1]}", f"stride{loss.stride}", train.precision]
    return "_".join([*words, *(["channels-last"] if train.channels_last else [])])


def _windows(length: int, side: int, stride_rate: float) -> int:
    """Windows of the sliding protocol along one axis, as `fpl.train.evaluate.window_starts` places them."""
    return 1 if length <= side else math.ceil((length - side) / math.ceil(side * stride_rate)) + 1


def _layers(config: RunConfig) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
    """Layers of the network, and of its auxiliary head: none for most."""
    return _cached_layers(config.model, config.data.num_classes)


@lru_cache(maxsize=64)
def _cached_layers(model: ModelConfig, num_classes: int) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
    # The same few networks come back in hundreds of cells.
    return layers_of(model, num_classes), auxiliary_layers(model, num_classes)


def _gflop(layers: tuple[Layer, ...], size: tuple[int, int]) -> float:
    return sum(layer.flops(*size) for layer in layers) / 1e9
