"""Mean teacher: the student's predictions of unlabeled images are drawn to those of its exponential average."""

from __future__ import annotations

import torch
from torch import Tensor

from example_methods.mean_teacher.options import MeanTeacherOptions
from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, BatchRequest
from fpl.methods.base import Clock, Losses, Method, NetworkBuilder, Workers
from fpl.methods.teacher import Ema, teacher_of


class MeanTeacher(Method):
    """A student and its average, which is evaluated."""

    request = BatchRequest(draws=1)

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        super().__init__(config, build_network, workers)
        assert isinstance(config.method, MeanTeacherOptions)
        self.options = config.method
        self.ema = Ema(self.options.decay)
        self.teacher = teacher_of(self.network)

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        _, supervised = self.labeled_loss(self.network, self.network.raw(batch.image), batch.label)
        draw = batch.unlabeled[0]
        with torch.no_grad():
            teacher = self.train_logits(self.teacher, draw.image)
        truth = None if draw.truth is None else self.thin(draw.truth)
        student = self.train_logits(self.network, draw.image)
        term = self.pixel_loss(student, teacher, ground_truth=truth, groups=self.groups)
        weighted = self.options.weight * self.pixel_loss.total([term])
        return Losses(
            {"main": supervised + weighted},
            supervised=supervised,
            unsupervised=weighted,
            terms={"supervised": supervised, "consistency": term.value},
            pixel_terms={"student": term},
        )

    def after_step(self, clock: Clock) -> None:
        self.ema.update(self.teacher, self.network, clock.step)

    def predict(self, image: Tensor) -> Tensor:
        logits: Tensor = self.teacher(image)
        return logits

    def teaching_logits(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return self.network(image), self.teacher(image)
