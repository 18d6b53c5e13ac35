"""U2PL: semi-supervised semantic segmentation using unreliable pseudo-labels (Wang et al., CVPR 2022).

With x labeled images, u unlabeled ones, mixed by CutMix, and H the entropy of the teacher's prediction,

    L = L_s(x) + lambda_u * mean over reliable pixels of CE(student(u), pseudo-label) + lambda_c L_c,

where a pixel is reliable unless H is among the highest 20 %, a share that falls to 0 over training; lambda_u is the
number of pixels over that of reliable ones; and L_c is the contrast in which unreliable pixels are negatives
(`fpl.methods.contrast`). The cross-entropy is the pixel loss: with `loss.kind = "fpl"` it turns one pseudo-label into
its fuzzy positives, and nothing in this file changes.

As in the released code, the teacher looks twice: in eval mode at the images, for pseudo-labels, and in train mode at
labeled and mixed images together, for entropies, probabilities and representations; the student sees these together,
too. Percentiles, lambda_u and the contrast are those of a group of images, as of one process there. Padding of
unlabeled images counts. An auxiliary head, which learns from labels alone, sees their images alone. The box of CutMix
has the released area, but a log-uniform aspect, as everywhere in this suite.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.data.augment import FOR_CHOICE, cutmix_masks, seeded
from fpl.data.batches import Batch, BatchRequest, Draw, send
from fpl.losses import PixelTerm
from fpl.methods.base import Clock, Losses, NetworkBuilder, Workers
from fpl.methods.contrast import Contrast, Evidence
from fpl.methods.optimizers import OptimizerSpec, Scheduled, make_optimizer
from fpl.methods.reliability import lowest, pixel_entropy
from fpl.methods.teacher import Ema, TaughtMethod, evaluating
from fpl.methods.u2pl.options import U2plOptions
from fpl.methods.views import mix, mix_draws
from fpl.models.network import Details

# Stream of random choices.
MIXED = 0
# Half of the image, as released (`generate_cutout_mask`).
BOX_AREA = (0.5, 0.5)


class U2pl(TaughtMethod):
    """A student and its EMA teacher, which is evaluated, with a head of representations each."""

    request = BatchRequest(draws=1)

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        assert isinstance(config.method, U2plOptions)
        options = config.method
        super().__init__(config, build_network, workers, Ema(options.ema_decay, warm_up=True))
        self.options = options
        self.contrast: Contrast | None = None
        if options.contrast.weight:
            features = self.network.fused_channels
            self.contrast = Contrast(options.contrast, features, config.data.num_classes, workers)

    def optimizers(self) -> dict[str, Scheduled]:
        """SGD over the student and its representation head, which learns at the rate of heads."""
        heads = [] if self.contrast is None else [self.contrast.head]
        return {"main": make_optimizer(OptimizerSpec.of(self.config.optim), [*self.networks(), *heads])}

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """The sum of the three losses; during the warm-up the first alone."""
        if clock.progress < self.options.warm_up:
            return self._on_labels_alone(batch)
        draw = batch.unlabeled[0]
        with torch.no_grad(), evaluating(self.teacher):
            first_look = self.train_logits(self.teacher, draw.image)
        mixed, first_look = self._mix(draw, first_look)

        image, sizes = self.by_group(batch.image, mixed.image), (len(batch.image), len(mixed.image))
        student = self.network.details(image)
        on_labels, on_mixed = self.raw_apart(student.raw, *sizes)
        _, supervised = self.labeled_loss(self.network, on_labels, batch.label)
        logits = self.enlarged(on_mixed, image)
        with torch.no_grad():
            teacher = self.teacher.details(image)
            entropy = pixel_entropy(self.enlarged(self.raw_apart(teacher.raw, *sizes)[1], image))

        term = self._taught(logits, first_look, entropy, mixed.truth, clock)
        taught = self.pixel_loss.total([term])
        unsupervised = self.options.weight * taught
        terms = {"supervised": supervised, "pseudo_label": taught}
        if self.contrast is not None:
            options, label = self.options.contrast, self.thin(batch.label)
            terms["contrast"] = contrast = self._contrast(
                student, teacher, label, first_look.max(1).indices, entropy, clock
            )
            unsupervised = unsupervised + options.weight / options.divisor * contrast
        return Losses(
            {"main": supervised + unsupervised},
            supervised=supervised,
            unsupervised=unsupervised,
            terms=terms,
            pixel_terms={"unlabeled": term},
        )

    def after_step(self, clock: Clock) -> None:
        """Move the teacher and its head: copies of the student's at first, moving averages then."""
        options = self.options
        behind = max(0, round(clock.step - options.warm_up * clock.total))
        overwrite = clock.progress < options.warm_up + options.teacher_copies
        self.ema.update(self.teacher, self.network, behind, overwrite=overwrite)
        if self.contrast is not None:
            self.contrast.follow(self.ema, behind, overwrite=overwrite)

    def _on_labels_alone(self, batch: Batch) -> Losses:
        """A step of the warm-up. The teacher looks too, for the running statistics of its norm layers, as released."""
        _, supervised = self.labeled_loss(self.network, self.network.raw(batch.image), batch.label)
        with torch.no_grad():
            self.teacher.raw(batch.image)
        # The same terms at every step, for the history.
        nothing = 0.0 * supervised
        terms = {"supervised": supervised, "pseudo_label": nothing}
        if self.contrast is not None:
            terms["contrast"] = nothing
        return Losses({"main": supervised}, supervised=supervised, unsupervised=nothing, terms=terms)

    def _mix(self, draw: Draw, teacher: Tensor) -> tuple[Draw, Tensor]:
        """Unlabeled images with a box of the next one of their group in each, and the teacher's logits mixed alike.

        A group is mixed as a whole or not at all.
        """
        size = (draw.image.shape[-2], draw.image.shape[-1])
        masks = cutmix_masks(self.config.seed, draw.position, size, boxes=1, area=BOX_AREA)
        for group, positions in zip(masks.chunk(self.groups), draw.position.chunk(self.groups), strict=True):
            generator = seeded(self.config.seed, FOR_CHOICE, MIXED, int(positions[0]))
            if generator.random() >= self.options.cutmix_probability:
                group.zero_()
        inside = send(masks, draw.image.device)
        other = replace(draw, image=self._next(draw.image), valid=self._next(draw.valid))
        if draw.truth is not None:
            other.truth = self._next(draw.truth)
        return mix_draws(inside, draw, other), mix(self.thin(inside), teacher, self._next(teacher))

    def _next(self, images: Tensor) -> Tensor:
        """Of each image [B, ...] the next one of its group; of the last one the first."""
        return torch.cat([group.roll(-1, 0) for group in images.chunk(self.groups)])

    def _taught(
        self, student: Tensor, teacher: Tensor, entropy: Tensor, truth: Tensor | None, clock: Clock
    ) -> PixelTerm:
        """lambda_u times the mean over reliable pixels, of each group; then the mean of the groups.

        Args:
            student: Logits [B, C, h, w] where the losses see them.
            teacher: Those that pseudo-labels are of.
            entropy: [B, h, w], by which pixels are reliable.
            truth: uint8 [B, H, W], for diagnostics alone.
            clock: Where training stands.
        """
        reliable = lowest(entropy, 1.0 - self.options.unreliable * (1.0 - clock.progress), self.groups)
        by_group = reliable.view(self.groups, -1).to(entropy.dtype)
        # Of n pixels k are reliable: n / k times their mean, which is n^2 / k^2 times the sum over n.
        weight = (1.0 / by_group.mean(1, keepdim=True).square()) * by_group
        term: PixelTerm = self.pixel_loss(
            student,
            teacher,
            weight.view(reliable.shape),
            denominator=float(reliable.numel()),
            ground_truth=None if truth is None else self.thin(truth),
            groups=self.groups,
        )
        return term

    def _contrast(
        self, student: Details, teacher: Details, label: Tensor, pseudo_label: Tensor, entropy: Tensor, clock: Clock
    ) -> Tensor:
        """L_c of labeled and mixed images; 0 before its start. Labels and entropy are where the losses are."""
        assert self.contrast is not None
        if clock.progress < self.options.contrast.start:
            return label.new_zeros((), dtype=torch.float32)
        with torch.no_grad():
            of_teacher = self.contrast.teacher_head(teacher.fused)
        of_student = self.contrast.head(student.fused)
        seen = Evidence(of_student, of_teacher, teacher.logits, label, pseudo_label, entropy)
        return self.contrast.loss(seen, self.groups, clock.progress)
