"""What AEL remembers: how sure the student is of every class, and which unlabeled images hold a class.

Both are buffers, so that a checkpoint holds them, and both are the same on all workers: what one process of the
released code learns from its own images, all of them learn here from the images of all. The released code keeps one
bank per process and never exchanges them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fpl.methods.base import Workers

Probabilities = NDArray[np.float64]
# As in the released code: a guard that decides nothing unless all classes are certain.
TINY = 1e-12


def class_confidence(logits: Tensor, label: Tensor, groups: int) -> Tensor:
    """How sure the student is of each class, `[C]` in 0..1, mean over groups of images.

    In a group it is the mean probability of class k over the pixels labeled k, and 0 where there are none, so that
    the confidence of rare classes decays (released code, `cal_category_confidence`).

    Args:
        logits: Student `[B, C, h, w]`.
        label: int64 `[B, h, w]`, 0..C-1 or 255.
        groups: Groups of consecutive images, a divisor of B.
    """
    classes = logits.shape[1]
    # Sums over masks, since scattered sums have no deterministic form on a GPU; image by image, to hold one of them.
    sums = []
    for scores, labels in zip(logits.detach(), label, strict=True):
        hit = _where_each(labels, classes)
        sums.append(torch.stack([(scores.float().softmax(0) * hit).sum((1, 2)), hit.sum((1, 2)).float()]))
    per_image = torch.stack(sums, dim=1)
    total, count = per_image.view(2, groups, -1, classes).sum(2)
    mean: Tensor = (total / count.clamp_min(1.0)).mean(0)
    return mean


class ConfidenceBank(nn.Module):
    """Moving average of `class_confidence`, and what is drawn by it.

    Args:
        num_classes: C.
        momentum: Share of the old value in the new one.
    """

    confidence: Tensor

    def __init__(self, num_classes: int, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        # Random to begin with, as released.
        self.register_buffer("confidence", torch.rand(num_classes))

    def update(self, logits: Tensor, label: Tensor, groups: int, workers: Workers) -> None:
        """Take in the labeled images of one step; arguments are those of `class_confidence`, for this worker."""
        current = workers.average(class_confidence(logits, label, groups))
        self.confidence.mul_(self.momentum).add_(current, alpha=1 - self.momentum)

    def cutmix_probabilities(self) -> Probabilities:
        """Chance of each class to be looked for by adaptive CutMix: softmax of 1 - confidence, `[C]`."""
        return _softmax(self._doubt())

    def paste_probabilities(self, targets: NDArray[np.int64]) -> Probabilities:
        """Chance of each target class to be pasted: softmax over the targets of sqrt(1 - confidence)."""
        return _softmax(np.sqrt(self._doubt()[targets]))

    def sampling_rates(self, power: float) -> Tensor:
        """Chance of a pixel of each predicted class to be trained on: ((1 - confidence) / max)^power, `[C]`."""
        doubt = 1 - self.confidence
        return (doubt / (doubt.max() + TINY)) ** power

    def _doubt(self) -> Probabilities:
        doubt: Probabilities = 1 - self.confidence.double().cpu().numpy()
        return doubt


class ImageBank(nn.Module):
    """One bit per class and unlabeled image: whether the teacher last saw enough of the class in a crop of it.

    Args:
        num_classes: C.
        area: Share of the crop that a class needs.
    """

    bits: Tensor

    def __init__(self, num_classes: int, area: float) -> None:
        super().__init__()
        self.area = area
        # The number of images is known once there is a split: `resize`, or a checkpoint.
        self.register_buffer("bits", torch.zeros(num_classes, 0, dtype=torch.bool))
        self.register_load_state_dict_pre_hook(_take_size)  # type: ignore[no-untyped-call]

    def resize(self, images: int) -> None:
        """Make room for so many images, none of which has been seen."""
        self.bits = torch.zeros(self.bits.shape[0], images, dtype=torch.bool, device=self.bits.device)

    def draw(self, wanted: int, generator: np.random.Generator) -> int:
        """Number of an image that holds class `wanted`; any image if none is known to."""
        known = self.bits[wanted].nonzero().flatten().tolist()
        if known:
            return int(known[int(generator.integers(len(known)))])
        return int(generator.integers(self.bits.shape[1]))

    def update(self, prediction: Tensor, index: Tensor, workers: Workers) -> None:
        """Take in the teacher's predictions; where an image occurs twice, the later one counts.

        Args:
            prediction: Classes int64 `[n, h, w]`.
            index: Numbers of the images, int64 `[n]` on the CPU.
            workers: All of them learn of the images of all.
        """
        pixels = torch.stack([_where_each(image, self.bits.shape[0]).sum((1, 2)) for image in prediction])
        least = self.area * prediction.shape[-2] * prediction.shape[-1]
        found = (pixels > 0) & (pixels >= least)
        rows = torch.cat([index.to(found.device).unsqueeze(1), found.long()], dim=1)
        rows = workers.concatenate(rows)
        for number, row in zip(rows[:, 0].tolist(), rows[:, 1:].bool(), strict=True):
            self.bits[:, number] = row


def _where_each(label: Tensor, classes: int) -> Tensor:
    """Masks bool `[C, h, w]` of the classes of one label `[h, w]`."""
    return label == torch.arange(classes, device=label.device).view(-1, 1, 1)


def _take_size(module: ImageBank, state: dict[str, Any], prefix: str, *_: Any) -> None:
    bits = state.get(f"{prefix}bits")
    if bits is not None and bits.shape != module.bits.shape and module.bits.shape[1] == 0:
        module.resize(bits.shape[1])


def _softmax(values: Probabilities) -> Probabilities:
    powers = np.exp(values - values.max())
    result: Probabilities = powers / powers.sum()
    return result
