"""Everything that decides a trained model, as one frozen value.

A `RunConfig` holds no paths, hosts, worker counts or log settings: two runs with equal configurations are the same
run. The batch size is global and the learning rate absolute, so the number of workers changes neither.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field, model_validator

from fpl.config.defaults import MOST_SEED
from fpl.config.registry import MethodConfig
from fpl.config.section import Section
from fpl.config.sections import (
    SUPERVISED_KEYS,
    DataConfig,
    EvalConfig,
    LossConfig,
    ModelConfig,
    OptimConfig,
    TrainConfig,
)

# The image-level pooling of the network and its dilated convolutions need at least this many pixels a side.
SMALLEST_CROP = 33
# Pixels of a step: fifty times those of the paper's largest.
MOST_PIXELS = 2**28


class RunConfig(Section):
    """One training run as a value."""

    seed: Annotated[int, Field(ge=0, le=MOST_SEED)] = 0
    data: DataConfig
    model: ModelConfig
    method: MethodConfig
    loss: LossConfig = LossConfig()
    optim: OptimConfig
    train: TrainConfig
    eval: EvalConfig

    @model_validator(mode="after")
    def _normalise(self) -> RunConfig:
        if not self.method.unlabeled:
            # No unsupervised term: its settings must not make it another run.
            kept = {key: value for key, value in self.loss if key.startswith(SUPERVISED_KEYS)}
            self._set(loss=LossConfig(**kept), data=self.data.model_copy(update={"unlabeled_batch": 0}))
        if self.data.groups is None:
            # Not before: the unlabeled batch of a supervised run has no part in it.
            groups = math.gcd(self.data.labeled_batch, self.data.unlabeled_batch)
            self._set(data=self.data.model_copy(update={"groups": groups}))
        if self.model.network != "ael":
            unused = {"auxiliary_weight": LossConfig.model_fields["auxiliary_weight"].default}
            self._set(loss=self.loss.model_copy(update=unused))
        self._set(**self.method.adapted(self))
        if self.data.padding_label is None:
            self._set(data=self.data.model_copy(update={"padding_label": 255}))
        if not self.method.may_concatenate:
            self._set(train=self.train.model_copy(update={"concatenate": False}))
        if self.train.evaluate_every > self.train.steps:
            # The end is validated in any case.
            self._set(train=self.train.model_copy(update={"evaluate_every": self.train.steps}))
        if self.eval.crop == self.data.crop:
            self._set(eval=self.eval.model_copy(update={"crop": None}))
        return self

    @model_validator(mode="after")
    def _check_sections_against_each_other(self) -> RunConfig:
        for problem in _problems(self):
            raise ValueError(problem)
        return self


def _problems(config: RunConfig) -> list[str]:
    """Contradictions between sections, the first of which is raised; each names the key and the way out."""
    data, loss, model = config.data, config.loss, config.model
    found = []
    if loss.kind == "fpl" and loss.strategy == "fixed" and loss.fixed_k > data.num_classes - 1:
        found.append(
            f"loss.fixed_k = {loss.fixed_k} leaves no negative class among data.num_classes = {data.num_classes}: "
            f"at most {data.num_classes - 1} is allowed"
        )
    if config.method.unlabeled and data.unlabeled_batch == 0:
        found.append(f"data.unlabeled_batch = 0: method {config.method.name} needs at least 1 unlabeled image a step")
    batches = {"labeled_batch": data.labeled_batch, "unlabeled_batch": data.unlabeled_batch}
    for key, size in batches.items():
        if size == 1 and model.norm == "batch":
            found.append(
                f"data.{key} = 1 with BatchNorm: the image-level pooling sees one value per channel. "
                f'Ways out: data.{key} = 2 or more, or model.norm = "frozen"'
            )
    if model.norm == "frozen" and model.pretrained == "none":
        found.append('model.norm = "frozen" needs model.pretrained = "imagenet": there are no statistics to freeze')
    for key, crop in {"data.crop": data.crop, "eval.crop": config.eval.crop or data.crop}.items():
        if min(crop) < SMALLEST_CROP:
            found.append(
                f"{key} = {list(crop)} is below {SMALLEST_CROP} x {SMALLEST_CROP}, the network's smallest input"
            )
    pixels = data.crop[0] * data.crop[1] * (data.labeled_batch + data.unlabeled_batch)
    if pixels > MOST_PIXELS:
        found.append(
            f"data.crop = {list(data.crop)} with data.labeled_batch + data.unlabeled_batch = "
            f"{data.labeled_batch + data.unlabeled_batch} is {pixels:,} pixels a step: at most {MOST_PIXELS:,}"
        )
    for key, size in batches.items():
        if data.groups is not None and size % data.groups:
            found.append(f"data.{key} = {size} is no multiple of data.groups = {data.groups}")
    if data.scale_sampling == "balanced" and not min(data.scales) <= 1 <= max(data.scales):
        found.append(f'data.scale_sampling = "balanced" needs scales on both sides of 1, not {list(data.scales)}')
    if data.split.holdout is not None and config.eval.subsample is not None:
        found.append(
            f"eval.subsample = {config.eval.subsample} draws from the validation part, but data.split.holdout = "
            f"{data.split.holdout} validates on labeled images instead: set one of the two"
        )
    return found + config.method.problems(config)
