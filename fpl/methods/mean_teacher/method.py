"""Mean teacher (Tarvainen and Valpola 2017) for segmentation.

The student is trained; the teacher is the exponential average of what the student has been. Both look at the same
images, and the student's class probabilities are drawn to the teacher's:

    L = CE(student(x), y) + weight * ramp * d(student(x and u), teacher(x and u))
    teacher <- decay * teacher + (1 - decay) * student

with labeled images x, unlabeled images u and d the pixel loss, natively the mean squared difference of probabilities.
The two differ by their weights and by the batch statistics of their own passes; no noise is added (PixelSSL, which
offers it, found it to hurt).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, BatchRequest
from fpl.losses import PixelTerm
from fpl.methods.base import Clock, Losses, NetworkBuilder, Workers
from fpl.methods.mean_teacher.options import MeanTeacherOptions
from fpl.methods.teacher import Ema, TaughtMethod


class MeanTeacher(TaughtMethod):
    """A student and the average of its past."""

    request = BatchRequest(draws=1)

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        assert isinstance(config.method, MeanTeacherOptions)
        self.options = options = config.method
        ema = Ema(options.ema_decay, options.ema_warm_up, options.ema_buffers, options.teacher_mode)
        super().__init__(config, build_network, workers, ema, options.evaluated)

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Supervised loss of the student, and its consistency with the teacher.

        The order of the passes is TorchSemiSeg's: BatchNorm's running statistics depend on it.
        """
        draw = batch.unlabeled[0]
        # Each batch apart, as released: they share no batch statistics.
        labeled, supervised = self.labeled_loss(self.network, self.network.raw(batch.image), batch.label)
        pairs: dict[str, tuple[Tensor, Tensor, Tensor | None]] = {}
        if self.options.on_labeled:
            pairs["labeled"] = (labeled, self._taught(batch.image), batch.label.to(torch.uint8))
        if self.options.ema_moment == "forward":
            with torch.no_grad():
                self._follow(clock)
        pairs["unlabeled"] = (self.train_logits(self.network, draw.image), self._taught(draw.image), draw.truth)
        terms = self._consistency(pairs)
        consistency = self.pixel_loss.total(list(terms.values()))
        weighted = self.options.weight * clock.ramp(self.options.ramp, "sigmoid") * consistency
        return Losses(
            {"main": supervised + weighted},
            supervised=supervised,
            unsupervised=weighted,
            terms={"supervised": supervised, "consistency": consistency},
            # Statistics are of unlabeled pixels, as the paper of FPL has them.
            pixel_terms={"unlabeled": terms["unlabeled"]},
        )

    def after_step(self, clock: Clock) -> None:
        """Move the teacher towards the student, unless it has moved in the forward pass."""
        if self.options.ema_moment == "after_step":
            self._follow(clock)

    def _follow(self, clock: Clock) -> None:
        self.ema.update(self.teacher, self.network, clock.step)

    @torch.no_grad()
    def _taught(self, image: Tensor) -> Tensor:
        return self.train_logits(self.teacher, image)

    def _consistency(self, pairs: dict[str, tuple[Tensor, Tensor, Tensor | None]]) -> dict[str, PixelTerm]:
        """The pixel losses of student and teacher, whose values add up to the mean over all pixels of all pairs."""
        pixels = float(sum(student[:, 0].numel() for student, _, _ in pairs.values()))
        return {
            name: self.pixel_loss(
                student,
                teacher,
                denominator=pixels,
                ground_truth=None if truth is None else self.thin(truth),
                groups=self.groups,
            )
            for name, (student, teacher, truth) in pairs.items()
        }
