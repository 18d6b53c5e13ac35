"""Cross pseudo supervision (CPS), with and without CutMix.

Two networks of the same architecture and different heads see the same images; each learns from the other's
prediction. With `loss.kind = "fpl"` the pixel loss turns the one pseudo-label of a pixel into its fuzzy positives:
nothing in this file changes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fpl.config.methods import CpsConfig
from fpl.config.schema import RunConfig
from fpl.data.augment import cutmix_masks
from fpl.data.batches import Batch
from fpl.methods.base import Clock, Losses, Method, NetworkBuilder, Workers
from fpl.models import SegmentationNetwork


class Cps(Method):
    """Two networks that teach each other; the first one is evaluated, as in the released code."""

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        super().__init__(config, build_network, workers)
        assert isinstance(config.method, CpsConfig)
        self.options = config.method
        self.network_2 = build_network()
        self.draws = 2 if self.options.cutmix else 1
        self.pair = self.options.pair

    def networks(self) -> list[SegmentationNetwork]:
        """Both networks."""
        return [self.network, self.network_2]

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Supervised loss of both networks plus the cross supervision in both directions.

        The order of the forward passes is that of the released CPS code: BatchNorm's running statistics depend on it.
        """
        if self.options.cutmix:
            students, teachers = self._mixed(batch)
            passes = [self.labeled_pass(network, batch.image, batch.label) for network in self.networks()]
        else:
            passes = [self.labeled_pass(network, batch.image, batch.label) for network in self.networks()]
            unlabeled = [self.train_logits(network, batch.unlabeled[0].image) for network in self.networks()]
            students = teachers = unlabeled
            if self.options.on_labeled:
                students = teachers = [
                    torch.cat([logits, more]) for (logits, _), more in zip(passes, unlabeled, strict=True)
                ]
        pixel_terms = {
            "12": self.pixel_loss(students[0], teachers[1].detach()),
            "21": self.pixel_loss(students[1], teachers[0].detach()),
        }
        cross = self.pixel_loss.total(list(pixel_terms.values()), self.workers.average)
        supervised = [loss for _, loss in passes]
        weighted = self.options.weight * clock.ramp(self.options.ramp) * cross
        both = supervised[0] + supervised[1]
        return Losses(
            {"main": both + weighted},
            supervised=both,
            unsupervised=weighted,
            terms={"supervised_1": supervised[0], "supervised_2": supervised[1], "cross": cross},
            pixel_terms=pixel_terms,
        )

    def _mixed(self, batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
        """Students' logits on the CutMix images and the teachers' logits, mixed with the same masks."""
        first, second = batch.unlabeled
        mask = cutmix_masks(
            self.config.seed,
            first.position,
            (first.image.shape[-2], first.image.shape[-1]),
            boxes=self.options.cutmix_boxes,
            area=self.options.cutmix_area,
        )
        inside = mask.to(first.image.device).unsqueeze(1)
        # The teachers stay in train mode: batch statistics, and running statistics updated by these passes too.
        with torch.no_grad():
            teachers = [
                torch.where(self.thin(inside), second_logits, first_logits)
                for first_logits, second_logits in (
                    (self.train_logits(network, first.image), self.train_logits(network, second.image))
                    for network in self.networks()
                )
            ]
        mixed = torch.where(inside, second.image, first.image)
        return [self.train_logits(network, mixed) for network in self.networks()], teachers
