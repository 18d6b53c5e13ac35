"""CutMix-Seg: consistency of a student on two mixed images with an EMA teacher's two predictions, mixed alike.

After French et al., "Semi-supervised semantic segmentation needs strong, varied perturbations" (BMVC 2020), and the
released code, `train_seg_semisup_mask_mt.py`. Of two unlabeled images u_0 and u_1 and a mask m of one box, with
mix(a, b) = (1 - m) a + m b, student f and teacher g, the consistency is

    r * mean over all pixels of  mix(v_0, v_1) * d(f(mix(s(u_0), s(u_1))), mix(g(u_0), g(u_1))),

where s changes colours, v is 0 on padding, and r is the share of pixels of which the teacher is sure. The distance d,
squared error of probabilities summed over classes, is the pixel loss: with `loss.kind = "fpl"` it is the fuzzy positive
loss, and nothing in this file changes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.data.augment import cutmix_masks
from fpl.data.batches import Batch, BatchRequest, Draw, send
from fpl.methods.base import Clock, Losses, NetworkBuilder, Workers
from fpl.methods.consistency import GatedConsistency
from fpl.methods.cutmix_seg.options import CutMixSegOptions
from fpl.methods.teacher import Ema
from fpl.methods.views import mix, mix_draws


class CutMixSeg(GatedConsistency):
    """A student and its EMA teacher; the teacher is evaluated."""

    request = BatchRequest(draws=2)
    options: CutMixSegOptions

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        assert isinstance(config.method, CutMixSegOptions)
        options = config.method
        ema = Ema(options.ema_decay, options.ema_warm_up, options.ema_buffers, options.teacher_mode)
        super().__init__(config, build_network, workers, options, ema)
        # The pixel loss takes the mean of squared errors over the classes.
        summed = config.loss.kind == "mse" and options.class_sum
        self.terms_per_pixel = config.data.num_classes if summed else 1

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Supervised loss of the student, and its consistency with the teacher on mixed images.

        The order of the forward passes is that of the released code: BatchNorm's running statistics depend on it.
        """
        _, supervised = self.labeled_loss(self.network, self.network.raw(batch.image), batch.label)
        first, second = batch.unlabeled
        inside = self._boxes(first)
        with torch.no_grad():
            teachers = [self.train_logits(self.teacher, draw.image) for draw in (first, second)]
            teacher = mix(self.thin(inside), *teachers)
        mixed = mix_draws(inside, self.recoloured(first, 0), self.recoloured(second, 1))
        student = self.train_logits(self.network, mixed.image)
        term, rate = self.consistency(student, teacher, mixed)
        return self.together(supervised, term, rate, clock, self.terms_per_pixel)

    def _boxes(self, draw: Draw) -> Tensor:
        """Masks bool [B, H, W], true in one box each, of a fixed area and a log-uniform aspect (`BoxMaskGenerator`).

        With u uniform in [0, 1] its height is a^u of the crop's, its width a^(1 - u), in whole pixels.
        """
        size = (draw.image.shape[-2], draw.image.shape[-1])
        area = (self.options.box_area, self.options.box_area)
        masks = cutmix_masks(self.config.seed, draw.position, size, boxes=1, area=area)
        return send(masks, draw.image.device)
