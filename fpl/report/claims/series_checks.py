"""Checks of claims on several series: which is best, at which T, and what T does. Each says its rule.

All take the runs of a figure first. A quantity is `miou`, the final one, or one of `fpl.report.figures.quantities`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from fpl.report.claims.measure import (
    Outcome,
    Window,
    amount,
    decided,
    mean_of,
    name_of,
    not_run,
    text_of,
    threshold_of,
)
from fpl.report.claims.pixel_checks import Side, Trend
from fpl.report.figures.gains import differences
from fpl.report.figures.series import Found, Source
from fpl.report.search.threshold_claim import falling
from fpl.report.statistics import TIE
from fpl.report.tables.gains import Gain
from fpl.report.tables.verdict import ENOUGH_SEEDS
from fpl.store.cells import measure
from fpl.text import plural

MIOU = "miou"
SELECTIONS = {"best": "best of all validations", "last": "last weights"}
# Fewer values of T say nothing about a trend: four are in a given order by chance once in 24 times.
FEWEST = 4
# Rank correlation above which values count as ordered: of six one pair of neighbors may be swapped (0.943), of four or
# five none (0.8 and 0.9).
ORDERED = 0.9
# Series with a value each.
Values = Sequence[tuple[Found, float]]


def with_threshold(source: Source, quantity: str, trend: Trend, window: Window = "last quarter") -> Outcome:
    """Whether a quantity rises or falls with T.

    Rule: Spearman's rank correlation of T and the mean over `window`, over at least 4 values of T, is above 0.9 (rises)
    or below -0.9 (falls).
    """
    found, about = _values(source, quantity, window, only_fuzzy=True)
    if too_few := _too_few(found):
        return too_few
    correlation = rank_correlation([threshold_of(item) for item, _ in found], [value for _, value in found])
    return decided(
        (correlation if trend == "rises" else -correlation) > ORDERED,
        f"{name_of(quantity)} by T: {_curve(found, quantity)}; rank correlation {correlation:.2f}; {about}",
    )


def beyond_others(
    source: Source, cell: str, side: Side, quantity: str = MIOU, window: Window = "last quarter"
) -> Outcome:
    """Whether a quantity of the series of one cell is above (`>`) or below (`<`) that of every other.

    Rule: its mean over seeds (mIoU) or over `window` is, without tolerance; all must have been run.
    """
    found, about = _values(source, quantity, window)
    with_value = {item.cell.name: value for item, value in found}
    absent = [item.cell.name for item in source.found if item.cell.name not in with_value]
    if absent or cell not in with_value or len(found) < 2:
        return not_run(
            f"no finished run that has it of {', '.join(absent)}" if absent else f"{cell} and another needed"
        )
    others = [value for name, value in with_value.items() if name != cell]
    holds = with_value[cell] > max(others) if side == ">" else with_value[cell] < min(others)
    sets = ", ".join(sorted({item.cell.configs[0].data.dataset for item in source.found}))
    what = "mIoU in %" if quantity == MIOU else f"{name_of(quantity)} on {sets}"
    apart = len({item.label for item, _ in found}) == len(found)
    listed = ", ".join(f"{item.label if apart else item.cell.name}: {_text(quantity, value)}" for item, value in found)
    return decided(holds, f"{what}: {listed}; {about}")


def best_threshold_inside(source: Source) -> Outcome:
    """Whether the best T is neither the smallest nor the largest of those tried.

    Rule: as said, of the highest mean mIoU over seeds; at least 4 values of T.
    """
    found, about = _values(source, MIOU, only_fuzzy=True)
    if too_few := _too_few(found):
        return too_few
    tried, best = [threshold_of(item) for item, _ in found], _best(found)
    return decided(min(tried) < best < max(tried), f"best T {best:g} of {_curve(found)}; {about}")


def promising_thresholds(source: Source, low: float, high: float) -> Outcome:
    """Whether values of T in the range that the paper calls usually promising do well. What that means is our reading.

    Rule: the mean mIoU (over seeds, then over T) of `low` <= T <= `high` is above that of all other T, and above the
    mean of the figure's series without FPL, if there are any that were run; at least 4 values of T, on both sides.
    """
    found, about = _values(source, MIOU)
    inside, outside = f"T from {low:g} to {high:g}", "other T"
    groups: dict[str, list[float]] = {inside: [], outside: [], "without FPL": []}
    curve = [(item, score) for item, score in found if _fuzzy(item)]
    for item, score in found:
        promising = _fuzzy(item) and low <= threshold_of(item) <= high
        groups[inside if promising else outside if _fuzzy(item) else "without FPL"].append(score)
    if _too_few(curve) or not groups[inside] or not groups[outside]:
        return not_run(f"at least {FEWEST} values of T are needed, some from {low:g} to {high:g} and some not")
    means = {name: float(np.mean(group)) for name, group in groups.items() if group}
    listed = ", ".join(f"{name}: {value:.2f}" for name, value in means.items())
    holds = all(means[inside] > value for name, value in means.items() if name != inside)
    return decided(holds, f"mean mIoU in %: {listed} ({_curve(curve)}); {about}")


def more_labels_lower_threshold(source: Source) -> Outcome:
    """Whether the best T falls with the number of labels.

    Rule: that of `fpl.report.search.threshold_claim.falling` on T of the highest mean mIoU at each labeled fraction: it
    never rises with the labels and falls at least once. Fractions with fewer than 2 values of T are passed over.
    """
    fractions: dict[str, list[tuple[Found, float]]] = {}
    for item, score in _values(source, MIOU, only_fuzzy=True)[0]:
        fractions.setdefault(item.cell.configs[0].data.split.fraction, []).append((item, score))
    tried = {name: found for name, found in fractions.items() if len({threshold_of(item) for item, _ in found}) > 1}
    ordered = sorted(tried, key=Fraction)
    state = falling([_best(tried[name]) for name in ordered])
    if state == "not run":
        return not_run("at least 2 labeled fractions are needed, with 2 values of T each")
    listed = "; ".join(f"{name} labeled: T {_best(tried[name]):g} best of {_curve(tried[name])}" for name in ordered)
    return Outcome(state, f"mIoU in %, {listed}; {_amount([pair for name in ordered for pair in tried[name]])}")


def gains(source: Source, over: str = "") -> Outcome:
    """Whether the series gain on another column or row (`over`; empty: what their table holds them against).

    Rule: of each seed the mean difference over all series that have such a cell; the 95 % interval of its mean over
    seeds (Student's t) lies above 0. All must have been run, with at least 2 seeds.
    """
    pairs = differences(source, over)
    seeds = set.intersection(*(set(values) for _, _, values in pairs)) if pairs else set[int]()
    if len(seeds) < 2:
        return not_run("two seeds of each series, and of what it is held against, are needed")
    means = tuple(float(np.mean([values[seed] for _, _, values in pairs])) for seed in sorted(seeds))
    gain = Gain("", "", means)
    ups, downs = (sum(np.mean([*values.values()]) * sign > TIE for _, _, values in pairs) for sign in (1, -1))
    others = {name for _, name, _ in pairs}
    against = others.pop() if len(others) == 1 else "what each is held against"
    each = f", of each the mean of {len(pairs)} ({ups} above and {downs} below 0 by their own means)"
    return decided(gain.sign > 0, f"points over {against}: {gain.text}; n counts seeds{each if len(pairs) > 1 else ''}")


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's; 0 where all of one are equal: no trend."""
    from scipy.stats import spearmanr

    return 0.0 if min(x) == max(x) or min(y) == max(y) else float(spearmanr(x, y).statistic)


def _values(
    source: Source, quantity: str, window: Window = "all", only_fuzzy: bool = False
) -> tuple[list[tuple[Found, float]], str]:
    """The quantity of each series that has it, of mIoU the mean over seeds, and of how many runs it is."""
    drawn = [item for item in source.drawn if _fuzzy(item) or not only_fuzzy]
    if quantity != MIOU:
        means = [(item, mean) for item in drawn if (mean := mean_of(source, item, quantity, window)) is not None]
        return [(item, mean.value) for item, mean in means], amount([mean for _, mean in means], window)
    found = []
    for item in drawn:
        values = [value for record in item.records if (value := measure(item.cell, record)) is not None]
        if values:
            found.append((item, float(np.mean(values))))
    return found, _amount(found)


def _fuzzy(item: Found) -> bool:
    return item.cell.configs[0].loss.kind == "fpl"


def _too_few(found: Values) -> Outcome | None:
    count = len({threshold_of(item) for item, _ in found})
    if count >= FEWEST:
        return None
    return not_run(f"at least {FEWEST} values of T are needed whose runs have it, there are {count}")


def _best(found: Values) -> float:
    """T of the highest score; the lower of two that are equal."""
    return threshold_of(max(found, key=lambda pair: (pair[1], -threshold_of(pair[0])))[0])


def _curve(found: Values, quantity: str = MIOU) -> str:
    ordered = sorted(found, key=lambda pair: threshold_of(pair[0]))
    return ", ".join(f"{threshold_of(item):g}: {_text(quantity, value)}" for item, value in ordered)


def _text(quantity: str, value: float) -> str:
    return f"{value:.2f}" if quantity == MIOU else text_of(quantity, value)


def _amount(found: Values) -> str:
    """`6 runs, 1 seed each (provisional), best of all validations`."""
    if not found:
        return "no runs"
    seeds = sorted({len(item.records) for item, _ in found})
    spread = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    word = "seed" if seeds == [1] else "seeds"
    provisional = " (provisional)" if seeds[0] < ENOUGH_SEEDS else ""
    selection = SELECTIONS[found[0][0].cell.experiment.table.selection]
    runs = plural(sum(len(item.records) for item, _ in found), "run")
    return f"{runs}, {spread} {word} each{provisional}, {selection}"


CHECKS: dict[str, Callable[..., Outcome]] = {
    check.__name__: check
    for check in (
        with_threshold,
        beyond_others,
        best_threshold_inside,
        promising_thresholds,
        more_labels_lower_threshold,
        gains,
    )
}
