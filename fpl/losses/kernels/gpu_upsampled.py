"""GPU kernels for low-resolution logits (Triton): bilinear enlargement, loss and gradient without a full-size tensor.

A low-resolution logit and its right, lower and lower right neighbor span a *cell*, from which all pixels between them
are interpolated. Each lane of a program owns one cell and goes through its pixels one after the other. The transposed
interpolation is then a sum in the lane's own registers, one per corner: no atomics, the same result every time. The
sums of the corners go to a scratch tensor of four times the low resolution (per part, see below), and a second kernel
adds the up to four cells that share a logit.

The pixels of a cell follow from whole numbers: with aligned corners pixel y lies at y (h - 1) / (H - 1), whose integer
part is the cell and whose rest, divided, the interpolation weight. ``F.interpolate`` does the same in floating point.
"""

# Compile-time constants have capitals, as everywhere in Triton; its language is not Python's, nor are its types.
# ruff: noqa: N803
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from fpl.losses.kernels.gpu_pixel import loss_gradient, one_pair, store_sum

PLAIN_NUMBERS = [
    "low_height", "low_width", "height", "width", "rows_over", "rows_under", "columns_over", "columns_under", "parts",
    "images", "limit", "cap",
    "student_image", "student_class", "student_row", "student_column",
    "teacher_image", "teacher_class", "teacher_row", "teacher_column",
    "gradient_image", "gradient_class", "gradient_row", "gradient_column",
]  # fmt: skip


