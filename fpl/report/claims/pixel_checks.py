"""Checks of claims on what the loss does to pixels during training. Each says its rule.

All take the runs of a figure first. Names of quantities are those of `fpl.report.figures.quantities`.
Where a figure has several series, each is judged by itself and the claim holds if it holds in every one that was run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from fpl.report.claims.measure import (
    Mean,
    Outcome,
    Part,
    Window,
    amount,
    batches,
    decided,
    each,
    mean_in,
    mean_of,
    name_of,
    not_run,
    text_of,
    threshold_of,
)
from fpl.report.figures.frames import SHAPES, weight
from fpl.report.figures.quantities import QUANTITIES
from fpl.report.figures.series import Found, Source

Trend = Literal["rises", "falls"]
Side = Literal["above", "below"]
# Fewer values of T say nothing about a trend: four are in a given order by chance once in 24 times.
FEWEST = 4
# Rank correlation above which values count as ordered: of six one pair of neighbors may be swapped (0.943), of four or
# five none (0.8 and 0.9).
ORDERED = 0.9
SIGN: dict[Side, str] = {"above": ">", "below": "<"}


def with_threshold(source: Source, quantity: str, trend: Trend, window: Window = "last quarter") -> Outcome:
    """Whether a quantity rises or falls with T.

    Rule: Spearman's rank correlation of T and the mean over `window`, over at least 4 values of T, is above 0.9 (rises)
    or below -0.9 (falls).
    """
    found = [(item, mean) for item in source.drawn if (mean := mean_of(source, item, quantity, window)) is not None]
    found.sort(key=lambda pair: threshold_of(pair[0]))
    levels = [threshold_of(item) for item, _ in found]
    if len(set(levels)) < FEWEST:
        return not_run(f"at least {FEWEST} values of T are needed whose runs logged it, there are {len(set(levels))}")
    means = [mean for _, mean in found]
    correlation = rank_correlation(levels, [mean.value for mean in means])
    listed = ", ".join(f"{level:g}: {text_of(quantity, mean.value)}" for level, mean in zip(levels, means, strict=True))
    return decided(
        (correlation if trend == "rises" else -correlation) > ORDERED,
        f"{name_of(quantity)} by T: {listed}; rank correlation {correlation:.2f}; {amount(means, window)}",
    )


def changes(source: Source, quantity: str, trend: Trend) -> Outcome:
    """Whether a quantity rises or falls during training.

    Rule: its mean over the last quarter of training is above (rises) or below (falls) that over the first.
    """

    def judge(item: Found) -> Part | None:
        first, last = (mean_of(source, item, quantity, window) for window in ("first quarter", "last quarter"))
        if first is None or last is None:
            return None
        holds = last.value > first.value if trend == "rises" else last.value < first.value
        return Part(holds, f"{text_of(quantity, first.value)} to {text_of(quantity, last.value)}", (first, last))

    return each(source, "both quarters", judge, f"{name_of(quantity)}, first to last quarter")


def bounded(source: Source, quantity: str, side: Side, bound: float, window: Window = "last quarter") -> Outcome:
    """Whether a quantity is on one side of the paper's number.

    Rule: its mean over `window` is above or below `bound` (percent where it is a share), without tolerance: the paper
    says "more than" or gives a sign.
    """

    def judge(item: Found) -> Part | None:
        mean = mean_of(source, item, quantity, window)
        return None if mean is None else Part(_beyond(mean.value, side, bound), text_of(quantity, mean.value), (mean,))

    return each(source, window, judge, f"{name_of(quantity)} (claimed: {SIGN[side]} {text_of(quantity, bound)})")


def bounded_in_batches(source: Source, quantity: str, side: Side, bound: float, window: Window = "all") -> Outcome:
    """Whether a quantity is on one side of the paper's number in every mini-batch.

    Rule: it is so in each logged mini-batch (step and direction of the loss) of `window` that has such pixels.
    """

    def judge(item: Found) -> Part | None:
        rows = batches(source, item, [quantity], window)
        if rows.empty:
            return None
        right = [_beyond(value, side, bound) for value in rows[quantity]]
        word, extreme = ("lowest", rows[quantity].min()) if side == "above" else ("highest", rows[quantity].max())
        text = f"in {sum(right):,} of {len(right):,} mini-batches, {word} {text_of(quantity, extreme)}"
        return Part(all(right), text, (mean_in(rows, quantity),))

    return each(source, window, judge, f"{name_of(quantity)} {SIGN[side]} {text_of(quantity, bound)}")


def near(source: Source, quantity: str, value: float, tolerance: float, window: Window = "all") -> Outcome:
    """Whether a quantity is close to a value. The paper says "close" without a number: `tolerance` is ours.

    Rule: its mean over `window` is at most `tolerance` away.
    """

    def judge(item: Found) -> Part | None:
        mean = mean_of(source, item, quantity, window)
        if mean is None:
            return None
        return Part(abs(mean.value - value) <= tolerance, text_of(quantity, mean.value), (mean,))

    close = f"at most {text_of(quantity, tolerance)} from {text_of(quantity, value)} counts as close"
    return each(source, window, judge, f"{name_of(quantity)} ({close})")


def greater(source: Source, quantity: str, than: str | Sequence[str], window: Window = "all") -> Outcome:
    """Whether one quantity is larger than another, or than each of several; those without pixels are passed over.

    Rule: its mean over `window` is larger, without tolerance.
    """
    return _against(source, quantity, than, window, lambda ours, theirs: ours > theirs)


def less(
    source: Source, quantity: str, than: str | Sequence[str], most: float = np.inf, window: Window = "all"
) -> Outcome:
    """Whether one quantity is smaller than another, or than each of several; as `greater`.

    Rule: as there, and by at most `most`: the paper says "slightly" without a number, which is then ours.
    """
    return _against(source, quantity, than, window, lambda ours, theirs: 0 < theirs - ours <= most)


def close(source: Source, quantity: str, to: str, share: float, window: Window = "all") -> Outcome:
    """Whether two quantities are close. The paper says "close" without a number: `share` is ours.

    Rule: their means over `window` differ by at most `share` of the second.
    """
    return _against(source, quantity, to, window, lambda ours, theirs: abs(ours - theirs) <= share * abs(theirs))


def in_order(source: Source, quantities: Sequence[str], window: Window = "all") -> Outcome:
    """Whether quantities rise in the order they are named in; those without pixels are passed over.

    Rule: each mean over `window` is larger than the one before it, without tolerance; there must be two.
    """

    def judge(item: Found) -> Part | None:
        means = {name: mean for name in quantities if (mean := mean_of(source, item, name, window)) is not None}
        if len(means) < 2:
            return None
        holds = all(lower.value < upper.value for lower, upper in pairwise(means.values()))
        text = ", ".join(f"{name_of(name)} {text_of(name, mean.value)}" for name, mean in means.items())
        return Part(holds, text, tuple(means.values()))

    return each(source, window, judge)


def _against(
    source: Source, quantity: str, than: str | Sequence[str], window: Window, right: Callable[[float, float], bool]
) -> Outcome:
    others = [than] if isinstance(than, str) else list(than)

    def judge(item: Found) -> Part | None:
        ours = mean_of(source, item, quantity, window)
        theirs = {name: mean for name in others if (mean := mean_of(source, item, name, window)) is not None}
        if ours is None or not theirs:
            return None
        against = ", ".join(f"{name_of(name)} {text_of(name, mean.value)}" for name, mean in theirs.items())
        text = f"{name_of(quantity)} {text_of(quantity, ours.value)} against {against}"
        return Part(all(right(ours.value, mean.value) for mean in theirs.values()), text, (ours, *theirs.values()))

    return each(source, window, judge)


def greater_in_batches(source: Source, quantity: str, than: str, share: float = 0.5, window: Window = "all") -> Outcome:
    """Whether one quantity is larger than another in most mini-batches.

    Rule: it is so in more than `share` of the logged mini-batches (step and direction of the loss) of `window`.
    """

    def judge(item: Found) -> Part | None:
        rows = batches(source, item, [quantity, than], window)
        if rows.empty:
            return None
        right = rows[quantity] > rows[than]
        ours, theirs = mean_in(rows, quantity), mean_in(rows, than)
        text = (
            f"in {right.sum():,} of {len(rows):,} mini-batches ({100 * right.mean():.1f} %), "
            f"mean {text_of(quantity, ours.value)} against {text_of(than, theirs.value)}"
        )
        return Part(bool(right.mean() > share), text, (ours,))

    return each(source, window, judge, f"{name_of(quantity)} > {name_of(than)} (claimed: in over {100 * share:g} %)")


def widest_gap(
    source: Source, quantity: str, than: str, case: int, tolerance: float, window: Window = "all"
) -> Outcome:
    """Whether two scores differ in one of the three cases alone; cases without pixels are passed over.

    Rule: in `case` the mean of `quantity` over `window` exceeds that of `than` by more than `tolerance`, and in each
    other case the two differ by at most that, to either side. The paper says "similar" without a number: `tolerance` is
    ours. Names are without the case: `fuzzy_score`.
    """
    what = f"{QUANTITIES[f'{quantity}_1'].label} - {QUANTITIES[f'{than}_1'].label} (up to {tolerance:g} is similar)"

    def judge(item: Found) -> Part | None:
        gaps: dict[int, float] = {}
        means: list[Mean] = []
        for number in (1, 2, 3):
            ours, theirs = (mean_of(source, item, f"{name}_{number}", window) for name in (quantity, than))
            if ours is not None and theirs is not None:
                gaps[number] = ours.value - theirs.value
                means.append(ours)
        if case not in gaps or len(gaps) < 2:
            return None
        holds = gaps[case] > tolerance >= max(abs(gap) for number, gap in gaps.items() if number != case)
        return Part(holds, ", ".join(f"{gap:+.3f} in case {number}" for number, gap in gaps.items()), tuple(means))

    return each(source, window, judge, what)


def above_series(source: Source, quantity: str, base: str, window: Window = "last quarter") -> Outcome:
    """Whether a quantity is larger in every series than in the one of the cell `base`.

    Rule: the mean over `window` of each other series is larger, without tolerance; all must have been run.
    """
    means = {item.cell.name: mean_of(source, item, quantity, window) for item in source.found}
    found = {name: mean for name, mean in means.items() if mean is not None}
    if absent := [name for name in means if name not in found]:
        return not_run(f"no finished run that logged it of {', '.join(absent)}")
    if base not in found or len(found) < 2:
        return not_run(f"{base} and another series are needed")
    listed = ", ".join(f"{item.cell.name}: {text_of(quantity, found[item.cell.name].value)}" for item in source.found)
    sets = ", ".join(sorted({item.cell.configs[0].data.dataset for item in source.found}))
    return decided(
        all(mean.value > found[base].value for name, mean in found.items() if name != base),
        f"{name_of(quantity)} on {sets}: {listed}; {amount(found.values(), window)}",
    )


def weights_in_order(source: Source, threshold: float, k: int, curvature: float = 50.0) -> Outcome:
    """Whether the weights of figure A5 fall and lie above each other: concave, linear, convex. Needs no runs.

    Rule: both strictly, at 99 places between q = 0, where all are 1, and q = T / K, where all are 0.
    """
    m = threshold / k
    q = np.linspace(0.0, m, 101)
    curves = [weight(shape, q, m, curvature) for shape in SHAPES]
    ordered = all(bool((upper[1:-1] > lower[1:-1]).all()) for upper, lower in pairwise(curves))
    falling = all(bool((np.diff(curve) < 0).all()) for curve in curves)
    middle = ", ".join(f"{shape} {curve[50]:.3f}" for shape, curve in zip(SHAPES, curves, strict=True))
    return decided(ordered and falling, f"{middle} at q = {m / 2:g}; from the formulas, no runs")


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's; 0 where all of one are equal: no trend."""
    from scipy.stats import spearmanr

    return 0.0 if min(x) == max(x) or min(y) == max(y) else float(spearmanr(x, y).statistic)


def _beyond(value: float, side: Side, bound: float) -> bool:
    return bool(value > bound if side == "above" else value < bound)


CHECKS: dict[str, Callable[..., Outcome]] = {
    check.__name__: check
    for check in (
        with_threshold,
        changes,
        bounded,
        bounded_in_batches,
        near,
        greater,
        less,
        close,
        in_order,
        greater_in_batches,
        widest_gap,
        above_series,
        weights_in_order,
    )
}
