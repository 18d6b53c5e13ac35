"""Losses on labels: cross-entropy, and cross-entropy over hard pixels (OHEM, as in the released CPS code)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses.checks import check_groups, check_map, check_range, check_scores, check_tensor, check_whole, to_compute


def divide(total: Tensor, denominator: Tensor | float) -> Tensor:
    """Divide, reading a denominator of 0 as 1: the sum over no pixels is 0 and so is their mean.

    Raises:
        ValueError: ``denominator`` is a negative number.
    """
    if not isinstance(denominator, Tensor):
        check_range("denominator", denominator, "a finite number >= 0", lambda value: value >= 0)
        return total / (denominator or 1)
    denominator = denominator.detach()
    return total / torch.where(denominator == 0, torch.ones_like(denominator), denominator)


def _grouped(logits: Tensor, label: Tensor, ignore_index: int, groups: int) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each pixel, and whether it counts, [groups, pixels].

    Raises:
        ValueError: A tensor has another shape or dtype, or ``groups`` does not divide the batch.
    """
    check_scores("logits", logits)
    check_tensor("label", label)
    if label.is_floating_point() or label.is_complex() or label.is_quantized or label.dtype == torch.bool:
        raise ValueError(f"label has dtype {label.dtype}; allowed: an integer type")
    check_map("label", label, logits)
    check_groups(groups, logits)
    label = label.long()
    # Summed by the caller: the operator's own sum over 2-d images has no deterministic form on CUDA.
    try:
        per_pixel = F.cross_entropy(to_compute(logits), label, ignore_index=ignore_index, reduction="none")
    except IndexError:
        # Torch's own check, on the CPU: looking for such a label first would cost a pass, and a GPU's host a wait.
        wrong = label[(label != ignore_index) & ((label < 0) | (label >= logits.shape[1]))]
        if not len(wrong):
            raise
        allowed = f"0 .. C - 1 = {logits.shape[1] - 1}, or ignore_index = {ignore_index}"
        raise ValueError(f"label holds {int(wrong[0])}; allowed: {allowed}") from None
    shape = (groups, label.numel() // groups)
    return per_pixel.reshape(shape), (label != ignore_index).reshape(shape)


def cross_entropy(logits: Tensor, label: Tensor, *, ignore_index: int = 255, groups: int = 1) -> tuple[Tensor, Tensor]:
    """Cross-entropy: the mean over groups of images of each group's mean over its labeled pixels.

    With as many groups as the released code has processes this is what they compute together: each takes the mean over
    its own pixels, and their gradients are averaged. A group without any labeled pixel adds 0 and is counted: there the
    released code's mean is 0 / 0, a NaN in the logged value, but its gradient is 0 and is averaged with the others.

    Args:
        logits: [B, C, *spatial], any floating dtype, C >= 2.
        label: Class indices [B, *spatial], any integer dtype, 0 .. C-1 or ``ignore_index``.
        ignore_index: Label of pixels that do not count.
        groups: Number of groups of consecutive images, a divisor of B.

    Returns:
        The loss, a scalar (0 with a zero gradient if no pixel counts), and the int64 number of pixels that count.

    Raises:
        ValueError: A tensor has another shape or dtype, a label is no class (on a GPU: torch's own assertion), or
            ``groups`` does not divide the batch.
    """
    per_pixel, valid = _grouped(logits, label, ignore_index, groups)
    count = valid.sum(1)
    return divide(per_pixel.sum(1), count).mean(), count.sum()


def ohem_cross_entropy(
    logits: Tensor,
    label: Tensor,
    *,
    threshold: float = 0.7,
    min_kept: int = 50_000,
    ignore_index: int = 255,
    groups: int = 1,
) -> tuple[Tensor, Tensor]:
    """Cross-entropy over hard pixels, decided for each group of images by itself.

    A labeled pixel is kept if the probability of its class is at most max(threshold, the ``min_kept``-th smallest
    such probability of its group); a group with fewer labeled pixels than ``min_kept`` keeps all. The result is the
    mean over groups of each group's mean over its kept pixels; groups are those of :func:`cross_entropy`, and so is
    what a group without any labeled pixel adds. The released CPS recipe has one image in each of eight groups, and
    50,000 pixels kept of each.

    Args:
        logits: [B, C, *spatial], any floating dtype, C >= 2.
        label: Class indices [B, *spatial], any integer dtype, 0 .. C-1 or ``ignore_index``.
        threshold: Probability of the true class up to which a pixel is always kept, 0 .. 1.
        min_kept: Pixels that a group keeps at least, >= 0.
        ignore_index: Label of pixels that do not count.
        groups: Number of groups of consecutive images, a divisor of B.

    Returns:
        The loss, a scalar, and the int64 number of pixels kept.

    Raises:
        ValueError: An argument is outside its range, or a tensor has another shape or dtype.
    """
    check_range("threshold", threshold, "0 <= threshold <= 1", lambda value: 0 <= value <= 1)
    check_whole("min_kept", min_kept, "a whole number >= 0", lambda value: value >= 0)
    per_pixel, valid = _grouped(logits, label, ignore_index, groups)
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
