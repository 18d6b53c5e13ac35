"""What methods with a gated consistency loss between a student and its EMA teacher share.

The released code of French et al. (cutmix-semisup-seg) has it in each of its training scripts.
"""

from __future__ import annotations

from torch import Tensor

from fpl.config.consistency import ConsistencyOptions
from fpl.config.schema import RunConfig
from fpl.data.batches import Draw
from fpl.losses import PixelTerm
from fpl.methods.base import Clock, Losses, NetworkBuilder, Workers
from fpl.methods.gates import gate
from fpl.methods.optimizers import OptimizerSpec, Scheduled, make_optimizer
from fpl.methods.teacher import Ema, TaughtMethod
from fpl.methods.views import StrongView, recoloured

# Defaults of --aug_colour_* in the released code, which its scripts leave as they are.
COLOURS = StrongView(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, jitter=0.8, grey=0.2)


class GatedConsistency(TaughtMethod):
    """Base of methods whose student sees changed images, and learns what the teacher predicts where it is sure.

    Args:
        config: This and the next two are those of `Method`.
        build_network: Makes the student.
        workers: The processes that share the global batch.
        options: The method's.
        ema: How the teacher follows.
    """

    def __init__(
        self,
        config: RunConfig,
        build_network: NetworkBuilder,
        workers: Workers,
        options: ConsistencyOptions,
        ema: Ema,
    ) -> None:
        super().__init__(config, build_network, workers, ema, held=options.held_statistics)
        self.options = options

    def optimizers(self) -> dict[str, Scheduled]:
        """SGD or Adam, as configured."""
        spec = OptimizerSpec.of(self.config.optim, self.options.optimizer)
        return {"main": make_optimizer(spec, self.networks())}

    def recoloured(self, draw: Draw, stream: int = 0) -> Draw:
        """What the student sees of a draw: other colours, drawn for its positions in a stream of views."""
        if not self.options.strong_colours:
            return draw
        return recoloured(draw, COLOURS, self.config.seed, stream)

    def consistency(self, student: Tensor, teacher: Tensor, seen: Draw) -> tuple[PixelTerm, Tensor]:
        """The pixel loss of valid pixels, weighed by the gate, its mean over all pixels.

        Statistics of a gate on the whole batch are of all valid pixels, since it leaves none of them out; of a gate on
        single pixels they are of those that pass.

        Args:
            student: Logits [B, C, h, w] where the losses see them (`train_logits`).
            teacher: Of the same shape.
            seen: What the student saw, whose valid mask and truth count.

        Returns:
            The term, and the share of pixels, padding included, of which the teacher is sure, a scalar.
        """
        options, valid = self.options, self.thin(seen.valid)
        sure = gate(teacher, options.confidence_gate, options.gate_kind, self.workers)
        term: PixelTerm = self.pixel_loss(
            student,
            teacher,
            sure * valid,
            denominator=float(valid.numel()),
            counted=valid if options.gate_kind == "mean" else None,
            ground_truth=None if seen.truth is None else self.thin(seen.truth),
            groups=self.groups,
        )
        return term, sure.mean()

    def together(self, supervised: Tensor, term: PixelTerm, rate: Tensor, clock: Clock, factor: int = 1) -> Losses:
        """What a step returns: the supervised loss, and the consistency, `factor` times the term, at its weight."""
        consistency = factor * self.pixel_loss.total([term])
        weighted = self.options.weight * clock.ramp(self.options.ramp, "sigmoid") * consistency
        return Losses(
            {"main": supervised + weighted},
            supervised=supervised,
            unsupervised=weighted,
            terms={"supervised": supervised, "consistency": consistency, "confidence_rate": rate},
            pixel_terms={"unlabeled": term},
        )
