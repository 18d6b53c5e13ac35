"""Rows of the table `fuzziness`: what the pixel loss did to its pixels at one step, over all workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fpl.losses import PixelTerm
from fpl.train.runtime import Workers

Sums = Mapping[str, Tensor]


def diagnosed_steps(every: int, total: int) -> set[int]:
    """Steps (counted from 1) with diagnostics of the pixel loss: every so many, the first and the last; 0 for none."""
    return {1, total, *range(every, total, every)} if every else set()


def fuzziness_row(step: int, direction: str, term: PixelTerm, workers: Workers) -> dict[str, Any] | None:
    """Means and shares of one direction of the pixel loss over all workers, or None if none were collected.

    The quantities are sums of `fpl.losses.diagnostics`; those of a step without diagnostics are left out.
    """
    if not term.statistics:
        return None
    sums = _total(term.statistics, workers)
    pixels = int(sums["pixels"])
    histogram = _counts(sums["k_histogram"])
    row = {
        "step": step,
        "direction": direction,
        "pixels": pixels,
        "mean_k": _ratio(sum(k * count for k, count in enumerate(histogram, start=1)), pixels),
        "share_k1": _ratio(histogram[0], pixels),
        "mean_weight": _ratio(sums["weight_sum"], pixels),
        "mean_fuzzy_loss": _ratio(sums["loss_sum"], pixels),
        "mean_weighted_loss": _ratio(sums["weighted_loss_sum"], pixels),
        "mean_cross_entropy": _ratio(sums["cross_entropy_sum"], pixels),
        "k_histogram": histogram,
    }
    if "k_histogram_uncapped" in sums:
        row |= _diagnostics(sums, histogram, pixels)
    return row


def _total(statistics: Sums, workers: Workers) -> dict[str, Tensor]:
    """Sums over all workers, float64 on the CPU, in one exchange."""
    flat = torch.cat([value.double().reshape(-1) for value in statistics.values()])
    parts = torch.split(workers.total(flat).cpu(), [value.numel() for value in statistics.values()])
    return {name: part.view(value.shape) for (name, value), part in zip(statistics.items(), parts, strict=True)}


def _diagnostics(sums: Sums, histogram: list[int], pixels: int) -> dict[str, Any]:
    entropy = zip(sums["entropy_sum_by_k"], sums["entropy_square_sum_by_k"], histogram, strict=True)
    moments = [_moments(first, second, count) for first, second, count in entropy]
    row: dict[str, Any] = {
        "k_histogram_uncapped": _counts(sums["k_histogram_uncapped"]),
        "fuzzy_to_cross_entropy": _ratio(sums["loss_sum"], float(sums["cross_entropy_sum"])),
        "gradient_sum_n_minus_1": _ratio(sums["gradient_sum_n_minus_1"], pixels),
        "gradient_sum_n": _ratio(sums["gradient_sum_n"], pixels),
        "entropy_by_k": [mean for mean, _ in moments],
        "entropy_std_by_k": [deviation for _, deviation in moments],
        # A method may hand the pixel loss no true classes.
        "labeled_pixels": int(sums.get("labeled_pixels", torch.zeros(()))),
    }
    return row | _of_the_truth(sums) if row["labeled_pixels"] else row


def _of_the_truth(sums: Sums) -> dict[str, Any]:
    labeled, cases = int(sums["labeled_pixels"]), _counts(sums["case_pixels"])
    row: dict[str, Any] = {
        "impurity": cases[2] / labeled,
        "case_pixels": cases,
        "case_1_k1_pixels": int(sums["case_1_k1_pixels"]),
        "norm_fuzzy_all": _ratio(sums["norm_fuzzy_sum_all"], labeled),
        "norm_ideal_all": _ratio(sums["norm_ideal_sum_all"], labeled),
    }
    for name in ("vanilla_score", "fuzzy_score"):
        by_case = zip(sums[f"{name}_sum"], sums[f"{name}_square_sum"], cases, strict=True)
        moments = [_moments(first, second, count) for first, second, count in by_case]
        row[name] = [mean for mean, _ in moments]
        row[f"{name}_std"] = [deviation for _, deviation in moments]
    for name in ("cosine_fuzzy", "cosine_vanilla", "norm_fuzzy", "norm_ideal"):
        row[name] = _ratio(sums[f"{name}_sum"], cases[1])
    row["cosine_fuzzy_positive"] = _ratio(sums["cosine_fuzzy_positive"], cases[1])
    return row


def _counts(values: Tensor) -> list[int]:
    return [int(value) for value in values]


def _ratio(total: Tensor | float, count: float) -> float:
    """Mean of a sum; NaN over nothing."""
    return float(total) / count if count else math.nan


def _moments(total: Tensor, squares: Tensor, count: int) -> tuple[float, float]:
    """Mean and standard deviation over `count` pixels; the difference of two means can round to less than 0."""
    if not count:
        return math.nan, math.nan
    mean = float(total) / count
    return mean, math.sqrt(max(float(squares) / count - mean * mean, 0.0))
