"""Adversarial learning for semi-supervised semantic segmentation (AdvSemSeg; Hung et al., BMVC 2018).

A discriminator D learns, pixel by pixel, to tell maps of true labels from the segmenter's maps of probabilities. The
segmenter learns from labels, to fool D, and from its own prediction of unlabeled images where D takes it for true.
With p_x, p_u the probabilities of labeled and unlabeled images, z_u the logits, y labels, and means over pixels:

    segmenter:      CE(p_x, y) - w_adv mean log D(p_x) - w_uadv mean log D(p_u)
                    + w_semi mean over {D(p_u) >= T_semi} of CE(z_u, argmax z_u)
    discriminator:  -1/2 mean log(1 - D(p_x and p_u)) - 1/2 mean log D(one-hot y)

Each objective moves the parameters of its own optimizer alone: p is a constant for the discriminator's, and D for the
segmenter's. With `loss.kind = "fpl"` the last term of the segmenter turns the self-label into its fuzzy positives: D
judges how true a map looks, not how sure it is, so that unsure pixels remain.

As released, pixels without a label have no part in the means over labeled images, on either side; padding of unlabeled
images has; targets of D are 0 and 1 (no label smoothing); means are those of one process, the global batch's. D sees
what all losses see, one pixel per `loss.stride` of each axis; published is every pixel. One thing is not as released:
where no self-label of a batch passes, that code drops the batch's adversarial term too; here it stays, as in the paper.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, BatchRequest
from fpl.data.spec import IGNORE
from fpl.losses import PixelTerm
from fpl.losses.checks import to_compute
from fpl.losses.supervised import divide
from fpl.methods.advsemseg.discriminator import Discriminator, true_maps
from fpl.methods.advsemseg.options import AdvSemSegOptions
from fpl.methods.base import Clock, Losses, Method, NetworkBuilder, Workers
from fpl.methods.optimizers import OptimizerSpec, Scheduled, make_optimizer


class AdvSemSeg(Method):
    """A segmenter, which is evaluated, and its discriminator."""

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        super().__init__(config, build_network, workers)
        assert isinstance(config.method, AdvSemSegOptions)
        self.options = config.method
        self.discriminator = Discriminator(config.data.num_classes, self.options.discriminator_channels)
        self.request = BatchRequest(draws=1, labeled_streams=2 if self.options.real_labels == "other" else 1)

    def optimizers(self) -> dict[str, Scheduled]:
        """SGD of the segmenter as `[optim]` has it; Adam of the discriminator, on the same schedule (`train.py`)."""
        adam = OptimizerSpec(
            self.options.discriminator_lr, kind="adam", power=self.config.optim.poly_power, betas=(0.9, 0.99)
        )
        return super().optimizers() | {"discriminator": make_optimizer(adam, [self.discriminator])}

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Objectives of both; the order of the segmenter's passes is that of the release (BatchNorm's statistics)."""
        options, draw = self.options, batch.unlabeled[0]
        unlabeled = self.train_logits(self.network, draw.image)
        labeled, supervised = self.labeled_loss(self.network, self.network.raw(batch.image), batch.label)
        p_unlabeled, p_labeled = (to_compute(logits).softmax(1) for logits in (unlabeled, labeled))
        known = self.thin(batch.label) != IGNORE

        adversarial = self._judged(self.discriminator(p_labeled), known, real=True)
        verdict = self.discriminator(p_unlabeled)
        semi_adversarial = self._judged(verdict, torch.ones_like(verdict, dtype=torch.bool), real=True)
        on_labels = supervised + options.adversarial_weight * adversarial
        fooling = options.unlabeled_adversarial_weight * (clock.progress >= options.unlabeled_adversarial_start)
        unsupervised = fooling * semi_adversarial
        terms = {"supervised": supervised, "adversarial": adversarial, "semi_adversarial": semi_adversarial}
        pixel_terms = {}
        if options.self_labels:
            truth = None if draw.truth is None else self.thin(draw.truth)
            kept = self._kept(verdict)
            pixel_terms["self"] = term = self._self_taught(unlabeled, kept, truth)
            semi = self.pixel_loss.total([term])
            unsupervised = unsupervised + options.weight * (clock.progress >= options.start) * semi
            terms |= {"semi": semi, "semi_share": kept.mean()}
        discriminator = self._discriminator_loss(p_labeled, known, p_unlabeled, batch)
        return Losses(
            {"main": on_labels + unsupervised, "discriminator": discriminator},
            supervised=on_labels,
            unsupervised=unsupervised,
            terms={**terms, "discriminator": discriminator},
            pixel_terms=pixel_terms,
        )

    @torch.no_grad()
    def _kept(self, verdict: Tensor) -> Tensor:
        """Weights `[B, h, w]`, 0 or 1, of self-labels by the verdicts: the indicator of the paper's L_semi.

        A verdict that is no number passes, so that the loss sees it.
        """
        return (~(verdict.sigmoid() < self.options.discriminator_threshold)).to(verdict.dtype)

    def _self_taught(self, logits: Tensor, kept: Tensor, truth: Tensor | None) -> PixelTerm:
        """The paper's L_semi: unlabeled images' logits `[B, C, h, w]` taught by themselves, mean over kept pixels.

        `truth`, uint8 `[B, h, w]`, is for diagnostics alone.
        """
        term: PixelTerm = self.pixel_loss(
            logits,
            logits.detach(),
            kept,
            denominator=self.workers.average(kept.sum()),
            ground_truth=truth,
            groups=self.groups,
        )
        return term

    def _discriminator_loss(self, labeled: Tensor, known: Tensor, unlabeled: Tensor, batch: Batch) -> Tensor:
        """The paper's L_D, halved as released: predictions `[B, C, h, w]` are false maps, one-hot labels true ones.

        False maps of labeled images count where their label is known, `known` bool `[B, h, w]`.
        """
        fake, counted = labeled.detach(), known
        if self.options.unlabeled_fakes:
            fake = torch.cat([fake, unlabeled.detach()])
            counted = torch.cat([known, torch.ones_like(unlabeled[:, 0], dtype=torch.bool)])
        label = self.thin(batch.more_labeled[0].label if batch.more_labeled else batch.label)
        real = true_maps(label, self.config.data.num_classes).to(fake.dtype)
        fake_loss = self._judged(self.discriminator(fake), counted, real=False)
        return 0.5 * (fake_loss + self._judged(self.discriminator(real), label != IGNORE, real=True))

    def _judged(self, verdict: Tensor, counted: Tensor, *, real: bool) -> Tensor:
        """Binary cross-entropy of verdicts `[B, h, w]` with one answer, the mean over counted pixels.

        Averaged over the workers it is the mean over the global batch, which over no pixels is 0.
        """
        wrong = -F.logsigmoid(verdict if real else -verdict) * counted
        return divide(wrong.sum(), self.workers.average(counted.sum().to(verdict.dtype)))
