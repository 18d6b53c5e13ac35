"""The fused loss on GPUs, in Triton (see :mod:`fpl.losses.kernels.contract`); importing it needs ``triton``.

Every function only launches kernels: nothing waits for the device, nothing depends on its values on the host. All
results are the same from run to run: programs write partial sums, which are added in a fixed order, in float64.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
from torch import Tensor

from fpl.losses.kernels import gpu_kernels, gpu_upsampled
from fpl.losses.kernels.contract import SUMS, Mapped, Pixels, Settings, Summed

NAME = "triton"
# Logits of one tensor in one program of 32 threads, where there are not too many classes for it.
BLOCK = 1024
MOST_PIXELS, LEAST_PIXELS = 128, 8
# Rows of pixels of an enlarged cell that one program goes through, about.
PART_ROWS = 4
RESCALE_BLOCK = 4096
GATHER_BLOCK = 1024


def summed(settings: Settings, pixels: Pixels, *, scale: Tensor | None, cross_entropy: bool, gradient: bool) -> Summed:
    """Compute the sums, and the gradient of ``scale * value`` if asked.

    With ``size`` the extra memory is the gradient and float32 numbers of 4 * parts times its size, parts being 1 up to
    an enlargement of 7 and about a quarter of the enlargement from there: a quarter of a full-size tensor at 4.
    """
    pixels = _prepare(pixels)
    if pixels.size is not None:
        return _upsampled(settings, pixels, scale, cross_entropy, gradient)
    student = _flat(pixels.student)
    images, classes, per_image = student.shape
    blocks = _blocks(classes)
    programs = images * triton.cdiv(per_image, blocks["BLOCK_PIXELS"])
    result = torch.empty_like(pixels.student) if gradient else None
    # An unusual layout cannot be flattened in place: such a gradient is written in another one and copied.
    target = None if result is None else _flat(result)
    sums, histogram = _partials(student.device, programs, blocks["BINS"], torch.uint8)
    with _launching_on(student):
        gpu_kernels.summed_kernel[(programs,)](
            student,
            _flat(pixels.teacher),
            None if pixels.second is None else _flat(pixels.second),
            *_maps(pixels),
            scale,
            target,
            sums,
            histogram,
            per_image,
            *student.stride(),
            *_flat(pixels.teacher).stride(),
            *(student if target is None else target).stride(),
            **_rule(settings),
            **_weighting(settings),
            CROSS_ENTROPY=cross_entropy,
            **blocks,
            num_warps=1,
        )
    if pixels.weight_map is None:
        sums[2] = sums[1]
    if result is not None and target is not None and target.data_ptr() != result.data_ptr():
        result.copy_(target.view(result.shape))
    return _add_up(sums, histogram, classes, result)


def _upsampled(settings: Settings, pixels: Pixels, scale: Tensor | None, cross_entropy: bool, gradient: bool) -> Summed:
    student, teacher = pixels.student, pixels.teacher
    assert pixels.size is not None
    images, classes, low_height, low_width = student.shape
    height, width = pixels.size
    rows, columns = _steps(low_height, height), _steps(low_width, width)
    parts = max(1, triton.cdiv(height, low_height) // PART_ROWS)
    blocks = _blocks(classes)
    blocks["BLOCK_CELLS"] = min(blocks.pop("BLOCK_PIXELS"), 32)
    programs = images * parts * low_height * triton.cdiv(low_width, blocks["BLOCK_CELLS"])
    result = torch.empty_like(student) if gradient else None
    scratch = None
    if gradient:
        corners = (parts, 4, images, classes, low_height, low_width)
        scratch = torch.empty(corners, dtype=torch.float32, device=student.device)
    sums, histogram = _partials(student.device, programs, blocks["BINS"], torch.int32)
    with _launching_on(student):
        gpu_upsampled.upsampled_kernel[(programs,)](
            student,
            teacher,
            pixels.second,
            *_maps(pixels),
            scale,
            scratch,
            sums,
            histogram,
            images,
            low_height,
            low_width,
            height,
            width,
            *rows,
            *columns,
            parts,
            *student.stride(),
            *teacher.stride(),
            **_rule(settings),
            **_weighting(settings),
            CROSS_ENTROPY=cross_entropy,
            **blocks,
            num_warps=1,
        )
        if result is not None:
            gpu_upsampled.gather_kernel[(triton.cdiv(result.numel(), GATHER_BLOCK),)](
                scratch,
                result,
                images,
                low_height,
                low_width,
                parts,
                *result.stride(),
                CLASSES=classes,
                BLOCK=GATHER_BLOCK,
            )
    return _add_up(sums, histogram, classes, result)


def mapped(settings: Settings, student: Tensor, teacher: Tensor) -> Mapped:
    """Compute loss, weight and K of every pixel; the state is the last positive of each pixel, 8 bytes."""
    flat_student, flat_teacher = _flat(student), _flat(teacher.detach())
    images, classes, per_image = flat_student.shape
    blocks = _blocks(classes)
    blocks.pop("BINS")
    shape = (student.shape[0], *student.shape[2:])
    loss, weight, last_value = (torch.empty(shape, dtype=torch.float32, device=student.device) for _ in range(3))
    k = torch.empty(shape, dtype=torch.int64, device=student.device)
    last_class = torch.empty(shape, dtype=torch.int32, device=student.device)
    with _launching_on(student):
        gpu_kernels.mapped_kernel[(images * triton.cdiv(per_image, blocks["BLOCK_PIXELS"]),)](
            flat_student,
            flat_teacher,
            loss,
            weight,
            k,
            last_value,
            last_class,
            per_image,
            *flat_student.stride(),
            *flat_teacher.stride(),
            **_rule(settings),
            **_weighting(settings),
            **blocks,
            num_warps=1,
        )
    return Mapped(loss, weight, k, (last_value, last_class))


def mapped_gradient(
    settings: Settings, student: Tensor, teacher: Tensor, state: tuple[Tensor, ...], upstream: Tensor
) -> Tensor:
    """Gradient of SUM ``upstream`` * loss; the student's and the teacher's logits are read once more."""
    flat_student, flat_teacher = _flat(student), _flat(teacher.detach())
    images, classes, per_image = flat_student.shape
    blocks = _blocks(classes)
    blocks.pop("BINS")
    result = torch.empty_like(student)
    target = _flat(result)
    with _launching_on(student):
        gpu_kernels.mapped_gradient_kernel[(images * triton.cdiv(per_image, blocks["BLOCK_PIXELS"]),)](
            flat_student,
            flat_teacher,
            *state,
            upstream.contiguous(),
            target,
            per_image,
            *flat_student.stride(),
            *flat_teacher.stride(),
            *target.stride(),
            **_rule(settings),
            **blocks,
            num_warps=1,
        )
    if target.data_ptr() != result.data_ptr():
        result.copy_(target.view(result.shape))
    return result


def rescale(gradient: Tensor, factor: Tensor) -> Tensor:
    """Multiply by a float32 scalar on the device, in place, zeros by nothing; where it is 1, nothing else is read."""
    # Without gaps the order of the numbers does not matter.
    numbers = gradient.as_strided((gradient.numel(),), (1,))
    with _launching_on(gradient):
        gpu_kernels.rescale_kernel[(triton.cdiv(gradient.numel(), RESCALE_BLOCK),)](
            numbers, factor, gradient.numel(), BLOCK=RESCALE_BLOCK
        )
    return gradient


def probe() -> None:
    """Compile and launch the smallest kernel; whatever keeps this machine from it is raised."""
    number = torch.ones(1, device="cuda")
    if rescale(number, torch.full((), 0.5, device="cuda")).item() != 0.5:
        raise RuntimeError("a test kernel gave a wrong result")


def _launching_on(tensor: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device; the interpreter has none."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _flat(logits: Tensor) -> Tensor:
    """[images, C, pixels], without a copy if contiguous or channels_last."""
    if logits.ndim == 2:
        return logits.t().unsqueeze(0)
    return logits.flatten(2)


def _prepare(pixels: Pixels) -> Pixels:
    """Detach, and give the maps and the second teacher the layouts that the kernels rely on."""
    teacher, second = pixels.teacher.detach(), pixels.second
    if second is not None and second.stride() != teacher.stride():
        # The kernels choose between two addresses; for that the layouts have to agree.
        second = torch.empty_like(teacher).copy_(second)
        teacher = torch.empty_like(teacher).copy_(teacher)
    return pixels._replace(
        student=pixels.student.detach(),
        teacher=teacher,
        second=None if second is None else second.detach(),
        inside=_bytes(pixels.inside),
        weight_map=None if pixels.weight_map is None else pixels.weight_map.detach().contiguous(),
        counted=_bytes(pixels.counted),
    )


def _bytes(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.contiguous().view(torch.uint8)


def _maps(pixels: Pixels) -> tuple[Tensor | None, ...]:
    return pixels.inside, pixels.weight_map, pixels.counted


def _blocks(classes: int) -> dict[str, int]:
    """Sizes of a program: compile-time constants of every kernel."""
    block_classes = triton.next_power_of_2(classes)
    return {
        "CLASSES": classes,
        "BLOCK_CLASSES": block_classes,
        "BLOCK_PIXELS": min(max(BLOCK // block_classes, LEAST_PIXELS), MOST_PIXELS),
        # Bin 0 is for pixels that do not count.
        "BINS": max(triton.next_power_of_2(classes + 1), 32),
    }


def _rule(settings: Settings) -> dict[str, Any]:
    """How K follows from the teacher, as the kernels take it."""
    largest = {0: settings.classes - 1, 1: settings.classes, 2: settings.k, 3: settings.classes}[settings.strategy]
    ratio = torch.tensor(settings.ratio, dtype=torch.float32, device="cpu").item()
    return {
        "threshold": settings.threshold,
        "limit": min(largest, settings.cap),
        "cap": settings.cap,
        "ratio": ratio,
        "ratio_rest": settings.ratio - ratio,
        "STRATEGY": settings.strategy,
        "SOFT": settings.soft,
        "RELEASED": settings.released,
    }


def _weighting(settings: Settings) -> dict[str, Any]:
    return {
        "curvature": settings.curvature,
        "coefficient": settings.convex_coefficient,
        "WEIGHT": settings.weight,
    }


def _steps(low: int, high: int) -> tuple[int, int]:
    """Fraction over / under by which a pixel's index is multiplied to give its place among ``low`` logits."""
    # A single logit owns all pixels, and a single pixel lies on the first logit.
    return (low - 1, high - 1) if low > 1 and high > 1 else (1, high)


def _partials(device: torch.device, programs: int, bins: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Where programs write their sums [len(SUMS), programs] and their histograms [programs, bins]."""
    sums = torch.zeros(len(SUMS), programs, dtype=torch.float32, device=device)
    return sums, torch.empty(programs, bins, dtype=dtype, device=device)


def _add_up(sums: Tensor, histogram: Tensor, classes: int, gradient: Tensor | None) -> Summed:
    counts = histogram.sum(0, dtype=torch.int64)[1 : classes + 1]
    return Summed(sums.sum(1, dtype=torch.float64), counts, gradient)
