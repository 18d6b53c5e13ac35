"""Everything that decides a trained model, as one frozen value.

A `RunConfig` holds no paths, hosts, worker counts or log settings: two runs with equal configurations are the same
run. The batch size is global and the learning rate absolute, so the number of workers changes neither.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

PositiveInt = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Size = tuple[PositiveInt, PositiveInt]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]

# The image-level pooling of the network and its dilated convolutions need at least this many pixels a side.
SMALLEST_CROP = 33


class Section(BaseModel):
    """A frozen table of the configuration that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class SplitConfig(Section):
    """Which images are labeled.

    `labeled` and `unlabeled` are the first 16 hex digits of the SHA-256 of the two id lists. They are filled from
    the split files before a run starts, so that two lists of the same length can never be taken for each other.
    """

    family: str = "every-nth"
    fraction: Annotated[str, Field(pattern=r"^(1/[1-9]\d*|[1-9]\d*)$")]
    # Which of the splits of this fraction: an axis of its own beside the seed. 0 is the published one.
    index: Annotated[int, Field(ge=0)] = 0
    labeled: Digest | None = None
    unlabeled: Digest | None = None


class DataConfig(Section):
    """Data set, split, augmentation and global batch."""

    dataset: str
    num_classes: Annotated[int, Field(ge=2)]
    split: SplitConfig
    # Images are read at 1/downscale of their size; validation still counts every pixel of the original label.
    downscale: PositiveInt = 1
    crop: Size
    # "choice" draws one of `scales`; "uniform" draws between its smallest and largest value.
    scales: tuple[Annotated[float, Field(gt=0.0, le=10.0)], ...] = (0.5, 0.75, 1.0, 1.5, 1.75, 2.0)
    scale_sampling: Literal["choice", "uniform"] = "choice"
    flip: bool = True
    labeled_batch: PositiveInt
    unlabeled_batch: Annotated[int, Field(ge=0)] = 0


class ModelConfig(Section):
    """The segmentation network. CPS trains two of them."""

    backbone: Literal["resnet50", "resnet101", "efficientnet_lite0", "tiny"]
    # "imagenet" or the explicit wish for random weights; there is no default on purpose.
    pretrained: Literal["imagenet", "none"]
    # Pins the weights file; the run refuses another one.
    pretrained_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")] | None = None
    norm: Literal["batch", "frozen"] = "batch"
    aspp_rates: tuple[PositiveInt, PositiveInt, PositiveInt] = (6, 12, 18)
    head_channels: PositiveInt = 256
    low_level_channels: PositiveInt = 48
    # Only for backbone = "tiny".
    tiny_width: PositiveInt = 16
    tiny_depth: PositiveInt = 1


class SupervisedConfig(Section):
    """Labeled images alone: the control of every table."""

    name: Literal["supervised"]


