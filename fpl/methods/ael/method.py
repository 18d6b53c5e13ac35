"""Adaptive equalization learning (AEL): an EMA teacher, and more training on the classes the student is unsure of.

As in the released AEL code, one step: paste unsure classes onto the labeled images; let the teacher predict them and
two unlabeled images per slot, the second one chosen because it holds an unsure class; cut a component of that class out
of it and into the first; train on labels, and on the teacher's predictions of both the labeled and the mixed images.
With `loss.kind = "fpl"` the pixel loss of the last two turns one pseudo-label into its fuzzy positives.

With `[method.contrast]` a contrast of unreliable pixels is added (`fpl.methods.contrast`), as in U2PL on AEL: of
labeled and mixed images, by the same teacher logits as the consistency. For it the teacher looks at the mixed images.

Random choices are drawn for a group or a slot of the global batch, so they do not depend on the number of workers; what
is remembered (`ael_bank`) is the same on all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fpl.config.schema import RunConfig
from fpl.data.augment import FOR_CHOICE, seeded
from fpl.data.batches import Batch, BatchRequest, Draw, PasteRequest
from fpl.losses import PixelTerm
from fpl.losses.checks import to_compute
from fpl.methods.ael.bank import ConfidenceBank, ImageBank
from fpl.methods.ael.mix import box_mask, component_box, copy_paste, pixel_weights, random_box
from fpl.methods.ael.options import AelOptions
from fpl.methods.base import Clock, ImageSource, Losses, NetworkBuilder, Workers
from fpl.methods.contrast import Contrast, Evidence
from fpl.methods.optimizers import OptimizerSpec, Scheduled, make_optimizer
from fpl.methods.reliability import pixel_entropy
from fpl.methods.teacher import Ema, TaughtMethod
from fpl.methods.views import mix, mix_draws
from fpl.models import SegmentationNetwork
from fpl.models.dropout import global_uniform
from fpl.models.network import Raw, resize

# Streams of random choices.
PASTED, MIXED = 0, 1


class _Look(NamedTuple):
    """What a network computed of images."""

    raw: Raw
    fused: Tensor | None
    """What representations are made of; None where no contrast asks."""


class Ael(TaughtMethod):
    """A student and its EMA teacher; the teacher is evaluated."""

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        assert isinstance(config.method, AelOptions)
        options = config.method
        ema = Ema(options.ema_decay, warm_up=True, buffers=options.ema_buffers, mode=options.teacher_mode)
        # A teacher of its own, not a copy: after the first step, whose decay is 0, its parameters are the student's.
        super().__init__(config, build_network, workers, ema, build_teacher=build_network)
        self.options = options
        self.confidence_bank = ConfidenceBank(config.data.num_classes, options.confidence_momentum)
        self.image_bank = ImageBank(config.data.num_classes, options.bank_area)
        self.source: ImageSource | None = None
        self.contrast: Contrast | None = None
        if options.contrast is not None:
            features = self.network.fused_channels
            self.contrast = Contrast(options.contrast, features, config.data.num_classes, workers)
        paste = None
        if options.copy_paste:
            assert options.paste_partner is not None
            paste = PasteRequest(options.paste_probability, options.paste_scales, options.paste_partner)
        self.request = BatchRequest(draws=1, paste=paste)

    def attach(self, source: ImageSource) -> None:
        """Read the images of adaptive CutMix from `source`."""
        self.source = source
        self.image_bank.resize(source.count)

    def optimizers(self) -> dict[str, Scheduled]:
        """SGD over the student and, if there is a contrast, its head, which learns at the rate of heads."""
        heads = [] if self.contrast is None else [self.contrast.head]
        return {"main": make_optimizer(OptimizerSpec.of(self.config.optim), [*self.networks(), *heads])}

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Supervised loss of the student, and its consistency with the teacher on labeled and on mixed images.

        The order of the forward passes is that of the released code: BatchNorm's running statistics depend on it.
        """
        image, label = self._paste(batch)
        contrasting = self.contrast is not None and clock.progress >= self.contrast.options.start
        student = self._look(self.network, image, contrasting)
        labeled, supervised = self.labeled_loss(self.network, student.raw, label)
        first = batch.unlabeled[0]
        second, wanted = self._choose(first)
        with torch.no_grad():
            teacher = self._look(self.teacher, image, contrasting)
            teacher_labeled = self.enlarged(teacher.raw, image)
            # Slot by slot, so that a worker's images are a contiguous share of the global batch.
            both = self.train_logits(self.teacher, torch.stack([first.image, second.image], dim=1).flatten(0, 1))
        mixed, teacher_mixed = self._mix(first, second, wanted, both)
        student_of_mixed = self._look(self.network, mixed.image, contrasting)
        student_mixed = self.enlarged(student_of_mixed.raw, image)
        # Before the consistency losses, which use the new values.
        self.confidence_bank.update(labeled, self.thin(label), self.groups, self.workers)
        terms = {
            "labeled": self._consistency(labeled, teacher_labeled, label.to(torch.uint8)),
            "mixed": self._consistency(student_mixed, teacher_mixed, mixed.truth),
        }
        values = {f"consistency_{name}": self.pixel_loss.total([term]) for name, term in terms.items()}
        both_values = values["consistency_labeled"] + values["consistency_mixed"]
        weighted = self.options.weight * clock.ramp(self.options.ramp) * both_values
        if self.contrast is not None:
            options, value = self.contrast.options, weighted.new_zeros(())
            if contrasting:
                looks = (student, student_of_mixed, teacher)
                value = self._contrast(self.contrast, looks, self.thin(label), mixed, teacher_mixed, clock)
            values["contrast"] = value
            weighted = weighted + options.weight / options.divisor * value
        return Losses(
            {"main": supervised + weighted},
            supervised=supervised,
            unsupervised=weighted,
            terms={"supervised": supervised, **values},
            pixel_terms=terms,
        )

    def after_step(self, clock: Clock) -> None:
        """Move the teacher, and its head, towards the student's."""
        super().after_step(clock)
        if self.contrast is not None:
            self.contrast.follow(self.ema, clock.step)

    def _paste(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Labeled images with pixels of the drawn classes of their partners, and the labels of both."""
        if batch.partner is None:
            return batch.image, batch.label
        classes = self.config.data.num_classes
        targets = np.setdiff1d(np.arange(classes), self.options.paste_excluded)
        chances = self.confidence_bank.paste_probabilities(targets)
        wanted = torch.zeros(self.groups, classes, dtype=torch.bool)
        for group in range(self.groups):
            number = (batch.step * self.workers.world_size + self.workers.rank) * self.groups + group
            generator = seeded(self.config.seed, FOR_CHOICE, PASTED, number)
            wanted[group, generator.choice(targets, self.options.paste_classes, p=chances)] = True
        wanted = wanted.repeat_interleave(len(batch.label) // self.groups, dim=0).to(batch.label.device)
        return copy_paste(batch.image, batch.label, batch.partner.image, batch.partner.label, wanted)

    def _choose(self, first: Draw) -> tuple[Draw, list[tuple[int, np.random.Generator]]]:
        """Second unlabeled images, and per slot the class that each was chosen for with the generator that chose."""
        assert self.source is not None, "attach a source of unlabeled images first"
        chances = self.confidence_bank.cutmix_probabilities()
        wanted, indices, images, valids = [], [], [], []
        for position in first.position.tolist():
            generator = seeded(self.config.seed, FOR_CHOICE, MIXED, position)
            chosen = int(generator.choice(len(chances), p=chances))
            index = self.image_bank.draw(chosen, generator)
            image, valid = self.source.read(index, position)
            wanted.append((chosen, generator))
            indices.append(index)
            images.append(image)
            valids.append(valid)
        second = Draw(torch.stack(images), torch.stack(valids), torch.tensor(indices), first.position)
        if first.truth is not None:
            truths = zip(indices, first.position.tolist(), strict=True)
            second.truth = torch.stack([self.source.truth(index, position) for index, position in truths])
        return second.to(first.image.device), wanted

    def _mix(
        self, first: Draw, second: Draw, wanted: list[tuple[int, np.random.Generator]], teacher: Tensor
    ) -> tuple[Draw, Tensor]:
        """Images with a box of the second in the first, and the teacher's logits mixed alike.

        The bank learns of both images.

        `teacher` has the logits of each slot's first and second image, one after the other.
        """
        prediction = teacher.max(1).indices
        self.image_bank.update(prediction, torch.stack([first.index, second.index], dim=1).flatten(), self.workers)
        grid = (prediction.shape[-2], prediction.shape[-1])
        size = (first.image.shape[-2], first.image.shape[-1])
        masks = []
        for (chosen, generator), classes in zip(wanted, prediction[1::2].cpu().numpy(), strict=True):
            box = component_box(classes == chosen, self.options.component_area, generator)
            masks.append(box_mask(box or random_box(grid, generator), grid, size))
        inside = torch.stack(masks).to(first.image.device)
        return mix_draws(inside, first, second), mix(self.thin(inside), teacher[::2], teacher[1::2])

    def _consistency(self, student: Tensor, teacher: Tensor, truth: Tensor | None) -> PixelTerm:
        """The pixel loss with AEL's weights; plain means and statistics are taken over all pixels.

        `truth`, uint8 `[B, H, W]`, is for diagnostics alone.
        """
        options = self.options
        sampled = options.sampling
        weights = pixel_weights(
            teacher,
            student,
            power=options.confidence_power,
            gate=options.confidence_gate,
            rates=self.confidence_bank.sampling_rates(options.sampling_power) if sampled else None,
            uniform=global_uniform(tuple(teacher[:, 0].shape), teacher.device) if sampled else None,
            groups=self.groups,
        )
        everywhere = torch.ones_like(weights, dtype=torch.bool)
        # The weights of all workers together sum to their number, and their mean is taken.
        term: PixelTerm = self.pixel_loss(
            student,
            teacher,
            weights,
            denominator=1.0,
            counted=everywhere,
            ground_truth=None if truth is None else self.thin(truth),
            groups=self.groups,
        )
        return term

    def _look(self, network: SegmentationNetwork, image: Tensor, contrasting: bool) -> _Look:
        """A pass through one of the networks."""
        if not contrasting:
            return _Look(network.raw(image), None)
        details = network.details(image)
        return _Look(details.raw, details.fused)

    def _contrast(
        self,
        contrast: Contrast,
        looks: tuple[_Look, _Look, _Look],
        label: Tensor,
        mixed: Draw,
        teacher_mixed: Tensor,
        clock: Clock,
    ) -> Tensor:
        """The contrast of labeled and mixed images, a scalar.

        Args:
            contrast: The contrast.
            looks: Of the student at labeled and at mixed images, of the teacher at labeled ones.
            label: int64 [B_labeled, h, w] where the losses see them.
            mixed: What is mixed.
            teacher_mixed: Logits [B_unlabeled, C, h, w], mixed alike, which pseudo-labels and entropies are of.
            clock: Where training stands.
        """
        student, student_of_mixed, teacher = looks
        small = (teacher.raw.logits.shape[-2], teacher.raw.logits.shape[-1])
        with torch.no_grad():
            # For representations alone: probabilities are those that teach.
            again = self._look(self.teacher, mixed.image, contrasting=True)
            constants = self._represented(contrast.teacher_head, teacher, again)
            logits = self.by_group(to_compute(teacher.raw.logits), resize(teacher_mixed, small))
        seen = Evidence(
            self._represented(contrast.head, student, student_of_mixed),
            constants,
            logits,
            label,
            teacher_mixed.max(1).indices,
            pixel_entropy(teacher_mixed),
        )
        return contrast.loss(seen, self.groups, clock.progress)

    def _represented(self, head: nn.Module, labeled: _Look, mixed: _Look) -> Tensor:
        """Representations by group. The two kinds of images are normalised apart, as their passes are."""
        return self.by_group(head(labeled.fused), head(mixed.fused))
