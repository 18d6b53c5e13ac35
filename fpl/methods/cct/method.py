"""Cross-consistency training (CCT): what decodes perturbed features has to agree with what decodes them untouched.

One encoder. Its main decoder, the network's classifier, learns from labels. Of unlabeled images its prediction, a
constant, teaches auxiliary decoders, each of which sees the features under a perturbation of its own; so the encoder
learns features whose prediction survives all of them. Only the network is evaluated. With `loss.kind = "fpl"` the pixel
loss takes the place of the squared difference in every decoder: nothing in this file changes.

Features are the embedding, a quarter of the image's size, with `head_channels` channels, as in TorchSemiSeg. The main
decoder is the network's in any case; the original has one of the auxiliary decoders' kind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fpl.config.schema import RunConfig
from fpl.data.augment import FOR_CHOICE, seeded
from fpl.data.batches import Batch, BatchRequest, Draw, send
from fpl.losses import PixelTerm
from fpl.losses.checks import to_compute
from fpl.methods.base import Clock, Losses, Method, NetworkBuilder, Workers
from fpl.methods.cct.bootstrapped import bootstrap_threshold, bootstrapped_cross_entropy
from fpl.methods.cct.decoders import auxiliary_decoders
from fpl.methods.cct.options import GUIDED, CctOptions
from fpl.methods.cct.perturbations import (
    adversarial_perturbation,
    context_mask,
    cutout_holes,
    feature_drop,
    feature_noise,
    guided_cutout,
    large_regions,
    object_mask,
)
from fpl.methods.optimizers import OptimizerSpec, Scheduled, make_optimizer
from fpl.models.dropout import GlobalDropout2d, global_uniform
from fpl.models.network import resize


class _Unlabeled(NamedTuple):
    """What perturbations may ask of unlabeled images."""

    features: Tensor
    """[B, C_features, h, w], with their gradient."""
    teacher: Tensor
    """Logits of the main decoder: its own, [B, num_classes, h, w], or where the losses are."""
    classes: Tensor | None
    """The main decoder's prediction, int64 [B, *size]; None where no perturbation is guided by it."""
    positions: list[int]
    """B positions in the unlabeled stream."""
    size: tuple[int, int]
    """Where the losses are, in pixels."""
    boxes: list[list[tuple[slice, slice]]] | None = None
    """The regions of each image that cut-out hides a part of, where they are the same for all decoders."""


