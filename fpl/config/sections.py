"""The tables of a run's configuration, each checked and normalised by itself; `[method]` is in `fpl.config.method`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fpl.config.defaults import MOST_DEPTH, MOST_SEED, MOST_STEPS
from fpl.config.section import (
    AboveZero,
    Digest,
    ImageCount,
    Length,
    NotNegative,
    Scale,
    Section,
    Side,
    Size,
    Width,
    is_unset,
)


def _off(value: object) -> bool:
    return value is False


def _by_hand(value: object) -> bool:
    return value == "hand"


class SplitConfig(Section):
    """Which images are labeled.

    `labeled` and `unlabeled` are the first 16 hex digits of the SHA-256 of the two id lists. They are filled from
    the split files before a run starts, so that two lists of the same length can never be taken for each other.
    """

    family: str = "every-nth"
    fraction: Annotated[str, Field(pattern=r"^(1/[1-9][0-9]*|[1-9][0-9]*)$", coerce_numbers_to_str=True)]
    # Which of the splits of this fraction: an axis of its own beside the seed. 0 is the published one.
    index: Annotated[int, Field(ge=0, le=MOST_SEED)] = 0
    # Every so-manieth labeled image is kept from training, also as an unlabeled one, and the run is validated on these
    # instead of the validation part: what a search may choose by. Not part of a run's identity where it is unset.
    holdout: Annotated[int | None, Field(ge=2, le=MOST_STEPS, exclude_if=is_unset)] = None
    labeled: Digest | None = None
    unlabeled: Digest | None = None


class DataConfig(Section):
    """Data set, split, augmentation and global batch."""

    dataset: str
    # Digest of the validation list and its files and, for a drawn set, of the drawing; filled in before a run starts.
    version: Digest | None = None
    # Digest of the files that the run learns from: labels of labeled images by content, images by size. Filled in too.
    contents: Digest | None = None
    # Labels are bytes, and 255 is no class.
    num_classes: Annotated[int, Field(ge=2, le=255)]
    split: SplitConfig
    # Images are read at 1/downscale of their size; validation still counts every pixel of the original label.
    downscale: Side = 1
    crop: Size
    # "choice" draws one of `scales`; "uniform" draws between its smallest and largest value; "balanced" draws one half
    # between the smallest and 1 and the other between 1 and the largest, as AEL does.
    scales: Annotated[tuple[Scale, ...], Field(min_length=1)] = (0.5, 0.75, 1.0, 1.5, 1.75, 2.0)
    scale_sampling: Literal["choice", "uniform", "balanced"] = "choice"
    flip: bool = True
    # Label of what a crop shows outside its image, in training and in the protocol "center": 255 is ignored. Unset:
    # 255, and 0 (road, background) with method.fidelity = "released", which is what AEL's code does.
    padding_label: Literal[255, 0] | None = None
    labeled_batch: ImageCount
    unlabeled_batch: Annotated[int, Field(ge=0, le=4096)] = 0
    # Processes of the original recipe among which the batch is shared, whatever the number of workers is here. Each
    # takes for its own images: the mean of the supervised loss, the choice of hard pixels, the factor of loss.balance,
    # and AEL's classes to paste, confidences and weights; then their mean is taken. Unset: as many as the two batches
    # allow, which with equal ones is one image of each kind in a group (CPS's script on 8 GPUs); of a supervised run,
    # as many as there are labeled images.
    groups: ImageCount | None = None

    @model_validator(mode="after")
    def _normalise(self) -> DataConfig:
        if self.scale_sampling != "choice":
            # Between the smallest and the largest, more numbers mean nothing.
            self._set(scales=(min(self.scales), max(self.scales)))
        return self


class ModelConfig(Section):
    """The segmentation network. CPS trains two of them."""

    backbone: Literal["resnet50", "resnet101", "efficientnet_lite0", "tiny"]
    # "imagenet" or the explicit wish for random weights; there is no default on purpose.
    pretrained: Literal["imagenet", "none"]
    # Pins the weights file; the run refuses another one.
    pretrained_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")] | None = None
    norm: Literal["batch", "frozen"] = "batch"
    # DeepLabV3+ as the released code of CPS or of AEL builds it.
    network: Literal["cps", "ael"] = "cps"
    aspp_rates: tuple[Side, Side, Side] = (6, 12, 18)
    head_channels: Width = 256
    low_level_channels: Width = 48
    # Only for network = "ael": share of the head's channels that are dropped in training.
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    # Only for backbone = "tiny". From 8 channels: on processors with AVX2 alone, oneDNN's backward pass of a 1x1
    # convolution of stride 2 with fewer writes behind its buffer (torch 2.14.1).
    tiny_width: Annotated[Width, Field(ge=8)] = 16
    tiny_depth: Annotated[int, Field(ge=1, le=MOST_DEPTH)] = 1

    @model_validator(mode="after")
    def _normalise(self) -> ModelConfig:
        if self.backbone != "tiny":
            self._forget("tiny_width", "tiny_depth")
        if self.network != "ael":
            self._forget("dropout")
        if self.pretrained == "none":
            self._forget("pretrained_sha256")
        return self


SUPERVISED_KEYS = ("supervised", "ohem_", "auxiliary_", "stride")
FUZZY_KEYS = (
    "strategy",
    "fixed_k",
    "ratio",
    "weight",
    "curvature",
    "convex_coefficient",
    "fidelity",
    "balance",
)


class LossConfig(Section):
    """Supervised loss and the pixel loss of the unsupervised term.

    Keys that have no effect beside the others (the curvature of a linear weight, say) are set back to their
    defaults, so that equal trainings have equal identities.
    """

    kind: Literal["ce", "fpl", "soft", "negative", "ce+negative", "mse", "mse_logits"] = "ce"
    # Losses see every n-th pixel of both axes; 1 as published. Small scales train at the classifier's own resolution.
    stride: Side = 1
    # Upper bound T on the cumulative probability of the fuzzy positives (paper, Fuzzy Positive Assignment).
    threshold: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.9
    # labeled, this suite's own: T follows from the labeled images of the last steps (`fpl.methods.labeled_threshold`),
    # and `threshold` is that of the first step. Not part of a run's identity while T is set by hand.
    threshold_rule: Annotated[Literal["hand", "labeled"], Field(exclude_if=_by_hand)] = "hand"
    # soft, this suite's own: the n-th class is positive in part, so that T is met exactly.
    strategy: Literal["n-1", "n", "fixed", "step", "ratio", "soft"] = "n-1"
    fixed_k: Annotated[int, Field(ge=1, le=255)] = 2
    ratio: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    weight: Literal["concave", "linear", "convex", "none"] = "concave"
    # The bounds are those of float32 (`fpl.losses`).
    curvature: Annotated[float, Field(ge=1e-30, le=1e30)] = 50.0
    # Coefficient of q in the convex weight. Unset: 4 (paper) or 1 (released CPS code).
    convex_coefficient: Annotated[float, Field(gt=0.0, le=1e30)] | None = None
    fidelity: Literal["paper", "released"] = "paper"
    # Rescales FPL to the value of cross-entropy at every step, in each group of images (data.groups) by itself. Unset:
    # only with fidelity = "released".
    balance: bool | None = None
    negative_threshold: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    supervised: Literal["ce", "ohem"] = "ce"
    ohem_threshold: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.7
    # Hard pixels that a group of images (data.groups) keeps at least.
    ohem_min_kept: Length = 50_000
    # Only for model.network = "ael": weight of the auxiliary head's supervised loss.
    auxiliary_weight: NotNegative = 0.4

    @model_validator(mode="after")
    def _normalise(self) -> LossConfig:
        if self.kind != "fpl":
            self._forget("threshold", "threshold_rule", *FUZZY_KEYS)
            self._set(balance=False)
        else:
            self._normalise_fuzzy()
        if "negative" not in self.kind:
            self._forget("negative_threshold")
        if self.supervised != "ohem":
            self._forget("ohem_threshold", "ohem_min_kept")
        return self

    def _normalise_fuzzy(self) -> None:
        released = self.fidelity == "released"
        if self.balance is None:
            self._set(balance=released)
        if self.strategy != "fixed":
            self._forget("fixed_k")
        if self.strategy != "ratio":
            self._forget("ratio")
        if self.strategy in ("fixed", "step"):
            self._forget("threshold", "threshold_rule")
        if self.weight != "concave":
            self._forget("curvature")
        if self.weight != "convex":
            self._forget("convex_coefficient")
        elif self.convex_coefficient is None:
            self._set(convex_coefficient=1.0 if released else 4.0)


class OptimConfig(Section):
    """SGD with the poly schedule. The rates are absolute: no worker count ever enters."""

    lr: AboveZero
    # The head (everything behind the backbone) trains at lr * head_lr_multiplier.
    head_lr_multiplier: AboveZero = 1.0
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    weight_decay: NotNegative = 1e-4
    # CPS decays convolution weights only; AEL decays everything.
    decay_norm_and_bias: bool = False
    poly_power: NotNegative = 0.9


class TrainConfig(Section):
    """Length and arithmetic of the training loop."""

    steps: Length
    # Validation every so many steps (and at the end); the best of these is kept beside the last.
    evaluate_every: Length
    # Of convolutions and products; losses compute in float32. "tf32" rounds what they multiply to 10 bits, as PyTorch's
    # own default does with convolutions on newer GPUs; with "float32" nothing is rounded.
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    channels_last: bool = False
    # Only for methods with a use for it (CPS with CutMix): what a network is asked without gradients, and what it is
    # trained on, go through it as one batch each, normalised part by part (`fpl.models.sub_batches`): same sums,
    # rounding apart. Dropout (network = "ael") is drawn layer by layer for the parts, in another order. Like the next,
    # no part of the identity while off.
    concatenate: Annotated[bool, Field(exclude_if=_off)] = False
    # Training passes through `torch.compile`: minutes before the first step, other rounding.
    compile: Annotated[bool, Field(exclude_if=_off)] = False
    deterministic: Literal["off", "warn", "strict"] = "off"


class EvalConfig(Section):
    """The protocol of the mIoU: part of the metric's name."""

    # "center" looks at the middle of each image alone, as AEL's training log does.
    protocol: Literal["sliding", "whole", "center"]
    # Window of the protocols sliding and center; unset: the training crop.
    crop: Size | None = None
    stride_rate: Annotated[float, Field(gt=0.0, le=1.0)] = 2 / 3
    # What overlapping windows add up: CPS sums logits, AEL averages probabilities.
    combine: Literal["logits", "probabilities"] = "logits"
    # A class that neither label nor prediction holds is left out of the mean ("skip") or counts 0 ("zero").
    absent: Literal["skip", "zero"] = "skip"
    # Validates on so many images, drawn once for all seeds; unset: all. AEL's VOC code takes as many as are labeled.
    subsample: Length | None = None

    @model_validator(mode="after")
    def _normalise(self) -> EvalConfig:
        if self.protocol == "whole":
            self._forget("crop")
        if self.protocol != "sliding":
            self._forget("stride_rate")
        return self
