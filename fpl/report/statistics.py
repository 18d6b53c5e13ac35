"""The few statistics that the tables need, asked of numpy, pandas and scipy with the rules that are ours.

All of them are about points of a metric: mIoU in percent, or seconds. scipy.stats takes longer to import than all else
that prints a table: the functions behind it, scipy.special, are enough, and imported where one is asked for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

# Differences below this are ties: they come from adding floats in another order.
TIE = 1e-9
# Of every interval.
CONFIDENCE = 0.95
RESAMPLES = 9999
# Of fewer groups a bootstrap is rough: its intervals come out too narrow.
FEW = 10

# What a reader is told beside every margin.
MARGIN_RULE = (
    "The paper's number is one run: a difference from it is noise when it lies within the 95 % prediction interval of "
    "one more run around our mean (Student's t of n seeds), and always when it is at most twice the standard deviation "
    "of one run repeated with the same seed. One run alone "
    "is judged by the latter, which says nothing about other seeds, and not at all where nothing was repeated or "
    "repeats are equal to the last bit."
)


@dataclass(frozen=True)
class Spread:
    """A standard deviation within groups of values that should be equal.

    Attributes:
        std: The root of the groups' mean variance, weighted by their degrees of freedom.
        groups: Groups of two values or more.
        values: Values in them.
    """

    std: float
    groups: int
    values: int


@dataclass(frozen=True)
class Interval:
    """An interval of a mean, `CONFIDENCE` wide.

    Attributes:
        low: Its lower end.
        high: Its upper end.
        n: What was resampled, or the values it is from.
    """

    low: float
    high: float
    n: int


def sample_std(values: Sequence[float]) -> float | None:
    """Standard deviation with n - 1 below the fraction; None for fewer than two values."""
    # Less the first value: equal values then have exactly no spread.
    return float(np.std(np.subtract(values, values[0]), ddof=1)) if len(values) > 1 else None


def paired(ours: Mapping[int, float], baseline: Mapping[int, float]) -> list[float]:
    """Differences `ours - baseline` of the seeds that both have, by seed."""
    return [ours[seed] - baseline[seed] for seed in sorted(ours.keys() & baseline.keys())]


def spread_within(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Pooled standard deviation within groups; None where none has two values."""
    found = [(std, len(group)) for group in groups if (std := sample_std(group)) is not None]
    if not found:
        return None
    variance = np.average([std**2 for std, _ in found], weights=[n - 1 for _, n in found])
    return Spread(math.sqrt(variance), len(found), sum(n for _, n in found))


def repetition(noise: pd.DataFrame, metric: str) -> Spread | None:
    """Spread of repeated runs of one recipe and seed: what the hardware's arithmetic does, and nothing else.

    Args:
        noise: `Results.noise`: one row per repetition, with `recipe` (seed included) and metrics.
        metric: Column of the metric, for example `miou_whole_best`.
    """
    if metric not in noise:
        return None
    return spread_within(list(group) for _, group in noise.dropna(subset=[metric]).groupby("recipe")[metric])


def mean_interval(values: Iterable[float]) -> Interval | None:
    """Interval of the mean of independent values by Student's t; None for fewer than two values."""
    values = list(values)  # a column of a frame is not counted from 0
    std = sample_std(values)
    if std is None:
        return None
    from scipy.special import stdtrit

    half = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * std / math.sqrt(len(values))
    middle = float(np.mean(values))
    return Interval(middle - half, middle + half, len(values))


def bootstrap_interval(values: Sequence[float], groups: Sequence[Hashable]) -> Interval | None:
    """Interval of the mean of values that come in groups, by drawing whole groups `RESAMPLES` times with seed 0.

    Values of one group may depend on each other: they stay together. The interval is that of the percentiles.

    Args:
        values: The values.
        groups: The group of each.

    Returns:
        None for fewer than two groups: there is nothing to draw from.
    """
    return _bootstrap_interval(tuple(values), tuple(groups))


@functools.lru_cache(maxsize=100)
def _bootstrap_interval(values: tuple[float, ...], groups: tuple[Hashable, ...]) -> Interval | None:
    """Once for the terminal, the page and its files."""
    parts = pd.Series(values, dtype=float).groupby(list(groups)).agg(["sum", "count"])
    if len(parts) < 2:
        return None
    drawn = np.random.default_rng(0).integers(0, len(parts), (RESAMPLES, len(parts)))
    sums, counts = (parts[name].to_numpy()[drawn].sum(axis=1) for name in ("sum", "count"))
    low, high = np.quantile(sums / counts, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(low), float(high), len(parts))


def margin(values: Sequence[float], repeated: float | None) -> float | None:
    """How far our mean of n seeds may be from the paper's number and still agree with it (`MARGIN_RULE`).

    The paper's number varies from run to run as one of ours does: half a prediction interval of one more value,
    t s sqrt(1 + 1/n), where half the interval of our mean alone, t s / sqrt(n), would take it for exact.

    Args:
        values: Our value of each seed.
        repeated: Standard deviation of one run repeated with the same seed, or None if not measured.

    Returns:
        Points; None where nothing is known about the noise.
    """
    floor = 2 * repeated if repeated is not None else 0.0
    interval = mean_interval(values)
    if interval is not None:
        return max((interval.high - interval.low) / 2 * math.sqrt(len(values) + 1), floor)
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
    def n(self) -> int:
        """Comparisons, ties included."""
        return self.wins + self.losses + self.ties

    @property
    def p(self) -> float:
        """Probability of a result at least this one-sided in fair coin flips, to either side; 1 for no comparison."""
        flips = self.wins + self.losses
        if not flips:
            return 1.0
        from scipy.special import bdtr

        # Both tails are alike; where neither side is ahead they share the middle.
        return min(1.0, 2 * float(bdtr(min(self.wins, self.losses), flips, 0.5)))


def sign_test(differences: Iterable[float]) -> SignTest:
    """Count the signs of differences."""
    values = list(differences)
    wins = sum(value > TIE for value in values)
    losses = sum(value < -TIE for value in values)
    return SignTest(wins, losses, len(values) - wins - losses)
