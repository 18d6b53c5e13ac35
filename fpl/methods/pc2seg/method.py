"""PC2Seg (Zhong et al., ICCV 2021), as we read it: pixel consistency and pixel contrast between two views.

One network. Of an unlabeled image it sees a weak view, whose predictions p and features z are constants, and a strong
one, with other colours and a box cut out, whose pixels are left out as padding is:

    L = CE(labeled) + weight * mean over seen pixels of  SUM_c (p_c(strong) - p_c)^2
        + contrast_weight * mean over drawn pixels i of  -log(e_ii / (e_ii + SUM_j (1 - p_i . p_j) e_ij)),

where e_ij = exp(cos(z_i(strong), z_j) / temperature), and z comes from a projector on the embedding. The negatives j
are pixels of other images of the batch; each weighs the chance that it is of another class, by the predictions, which
is how false negatives are kept from counting. No features are remembered. The squared difference is the pixel loss:
with `loss.kind = "fpl"` the fuzzy positive loss takes its place, and nothing in this file changes.

No code of it is public; see the options for what is a choice of this suite.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, BatchRequest, Draw
from fpl.losses import PixelTerm
from fpl.losses.checks import to_compute
from fpl.losses.supervised import divide
from fpl.methods.base import Clock, Losses, Method, NetworkBuilder, Workers
from fpl.methods.optimizers import OptimizerSpec, Scheduled, make_optimizer
from fpl.methods.pc2seg.contrast import (
    contrast,
    drawn_positions,
    images_of_negatives,
    negative_weights,
    pixels_at,
    unit_pixels,
)
from fpl.methods.pc2seg.options import Pc2SegOptions
from fpl.methods.views import strong_draw
from fpl.models.dropout import global_uniform
from fpl.models.network import Details, nearest, projector


class _Pool(NamedTuple):
    """Pixels of the weak view that are negatives of an image's anchors."""

    features: Tensor
    """[B, k, D], of length 1."""
    probabilities: Tensor
    """[B, k, C]; all 0 for a pixel of an image that shows nothing."""


class Pc2Seg(Method):
    """One network, which is evaluated, and a projector of its embedding."""

    request = BatchRequest(draws=1)

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        super().__init__(config, build_network, workers)
        assert isinstance(config.method, Pc2SegOptions)
        self.options = config.method
        self.projector: nn.Sequential | None = None
        if self.options.contrast_weight:
            self.projector = projector(self.network.classifier.in_channels, self.options.projector_channels)
        # The pixel loss takes the mean of squared errors over the classes.
        self.terms_per_pixel = config.data.num_classes if config.loss.kind == "mse" else 1

    def optimizers(self) -> dict[str, Scheduled]:
        """SGD over the network and the projector, which learns at the rate of heads."""
        added = [] if self.projector is None else [self.projector]
        return {"main": make_optimizer(OptimizerSpec.of(self.config.optim), [*self.networks(), *added])}

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Supervised loss, consistency and contrast; the passes are in this order, for BatchNorm's statistics."""
        options, draw = self.options, batch.unlabeled[0]
        _, supervised = self.labeled_loss(self.network, self.network.raw(batch.image), batch.label)
        strong = strong_draw(draw, self.config.seed, options.cutout_side)
        with torch.no_grad():
            weak = self.network.details(draw.image)
        seen = self.network.details(strong.image)

        term = self._consistency(seen.logits, weak.logits, strong)
        consistency = self.terms_per_pixel * self.pixel_loss.total([term])
        unsupervised = options.weight * consistency
        terms = {"supervised": supervised, "consistency": consistency}
        if self.projector is not None:
            terms["contrast"] = self._contrast(self.projector, seen, weak, strong.valid, draw.valid)
            unsupervised = unsupervised + options.contrast_weight * terms["contrast"]
        weighted = clock.ramp(options.ramp, "sigmoid") * unsupervised
        return Losses(
            {"main": supervised + weighted},
            supervised=supervised,
            unsupervised=weighted,
            terms=terms,
            pixel_terms={"unlabeled": term},
        )

    def _consistency(self, student: Tensor, teacher: Tensor, strong: Draw) -> PixelTerm:
        """The pixel loss of the views' logits `[B, C, h, w]`, mean over the pixels that the strong view shows."""
        seen = self.thin(strong.valid).to(to_compute(student).dtype)
        term: PixelTerm = self.pixel_loss(
            student,
            teacher,
            seen,
            denominator=self.workers.average(seen.sum()),
            size=self._thin_size(strong.image),
            ground_truth=None if strong.truth is None else self.thin(strong.truth),
            groups=self.groups,
        )
        return term

    def _contrast(self, project: nn.Sequential, strong: Details, weak: Details, seen: Tensor, valid: Tensor) -> Tensor:
        """Mean over drawn pixels that the strong view shows; `seen` and `valid`, bool `[B, H, W]`, are the views'."""
        options, size = self.options, strong.embedding.shape[-2:]
        uniform = global_uniform((len(seen), options.anchors), seen.device)
        positions, counted = drawn_positions(nearest(seen, size).flatten(1), uniform)
        anchors = unit_pixels(project(strong.embedding), positions)
        with torch.no_grad():
            keys, probabilities = project(weak.embedding), to_compute(weak.logits).softmax(1)
            positives = unit_pixels(keys, positions)
            pool = self._negatives(keys, probabilities, nearest(valid, size).flatten(1))
            weights = negative_weights(
                pixels_at(probabilities, positions),
                pool.probabilities,
                debiased=options.debiased,
                confidence=options.negative_confidence,
            )
            # A pixel of an image that shows nothing has no class.
            weights = weights * (pool.probabilities.sum(-1) != 0).unsqueeze(1)
        loss = contrast(anchors, positives, pool.features, weights, options.temperature)
        kept = counted.to(loss.dtype)
        return divide((loss * kept).sum(), self.workers.average(kept.sum()))

    def _negatives(self, keys: Tensor, probabilities: Tensor, valid: Tensor) -> _Pool:
        """Negatives of each image's anchors: of the global batch, all constants.

        Each image offers as many pixels as an anchor has negatives. The n-th negative is the n-th pixel that a random
        image offers: so few features are exchanged, and no offer is taken twice for one image.

        Args:
            keys: Projected features `[B, D, h, w]` of the weak view.
            probabilities: Its predictions `[B, C, h, w]`.
            valid: bool `[B, h * w]`, false on padding.
        """
        options, workers = self.options, self.workers
        shape = (len(valid), options.negatives)
        positions, counted = drawn_positions(valid, global_uniform(shape, valid.device))
        classes = pixels_at(probabilities, positions) * counted.unsqueeze(-1)
        offered = workers.concatenate(torch.cat([unit_pixels(keys, positions), classes], -1))
        images = images_of_negatives(
            global_uniform(shape, valid.device),
            first=workers.rank * len(valid),
            images=len(offered),
            others=options.negative_images == "other",
        )
        chosen = offered[images, torch.arange(options.negatives, device=valid.device)]
        return _Pool(chosen[..., : keys.shape[1]], chosen[..., keys.shape[1] :])