class Cct(Method):
    """One network, which is evaluated, and auxiliary decoders of its embedding."""

    request = BatchRequest(draws=1)

    def __init__(self, config: RunConfig, build_network: NetworkBuilder, workers: Workers) -> None:
        super().__init__(config, build_network, workers)
        assert isinstance(config.method, CctOptions)
        self.options = config.method
        channels = self.network.classifier.in_channels
        self.decoders = auxiliary_decoders(self.options, channels, config.data.num_classes)
        self.dropout = GlobalDropout2d(self.options.dropout)
        # Of bootstrapped cross-entropy; every step sets it anew.
        self.threshold = 1.0

    def optimizers(self) -> dict[str, Scheduled]:
        """SGD over the network and the auxiliary decoders, which learn at the rate of heads."""
        spec = OptimizerSpec.of(self.config.optim)
        return {"main": make_optimizer(spec, [*self.networks(), self.decoders])}

    def probe_parameters(self) -> list[nn.Parameter]:
        """The decoder below the classifier, where both losses meet: the classifier learns from labels alone."""
        return list(self.network.decoder.parameters())

    def losses(self, batch: Batch, clock: Clock) -> Losses:
        """L = L_s + weight(t) * 1 / N SUM_n d(g_n(p_n(z)), g(z)), as in the paper's section on training.

        z are features of unlabeled images, g the main decoder, g_n and p_n the auxiliary ones and their perturbations;
        d is the pixel loss. Labeled images come first: BatchNorm's running statistics depend on the order.
        """
        options = self.options
        risen = clock.ramp(options.bootstrap_ramp, "log")
        self.threshold = bootstrap_threshold(risen, options.bootstrap_threshold or 1.0, self.config.data.num_classes)
        _, supervised = self.labeled_loss(self.network, self.network.raw(batch.image), batch.label)
        terms = self._consistency(batch)
        consistency = self.pixel_loss.total(list(terms.values())) / len(terms)
        weighted = options.weight * clock.ramp(options.ramp or 0.0, "sigmoid") * consistency
        return Losses(
            {"main": supervised + weighted},
            supervised=supervised,
            unsupervised=weighted,
            terms={"supervised": supervised, "consistency": consistency},
            pixel_terms=terms,
        )

    def supervised_loss(self, logits: Tensor, label: Tensor) -> Tensor:
        """L_s of one network's `train_logits`: bootstrapped, or as configured."""
        if not self.options.bootstrapped:
            return super().supervised_loss(logits, label)
        return bootstrapped_cross_entropy(logits, self.thin(label), self.threshold, self.groups)

    def _consistency(self, batch: Batch) -> dict[str, PixelTerm]:
        """d(g_n(p_n(z)), g(z)) by the names of the decoders; g(z) is a constant."""
        draw = batch.unlabeled[0]
        main = self.network.details(draw.image)
        view = self._view(draw, main.embedding, main.logits.detach())
        truth = None if draw.truth is None else self.thin(draw.truth)
        terms = {}
        for number, (name, decoder) in enumerate(self.decoders.items()):
            student = decoder(self._perturbed(name.rpartition("_")[0], number, decoder, view))
            student = student if view.teacher.shape == student.shape else resize(to_compute(student), view.size)
            terms[name] = self.pixel_loss(student, view.teacher, size=view.size, ground_truth=truth, groups=self.groups)
        return terms

    def _view(self, draw: Draw, features: Tensor, logits: Tensor) -> _Unlabeled:
        """What teaches, and what perturbations may ask; `logits` are the main decoder's, constants."""
        options, size = self.options, self._thin_size(draw.image)
        view = _Unlabeled(features, logits, None, draw.position.tolist(), size)
        enlarged = options.decoders == "original"
        if enlarged or any(options.counts[kind] for kind in GUIDED):
            at_losses = resize(to_compute(logits), size)
            # Decoders by pixel shuffle give logits of the image's size; the others leave it to the pixel loss.
            teacher = at_losses if enlarged else logits
            view = view._replace(teacher=teacher, classes=at_losses.max(1).indices)
        if options.foreground == "classes" and options.counts["cutout"]:
            view = view._replace(boxes=self._boxes(self._foreground(view, [])))
        return view

    def _perturbed(self, kind: str, number: int, decoder: nn.Module, view: _Unlabeled) -> Tensor:
        """p_n(z) for the `number`-th decoder, in the paper's order."""
        options, features = self.options, view.features
        if kind == "noise":
            uniform = global_uniform((self.groups, *features.shape[1:]), features.device)
            return feature_noise(features, uniform, options.noise)
        if kind == "drop":
            return feature_drop(features, global_uniform((self.groups,), features.device), options.drop_thresholds)
        if kind in GUIDED:
            generators = [seeded(self.config.seed, FOR_CHOICE, number, position) for position in view.positions]
            foreground = self._foreground(view, generators)
            if kind == "context":
                return context_mask(features, foreground)
            if kind == "object":
                return object_mask(features, foreground)
            return guided_cutout(features, self._holes(foreground, view.boxes, generators))
        if kind == "adversarial":
            uniform = global_uniform(tuple(features.shape), features.device)
            lengths = {"step": options.adversarial_step, "radius": options.adversarial_radius}
            return adversarial_perturbation(features, decoder, uniform, view.size, **lengths)
        assert kind == "dropout"
        dropped: Tensor = self.dropout(features)
        return dropped

    def _foreground(self, view: _Unlabeled, generators: list[np.random.Generator]) -> Tensor:
        """Where the main decoder sees objects, bool [B, *size]."""
        assert view.classes is not None
        if self.options.foreground == "classes":
            return view.classes > 0
        # A class is in with a chance of one half: of those that an image has, every subset is as likely as the other.
        drawn = np.stack([generator.random(self.config.data.num_classes) < 0.5 for generator in generators])
        chosen = send(torch.from_numpy(drawn), view.classes.device)
        return chosen.gather(1, view.classes.flatten(1)).view(view.classes.shape)

    def _boxes(self, foreground: Tensor) -> list[list[tuple[slice, slice]]]:
        """Large regions of each image. They are looked for on the CPU: some 10 ms for a mask of 512 x 512."""
        return [large_regions(mask, self.options.cutout_points) for mask in foreground.cpu().numpy()]

    def _holes(
        self,
        foreground: Tensor,
        boxes: list[list[tuple[slice, slice]]] | None,
        generators: list[np.random.Generator],
    ) -> Tensor:
        """Where guided cut-out hides features, bool [B, *size]."""
        boxes, side = boxes or self._boxes(foreground), self.options.cutout_side
        size = tuple(foreground.shape[1:])
        holes = [cutout_holes(size, own, side, each) for own, each in zip(boxes, generators, strict=True)]
        return send(torch.from_numpy(np.stack(holes)), foreground.device)
