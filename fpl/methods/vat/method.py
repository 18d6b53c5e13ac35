"""Virtual adversarial training (VAT): consistency of a student with an EMA teacher under an adversarial change.

Miyato et al., "Virtual adversarial training" (TPAMI 2018), in the form that French et al. give it for segmentation, in
their released code `train_seg_semisup_vat_mt.py`. Of an unlabeled image u, its colours changed by s, with student f and
teacher g, both as probabilities,

    r = e * unit_length(gradient by d of SUM KL(g(u) || g(s(u) + d))) at a small random d,
    consistency = c * mean over all pixels of  v * KL(g(u) || f(s(u) + r)),

where e is the length of the change, v is 0 on padding, and c is the share of pixels of which the teacher is sure. The
KL of the consistency is the pixel loss: with `loss.kind = "fpl"` it is the fuzzy positive loss, while the direction is
still found by KL.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, BatchRequest
from fpl.methods.base import Clock, Losses, NetworkBuilder, Workers
from fpl.methods.consistency import GatedConsistency
from fpl.methods.teacher import Ema, evaluating
from fpl.methods.vat.options import VatOptions
from fpl.methods.vat.perturbation import adaptive_radius, adversarial_direction, fixed_radius, unit_length
from fpl.models import SegmentationNetwork
from fpl.models.dropout import global_normal


class Vat(GatedConsistency):
    """A student and its EMA teacher; the teacher is evaluated.

    The teacher looks in eval mode, by averages of the student's running statistics: the released code puts it into that
    mode to find the direction and leaves it there.
    """

    request = BatchRequest(draws=1)
    options: VatOptions

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        assert isinstance(config.method, VatOptions)
        options = config.method
        ema = Ema(options.ema_decay, buffers=True, mode="eval")
        super().__init__(config, build_network, workers, options, ema)

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Supervised loss of the student, and its consistency with the teacher on adversarial images."""
        _, supervised = self.labeled_loss(self.network, self.network.raw(batch.image), batch.label)
        draw = batch.unlabeled[0]
        recoloured = self.recoloured(draw).image
        # The change is so small, and so is what it does, that bfloat16 would lose both.
        with torch.autocast(draw.image.device.type, enabled=False):
            teacher = self._evaluated_logits(self.teacher, draw.image)
            change = self._perturbation(draw.image, recoloured, teacher)
        student = self.train_logits(self.network, recoloured + change)
        term, rate = self.consistency(student, teacher, draw)
        return self.together(supervised, term, rate, clock)

    def _evaluated_logits(self, network: SegmentationNetwork, image: Tensor) -> Tensor:
        """Logits [B, C, h, w] where the losses see them, in eval mode and without a graph."""
        with evaluating(network), torch.no_grad():
            return self.train_logits(network, image)

    def _perturbation(self, image: Tensor, recoloured: Tensor, teacher: Tensor) -> Tensor:
        """The change [B, 3, H, W] that is added to recoloured images, a constant.

        Padding has a part in the direction, as released: its distance is summed over all pixels.
        """
        network, target = self.teacher, teacher
        if self.options.direction == "student":
            network, target = self.network, self._evaluated_logits(self.network, image)
        noise = global_normal(tuple(image.shape), image.device).to(image.dtype)
        start = unit_length(noise) * self.options.start_length(image.shape[-2], image.shape[-1])
        # In eval mode no statistics are gathered, and nothing is dropped.
        with evaluating(network):
            direction = adversarial_direction(
                lambda perturbed: self.train_logits(network, perturbed), target, recoloured, start
            )
        return direction * (adaptive_radius if self.options.adaptive_radius else fixed_radius)(
            recoloured, self.options.radius
        )
