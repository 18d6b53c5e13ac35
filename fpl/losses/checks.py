"""Argument checks and dtype rules that every loss of this package shares."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def constant(tensor: Tensor) -> Tensor:
    """Detach. What was made under ``torch.inference_mode`` is copied where autograd would have to save it."""
    tensor = tensor.detach()
    # What is traced cannot ask.
    if torch.compiler.is_compiling():
        return tensor
    return tensor.clone() if tensor.is_inference() and torch.is_grad_enabled() else tensor


def to_compute(tensor: Tensor) -> Tensor:
    """Cast to the precision that losses are computed in: float64 stays, other floats become float32."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


# What float32 holds, with room for a product or a quotient with a probability: beyond it, numbers turn into 0 and
# infinity, and losses of finite logits into NaN.
LEAST, MOST = 1e-30, 1e30
_WEIGHTS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool)


def check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raise ValueError unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}")


def check_range(name: str, value: float, allowed: str, inside: Callable[[float], bool]) -> None:
    """Raise ValueError that names the allowed range unless ``value`` is a finite number, no bool, and ``inside`` it."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool) and _is_finite(value)
    if not number or not inside(value):
        raise ValueError(f"{name} is {value!r}; allowed: {allowed}")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def check_whole(name: str, value: int, allowed: str, inside: Callable[[int], bool]) -> None:
    """Do :func:`check_range` for integers; 2.0 is none."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or not inside(value):
        raise ValueError(f"{name} is {value!r}; allowed: {allowed}")


def check_tensor(name: str, tensor: object) -> None:
    """Raise TypeError unless ``tensor`` is one."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is of type {type(tensor).__name__}; allowed: torch.Tensor")


def _check_layout(name: str, tensor: Tensor) -> None:
    """Raise ValueError unless the tensor's numbers lie in memory by strides, TypeError unless it is one."""
    check_tensor(name, tensor)
    if tensor.is_nested or tensor.layout != torch.strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout)
        raise ValueError(f"{name} has layout {kind}; allowed: torch.strided")
    # What is traced cannot ask.
    if not torch.compiler.is_compiling() and tensor._is_zerotensor():
        raise ValueError(f"{name} is a zero of autograd's without memory; allowed: torch.zeros of its shape")


def check_scores(name: str, scores: Tensor) -> None:
    """Raise ValueError unless ``scores`` is a floating-point [B, C, *spatial] tensor with C >= 2."""
    _check_layout(name, scores)
    if not scores.is_floating_point():
        raise ValueError(f"{name} has dtype {scores.dtype}; allowed: floating point")
    if scores.ndim < 2 or scores.shape[1] < 2:
        raise ValueError(f"{name} has shape {list(scores.shape)}; allowed: [B, C, *spatial] with C >= 2")


def check_groups(groups: int, scores: Tensor) -> None:
    """Raise ValueError unless the images of ``scores`` make ``groups`` groups of equal size."""
    batch = scores.shape[0]
    fits = f"a divisor of the batch size {batch}"
    check_whole("groups", groups, fits, lambda value: value >= 1 and batch % value == 0)


def _check_device(name: str, tensor: Tensor, scores: Tensor) -> None:
    """Raise ValueError unless both tensors are on one device: a kernel would read the other's memory as its own."""
    if tensor.device != scores.device:
        raise ValueError(f"{name} is on {tensor.device}; allowed: the device of the scores, {scores.device}")


def check_pair(student_logits: Tensor, teacher_logits: Tensor) -> None:
    """Raise ValueError unless both are [B, C, *spatial] scores of one shape on one device."""
    check_scores("student_logits", student_logits)
    check_scores("teacher_logits", teacher_logits)
    if student_logits.shape != teacher_logits.shape:
        raise ValueError(
            f"teacher_logits has shape {list(teacher_logits.shape)}; "
            f"allowed: that of student_logits, {list(student_logits.shape)}"
        )
    _check_device("teacher_logits", teacher_logits, student_logits)


def check_map(name: str, values: Tensor, scores: Tensor, size: tuple[int, int] | None = None) -> None:
    """Raise ValueError unless ``values`` holds one number for each pixel of ``scores``, or of ``size``, beside them."""
    _check_layout(name, values)
    expected = [scores.shape[0], *(scores.shape[2:] if size is None else size)]
    if list(values.shape) != expected:
        raise ValueError(f"{name} has shape {list(values.shape)}; allowed: [B, *spatial] = {expected}")
    _check_device(name, values, scores)


