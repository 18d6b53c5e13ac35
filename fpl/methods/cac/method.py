"""Directional context-aware consistency (CAC; Lai et al., "Semi-supervised semantic segmentation with directional
context-aware consistency", CVPR 2021).

One network. Two overlapping crops of an unlabeled image show the same places in two contexts; features of a place are
to agree, the less sure one following the surer one, and to differ from those of other classes. With f the projected
features of length 1, c the highest probability of a place and y its class, of the overlap's places

    L_12 = mean over {c_2 > gate, c_1 < c_2} of
           -log( e^(f_1 . f_2 / t) / (e^(f_1 . f_2 / t) + SUM over {n: y_n != y_1} of e^(f_1 . f_n / t)) ),

f_2 and f_n constants, n of a bank of the last features of both views; L_21 alike. The loss is that of labels, and
weight * (L_12 + L_21) from a share of training on.

There is no place for another pixel loss in it. Two readings of FPL+CAC are this suite's: a feature is no negative where
its class is among the anchor's fuzzy positives, or the pixel loss is added on the overlap, the surer view teaching
(`options.py`). Not as published: features of padding are no negatives, and the views' blur comes behind other colours.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, BatchRequest, Draw
from fpl.losses import PixelTerm
from fpl.losses.checks import to_compute
from fpl.losses.supervised import divide
from fpl.methods.banks import EMPTY, QueueBank
from fpl.methods.base import Clock, Losses, Method, NetworkBuilder, Workers
from fpl.methods.cac.contrast import directional_contrast, fuzzy_classes, log_negatives, own_class
from fpl.methods.cac.crops import (
    Overlap,
    Views,
    cut,
    draw_views,
    middle_pixels,
    overlap,
    transferred,
    upright,
    whole_cells,
)
from fpl.methods.cac.options import CELL, CacOptions
from fpl.methods.cac.places import Places, Seen, mean_loss, places_of
from fpl.methods.optimizers import OptimizerSpec, Scheduled, make_optimizer
from fpl.methods.views import StrongView, recoloured
from fpl.models.network import projector

# Pixels of a side for which the embedding has one position, in all networks of this suite.
EMBEDDING_STRIDE = 4
# `train_transform` of the released code; the blur's deviation is what OpenCV takes for a kernel of 5.
COLOURS = StrongView(0.4, 0.4, 0.4, 0.1, jitter=0.8, grey=0.2, blur=0.5, sigmas=(1.1, 1.1), kernel=5)


class Cac(Method):
    """One network, which is evaluated, and a projector of its embedding."""

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        super().__init__(config, build_network, workers)
        assert isinstance(config.method, CacOptions)
        self.options = config.method
        self.view_size = self.options.view_size(config.data.crop)
        self.request = BatchRequest(draws=1, crop_scale=self.options.crop_scale)
        channels, projected = self.network.classifier.in_channels, self.options.projection_channels
        self.projector = projector(channels, projected)
        self.bank = QueueBank(self.options.bank_size, projected)

    def optimizers(self) -> dict[str, Scheduled]:
        """SGD over the network and the projector, which learns at the rate of heads."""
        return {"main": make_optimizer(OptimizerSpec.of(self.config.optim), [*self.networks(), self.projector])}

    def probe_parameters(self) -> list[nn.Parameter]:
        """The decoder below classifier and projector, where both losses meet."""
        return list(self.network.decoder.parameters())

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """L = L_ce + weight * (L_12 + L_21), and what our second reading adds.

        The order of the passes is that of the released code: BatchNorm's running statistics depend on it.
        """
        options = self.options
        _, supervised = self.labeled_loss(self.network, self.network.raw(batch.image), batch.label)
        if clock.progress < options.start:
            return self._from_labels(supervised)
        draw = batch.unlabeled[0]
        views = draw_views(
            draw, self.view_size, options.least_overlap, flip=self.config.data.flip, seed=self.config.seed
        )
        first, second = (self._seen(draw, views, number) for number in range(2))
        self._remember(first, second)
        grid = (first.valid.shape[-2], first.valid.shape[-1])
        overlaps = [overlap(view, grid) for view in views]
        one = places_of(first, [shared.first for shared in overlaps])
        other = places_of(second, [shared.second for shared in overlaps])
        contrast_12, contrast_21, kept_share = self._contrast(one, other)
        weighted = options.weight * (contrast_12 + contrast_21)
        terms = {"supervised": supervised, "contrast_12": contrast_12, "contrast_21": contrast_21}
        pixel_terms = {}
        # Where the loss has no part in the step its statistics are wanted all the same, of steps that are logged.
        if options.consistency_weight or self.pixel_loss.collect:
            pixel_terms["12"] = self._consistency(first, second, overlaps, back=False)
            pixel_terms["21"] = self._consistency(second, first, overlaps, back=True)
        if options.consistency_weight:
            terms["consistency"] = self.pixel_loss.total(list(pixel_terms.values()))
            weighted = weighted + options.consistency_weight * terms["consistency"]
        return Losses(
            {"main": supervised + weighted},
            supervised=supervised,
            unsupervised=weighted,
            terms={**terms, "kept_share": kept_share},
            pixel_terms=pixel_terms,
        )

    def _from_labels(self, supervised: Tensor) -> Losses:
        """What a step returns before the start: the same terms, those of unlabeled images 0."""
        nothing = 0 * supervised
        terms = {"supervised": supervised, "contrast_12": nothing, "contrast_21": nothing}
        if self.options.consistency_weight:
            terms["consistency"] = nothing
        terms["kept_share"] = nothing
        return Losses({"main": supervised}, supervised=supervised, unsupervised=nothing, terms=terms)

    def _seen(self, draw: Draw, views: list[Views], number: int) -> Seen:
        """The pass over the first (0) or second (1) views. Their features are those of the classifier, pooled."""
        view = cut(draw, views, number, self.view_size)
        if self.options.strong_colours:
            view = recoloured(view, COLOURS, self.config.seed, number)
        found = self.network.details(view.image)
        pooled = CELL // EMBEDDING_STRIDE
        features = F.normalize(to_compute(self.projector(F.avg_pool2d(found.embedding, pooled))), dim=1)
        # The classifier is linear: its logits of pooled features are its pooled logits.
        logits = F.avg_pool2d(to_compute(found.logits), pooled)
        features, logits, valid = (upright(maps, views, number) for maps in (features, logits, view.valid))
        with torch.no_grad():
            probabilities = logits.softmax(1)
            confidence, prediction = probabilities.max(1)
            if self.options.fuzzy_negatives:
                excluded = fuzzy_classes(probabilities, self.pixel_loss.rules)
            else:
                excluded = own_class(prediction, self.config.data.num_classes)
        truth = None if view.truth is None else middle_pixels(upright(view.truth, views, number))
        return Seen(features, logits, confidence, prediction, excluded, whole_cells(valid), truth)

    def _remember(self, first: Seen, second: Seen) -> None:
        """Put the features of both views into the bank, image after image, whoever trains on them."""
        features = torch.stack([first.features, second.features], dim=1).movedim(2, -1).flatten(0, 3)
        labels = [torch.where(seen.valid, seen.prediction, EMPTY) for seen in (first, second)]
        self.bank.push(features, torch.stack(labels, dim=1).flatten(), self.workers)

    def _contrast(self, one: Places, other: Places) -> tuple[Tensor, Tensor, Tensor]:
        """L_12, L_21, and the share of the overlaps' places that learn in either, scalars.

        A place is an anchor in one of them alone, as its less sure view has it: it is compared once for both.
        """
        options = self.options
        # What is no number passes, so that the losses see it.
        first_learns = ~(one.confidence >= other.confidence)
        second_learns = ~(other.confidence >= one.confidence)
        kept_12 = one.valid & first_learns & ~(other.confidence <= options.confidence_gate)
        kept_21 = one.valid & second_learns & ~(one.confidence <= options.confidence_gate)
        first = first_learns.unsqueeze(1)
        anchors = torch.where(first, one.features, other.features)
        positives = torch.where(first, other.features, one.features)
        excluded = torch.where(first, one.excluded, other.excluded)
        negatives = log_negatives(anchors, excluded, self.bank.features, self.bank.labels, options.temperature)
        losses = directional_contrast(anchors, positives, negatives, options.temperature)
        share = divide((kept_12 | kept_21).sum().to(losses.dtype), one.valid.sum())
        by_image = options.averaged_over == "overlap"
        contrast_12, contrast_21 = (
            mean_loss(losses, kept, one, self.workers, by_image=by_image) for kept in (kept_12, kept_21)
        )
        return contrast_12, contrast_21, share

    def _consistency(self, student: Seen, teacher: Seen, overlaps: list[Overlap], *, back: bool) -> PixelTerm:
        """Our second reading of FPL+CAC: the pixel loss of places that the teacher is surer of, their mean.

        No gate: of what passes one of 0.75 little is left for FPL to choose.
        """
        confidence = transferred(teacher.confidence.unsqueeze(1), overlaps, back=back).squeeze(1)
        taught = (student.valid & ~(student.confidence >= confidence)).to(confidence.dtype)
        term: PixelTerm = self.pixel_loss(
            student.logits,
            transferred(teacher.logits.detach(), overlaps, back=back),
            taught,
            denominator=self.workers.average(taught.sum()),
            ground_truth=student.truth,
            groups=self.groups,
        )
        return term
