"""Losses on labels: cross-entropy, and cross-entropy over hard pixels (OHEM, as in the released CPS code)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses.checks import check_map, check_range, check_scores, to_compute


def divide(total: Tensor, denominator: Tensor | float) -> Tensor:
    """Divide, reading a denominator of 0 as 1: the sum over no pixels is 0 and so is their mean.

    Raises:
        ValueError: ``denominator`` is a negative number.
    """
    if not isinstance(denominator, Tensor):
        check_range("denominator", denominator, ">= 0", not denominator < 0)
        return total / (denominator or 1)
    denominator = denominator.detach()
    return total / torch.where(denominator == 0, torch.ones_like(denominator), denominator)


def _check(logits: Tensor, label: Tensor) -> None:
    check_scores("logits", logits)
    if label.is_floating_point() or label.dtype == torch.bool:
        raise ValueError(f"label has dtype {label.dtype}; allowed: an integer type")
    check_map("label", label, logits)


def cross_entropy(
    logits: Tensor, label: Tensor, *, ignore_index: int = 255, denominator: Tensor | float | None = None
) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy over the labeled pixels.

    Args:
        logits: [B, C, *spatial], any floating dtype, C >= 2.
        label: Class indices [B, *spatial], any integer dtype, 0 .. C-1 or ``ignore_index``.
        ignore_index: Label of pixels that do not count.
        denominator: Divide the sum by this instead of the number of pixels that count, e.g. by the number over all
            workers divided by the number of workers. 0 is read as 1.

    Returns:
        The loss, a scalar (0 with a zero gradient if no pixel counts), and the int64 number of pixels that count.

    Raises:
        ValueError: A tensor has another shape or dtype, or ``denominator`` is negative.
    """
    _check(logits, label)
    label = label.long()
    count = (label != ignore_index).sum()
    # Summed here: the operator's own sum over 2-d images has no deterministic form on CUDA.
    per_pixel = F.cross_entropy(to_compute(logits), label, ignore_index=ignore_index, reduction="none")
    return divide(per_pixel.sum(), count if denominator is None else denominator), count


def ohem_cross_entropy(
    logits: Tensor,
    label: Tensor,
    *,
    threshold: float = 0.7,
    min_kept: int = 50_000,
    ignore_index: int = 255,
    group: int = 1,
) -> tuple[Tensor, Tensor]:
    """Cross-entropy over hard pixels, decided for each group of images by itself.

    A labeled pixel is kept if the probability of its class is at most max(threshold, the ``min_kept``-th smallest
    such probability of its group); a group with fewer labeled pixels than ``min_kept`` keeps all. The result is the
    mean over groups of each group's mean over its kept pixels. With ``group`` = images per worker this is what as
    many workers as there are groups compute together, so the number of workers does not change the result; 1 is the
    released CPS recipe (eight workers with one image each, 50,000 pixels per worker). A group without any labeled
    pixel adds 0 to the mean and is counted in it, as a worker that has nothing to learn from.

    Args:
        logits: [B, C, *spatial], any floating dtype, C >= 2.
        label: Class indices [B, *spatial], any integer dtype, 0 .. C-1 or ``ignore_index``.
        threshold: Probability of the true class up to which a pixel is always kept, 0 .. 1.
        min_kept: Pixels that a group keeps at least, >= 0.
        ignore_index: Label of pixels that do not count.
        group: Images that are decided together, a divisor of B.

    Returns:
        The loss, a scalar, and the int64 number of pixels kept.

    Raises:
        ValueError: An argument is outside its range, or a tensor has another shape or dtype.
    """
    _check(logits, label)
    check_range("threshold", threshold, "0 <= threshold <= 1", 0 <= threshold <= 1)
    check_range("min_kept", min_kept, ">= 0", min_kept >= 0)
    batch = logits.shape[0]
    check_range("group", group, f"a divisor of the batch size {batch}", group >= 1 and batch % group == 0)
    label = label.long()
    per_pixel = F.cross_entropy(to_compute(logits), label, ignore_index=ignore_index, reduction="none")
    per_pixel = per_pixel.reshape(batch // group, -1)
    valid = (label != ignore_index).reshape(batch // group, -1)
    with torch.no_grad():
        # The loss of ignored pixels is 0, so they come last: a cut that reaches them keeps every labeled pixel.
        probability = torch.exp(-per_pixel)
        cut = torch.full_like(probability[:, :1], threshold)
        if min_kept > 0:
            place = min(min_kept, probability.shape[1])
            # Not kthvalue, which has no deterministic form on a GPU.
            cut = torch.maximum(cut, probability.sort(dim=1).values[:, place - 1 : place])
        # Not "probability <= cut": a NaN has to be kept to be seen.
        kept = valid & ~(probability > cut)
    count = kept.sum(1)
    total = torch.where(kept, per_pixel, torch.zeros_like(per_pixel)).sum(1)
    return divide(total, count).mean(), count.sum()
