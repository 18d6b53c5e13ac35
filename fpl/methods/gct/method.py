"""Guided collaborative training (GCT; Ke et al., ECCV 2020): two networks, and a flaw detector that compares them.

Two networks of different heads see the same images. A third one, the flaw detector, sees image and prediction and says
where the prediction is wrong. With p_k the probabilities of network k and F the detector, over labeled and unlabeled
images alike unless said otherwise:

    network k:  supervised_k (labeled)
                + 1.0 * mean(both_bad * F(image, p_k)^2)                     flaw correction
                + 100 * ramp * mean((p_k - target_k)^2)                      dynamic consistency
    detector:   10 * mean over k of mean((F(image, p_k) - G_k)^2) (labeled)  G_k: where p_k differs from the label

target_k is p_k itself where network k has no larger flaw than the other or both are bad, which makes the squared
difference 0 there, and the other's prediction elsewhere; where both are bad flaw correction draws both to flawless. The
pixel loss takes the place of the squared difference. With `loss.kind = "fpl"` and `own_target = false` the better
network teaches its fuzzy positives, and nobody teaches itself.

Each objective is differentiated by its own parameters alone: the detector never learns to find no flaws. Both are
computed before either moves, as in PixelSSL; TorchSemiSeg moves the networks first, and teaches the detector on what
they then predict.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.data.batches import Batch, BatchRequest, Draw
from fpl.losses import PixelTerm
from fpl.losses.checks import to_compute
from fpl.methods.base import Clock, Losses, Method, NetworkBuilder, Workers
from fpl.methods.gct.flaws import FlawDetector, Verdict, compare, flaw_truth, handled
from fpl.methods.gct.options import GctOptions
from fpl.methods.optimizers import OptimizerSpec, Scheduled, make_optimizer
from fpl.models import SegmentationNetwork
from fpl.models.network import resize


class Gct(Method):
    """Two networks and their flaw detector; the first network is evaluated, as in TorchSemiSeg.

    The detector looks at whole images and at logits enlarged to their size, whatever `loss.stride` is: its maps, G and
    flaw correction are those of every pixel. Where the pixel loss looks at fewer, so does dynamic consistency.
    """

    request = BatchRequest(draws=1)

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        super().__init__(config, build_network, workers)
        assert isinstance(config.method, GctOptions)
        self.options = config.method
        self.network_2 = build_network()
        self.detector = FlawDetector(config.data.num_classes, self.options.detector_channels)

    def networks(self) -> list[SegmentationNetwork]:
        """Both networks."""
        return [self.network, self.network_2]

    def optimizers(self) -> dict[str, Scheduled]:
        """SGD over both networks, Adam over the detector."""
        options = self.options
        adam = OptimizerSpec(options.detector_lr, "adam", options.detector_schedule, betas=(0.9, 0.99))
        return {**super().optimizers(), "detector": make_optimizer(adam, [self.detector])}

    def teaching_logits(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `[B, C, H, W]` of the first network and of the second, which teaches it."""
        return self.network(image), self.network_2(image)

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """Losses of both networks, and of the detector.

        The order of the networks' passes is TorchSemiSeg's: labeled and unlabeled images apart, so that each has batch
        statistics of its own. It makes those of the targets anew; they are the same, but for running statistics.
        """
        draw = batch.unlabeled[0]
        logits, supervised = [], []
        for network in self.networks():
            raw = network.raw(batch.image)
            supervised.append(self.labeled_loss(network, raw, batch.label)[1])
            logits.append(self.by_group(raw.logits, network.raw(draw.image).logits))
        image = self.by_group(batch.image, draw.image)
        probabilities = [resize(to_compute(small), image.shape[-2:]).softmax(1) for small in logits]

        # The detector's own passes: it learns from them, and its networks do not.
        judged = [self._flaws(image, each.detach()) for each in probabilities]
        verdict = self._verdict(judged)
        detected = self._detector_loss(judged, probabilities, batch.label)

        correction = probabilities[0].new_zeros(())
        if self.options.correction_weight:
            corrected = [self._flaws(image, each).square() for each in probabilities]
            correction = torch.stack([(verdict.both_bad * square).mean() for square in corrected]).sum()
        pixel_terms = self._consistency(logits, verdict, batch, draw)
        consistency = self.pixel_loss.total(list(pixel_terms.values()))

        options = self.options
        ramp = clock.ramp(options.ramp, "sigmoid")
        weighted = options.correction_weight * correction + options.weight * ramp * consistency
        both = supervised[0] + supervised[1]
        return Losses(
            {"main": both + weighted, "detector": options.detector_weight * detected},
            supervised=both,
            unsupervised=weighted,
            terms={
                "supervised_1": supervised[0],
                "supervised_2": supervised[1],
                "flaw_correction": correction,
                "dynamic_consistency": consistency,
                "flaw_detector": detected,
                "both_bad_share": verdict.both_bad.float().mean(),
            },
            pixel_terms=pixel_terms,
        )

    def _flaws(self, image: Tensor, probabilities: Tensor) -> Tensor:
        """The detector's map `[B, H, W]` of predictions `[B, C, H, W]`."""
        maps: Tensor = self.detector(torch.cat([image, probabilities], dim=1))
        return maps

    def _verdict(self, judged: list[Tensor]) -> Verdict:
        options = self.options
        released = options.fidelity == "released"
        first, second = (handled(maps.detach(), options.flawless_below, released=released) for maps in judged)
        return compare(first, second, options.flaw_threshold)

    def _detector_loss(self, judged: list[Tensor], probabilities: list[Tensor], label: Tensor) -> Tensor:
        """Squared difference from G on labeled images, mean over both networks."""
        squares = []
        for maps, predicted in zip(judged, probabilities, strict=True):
            maps = self._labeled_part(maps, len(label))
            if self.options.fidelity == "released":
                maps = maps - maps.detach().clamp(max=0)
            truth = flaw_truth(self._labeled_part(predicted.detach(), len(label)), label, self.options.nu)
            squares.append((maps - truth).square().mean())
        return torch.stack(squares).mean()

    def _consistency(self, logits: list[Tensor], verdict: Verdict, batch: Batch, draw: Draw) -> dict[str, PixelTerm]:
        """The pixel loss of each network with its target: its own logits, and the other's where it is taught."""
        # Statistics are of unlabeled pixels, as the paper of FPL has them.
        parts = (torch.zeros_like(batch.valid), torch.ones_like(draw.valid))
        watched = self.thin(self.by_group(*parts))
        truth = None
        if draw.truth is not None:
            truth = self.thin(self.by_group(batch.label.to(torch.uint8), draw.truth))
        terms = {}
        for student, teacher in ((0, 1), (1, 0)):
            taught = self.thin(verdict.taught[student])
            terms[f"{student + 1}{teacher + 1}"] = self.pixel_loss(
                logits[student],
                logits[student].detach(),
                None if self.options.own_target else taught.float(),
                # The mean is over all pixels either way.
                counted=torch.ones_like(taught),
                second=logits[teacher].detach(),
                inside=taught,
                size=self._thin_size(batch.image),
                ground_truth=truth,
                watched=watched,
                groups=self.groups,
            )
        return terms

    def _labeled_part(self, joint: Tensor, count: int) -> Tensor:
        """The `count` labeled images of `by_group`."""
        own = count // self.groups
        return torch.cat([part[:own] for part in joint.chunk(self.groups)])
