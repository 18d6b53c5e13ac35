"""The few statistics that the tables need, exact and without a library.

All of them are about points of a metric: mIoU in percent, or seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

# Differences below this are ties: they come from adding floats in another order.
TIE = 1e-9

# What a reader is told beside every margin.
MARGIN_RULE = (
    "A difference from the paper is noise when it is at most 2 std / sqrt(n) of our n seeds, and at least twice the "
    "noise floor (the std of repeated runs of one seed). One run alone is judged by twice the noise floor, and not at "
    "all where that was not measured or repeats are equal to the last bit."
)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; ValueError for no values."""
    if not values:
        raise ValueError("the mean of no values")
    return math.fsum(values) / len(values)


def sample_std(values: Sequence[float]) -> float | None:
    """Standard deviation with n - 1 below the fraction; None for fewer than two values."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def paired(ours: Mapping[int, float], baseline: Mapping[int, float]) -> list[float]:
    """Differences `ours - baseline` of the seeds that both have, by seed."""
    return [ours[seed] - baseline[seed] for seed in sorted(ours.keys() & baseline.keys())]


def noise_floor(noise: pd.DataFrame, metric: str) -> float | None:
    """Standard deviation of repeated runs of one recipe and seed, pooled over the recipes that were repeated.

    Args:
        noise: `Results.noise`: one row per repetition, with `recipe` (seed included) and metrics.
        metric: Column of the metric, for example `miou_whole_best`.

    Returns:
        The square root of the mean variance, weighted by repetitions - 1; None if nothing was repeated.
    """
    if metric not in noise:
        return None
    squares, degrees = 0.0, 0
    for _, group in noise.dropna(subset=[metric]).groupby("recipe"):
        values = [float(value) for value in group[metric]]
        std = sample_std(values)
        if std is not None:
            squares += std**2 * (len(values) - 1)
            degrees += len(values) - 1
    return math.sqrt(squares / degrees) if degrees else None


def margin(std: float | None, n: int, noise: float | None) -> float | None:
    """How far our mean of n seeds may be from the paper's number and still agree with it (`MARGIN_RULE`).

    Args:
        std: Sample standard deviation over seeds; None for n < 2.
        n: Measured seeds.
        noise: Noise floor, or None if not measured.

    Returns:
        Points; None where nothing is known about the noise.
    """
    floor = 2 * noise if noise is not None else 0.0
    if n >= 2 and std is not None:
        return max(2 * std / math.sqrt(n), floor)
    # Repeats that are equal to the last bit say that the machine is deterministic, nothing about the spread.
    return floor or None


@dataclass(frozen=True)
class SignTest:
    """How often one thing beat another, and how surprising that is if both were equally good.

    Attributes:
        wins: Comparisons won.
        losses: Comparisons lost.
        ties: Comparisons without a difference; the test leaves them out.
    """

    wins: int
    losses: int
    ties: int = 0

    @property
    def one_sided(self) -> float:
        """Probability of at least this many wins in fair coin flips; 1 for no comparison."""
        return self._tail(self.wins)

    @property
    def two_sided(self) -> float:
        """Probability of a result at least this one-sided, to either side; 1 for no comparison."""
        return min(1.0, 2 * self._tail(max(self.wins, self.losses)))

    def _tail(self, least: int) -> float:
        flips = self.wins + self.losses
        # Whole numbers until the last step: exact at any number of comparisons.
        return sum(math.comb(flips, heads) for heads in range(least, flips + 1)) / (1 << flips)


def sign_test(differences: Iterable[float]) -> SignTest:
    """Count the signs of differences."""
    values = list(differences)
    wins = sum(value > TIE for value in values)
    losses = sum(value < -TIE for value in values)
    return SignTest(wins, losses, len(values) - wins - losses)
