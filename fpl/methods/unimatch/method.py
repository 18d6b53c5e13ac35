"""UniMatch (Yang et al., CVPR 2023), and FixMatch for segmentation as its paper has it.

One network, which teaches itself. With labels y of x, the weak view w of an unlabeled image, strong views s1 and s2 of
it, and w' whose low and high features lost half of their channels,

    L = CE(x, y) + weight * ( 1/4 d(s1, w) + 1/4 d(s2, w) + 1/2 d(w', w) ),
    d(s, w) = sum over pixels with max p(w) >= gate of CE(s, argmax w) / number of pixels that show image;

FixMatch is CE(x, y) + weight * d(s1, w). Each strong view has colours of its own, and by chance a box of a partner: of
another image, whose strong view fills it, and whose weak prediction, by running statistics, teaches there. Predictions
that teach are constants. The cross-entropy of d is the pixel loss: with `loss.kind = "fpl"` it turns one pseudo-label
into its fuzzy positives, and nothing in this file changes.

As released, x, w and w' share a pass, batch statistics included (x loses channels with w', and nothing learns from
that), and s1 and s2 another; numbers of pixels are those of a group of images, as of one process there. Released, all
of L is halved: see `UniMatchOptions.weight`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, BatchRequest, Draw, send
from fpl.losses import PixelTerm
from fpl.methods.base import Clock, Losses, Method, NetworkBuilder, Workers
from fpl.methods.gates import gate
from fpl.methods.teacher import evaluating
from fpl.methods.unimatch.boxes import box_masks
from fpl.methods.unimatch.options import UniMatchOptions
from fpl.methods.views import StrongView, mix, mix_draws, recoloured
from fpl.models.backbone import Features
from fpl.models.dropout import GlobalDropout2d
from fpl.models.network import Raw

# `dataset/semi.py` and `blur` of the released code.
COLOURS = StrongView(0.5, 0.5, 0.5, 0.25, jitter=0.8, grey=0.2, blur=0.5, sigmas=(0.1, 2.0))


class UniMatch(Method):
    """One network, which is evaluated."""

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        super().__init__(config, build_network, workers)
        assert isinstance(config.method, UniMatchOptions)
        self.options = config.method
        self.request = BatchRequest(draws=2, pair=self.options.pair)
        self.feature_dropout = GlobalDropout2d(self.options.feature_dropout)

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Supervised loss, and the consistency of strong views and perturbed features with the weak view."""
        options, (weak, partner) = self.options, batch.unlabeled
        with torch.no_grad(), evaluating(self.network):
            of_partner = self.train_logits(self.network, partner.image)
        labeled, clean, perturbed = self._weak_passes(batch, weak)
        _, supervised = self.labeled_loss(self.network, labeled, batch.label)
        teacher = clean.detach()

        views, taught = self._strong_views(weak, partner, teacher, of_partner)
        share = (1.0 - options.feature_share) / len(views)
        terms = {
            f"strong_{number + 1}": self._term(student, taught[number], views[number], share)
            for number, student in enumerate(self._strong_passes(views))
        }
        if perturbed is not None:
            terms["features"] = self._term(perturbed, teacher, weak, options.feature_share)
        consistency = self.pixel_loss.total(list(terms.values()))
        weighted = options.weight * clock.ramp(options.ramp, "sigmoid") * consistency
        rate = gate(teacher, options.confidence_gate, "pixel", self.workers).mean()
        return Losses(
            {"main": supervised + weighted},
            supervised=supervised,
            unsupervised=weighted,
            terms={"supervised": supervised, "consistency": consistency, "confidence_rate": rate},
            pixel_terms=terms,
        )

    def _weak_passes(self, batch: Batch, weak: Draw) -> tuple[Raw, Tensor, Tensor | None]:
        """What the network computes of labeled images; logits of the weak view, and those of its perturbed features.

        Logits are where the losses see them; the last is None where no features are perturbed.
        """
        network, sizes = self.network, (len(batch.image), len(weak.image))
        image = self.by_group(batch.image, weak.image)
        perturbed = None
        if self.options.feature_share:
            features = network.encode(image)
            dropped = [self.feature_dropout(part) for part in (features.low, features.high)]
            low, high = (self.by_group(*pair) for pair in zip((features.low, features.high), dropped, strict=True))
            both = network.classifier(network.decode(Features(low, features.middle, high)))
            logits, of_dropped = self.apart(both, len(image), len(image))
            joint = Raw(logits, features.middle)
            perturbed = self.enlarged(Raw(self.apart(of_dropped, *sizes)[1], features.middle), image)
        else:
            joint = network.raw(image)
        labeled, unlabeled = self.raw_apart(joint, *sizes)
        return labeled, self.enlarged(unlabeled, image), perturbed

    def _strong_views(
        self, weak: Draw, partner: Draw, teacher: Tensor, of_partner: Tensor
    ) -> tuple[list[Draw], list[Tensor]]:
        """Strong views with a box of the partner's, and the logits [B, C, h, w] that teach each of them."""
        options, seed = self.options, self.config.seed
        size = (weak.image.shape[-2], weak.image.shape[-1])
        views, taught = [], []
        for number in range(options.strong_views):
            masks = box_masks(seed, weak.position, size, number, options.cutmix_probability)
            inside = send(masks, weak.image.device)
            # Two streams of views for each draw, so that whether there is a second one changes nothing of the first.
            first, second = (recoloured(draw, COLOURS, seed, number + by) for draw, by in ((weak, 0), (partner, 2)))
            views.append(mix_draws(inside, first, second))
            taught.append(mix(self.thin(inside), teacher, of_partner))
        return views, taught

    def _strong_passes(self, views: list[Draw]) -> list[Tensor]:
        """Logits of strong views where the losses see them; two go through the network together."""
        images = [view.image for view in views]
        if len(images) == 1:
            return [self.train_logits(self.network, images[0])]
        joint = self.train_logits(self.network, self.by_group(images[0], images[1]))
        return list(self.apart(joint, len(images[0]), len(images[1])))

    def _term(self, student: Tensor, teacher: Tensor, seen: Draw, share: float) -> PixelTerm:
        """The pixel loss of sure pixels over the number of those that show image, in each group; the groups' mean.

        Args:
            student: Logits [B, C, h, w].
            teacher: Of the same shape, a constant.
            seen: What the student saw, whose valid mask and truth count.
            share: What the value is multiplied by.
        """
        valid = self.thin(seen.valid)
        sure = gate(teacher, self.options.confidence_gate, "pixel", self.workers)
        by_group = valid.view(self.groups, -1).to(sure.dtype)
        # Where a group shows nothing but padding, 0 / 1.
        weight = by_group / by_group.sum(1, keepdim=True).clamp_min(1.0)
        term: PixelTerm = self.pixel_loss(
            student,
            teacher,
            sure * weight.view(valid.shape),
            denominator=self.groups / share,
            ground_truth=None if seen.truth is None else self.thin(seen.truth),
            groups=self.groups,
        )
        return term
