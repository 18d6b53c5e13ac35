"""Cross pseudo supervision (CPS), with and without CutMix.

Two networks of the same architecture and different heads see the same images; each learns from the other's
prediction. With `loss.kind = "fpl"` the pixel loss turns the one pseudo-label of a pixel into its fuzzy positives:
nothing in this file changes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.data.augment import cutmix_masks
from fpl.data.batches import Batch, BatchRequest, send
from fpl.methods.base import Clock, Losses, Method, NetworkBuilder, Workers
from fpl.methods.cps.options import CpsOptions
from fpl.methods.views import mix_draws
from fpl.models import SegmentationNetwork
from fpl.models.network import Raw
from fpl.models.sub_batches import prepare_sub_batches, sub_batches


class _Passes(NamedTuple):
    """What the cross supervision compares, at the classifiers' own resolution; lists hold one entry per network."""

    supervised: list[Tensor]
    """Losses on the labeled images."""
    students: list[Tensor]
    teachers: list[Tensor]
    second: list[Tensor] | None = None
    """Teachers' logits of CutMix's second images, which teach where..."""
    inside: Tensor | None = None
    """...this is true, bool [B, *size of the loss]."""
    truth: Tensor | None = None
    """Classes of what they are taught on, uint8 [B, *size of the loss]; for diagnostics, at steps that have them."""
    watched: Tensor | None = None
    """Which pixels statistics are of, where it is not all of them; bool as `inside`."""


class Cps(Method):
    """Two networks that teach each other; the first one is evaluated, as in the released code."""

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        super().__init__(config, build_network, workers)
        assert isinstance(config.method, CpsOptions)
        self.options = config.method
        self.network_2 = build_network()
        self.request = BatchRequest(draws=2 if self.options.cutmix else 1, pair=self.options.pair)
        if config.train.concatenate:
            for network in self.networks():
                prepare_sub_batches(network)

    def networks(self) -> list[SegmentationNetwork]:
        """Both networks."""
        return [self.network, self.network_2]

    def teaching_logits(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `[B, C, H, W]` of the first network and of the second, which teaches it."""
        return self.network(image), self.network_2(image)

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Supervised loss of both networks plus the cross supervision in both directions.

        The order of the forward passes is that of the released CPS code: BatchNorm's running statistics depend on it.
        """
        passes = self._mixed(batch) if self.options.cutmix else self._plain(batch)
        size = self._thin_size(batch.image)
        pixel_terms = {
            f"{student + 1}{teacher + 1}": self.pixel_loss(
                passes.students[student],
                passes.teachers[teacher].detach(),
                second=None if passes.second is None else passes.second[teacher],
                inside=passes.inside,
                size=size,
                ground_truth=passes.truth,
                watched=passes.watched,
                groups=self.groups,
            )
            for student, teacher in ((0, 1), (1, 0))
        }
        cross = self.pixel_loss.total(list(pixel_terms.values()))
        weighted = self.options.weight * clock.ramp(self.options.ramp) * cross
        supervised = passes.supervised
        both = supervised[0] + supervised[1]
        return Losses(
            {"main": both + weighted},
            supervised=both,
            unsupervised=weighted,
            terms={"supervised_1": supervised[0], "supervised_2": supervised[1], "cross": cross},
            pixel_terms=pixel_terms,
        )

    def _plain(self, batch: Batch) -> _Passes:
        """Without CutMix each network's logits are both: what it learns on, and what it teaches."""
        labeled, supervised = [], []
        for network in self.networks():
            raw = network.raw(batch.image)
            labeled.append(raw.logits)
            supervised.append(self.labeled_loss(network, raw, batch.label)[1])
        logits = [network.raw(batch.unlabeled[0].image).logits for network in self.networks()]
        truth, watched = batch.unlabeled[0].truth, None
        if self.options.on_labeled:
            logits = [self.by_group(*pair) for pair in zip(labeled, logits, strict=True)]
            truth = None if truth is None else self.by_group(batch.label.to(torch.uint8), truth)
            # The paper's statistics are of unlabeled pixels.
            parts = (torch.zeros_like(batch.valid), torch.ones_like(batch.unlabeled[0].valid))
            watched = self.thin(self.by_group(*parts))
        truth = None if truth is None else self.thin(truth)
        return _Passes(supervised, logits, logits, truth=truth, watched=watched)

    def _mixed(self, batch: Batch) -> _Passes:
        """With CutMix they learn on the mixed images, and their logits of the two images teach with the same masks."""
        networks = self.networks()
        first, second = batch.unlabeled
        mask = cutmix_masks(
            self.config.seed,
            first.position,
            (first.image.shape[-2], first.image.shape[-1]),
            boxes=self.options.cutmix_boxes,
            area=self.options.cutmix_area,
        )
        inside = send(mask, first.image.device)
        mixed = mix_draws(inside, first, second)
        # The teachers stay in train mode: batch statistics, and running statistics updated by these passes too.
        with torch.no_grad():
            taught = [self._raws(network, first.image, second.image) for network in networks]
        if self.config.train.concatenate:
            pairs = [self._raws(network, mixed.image, batch.image) for network in networks]
            students = [student.logits for student, _ in pairs]
            labeled = (raw for _, raw in pairs)
        else:
            students = [network.raw(mixed.image).logits for network in networks]
            labeled = (network.raw(batch.image) for network in networks)
        return _Passes(
            [self.labeled_loss(network, raw, batch.label)[1] for network, raw in zip(networks, labeled, strict=True)],
            students,
            [raw.logits for raw, _ in taught],
            [raw.logits for _, raw in taught],
            self.thin(inside),
            None if mixed.truth is None else self.thin(mixed.truth),
        )

    def _raws(self, network: SegmentationNetwork, *images: Tensor) -> list[Raw]:
        """Passes of several images through one network: one after the other, or concatenated if so configured."""
        if not self.config.train.concatenate:
            return [network.raw(image) for image in images]
        sizes = [len(image) for image in images]
        with sub_batches(network, sizes):
            joint = network.raw(torch.cat(images))
        return [Raw(*parts) for parts in zip(*(torch.split(part, sizes) for part in joint), strict=True)]
