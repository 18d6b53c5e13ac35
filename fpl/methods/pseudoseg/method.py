"""PseudoSeg (Zou et al., ICLR 2021): a strong view learns a soft label that two sources make of the weak one.

One network. Beside its decoder stands a branch that needs no decoder: an image classifier, trained on the tags of
labeled images, whose class activation maps (Grad-CAM) are refined by self-attention over the backbone's features and
brought to logits. Of the weak view of an unlabeled image u, with decoder logits z and refined logits m,

    label = Sharpen(1/2 softmax(z / r) + 1/2 softmax(m / r)),       r: joint root mean square,
    L = CE(z_x, y) + CE(m_x, y) + BCE(tags_x, tags of y)            labeled images x
        + weight * mean over seen pixels of CE(z of the strong view, label).

The label is a constant. The strong view has other colours and a box cut out, which is not seen, as padding is not. That
cross-entropy with a soft label is the pixel loss: with `loss.kind = "fpl"` the label's fuzzy positives take its place,
and nothing in this file changes. ("soft" is the KL divergence: less by the label's entropy, of the same gradient.)

It is taken at the decoder's own positions, a quarter of the image's size, as released. Not as released: the passes of
labeled images are one and not two, which are equal; a dropout of one half before the image classifier, which belongs to
the authors' Xception and not to their ResNets, is left out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, BatchRequest, Draw
from fpl.data.spec import has_background
from fpl.losses import PixelTerm
from fpl.losses.checks import to_compute
from fpl.methods.base import Clock, Losses, Method, NetworkBuilder, Workers
from fpl.methods.gates import gate
from fpl.methods.optimizers import OptimizerSpec, Scheduled, make_optimizer
from fpl.methods.pseudoseg.activation import ActivationBranch
from fpl.methods.pseudoseg.fusion import fused_label
from fpl.methods.pseudoseg.options import PseudoSegOptions
from fpl.methods.teacher import evaluating
from fpl.methods.views import strong_draw
from fpl.models.network import Details, nearest, resize


class PseudoSeg(Method):
    """One network, which is evaluated, and the branch of its class activation maps."""

    request = BatchRequest(draws=1)

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        super().__init__(config, build_network, workers)
        assert isinstance(config.method, PseudoSegOptions)
        self.options = config.method
        self.branch: ActivationBranch | None = None
        if self.options.class_activation:
            _, middle, high = self.network.backbone.out_channels
            self.branch = ActivationBranch(
                middle,
                high,
                config.data.num_classes,
                background=has_background(config.data.dataset),
                attention_channels=self.options.attention_channels,
            )

    def optimizers(self) -> dict[str, Scheduled]:
        """SGD over the network and the branch, which learns at the rate of heads."""
        added = [] if self.branch is None else [self.branch]
        return {"main": make_optimizer(OptimizerSpec.of(self.config.optim), [*self.networks(), *added])}

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Losses of labeled images, and the consistency of the strong view with the label of the weak one."""
        labeled = self.network.details(batch.image)
        _, supervised = self.labeled_loss(self.network, labeled.raw, batch.label)
        terms = {"supervised": supervised}
        if self.branch is not None:
            terms |= self._branch_losses(self.branch, labeled, batch)
        on_labels = torch.stack(list(terms.values())).sum()

        draw = batch.unlabeled[0]
        strong = strong_draw(draw, self.config.seed, self.options.cutout_side)
        label = self._label(draw.image, strong.valid, self.groups)
        student = self.network.raw(strong.image).logits
        term = self._consistency(student, label, strong)
        consistency = self.pixel_loss.total([term])
        weighted = self.options.weight * clock.ramp(self.options.ramp, "sigmoid") * consistency
        return Losses(
            {"main": on_labels + weighted},
            supervised=on_labels,
            unsupervised=weighted,
            terms={**terms, "consistency": consistency},
            pixel_terms={"unlabeled": term},
        )

    def teaching_logits(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `[B, C, H, W]` of the decoder, and of the fused label."""
        seen = torch.ones_like(image[:, 0], dtype=torch.bool)
        # One picture does not depend on which others are made with it.
        return self.network(image), resize(self._label(image, seen, len(image)), image.shape[-2:])

    def _branch_losses(self, branch: ActivationBranch, labeled: Details, batch: Batch) -> dict[str, Tensor]:
        """CE of the refined maps of labeled images, whose tags are known, and binary cross-entropy of the tags."""
        judged, activations = branch.classify(labeled.features)
        tags = branch.tags(batch.label)
        seen = nearest(batch.valid, labeled.logits.shape[-2:])
        refined = resize(branch.refine(labeled.features, activations, tags, seen), self._thin_size(batch.label))
        return {
            "activation": self.supervised_loss(refined, batch.label),
            "classification": F.binary_cross_entropy_with_logits(judged, tags.to(judged.dtype)),
        }

    @torch.no_grad()
    def _label(self, image: Tensor, seen: Tensor, groups: int) -> Tensor:
        """The fused label of images `[B, 3, H, W]` as log-probabilities `[B, C, h, w]`, at the decoder's positions.

        `seen`, bool `[B, H, W]`, is false where no position may look at.
        """
        options, branch = self.options, self.branch
        details = self.network.details(image)
        decoder, refined = to_compute(details.logits), None
        if branch is not None:
            features, size = details.features, decoder.shape[-2:]
            if options.activation_mode == "eval":
                with evaluating(self.network.backbone):
                    features = self.network.encode(image)
            judged, activations = branch.classify(features)
            # Not "judged >= 0": what is no number passes, so that the loss sees it.
            refined = resize(branch.refine(features, activations, ~(judged < 0), nearest(seen, size)), size)
        return fused_label(
            decoder,
            refined,
            temperature=options.temperature,
            decoder_share=options.decoder_share,
            normalised=options.normalised,
            groups=groups,
        )

    def _consistency(self, student: Tensor, label: Tensor, strong: Draw) -> PixelTerm:
        """The pixel loss of the strong view's logits `[B, C, h, w]`, its mean over the pixels that are seen.

        A gate leaves pixels out of the sum alone, as released.
        """
        size = student.shape[-2:]
        seen = nearest(strong.valid, size).to(label.dtype)
        sure = gate(label, self.options.confidence_gate, "pixel", self.workers)
        term: PixelTerm = self.pixel_loss(
            student,
            label,
            seen * sure,
            denominator=self.workers.average(seen.sum()),
            ground_truth=None if strong.truth is None else nearest(strong.truth, size),
            groups=self.groups,
        )
        return term
