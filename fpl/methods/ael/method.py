"""Adaptive equalization learning (AEL): an EMA teacher, and more training on the classes the student is unsure of.

As in the released AEL code, one step: paste unsure classes onto the labeled images; let the teacher predict them and
two unlabeled images per slot, the second one chosen because it holds an unsure class; cut a component of that class out
of it and into the first; train on labels, and on the teacher's predictions of both the labeled and the mixed images.
With `loss.kind = "fpl"` the pixel loss of the last two turns one pseudo-label into its fuzzy positives.

Random choices are drawn for a group or a slot of the global batch, so they do not depend on the number of workers; what
is remembered (`ael_bank`) is the same on all of them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.data.augment import FOR_CHOICE, seeded
from fpl.data.batches import Batch, BatchRequest, Draw, PasteRequest
from fpl.losses import PixelTerm
from fpl.methods.ael.bank import ConfidenceBank, ImageBank
from fpl.methods.ael.mix import box_mask, component_box, copy_paste, pixel_weights, random_box
from fpl.methods.ael.options import AelOptions
from fpl.methods.base import Clock, ImageSource, Losses, NetworkBuilder, Workers
from fpl.methods.teacher import Ema, TaughtMethod
from fpl.methods.views import mix, mix_draws
from fpl.models.dropout import global_uniform

# Streams of random choices.
PASTED, MIXED = 0, 1


class Ael(TaughtMethod):
    """A student and its EMA teacher; the teacher is evaluated."""

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        assert isinstance(config.method, AelOptions)
        options = config.method
        ema = Ema(options.ema_decay, warm_up=True, buffers=options.ema_buffers, mode=options.teacher_mode)
        super().__init__(config, build_network, workers, ema)
        self.options = options
        # A network of its own, not a copy: after the first step, whose decay is 0, its parameters are the student's.
        self.teacher = build_network().requires_grad_(False)
        self.confidence_bank = ConfidenceBank(config.data.num_classes, options.confidence_momentum)
        self.image_bank = ImageBank(config.data.num_classes, options.bank_area)
        self.source: ImageSource | None = None
        paste = None
        if options.copy_paste:
            assert options.paste_partner is not None
            paste = PasteRequest(options.paste_probability, options.paste_scales, options.paste_partner)
        self.request = BatchRequest(draws=1, paste=paste)

    def attach(self, source: ImageSource) -> None:
        """Read the images of adaptive CutMix from `source`."""
        self.source = source
        self.image_bank.resize(source.count)

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Supervised loss of the student, and its consistency with the teacher on labeled and on mixed images.

        The order of the forward passes is that of the released code: BatchNorm's running statistics depend on it.
        """
        image, label = self._paste(batch)
        labeled, supervised = self.labeled_loss(self.network, self.network.raw(image), label)
        first = batch.unlabeled[0]
        second, wanted = self._choose(first)
        with torch.no_grad():
            teacher_labeled = self.train_logits(self.teacher, image)
            # Slot by slot, so that a worker's images are a contiguous share of the global batch.
            both = self.train_logits(self.teacher, torch.stack([first.image, second.image], dim=1).flatten(0, 1))
        mixed, teacher_mixed = self._mix(first, second, wanted, both)
        student_mixed = self.train_logits(self.network, mixed.image)
        # Before the consistency losses, which use the new values.
        self.confidence_bank.update(labeled, self.thin(label), self.groups, self.workers)
        terms = {
            "labeled": self._consistency(labeled, teacher_labeled, label.to(torch.uint8)),
            "mixed": self._consistency(student_mixed, teacher_mixed, mixed.truth),
        }
        values = {name: self.pixel_loss.total([term]) for name, term in terms.items()}
        weighted = self.options.weight * clock.ramp(self.options.ramp) * (values["labeled"] + values["mixed"])
        return Losses(
            {"main": supervised + weighted},
            supervised=supervised,
            unsupervised=weighted,
            terms={"supervised": supervised, **{f"consistency_{name}": value for name, value in values.items()}},
            pixel_terms=terms,
        )

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