@triton.jit
def first_pixel(cell, over, under, size):
    """First pixel of a cell: the smallest y with y * over / under >= cell."""
    return tl.minimum((cell * under + over - 1) // over, size)


@triton.jit
def enlarge(corner, right, below, x_share, y_share, read):
    """Interpolate in float32 from the corner's pointers and the steps to its neighbors."""
    upper_left = tl.load(corner, read, other=0.0).to(tl.float32)
    upper_right = tl.load(corner + right, read, other=0.0).to(tl.float32)
    lower_left = tl.load(corner + below, read, other=0.0).to(tl.float32)
    lower_right = tl.load(corner + right + below, read, other=0.0).to(tl.float32)
    upper = (1.0 - x_share) * upper_left + x_share * upper_right
    lower = (1.0 - x_share) * lower_left + x_share * lower_right
    return (1.0 - y_share) * upper + y_share * lower


@triton.jit
def store_corners(target, corners, upper_left, upper_right, lower_left, lower_right, write):
    """Write the gradients of the four corners, each to a tensor of ``corners`` numbers."""
    tl.store(target, upper_left, write)
    tl.store(target + corners, upper_right, write)
    tl.store(target + 2 * corners, lower_left, write)
    tl.store(target + 3 * corners, lower_right, write)


@triton.jit(do_not_specialize=PLAIN_NUMBERS)
def upsampled_kernel(
    student, teacher, second, inside, weight_map, counted_map, scale, scratch, sums, histogram,
    images, low_height, low_width, height, width, rows_over, rows_under, columns_over, columns_under, parts,
    student_image, student_class, student_row, student_column,
    teacher_image, teacher_class, teacher_row, teacher_column,
    threshold, limit, cap, ratio, ratio_rest, curvature, coefficient,
    STRATEGY: tl.constexpr, SOFT: tl.constexpr, WEIGHT: tl.constexpr, RELEASED: tl.constexpr,
    CROSS_ENTROPY: tl.constexpr, CLASSES: tl.constexpr, BLOCK_CLASSES: tl.constexpr, BLOCK_CELLS: tl.constexpr,
    BINS: tl.constexpr,
):  # fmt: skip
    """Sums, histogram and corner gradients of some neighboring cells of one row of cells.

    The rows of pixels of a cell are dealt out to ``parts`` programs, so that large enlargements of small logits still
    occupy the device. ``scratch`` is float32 [parts, 4, images, CLASSES, low_height, low_width], corners in the order
    of reading; the rest is as in the kernel for full-resolution logits.
    """
    number = tl.program_id(0)
    programs = tl.num_programs(0)
    blocks = tl.cdiv(low_width, BLOCK_CELLS)
    column = (number % blocks) * BLOCK_CELLS + tl.arange(0, BLOCK_CELLS)
    row = (number // blocks) % low_height
    part = (number // blocks // low_height) % parts
    image = (number // blocks // low_height // parts).to(tl.int64)
    classes = tl.arange(0, BLOCK_CLASSES)[:, None]
    valid = classes < CLASSES

    first_x = first_pixel(column, columns_over, columns_under, width)
    stop_x = tl.where(column < low_width, first_pixel(column + 1, columns_over, columns_under, width), first_x)
    first_y = first_pixel(row, rows_over, rows_under, height)
    stop_y = first_pixel(row + 1, rows_over, rows_under, height)
    widest = tl.max(stop_x - first_x, 0)
    # The last row and column of logits have no cell of their own: their pixels are the logits themselves.
    has_right = column + 1 < low_width
    has_below = row + 1 < low_height
    wide_classes = classes.to(tl.int64)
    student_corner = student + image * student_image + row.to(tl.int64) * student_row
    student_corner = student_corner + wide_classes * student_class + (column.to(tl.int64) * student_column)[None, :]
    from_corner = image * teacher_image + row.to(tl.int64) * teacher_row
    from_corner = from_corner + wide_classes * teacher_class + (column.to(tl.int64) * teacher_column)[None, :]
    student_right = tl.where(has_right, student_column, 0)[None, :]
    student_below = tl.where(has_below, student_row, 0)
    teacher_right = tl.where(has_right, teacher_column, 0)[None, :]
    teacher_below = tl.where(has_below, teacher_row, 0)

    nothing = tl.zeros([BLOCK_CELLS], tl.float32)
    pixels, value, weighted_loss = nothing, nothing, nothing
    loss_sum, weight_sum, entropy_sum = nothing, nothing, nothing
    bins = tl.zeros([BINS], tl.int32)
    no_logits = tl.zeros([BLOCK_CLASSES, BLOCK_CELLS], tl.float32)
    upper_left, upper_right, lower_left, lower_right = no_logits, no_logits, no_logits, no_logits

    for y in range(first_y + part, stop_y, parts):
        y_share = tl.where(has_below, (y * rows_over - row * rows_under).to(tl.float32) / rows_under, 0.0)
        # Two sums per row of pixels keep the four corners out of the registers of the inner loop.
        row_left, row_right = no_logits, no_logits
        for step in range(0, widest):
            x = first_x + step
            counted = x < stop_x
            on_map = (image * height + y) * width + x
            if counted_map is not None:
                counted = counted & (tl.load(counted_map + on_map, counted, other=0) != 0)
            x_share = (x * columns_over - column * columns_under).to(tl.float32) / columns_under
            x_share = tl.where(has_right, x_share, 0.0)[None, :]
            read = valid & counted[None, :]
            logits = enlarge(student_corner, student_right, student_below, x_share, y_share, read)
            teacher_corner = teacher + from_corner
            if second is not None:
                chosen = tl.load(inside + on_map, counted, other=0) != 0
                teacher_corner = tl.where(chosen[None, :], second + from_corner, teacher_corner)
            scores = enlarge(teacher_corner, teacher_right, teacher_below, x_share, y_share, read)
            scores = tl.where(valid, scores, float("-inf"))
            k, loss, weight, entropy, exponential, positive, positive_share, negative_share = one_pair(
                logits, scores, classes, valid, counted, threshold, limit, cap, ratio, ratio_rest, curvature,
                coefficient, STRATEGY, WEIGHT, RELEASED, CLASSES, CROSS_ENTROPY, SOFT,
            )  # fmt: skip
            loss = tl.where(counted, loss, 0.0)
            weight = tl.where(counted, weight, 0.0)
            mapped = weight
            if weight_map is not None:
                mapped = weight * tl.load(weight_map + on_map, counted, other=0.0)
            pixels += tl.where(counted, 1.0, 0.0)
            value += loss * mapped
            weighted_loss += loss * weight
            loss_sum += loss
            weight_sum += weight
            if CROSS_ENTROPY:
                entropy_sum += tl.where(counted, entropy, 0.0)
            bins += tl.histogram(tl.where(counted, k, 0), BINS)
            if scratch is not None:
                upstream = mapped
                if scale is not None:
                    upstream = mapped * tl.load(scale)
                result = loss_gradient(exponential, positive, positive_share, negative_share, upstream)
                result = tl.where(read, result, 0.0)
                row_left += (1.0 - x_share) * result
                row_right += x_share * result
        if scratch is not None:
            upper_left += (1.0 - y_share) * row_left
            upper_right += (1.0 - y_share) * row_right
            lower_left += y_share * row_left
            lower_right += y_share * row_right

    store_sum(sums, 0, number, programs, pixels)
    store_sum(sums, 1, number, programs, value)
    store_sum(sums, 2, number, programs, weighted_loss)
    store_sum(sums, 3, number, programs, loss_sum)
    store_sum(sums, 4, number, programs, weight_sum)
    store_sum(sums, 5, number, programs, entropy_sum)
    tl.store(histogram + number.to(tl.int64) * BINS + tl.arange(0, BINS), bins)
    if scratch is not None:
        plane = low_height.to(tl.int64) * low_width
        corners = images * CLASSES * plane
        target = scratch + part.to(tl.int64) * 4 * corners
        target = target + (image * CLASSES + wide_classes) * plane + (row * low_width + column)[None, :]
        write = valid & (column < low_width)[None, :]
        store_corners(target, corners, upper_left, upper_right, lower_left, lower_right, write)


@triton.jit(do_not_specialize=PLAIN_NUMBERS)
def gather_kernel(
    scratch, gradient, images, low_height, low_width, parts,
    gradient_image, gradient_class, gradient_row, gradient_column,
    CLASSES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add up what the cells around each logit have for it, parts and corners in a fixed order."""
    plane = low_height.to(tl.int64) * low_width
    numbers = images * CLASSES * plane
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = position < numbers
    column = position % low_width
    row = (position // low_width) % low_height
    channel = (position // plane) % CLASSES
    image = position // plane // CLASSES
    left = exists & (column > 0)
    above = exists & (row > 0)
    total = tl.zeros([BLOCK], tl.float32)
    for part in range(0, parts):
        own = scratch + part * 4 * numbers + position
        total += tl.load(own, exists, other=0.0)
        total += tl.load(own + numbers - 1, left, other=0.0)
        total += tl.load(own + 2 * numbers - low_width, above, other=0.0)
        total += tl.load(own + 3 * numbers - low_width - 1, left & above, other=0.0)
    target = gradient + image * gradient_image + channel * gradient_class
    tl.store(target + row * gradient_row + column * gradient_column, total, exists)