class CpsConfig(Section):
    """Cross pseudo supervision: two networks, each taught by the other's prediction."""

    name: Literal["cps"]
    # Weight of the unsupervised term (the lambda of CPS).
    weight: Annotated[float, Field(ge=0.0)]
    cutmix: bool
    # "other": CutMix takes two different images; "same": two crops of one image, as the released loaders do.
    pair: Literal["other", "same"] = "other"
    # Whether labeled images join the unsupervised term. Unset: yes without CutMix, no with it, as in the release.
    on_labeled: bool | None = None
    cutmix_boxes: PositiveInt = 3
    cutmix_area: tuple[Fraction, Fraction] = (0.25, 0.5)
    # Share of training over which the unsupervised weight rises linearly from 0; the paper has no ramp.
    ramp: Fraction = 0.0

    @model_validator(mode="before")
    @classmethod
    def _resolve_on_labeled(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("on_labeled") is None and "cutmix" in data:
            return {**data, "on_labeled": not data["cutmix"]}
        return data

    @model_validator(mode="after")
    def _check(self) -> CpsConfig:
        if self.cutmix and self.on_labeled:
            raise ValueError(
                "on_labeled = true with cutmix = true is no published recipe: "
                "with CutMix the unsupervised term covers the mixed unlabeled images only"
            )
        if self.cutmix_area[0] > self.cutmix_area[1]:
            raise ValueError(f"cutmix_area {list(self.cutmix_area)} is not ordered from small to large")
        return self


MethodConfig = Annotated[SupervisedConfig | CpsConfig, Field(discriminator="name")]

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

    kind: Literal["ce", "fpl", "soft", "negative", "ce+negative", "mse"] = "ce"
    # Upper bound T on the cumulative probability of the fuzzy positives (paper, Fuzzy Positive Assignment).
    threshold: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.9
    strategy: Literal["n-1", "n", "fixed", "step", "ratio"] = "n-1"
    fixed_k: PositiveInt = 2
    ratio: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    weight: Literal["concave", "linear", "convex", "none"] = "concave"
    curvature: Annotated[float, Field(gt=0.0)] = 50.0
    # Coefficient of q in the convex weight. Unset: 4 (paper) or 1 (released CPS code).
    convex_coefficient: Annotated[float, Field(gt=0.0)] | None = None
    fidelity: Literal["paper", "released"] = "paper"
    # Rescales FPL to the value of cross-entropy at every step. Unset: only with fidelity = "released".
    balance: bool | None = None
    negative_threshold: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    supervised: Literal["ce", "ohem"] = "ce"
    ohem_threshold: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.7
    ohem_min_kept: PositiveInt = 50_000
    # Images among which hard pixels compete: 1 is what eight GPUs with one image each compute.
    ohem_group: PositiveInt = 1

    @model_validator(mode="before")
    @classmethod
    def _normalise(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        kept = dict(data)
        kind = kept.get("kind", "ce")
        if kind == "fpl":
            if kept.get("balance") is None:
                kept["balance"] = kept.get("fidelity") == "released"
            unused = _unused_fuzzy_keys(kept)
        else:
            unused = {"threshold", *FUZZY_KEYS}
            kept["balance"] = False
        if "negative" not in str(kind):
            unused.add("negative_threshold")
        if kept.get("supervised", "ce") != "ohem":
            unused |= {"ohem_threshold", "ohem_min_kept", "ohem_group"}
        return {key: value for key, value in kept.items() if key == "balance" or key not in unused}


def _unused_fuzzy_keys(loss: dict[str, Any]) -> set[str]:
    strategy, weight = loss.get("strategy", "n-1"), loss.get("weight", "concave")
    unused = set()
    if strategy != "fixed":
        unused.add("fixed_k")
    if strategy != "ratio":
        unused.add("ratio")
    if weight != "concave":
        unused.add("curvature")
    if weight != "convex":
        unused.add("convex_coefficient")
    if strategy in ("fixed", "step"):
        unused.add("threshold")
    return unused


class OptimConfig(Section):
    """SGD with the poly schedule. The rates are absolute: no worker count ever enters."""

    lr: Annotated[float, Field(gt=0.0)]
    # The head (everything behind the backbone) trains at lr * head_lr_multiplier.
    head_lr_multiplier: Annotated[float, Field(gt=0.0)] = 1.0
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    weight_decay: Annotated[float, Field(ge=0.0)] = 1e-4
    # CPS decays convolution weights only; AEL decays everything.
    decay_norm_and_bias: bool = False
    poly_power: Annotated[float, Field(ge=0.0)] = 0.9


class TrainConfig(Section):
    """Length and arithmetic of the training loop."""

    steps: PositiveInt
    # Validation every so many steps (and at the end); the best of these is kept beside the last.
    evaluate_every: PositiveInt
    precision: Literal["float32", "bf16"] = "float32"
    channels_last: bool = False
    deterministic: Literal["off", "warn", "strict"] = "off"


class EvalConfig(Section):
    """The protocol of the mIoU: part of the metric's name."""

    protocol: Literal["sliding", "whole"]
    # Window of the sliding protocol; unset: the training crop.
    crop: Size | None = None
    stride_rate: Annotated[float, Field(gt=0.0, le=1.0)] = 2 / 3
    # What overlapping windows add up: CPS sums logits, AEL averages probabilities.
    combine: Literal["logits", "probabilities"] = "logits"
    # A class that neither label nor prediction holds is left out of the mean ("skip") or counts 0 ("zero").
    absent: Literal["skip", "zero"] = "skip"


class RunConfig(Section):
    """One training run as a value."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    data: DataConfig
    model: ModelConfig
    method: MethodConfig
    loss: LossConfig = LossConfig()
    optim: OptimConfig
    train: TrainConfig
    eval: EvalConfig

    @model_validator(mode="before")
    @classmethod
    def _drop_what_supervised_does_not_use(cls, data: Any) -> Any:
        """A supervised run has no unsupervised term: its settings must not make it another run."""
        method = data.get("method") if isinstance(data, dict) else None
        if not isinstance(method, dict) or method.get("name") != "supervised":
            return data
        loss = data.get("loss", {})
        kept = {key: loss[key] for key in loss if key.startswith(("supervised", "ohem_"))}
        return {**data, "loss": kept, "data": {**data.get("data", {}), "unlabeled_batch": 0}}

    @model_validator(mode="after")
    def _check_sections_against_each_other(self) -> RunConfig:
        for problem in _problems(self):
            raise ValueError(problem)
        return self


def _problems(config: RunConfig) -> list[str]:
    """Contradictions between sections, the first of which is raised; each names the key and the way out."""
    data, loss, model = config.data, config.loss, config.model
    problems = []
    if loss.kind == "fpl" and loss.strategy == "fixed" and loss.fixed_k > data.num_classes - 1:
        problems.append(
            f"loss.fixed_k = {loss.fixed_k} leaves no negative class among data.num_classes = {data.num_classes}: "
            f"at most {data.num_classes - 1} is allowed"
        )
    if config.method.name != "supervised" and data.unlabeled_batch == 0:
        problems.append(
            f"data.unlabeled_batch = 0: method {config.method.name} needs at least 1 unlabeled image a step"
        )
    batches = {"labeled_batch": data.labeled_batch, "unlabeled_batch": data.unlabeled_batch}
    for key, size in batches.items():
        if size == 1 and model.norm == "batch":
            problems.append(
                f"data.{key} = 1 with BatchNorm: the image-level pooling sees one value per channel. "
                f'Ways out: data.{key} = 2 or more, or model.norm = "frozen"'
            )
    if model.norm == "frozen" and model.pretrained == "none":
        problems.append('model.norm = "frozen" needs model.pretrained = "imagenet": there are no statistics to freeze')
    for key, crop in {"data.crop": data.crop, "eval.crop": config.eval.crop or data.crop}.items():
        if min(crop) < SMALLEST_CROP:
            problems.append(
                f"{key} = {list(crop)} is below {SMALLEST_CROP} x {SMALLEST_CROP}, the network's smallest input"
            )
    if data.labeled_batch % loss.ohem_group:
        problems.append(
            f"data.labeled_batch = {data.labeled_batch} is no multiple of loss.ohem_group = {loss.ohem_group}"
        )
    if not data.scales:
        problems.append("data.scales is empty: [1.0] leaves the images as they are")
    if config.train.evaluate_every > config.train.steps:
        problems.append(
            f"train.evaluate_every = {config.train.evaluate_every} is beyond train.steps = {config.train.steps}: "
            "nothing would be validated before the end"
        )
    return problems


def warnings_of(config: RunConfig) -> list[str]:
    """What is allowed but rarely meant, one sentence each."""
    found = []
    if config.method.name == "cps" and config.method.weight == 0.0:
        found.append("method.weight = 0: the unlabeled images have no influence on this run")
    if config.loss.kind == "fpl" and config.loss.strategy == "n" and config.loss.balance:
        found.append("loss.balance with strategy n divides by a loss that is 0 wherever all classes are positive")
    if config.loss.kind == "fpl" and config.loss.strategy == "step" and config.data.num_classes < 4:
        found.append(f"loss.strategy = step starts at K = 3; {config.data.num_classes} classes cap it")
    return found


def worker_problem(config: RunConfig, workers: int) -> str | None:
    """Why `workers` processes cannot share the global batch exactly, or None if they can."""
    sizes = {"labeled_batch": config.data.labeled_batch, "unlabeled_batch": config.data.unlabeled_batch}
    for key, size in sizes.items():
        if size % workers:
            fits = [count for count in range(1, size + 1) if size % count == 0]
            return f"data.{key} = {size} cannot be shared equally by {workers} workers: {fits} can"
    per_worker = config.data.labeled_batch // workers
    if per_worker % config.loss.ohem_group:
        return f"loss.ohem_group = {config.loss.ohem_group} does not divide the {per_worker} labeled images of a worker"
    return None