def check_mask(name: str, values: Tensor, scores: Tensor, size: tuple[int, int] | None = None) -> None:
    """Do :func:`check_map` for bool values."""
    check_tensor(name, values)
    if values.dtype != torch.bool:
        raise ValueError(f"{name} has dtype {values.dtype}; allowed: torch.bool")
    check_map(name, values, scores, size)


def check_truth(values: Tensor, scores: Tensor, size: tuple[int, int] | None = None) -> None:
    """Do :func:`check_map` for a ``ground_truth``, uint8 or int64."""
    check_tensor("ground_truth", values)
    if values.dtype not in (torch.uint8, torch.int64):
        raise ValueError(f"ground_truth has dtype {values.dtype}; allowed: torch.uint8, torch.int64")
    check_map("ground_truth", values, scores, size)


def check_weight_map(values: Tensor, scores: Tensor, size: tuple[int, int] | None = None) -> None:
    """Do :func:`check_map` for a ``weight_map``, of which no value on the CPU may be below 0.

    Integers are none: they would be a map of labels, given by mistake. NaN is left to the result.
    """
    check_tensor("weight_map", values)
    if values.dtype not in _WEIGHTS:
        raise ValueError(f"weight_map has dtype {values.dtype}; allowed: {', '.join(map(str, _WEIGHTS))}")
    check_map("weight_map", values, scores, size)
    if _readable(values) and (values < 0).any():
        raise ValueError(f"weight_map has values from {values[values < 0].min().item():.3g} on; allowed: numbers >= 0")


def _readable(tensor: Tensor) -> bool:
    """Whether values can be looked at for a check: not where a GPU's host would wait for them, nor in a trace."""
    # Nor can what is mapped over (`torch.vmap`).
    hidden = torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return tensor.device.type == "cpu" and not hidden


def check_probabilities(name: str, largest: Tensor, smallest: Tensor) -> None:
    """Raise ValueError if a pixel's probabilities lie outside 0 .. 1, as logits given by mistake do.

    On the CPU alone (:func:`_readable`). NaN is left to the result.
    """
    if not _readable(largest) or not largest.numel():
        return
    # Rounding of narrow types goes a little beyond.
    if (smallest < -1e-3).any() or (largest > 1 + 1e-2).any():
        found = f"{smallest.min().item():.3g} .. {largest.max().item():.3g}"
        raise ValueError(f"{name} has values {found}; allowed: probabilities, 0 .. 1 (softmax logits before)")


def check_denominator(value: Tensor | float) -> None:
    """Raise ValueError unless ``value`` is one number that is no less than 0, read on the CPU alone."""
    if not isinstance(value, Tensor):
        allowed = f"0, or {LEAST} .. {MOST}"
        check_range("denominator", value, allowed, lambda number: number == 0 or LEAST <= number <= MOST)
        return
    if value.ndim or value.is_complex() or value.dtype == torch.bool:
        what = f"has shape {list(value.shape)} and dtype {value.dtype}"
        raise ValueError(f"denominator {what}; allowed: a scalar, real")
    if _readable(value) and not 0 <= value < math.inf and not value.isnan():
        raise ValueError(f"denominator is {value.item()}; allowed: a finite number >= 0")


def counted_pixels(weight_map: Tensor) -> Tensor:
    """Tell which pixels of a weight map take part: those whose weight is not zero (or below, on a GPU).

    A NaN weight takes part, so that it reaches the loss and is seen.
    """
    return ~(weight_map <= 0)


def only_counted(student: Tensor, counted: Tensor) -> Tensor:
    """Put zeros in place of the logits of the pixels that do not count.

    Multiplying the loss by a zero weight is not enough: 0 * NaN is NaN, in the value and again in the gradient.
    """
    return torch.where(counted.unsqueeze(1), student, torch.zeros((), dtype=student.dtype, device=student.device))


def poison(per_pixel: Tensor, top: Tensor) -> Tensor:
    """Make the loss (and its gradient) NaN where the teacher is NaN or infinite, and leave it as it is elsewhere.

    A diverged teacher can still have an argmax or a rank; without this the student would learn it in silence.

    Args:
        per_pixel: Losses [B, *spatial].
        top: The teacher's largest logit of each pixel [B, *spatial]; NaN if any logit of the pixel is.
    """
    return per_pixel * (top * 0 + 1)
