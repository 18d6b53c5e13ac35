"""Checks of claims on what the loss does to pixels during training. Each says its rule.

All take the runs of a figure first. Names of quantities are those of `fpl.report.figures.quantities`; those without
pixels are passed over. Where a figure has several series, each is judged by itself and the claim holds if it holds in
every one that was run.
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
    batches,
    decided,
    each,
    listed,
    mean_in,
    mean_of,
    means_of,
    name_of,
    text_of,
)
from fpl.report.figures.frames import SHAPES, weight
from fpl.report.figures.quantities import QUANTITIES
from fpl.report.figures.series import Found, Source

Trend = Literal["rises", "falls"]
Side = Literal[">", "<"]


def compare(
    source: Source,
    quantity: str,
    side: Side,
    to: float | str | Sequence[str],
    most: float = np.inf,
    window: Window = "all",
) -> Outcome:
    """Whether a quantity is larger (`>`) or smaller (`<`) than the paper's number, or than each of other quantities.

    Rule: its mean over `window` is, without tolerance: the paper says "more than" or gives a sign. By at most `most`:
    the paper says "slightly" without a number, which is then ours. Numbers of shares are in percent.
    """

    def right(ours: float, theirs: float) -> bool:
        return 0 < (ours - theirs if side == ">" else theirs - ours) <= most

    return _against(source, quantity, to, window, right, side)


def near(source: Source, quantity: str, to: float | str, tolerance: float = 0.0, share: float = 0.0) -> Outcome:
    """Whether a quantity is close to a value or to another quantity. How close is ours: the paper gives no number.

    Rule: their means over all of training differ by at most `tolerance`, or by at most `share` of the second.
    """

    def right(ours: float, theirs: float) -> bool:
        return abs(ours - theirs) <= max(tolerance, share * abs(theirs))

    return _against(source, quantity, to, "all", right, f"within {text_of(quantity, tolerance)} of")


def _against(
    source: Source,
    quantity: str,
    to: float | str | Sequence[str],
    window: Window,
    right: Callable[[float, float], bool],
    relation: str,
) -> Outcome:
    if isinstance(to, (int, float)):
        number = float(to)

        def bounded(item: Found) -> Part | None:
            mean = mean_of(source, item, quantity, window)
            return None if mean is None else Part(right(mean.value, number), text_of(quantity, mean.value), (mean,))

        claimed = f"{name_of(quantity)} (claimed: {relation} {text_of(quantity, number)})"
        return each(source, [window], bounded, claimed)
    others = [to] if isinstance(to, str) else to

    def judge(item: Found) -> Part | None:
        ours, theirs = means_of(source, item, [quantity], window), means_of(source, item, others, window)
        if not ours or not theirs:
            return None
        holds = all(right(ours[quantity].value, mean.value) for mean in theirs.values())
        return Part(holds, f"{listed(ours)} against {listed(theirs)}", (*ours.values(), *theirs.values()))

    return each(source, [window], judge)


def compare_in_batches(
    source: Source,
    quantity: str,
    side: Side,
    to: float | str,
    more_than: float | None = None,
) -> Outcome:
    """Whether a quantity is larger or smaller than the paper's number, or than another quantity, in each mini-batch.

    Rule: it is so in all logged mini-batches (step and direction of the loss) that have such pixels, or in more than
    the share `more_than` of them.
    """

    def judge(item: Found) -> Part | None:
        rows = batches(source, item, [quantity, to] if isinstance(to, str) else [quantity], "all")
        if rows.empty:
            return None
        theirs = rows[to] if isinstance(to, str) else to
        right = rows[quantity] > theirs if side == ">" else rows[quantity] < theirs
        ours = mean_in(rows, quantity)
        if isinstance(to, str):
            detail = f"mean {text_of(quantity, ours.value)} against {text_of(to, mean_in(rows, to).value)}"
        else:
            word, extreme = ("lowest", rows[quantity].min()) if side == ">" else ("highest", rows[quantity].max())
            detail = f"{word} {text_of(quantity, extreme)}"
        text = f"in {right.sum():,} of {len(rows):,} mini-batches ({100 * right.mean():.1f} %), {detail}"
        return Part(bool(right.all() if more_than is None else right.mean() > more_than), text, (ours,))

    other = name_of(to) if isinstance(to, str) else text_of(quantity, to)
    where = "all" if more_than is None else f"over {100 * more_than:g} %"
    return each(source, ["all"], judge, f"{name_of(quantity)} {side} {other} (claimed: in {where})")


def in_order(
    source: Source, quantities: Sequence[str], trend: Trend = "rises", windows: Sequence[Window] = ("all",)
) -> Outcome:
    """Whether quantities rise or fall in the order they are named in, or one from one part of training to the next.

    Rule: each mean is larger (rises) or smaller (falls) than the one before it, without tolerance; there must be two.
    """

    def judge(item: Found) -> Part | None:
        points = [(window, means_of(source, item, quantities, window)) for window in windows]
        means = [mean for _, found in points for mean in found.values()]
        if len(means) < 2:
            return None
        steps = [later.value - earlier.value for earlier, later in pairwise(means)]
        texts = [listed(found) + (f" in the {window}" if len(windows) > 1 else "") for window, found in points]
        return Part(all(step > 0 if trend == "rises" else step < 0 for step in steps), ", ".join(texts), tuple(means))

    return each(source, windows, judge)


def widest_gap(source: Source, quantity: str, than: str, case: int, tolerance: float) -> Outcome:
    """Whether two scores differ in one of the three cases alone.

    Rule: in `case` the mean of `quantity` over training exceeds that of `than` by more than `tolerance`, and in each
    other case the two differ by at most that, to either side. The paper says "similar" without a number: `tolerance` is
    ours. Names are without the case: `fuzzy_score`.
    """
    what = f"{QUANTITIES[f'{quantity}_1'].label} - {QUANTITIES[f'{than}_1'].label} (up to {tolerance:g} is similar)"

    def judge(item: Found) -> Part | None:
        gaps: dict[int, float] = {}
        means: list[Mean] = []
        for number in (1, 2, 3):
            ours, theirs = (mean_of(source, item, f"{name}_{number}", "all") for name in (quantity, than))
            if ours is not None and theirs is not None:
                gaps[number] = ours.value - theirs.value
                means.append(ours)
        if case not in gaps or len(gaps) < 2:
            return None
        holds = gaps[case] > tolerance >= max(abs(gap) for number, gap in gaps.items() if number != case)
        return Part(holds, ", ".join(f"{gap:+.3f} in case {number}" for number, gap in gaps.items()), tuple(means))

    return each(source, ["all"], judge, what)


def weights_in_order(source: Source, threshold: float, k: int, curvature: float = 50.0) -> Outcome:
    """Whether the weights of figure A5 fall and lie above each other: concave, linear, convex. Needs no runs.

    Rule: both strictly, at 99 places between q = 0, where all are 1, and q = T / K, where all are 0.
    """
    m = threshold / k
    q = np.linspace(0.0, m, 101)
    curves = np.array([weight(shape, q, m, curvature) for shape in SHAPES])
    holds = (np.diff(curves[:, 1:-1], axis=0) < 0).all() and (np.diff(curves, axis=1) < 0).all()
    middle = ", ".join(f"{shape} {curve[50]:.3f}" for shape, curve in zip(SHAPES, curves, strict=True))
    return decided(bool(holds), f"{middle} at q = {m / 2:g}; from the formulas, no runs")


CHECKS: dict[str, Callable[..., Outcome]] = {
    check.__name__: check for check in (compare, near, compare_in_batches, in_order, widest_gap, weights_in_order)
}
