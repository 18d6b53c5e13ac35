"""A T that nobody chooses: how much probability has to be gathered before a labeled pixel's true class is among it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fpl.data.spec import IGNORE
from fpl.errors import FplError
from fpl.losses.checks import check_map, check_scores, to_compute
from fpl.losses.rules import LARGEST_BELOW_1

# Share of the old value that a step keeps: a memory of ten steps.
MOMENTUM = 0.9


def gathered_probability(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Probability gathered, most probable class first, until the true class is among it; summed over labeled pixels.

    Of a pixel it is the probability of the true class and of all classes above it; classes as probable as the true one
    come behind it.

    Args:
        logits: [B, C, *spatial], any floating dtype, C >= 2.
        label: Class indices [B, *spatial], any integer dtype, 0 .. C-1, or 255 where pixels do not count.

    Returns:
        The sum over the pixels that count and their number, float64 scalars without a gradient.

    Raises:
        ValueError: A tensor has another shape or dtype.
    """
    check_scores("logits", logits)
    check_map("label", label, logits)
    with torch.no_grad():
        valid = label != IGNORE
        probability = to_compute(logits.detach()).softmax(1)
        true = probability.gather(1, torch.where(valid, label, 0).long().unsqueeze(1))
        above = torch.where(probability > true, probability, 0).sum(1)
        sums = torch.where(valid, above + true.squeeze(1), 0)
        return sums.sum(dtype=torch.float64), valid.sum(dtype=torch.float64)


class LabeledThreshold(nn.Module):
    """T from the labeled images of the last steps; all of it is in the ``state_dict``.

    T is the probability that has to be gathered, most probable class first, until a labeled pixel's true class is among
    it: its mean over the labeled pixels of a step, averaged over steps with a momentum of 0.9. A rule of this suite:
    the paper sets T by hand for each split.

    Args:
        first: T until a step has shown labeled pixels, 0 < first <= 1.
    """

    sum: Tensor
    weight: Tensor

    def __init__(self, first: float) -> None:
        super().__init__()
        self.first = first
        for name in ("sum", "weight"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))
        self._seen: list[Tensor] = []

    @property
    def value(self) -> float:
        """T, 0 < T < 1. Of a GPU's numbers: waits until they are there."""
        total, weight = torch.stack([self.sum, self.weight]).tolist()
        return min(total / weight, LARGEST_BELOW_1) if weight else self.first

    def observe(self, logits: Tensor, label: Tensor) -> None:
        """Take labeled pixels of this step into account: arguments are those of :func:`gathered_probability`."""
        self._seen.append(torch.stack(gathered_probability(logits, label)))

    def update(self, average: Callable[[Tensor], Tensor]) -> None:
        """End a step. Without a labeled pixel nothing changes.

        Args:
            average: Mean of a tensor over the workers, the same bits on all of them.

        Raises:
            FplError: :meth:`observe` was not called in this step.
        """
        if not self._seen:
            raise FplError(
                "loss.threshold_rule = 'labeled' asks for logits of labeled images, and this method shows none",
                hint="let the method compute its supervised loss by Method.labeled_loss, or set loss.threshold by hand",
            )
        total, count = average(torch.stack(self._seen).sum(0))
        self._seen.clear()
        # What is not finite is for the loop to find, which stops the run.
        shown = (count > 0) & total.isfinite()
        mean = total / torch.where(shown, count, 1)
        for buffer, new in ((self.sum, mean), (self.weight, torch.ones_like(mean))):
            buffer.copy_(torch.where(shown, MOMENTUM * buffer + (1 - MOMENTUM) * new, buffer))
