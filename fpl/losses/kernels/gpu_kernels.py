"""GPU kernels at the resolution of the logits (Triton): the summed form, the two of the mapped form, and rescaling.

A program holds all classes of a few neighboring pixels in the registers of one warp and reads each logit once, so
there is neither shared memory nor a barrier. Strides are ordinary arguments (not specialized on 1): the compiler then
gives each thread one pixel, whose classes are reduced without the other threads, and contiguous and channels_last
logits run the same code. Offsets are int64.
"""

# Compile-time constants have capitals, as everywhere in Triton; its language is not Python's, nor are its types.
# ruff: noqa: N803
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from fpl.losses.kernels.gpu_pixel import (
    adaptive_weight,
    is_positive,
    loss_gradient,
    one_pair,
    read_teacher,
    regularize,
    soft_pair,
    store_sum,
)

PLAIN_NUMBERS = [
    "pixels", "limit", "cap",
    "student_image", "student_class", "student_pixel",
    "teacher_image", "teacher_class", "teacher_pixel",
    "gradient_image", "gradient_class", "gradient_pixel",
]  # fmt: skip


@triton.jit
def place(pixels, BLOCK_CLASSES: tl.constexpr, BLOCK_PIXELS: tl.constexpr):
    """Image, pixels and classes [BLOCK_CLASSES, 1] of this program."""
    blocks = tl.cdiv(pixels, BLOCK_PIXELS)
    number = tl.program_id(0)
    image = (number // blocks).to(tl.int64)
    pixel = ((number % blocks) * BLOCK_PIXELS + tl.arange(0, BLOCK_PIXELS)).to(tl.int64)
    return image, pixel, tl.arange(0, BLOCK_CLASSES)[:, None]


@triton.jit
def cells(image, pixel, classes, of_image, of_class, of_pixel):
    """Offsets [BLOCK_CLASSES, BLOCK_PIXELS] of logits."""
    return image * of_image + classes.to(tl.int64) * of_class + pixel[None, :] * of_pixel


@triton.jit(do_not_specialize=PLAIN_NUMBERS)
def summed_kernel(
    student, teacher, second, inside, weight_map, counted_map, scale, gradient, sums, histogram,
    pixels,
    student_image, student_class, student_pixel,
    teacher_image, teacher_class, teacher_pixel,
    gradient_image, gradient_class, gradient_pixel,
    threshold, limit, cap, ratio, ratio_rest, curvature, coefficient,
    STRATEGY: tl.constexpr, SOFT: tl.constexpr, WEIGHT: tl.constexpr, RELEASED: tl.constexpr,
    CROSS_ENTROPY: tl.constexpr, CLASSES: tl.constexpr, BLOCK_CLASSES: tl.constexpr, BLOCK_PIXELS: tl.constexpr,
    BINS: tl.constexpr,
):  # fmt: skip
    """Sums of one block of pixels into ``sums`` [6, programs] and ``histogram`` [programs, BINS], and its gradient.

    Tensors that are None are left out when compiling. Bin 0 of the histogram is for pixels that do not count.
    """
    image, pixel, classes = place(pixels, BLOCK_CLASSES, BLOCK_PIXELS)
    counted = pixel < pixels
    on_map = image * pixels + pixel
    if counted_map is not None:
        counted = counted & (tl.load(counted_map + on_map, counted, other=0) != 0)
    valid = classes < CLASSES
    # Pixels that do not count are not read at all: zeros stand for them, so nothing of theirs can spread.
    read = valid & counted[None, :]
    teacher_cells = teacher + cells(image, pixel, classes, teacher_image, teacher_class, teacher_pixel)
    if second is not None:
        other = second + cells(image, pixel, classes, teacher_image, teacher_class, teacher_pixel)
        chosen = tl.load(inside + on_map, counted, other=0) != 0
        teacher_cells = tl.where(chosen[None, :], other, teacher_cells)
    scores = tl.load(teacher_cells, read, other=0.0).to(tl.float32)
    scores = tl.where(valid, scores, float("-inf"))
    student_cells = student + cells(image, pixel, classes, student_image, student_class, student_pixel)
    logits = tl.load(student_cells, read, other=0.0).to(tl.float32)

    k, loss, weight, entropy, exponential, positive, positive_share, negative_share = one_pair(
        logits, scores, classes, valid, counted, threshold, limit, cap, ratio, ratio_rest, curvature, coefficient,
        STRATEGY, WEIGHT, RELEASED, CLASSES, CROSS_ENTROPY, SOFT,
    )  # fmt: skip
    number = tl.program_id(0)
    programs = tl.num_programs(0)
    loss = tl.where(counted, loss, 0.0)
    weight = tl.where(counted, weight, 0.0)
    mapped = weight
    if weight_map is not None:
        mapped = weight * tl.load(weight_map + on_map, counted, other=0.0)
    store_sum(sums, 0, number, programs, tl.where(counted, 1.0, 0.0))
    store_sum(sums, 1, number, programs, loss * mapped)
    if weight_map is not None:
        # Without a map this column is the one before.
        store_sum(sums, 2, number, programs, loss * weight)
    store_sum(sums, 3, number, programs, loss)
    store_sum(sums, 4, number, programs, weight)
    if CROSS_ENTROPY:
        store_sum(sums, 5, number, programs, tl.where(counted, entropy, 0.0))
    bins = tl.histogram(tl.where(counted, k, 0), BINS)
    tl.store(histogram + number.to(tl.int64) * BINS + tl.arange(0, BINS), bins)
    if gradient is not None:
        upstream = mapped
        if scale is not None:
            upstream = mapped * tl.load(scale)
        result = loss_gradient(exponential, positive, positive_share, negative_share, upstream)
        # NaN in the scale must not reach pixels that do not count.
        result = tl.where(counted[None, :], result, 0.0)
        target = gradient + cells(image, pixel, classes, gradient_image, gradient_class, gradient_pixel)
        tl.store(target, result, valid & (pixel < pixels)[None, :])


@triton.jit(do_not_specialize=PLAIN_NUMBERS)
def mapped_kernel(
    student, teacher, loss_map, weight_map, k_map, value_map, class_map,
    pixels,
    student_image, student_class, student_pixel,
    teacher_image, teacher_class, teacher_pixel,
    threshold, limit, cap, ratio, ratio_rest, curvature, coefficient,
    STRATEGY: tl.constexpr, SOFT: tl.constexpr, WEIGHT: tl.constexpr, RELEASED: tl.constexpr,
    CLASSES: tl.constexpr, BLOCK_CLASSES: tl.constexpr, BLOCK_PIXELS: tl.constexpr,
):  # fmt: skip
    """Loss, weight and K of each pixel, and its last positive (value and class), from which the positives follow."""
    image, pixel, classes = place(pixels, BLOCK_CLASSES, BLOCK_PIXELS)
    counted = pixel < pixels
    valid = classes < CLASSES
    read = valid & counted[None, :]
    teacher_cells = teacher + cells(image, pixel, classes, teacher_image, teacher_class, teacher_pixel)
    scores = tl.load(teacher_cells, read, other=0.0).to(tl.float32)
    scores = tl.where(valid, scores, float("-inf"))
    student_cells = student + cells(image, pixel, classes, student_image, student_class, student_pixel)
    logits = tl.load(student_cells, read, other=0.0).to(tl.float32)
    k, cumulative, probability, last_value, last_class, _, total = read_teacher(
        scores, classes, valid, counted, threshold, limit, cap, ratio, ratio_rest, STRATEGY, RELEASED, CLASSES
    )
    if SOFT:
        part, loss, weight, _ = soft_pair(
            logits, scores, classes, valid, k, cumulative, probability, last_value, last_class, threshold, cap,
            curvature, coefficient, WEIGHT, RELEASED, CLASSES,
        )  # fmt: skip
        k += (part >= 0.5).to(tl.int32)
    else:
        weight = adaptive_weight(k, cumulative, probability, curvature, coefficient, WEIGHT, RELEASED, CLASSES)
        loss, _, _, _ = regularize(logits, is_positive(scores, classes, last_value, last_class), valid)
    sound = total >= 1.0
    on_map = image * pixels + pixel
    tl.store(loss_map + on_map, tl.where(sound, loss, float("nan")), counted)
    tl.store(weight_map + on_map, weight, counted)
    tl.store(k_map + on_map, k, counted)
    # A NaN here tells the gradient kernel that the teacher has diverged.
    tl.store(value_map + on_map, tl.where(sound, last_value, float("nan")), counted)
    tl.store(class_map + on_map, last_class, counted)


@triton.jit(do_not_specialize=PLAIN_NUMBERS)
def mapped_gradient_kernel(
    student, teacher, value_map, class_map, upstream_map, gradient,
    pixels,
    student_image, student_class, student_pixel,
    teacher_image, teacher_class, teacher_pixel,
    gradient_image, gradient_class, gradient_pixel,
    threshold, limit, cap, ratio, ratio_rest,
    STRATEGY: tl.constexpr, SOFT: tl.constexpr, RELEASED: tl.constexpr,
    CLASSES: tl.constexpr, BLOCK_CLASSES: tl.constexpr, BLOCK_PIXELS: tl.constexpr,
):  # fmt: skip
    """Gradient of the losses of one block times ``upstream_map``; ``soft`` asks the teacher again."""
    image, pixel, classes = place(pixels, BLOCK_CLASSES, BLOCK_PIXELS)
    counted = pixel < pixels
    valid = classes < CLASSES
    read = valid & counted[None, :]
    teacher_cells = teacher + cells(image, pixel, classes, teacher_image, teacher_class, teacher_pixel)
    scores = tl.load(teacher_cells, read, other=0.0).to(tl.float32)
    student_cells = student + cells(image, pixel, classes, student_image, student_class, student_pixel)
    logits = tl.load(student_cells, read, other=0.0).to(tl.float32)
    on_map = image * pixels + pixel
    last_value = tl.load(value_map + on_map, counted, other=0.0)
    last_class = tl.load(class_map + on_map, counted, other=0)
    upstream = tl.load(upstream_map + on_map, counted, other=0.0)
    upstream = tl.where(last_value == last_value, upstream, float("nan"))
    if SOFT:
        scores = tl.where(valid, scores, float("-inf"))
        k, cumulative, probability, last_value, last_class, _, _ = read_teacher(
            scores, classes, valid, counted, threshold, limit, cap, ratio, ratio_rest, STRATEGY, RELEASED, CLASSES
        )
        _, _, _, result = soft_pair(
            logits, scores, classes, valid, k, cumulative, probability, last_value, last_class, threshold, cap,
            1.0, 0.0, 3, RELEASED, CLASSES,
        )  # fmt: skip
        result = result * upstream[None, :]
    else:
        positive = is_positive(scores, classes, last_value, last_class)
        _, exponential, positive_share, negative_share = regularize(logits, positive, valid)
        result = loss_gradient(exponential, positive, positive_share, negative_share, upstream)
    target = gradient + cells(image, pixel, classes, gradient_image, gradient_class, gradient_pixel)
    tl.store(target, result, read)


@triton.jit(do_not_specialize=["numbers"])
def rescale_kernel(values, factor, numbers, BLOCK: tl.constexpr):
    """Multiply ``values`` in place, zeros by nothing; programs leave at once where the factor is 1."""
    by = tl.load(factor)
    if by != 1.0:
        position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = position < numbers
        value = tl.load(values + position, inside, other=0.0).to(tl.float32)
        tl.store(values + position, tl.where(value == 0.0, value, value * by), inside)
