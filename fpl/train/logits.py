"""What a network's logits must be for its score to mean anything."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fpl.train.runtime import Workers


class WatchedLogits:
    """A network's prediction that remembers between which values each class's logits lie.

    Args:
        predict: Logits `[B, C, h, w]` of normalised images.
    """

    def __init__(self, predict: Callable[[Tensor], Tensor]) -> None:
        self.predict = predict
        self._range: tuple[Tensor, Tensor] | None = None

    def __call__(self, image: Tensor) -> Tensor:
        """Logits of normalised images `[B, 3, h, w]`."""
        logits = self.predict(image)
        low, high = logits.amin((0, 2, 3)), logits.amax((0, 2, 3))
        if self._range is not None:
            low, high = torch.minimum(low, self._range[0]), torch.maximum(high, self._range[1])
        self._range = low, high  # stays on the device: nothing waits for it yet
        return logits

    def problem(self, workers: Workers) -> str:
        """Why the logits of all workers' images cannot be scored; empty if they can.

        A young network that predicts one class everywhere is in order. One whose logits are the same to the last bit at
        every pixel of every image does not look at the images; and nothing follows from logits that are no numbers.
        """
        own = None if self._range is None else torch.stack(self._range).float().cpu()
        ranges = [each for each in workers.gather(own) if each is not None]
        if not ranges:
            return ""
        low, high = torch.stack([each[0] for each in ranges]), torch.stack([each[1] for each in ranges])
        finite = torch.isfinite(low).all(0) & torch.isfinite(high).all(0)
        if not bool(finite.all()):
            classes = [int(number) for number in (~finite).nonzero().flatten()]
            return f"the logits of {len(classes)} of {len(finite)} classes are not finite (first: class {classes[0]})"
        if torch.equal(low.amin(0), high.amax(0)):
            return "the logits are the same at every pixel of every image: the network does not look at them"
        return ""
