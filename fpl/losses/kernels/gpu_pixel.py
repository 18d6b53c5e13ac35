"""What the GPU kernels compute for a block of pixels (Triton): positives, weight, loss, cross-entropy, gradient.

A block is [BLOCK_CLASSES, BLOCK_PIXELS] in float32: classes padded to a power of two, pixels next to each other. The
functions say what they give per pixel; the formulas are those of :mod:`fpl.losses.assignment`,
:mod:`fpl.losses.weight` and :mod:`fpl.losses.regularization`. Maxima and minima may swallow NaN on a GPU, so nothing
relies on them to pass it on: sums of exponentials do.
"""

# Compile-time constants have capitals, as everywhere in Triton; its language is not Python's, nor are its types.
# ruff: noqa: N803
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

# Nobody's class index: larger than any.
NO_CLASS = tl.constexpr(1 << 20)


@triton.jit
def log1p(x):
    """log(1 + x) for x >= 0, small x included: what 1 + x rounds off is put back by the quotient."""
    rounded = 1.0 + x
    exact = rounded == 1.0
    return tl.where(exact, x, tl.log(rounded) * (x / tl.where(exact, 1.0, rounded - 1.0)))


@triton.jit
def precise_exp(x):
    """exp(x) for x <= 0 with a relative error of a few units in the last place.

    ``tl.exp`` is 2 ** (x * log2 e) with the product rounded, which costs |x| units: too much where the result is the
    loss itself. NaN stays NaN.
    """
    x = tl.where(x < -110.0, -110.0, x)
    product = x * 1.44269502162933349609375
    rest = tl.fma(x, 1.44269502162933349609375, -product) + x * 1.92596302933512e-08
    return tl.exp2(product) * (1.0 + rest * 0.6931471805599453)


@triton.jit
def next_highest(scores, classes, valid, last_value, last_class):
    """Value and class that rank right behind the given one; equal scores: lower class index first."""
    behind = (scores < last_value[None, :]) | ((scores == last_value[None, :]) & (classes > last_class[None, :]))
    behind = behind & valid
    value = tl.max(tl.where(behind, scores, float("-inf")), 0)
    index = tl.min(tl.where(behind & (scores == value[None, :]), classes, NO_CLASS), 0)
    return value, index


@triton.jit
def one_more(k, cumulative, probability, target, threshold, RULE: tl.constexpr, RELEASED: tl.constexpr):
    """Tell whether the class at place k + 1 is positive too; a NaN says yes, as in the tensor implementation."""
    go = k < target
    if RULE != 2:
        summed = cumulative + probability if RULE == 0 else cumulative
        exceeds = (summed >= threshold) if RELEASED else (summed > threshold)
        go = go & ~exceeds
    return go


@triton.jit
def choose(scores, classes, valid, counted, target, threshold, RULE: tl.constexpr, RELEASED: tl.constexpr):
    """Take classes from the highest down until the rule stops: 0 for K = n - 1, 1 for K = n, 2 for K = ``target``.

    K is never above ``target``. The loop ends with the last open pixel of the block: two maxima where all K are 1.

    Returns:
        K, summed probability of the positives, probability of the next class, value and class of the last positive,
        class of the highest score, and the sum of exponentials: NaN if a score is NaN or the highest is infinite.
    """
    top = tl.max(scores, 0)
    first = tl.min(tl.where(scores == top[None, :], classes, NO_CLASS), 0)
    total = tl.sum(tl.exp(scores - top[None, :]), 0)
    k = tl.full(top.shape, 1, tl.int32)
    cumulative = 1.0 / total
    last_value = top
    last_class = first
    value, index = next_highest(scores, classes, valid, last_value, last_class)
    probability = tl.exp(value - top) / total
    open_ = counted & one_more(k, cumulative, probability, target, threshold, RULE, RELEASED)
    while tl.max(open_.to(tl.int32), 0) > 0:
        k = tl.where(open_, k + 1, k)
        cumulative = tl.where(open_, cumulative + probability, cumulative)
        last_value = tl.where(open_, value, last_value)
        last_class = tl.where(open_, index, last_class)
        value, index = next_highest(scores, classes, valid, last_value, last_class)
        probability = tl.exp(value - top) / total
        open_ = counted & one_more(k, cumulative, probability, target, threshold, RULE, RELEASED)
    return k, cumulative, probability, last_value, last_class, first, total


@triton.jit
def read_teacher(
    scores, classes, valid, counted, threshold, limit, cap, ratio, ratio_rest,
    STRATEGY: tl.constexpr, RELEASED: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """Do :func:`choose` by strategy; ``ratio`` needs n before it knows K, so it goes through the classes twice."""
    if STRATEGY == 3:
        n, _, _, _, _, _, _ = choose(scores, classes, valid, counted, CLASSES, threshold, 1, RELEASED)
        # Two float32 numbers stand for alpha: 0.29 * 100 must not lose a class.
        wide = n.to(tl.float64)
        share = tl.floor(wide * ratio + wide * ratio_rest + 1e-9).to(tl.int32)
        target = tl.minimum(tl.maximum(share, 1), cap)
        return choose(scores, classes, valid, counted, target, threshold, 2, RELEASED)
    else:
        return choose(scores, classes, valid, counted, limit, threshold, STRATEGY, RELEASED)


@triton.jit
def adaptive_weight(
    k, cumulative, probability, curvature, coefficient,
    WEIGHT: tl.constexpr, RELEASED: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """Weight from the positives' mean probability and the best negative's (section 3.2); 1 without negatives."""
    if WEIGHT == 3:
        weight = tl.full(cumulative.shape, 1.0, tl.float32)
    else:
        summed = cumulative + probability if RELEASED else cumulative
        mean = summed / (k + 1 if RELEASED else k).to(tl.float32)
        gap = mean - probability
        # Rounding can take the difference of two equal numbers below zero; a NaN passes both comparisons.
        gap = tl.where(gap < 0.0, 0.0, gap)
        if WEIGHT == 0:
            weight = log1p(curvature * gap) / log1p(curvature * mean)
        elif WEIGHT == 1:
            weight = gap / mean
        else:
            weight = gap / (mean + coefficient * probability)
        # A NaN has K = C with strategy n, and stays NaN.
        full = (k == CLASSES) & (mean == mean)
        weight = tl.where(full | (weight > 1.0), 1.0, weight)
    return weight


@triton.jit
def is_positive(scores, classes, last_value, last_class):
    """Mark the classes that rank no lower than the last positive."""
    tied = (scores == last_value[None, :]) & (classes <= last_class[None, :])
    return (scores > last_value[None, :]) | tied


@triton.jit
def regularize(student, positive, valid):
    """Loss of each pixel and what its gradient is made of.

    Returns:
        The loss; exponentials [BLOCK_CLASSES, BLOCK_PIXELS]; sigma / sum for the positives and for the negatives. The
        gradient of a positive is -first * exponential, that of a negative second * exponential.
    """
    negative = valid & (positive == 0)
    positive = valid & positive
    min_positive = tl.min(tl.where(positive, student, float("inf")), 0)
    max_negative = tl.max(tl.where(negative, student, float("-inf")), 0)
    extreme = tl.where(positive, min_positive[None, :], max_negative[None, :])
    exponential = tl.exp(-tl.abs(extreme - student))
    positive_sum = tl.sum(tl.where(positive, exponential, 0.0), 0)
    negative_sum = tl.sum(tl.where(negative, exponential, 0.0), 0)
    # loss = log(1 + product * exp(distance)); where the distance is positive it is taken out of the logarithm.
    product = positive_sum * negative_sum
    distance = max_negative - min_positive
    factor = precise_exp(-tl.abs(distance))
    ahead = distance <= 0.0
    inner = tl.where(ahead, product * factor, (product - 1.0) + factor)
    loss = tl.where(ahead, 0.0, distance) + log1p(inner)
    sigma = tl.where(ahead, inner / (1.0 + inner), product / (product + factor))
    return loss, exponential, sigma / positive_sum, sigma / negative_sum


@triton.jit
def loss_gradient(exponential, positive, positive_share, negative_share, upstream):
    """Gradient [BLOCK_CLASSES, BLOCK_PIXELS] of the losses times ``upstream`` (section 3.2, gradient equations)."""
    shares = tl.where(positive, -(upstream * positive_share)[None, :], (upstream * negative_share)[None, :])
    return shares * exponential


@triton.jit
def soft_pair(
    student, teacher, classes, valid, k, cumulative, probability, last_value, last_class, threshold, cap,
    curvature, coefficient, WEIGHT: tl.constexpr, RELEASED: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """Strategy ``soft``: means over the K positives that :func:`choose` found and K + 1, to which one belongs in part.

    Returns:
        Membership of that class, loss and weight of each pixel, and the loss's gradient [BLOCK_CLASSES, BLOCK_PIXELS].
    """
    value, index = next_highest(teacher, classes, valid, last_value, last_class)
    after_value, _ = next_highest(teacher, classes, valid, value, index)
    lack = threshold - cumulative
    open_ = lack > 0.0
    if RELEASED:
        open_ = open_ & (k < cap)
    # Where nothing is lacking, the class may have no probability to divide by.
    part = tl.where(open_, tl.minimum(lack / tl.where(open_, probability, 1.0), 1.0), 0.0)
    after = tl.where(after_value == float("-inf"), 0.0, probability * tl.exp(after_value - value))
    weight = adaptive_weight(k, cumulative, probability, curvature, coefficient, WEIGHT, RELEASED, CLASSES)
    wider_weight = adaptive_weight(
        k + 1, cumulative + probability, after, curvature, coefficient, WEIGHT, RELEASED, CLASSES
    )
    positive = is_positive(teacher, classes, last_value, last_class)
    wider = is_positive(teacher, classes, value, index)
    loss, exponential, positive_share, negative_share = regularize(student, positive, valid)
    gradient = loss_gradient(exponential, positive, positive_share, negative_share, 1.0 - part)
    wider_loss, exponential, positive_share, negative_share = regularize(student, wider, valid)
    more = loss_gradient(exponential, wider, positive_share, negative_share, part)
    some = part > 0.0
    gradient = tl.where(some[None, :], gradient + more, gradient)
    loss = tl.where(some, loss + part * (wider_loss - loss), loss)
    weight = tl.where(some, weight + part * (wider_weight - weight), weight)
    return part, loss, weight, gradient


@triton.jit
def cross_entropy(student, classes, valid, counted, first, total, k, loss):
    """Cross-entropy with the class ``first``: with one positive it is the loss, so most blocks do nothing here."""
    result = loss
    if tl.max(tl.where(counted, k, 1), 0) > 1:
        highest = tl.max(tl.where(valid, student, float("-inf")), 0)
        exponential = tl.where(valid, tl.exp(student - highest[None, :]), 0.0)
        own = tl.sum(tl.where(classes == first[None, :], student, 0.0), 0)
        whole = tl.log(tl.sum(exponential, 0)) + (highest - own)
        result = tl.where(k > 1, tl.where(total >= 1.0, whole, float("nan")), loss)
    return result


@triton.jit
def one_pair(
    student, teacher, classes, valid, counted, threshold, limit, cap, ratio, ratio_rest, curvature, coefficient,
    STRATEGY: tl.constexpr, WEIGHT: tl.constexpr, RELEASED: tl.constexpr, CLASSES: tl.constexpr,
    CROSS_ENTROPY: tl.constexpr, SOFT: tl.constexpr,
):  # fmt: skip
    """Everything about a block of pixels of one pair.

    Returns:
        K, loss, weight and cross-entropy (0 unless asked for) of each pixel, and what :func:`loss_gradient` takes.
    """
    k, cumulative, probability, last_value, last_class, first, total = read_teacher(
        teacher, classes, valid, counted, threshold, limit, cap, ratio, ratio_rest, STRATEGY, RELEASED, CLASSES
    )
    several = k
    positive = is_positive(teacher, classes, last_value, last_class)
    if SOFT:
        part, loss, weight, exponential = soft_pair(
            student, teacher, classes, valid, k, cumulative, probability, last_value, last_class, threshold, cap,
            curvature, coefficient, WEIGHT, RELEASED, CLASSES,
        )  # fmt: skip
        several = tl.where(part > 0.0, 2, k)
        k += (part >= 0.5).to(tl.int32)
        # What stands for the exponentials is the gradient already.
        positive_share, negative_share = tl.full(loss.shape, -1.0, tl.float32), tl.full(loss.shape, 1.0, tl.float32)
    else:
        weight = adaptive_weight(k, cumulative, probability, curvature, coefficient, WEIGHT, RELEASED, CLASSES)
        loss, exponential, positive_share, negative_share = regularize(student, positive, valid)
    # A diverged teacher can still have a rank; its pixel has to be seen.
    poison = tl.where(total >= 1.0, 1.0, float("nan"))
    loss = loss * poison
    entropy = tl.zeros_like(loss)
    if CROSS_ENTROPY:
        entropy = cross_entropy(student, classes, valid, counted, first, total, several, loss)
    return k, loss, weight, entropy, exponential, positive, positive_share * poison, negative_share * poison


@triton.jit
def store_sum(sums, column, number, programs, values):
    """Write the sum of ``values`` to place ``number`` of a column of ``sums`` [columns, programs]."""
    tl.store(sums + column * programs.to(tl.int64) + number, tl.sum(values, 0))
