"""Checks of claims on final mIoU: which series is best, and at which T. Each takes the runs of a figure first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from fpl.report.claims.measure import Outcome, decided, not_run, plural, threshold_of
from fpl.report.claims.pixel_checks import FEWEST
from fpl.report.figures.series import Found, Source
from fpl.report.search.threshold_claim import falling
from fpl.report.tables.grid import measure
from fpl.report.tables.verdict import ENOUGH_SEEDS

SELECTIONS = {"best": "best of all validations", "last": "last weights"}


def best_of_all(source: Source, best: str) -> Outcome:
    """Whether the series of the cell `best` has the highest mIoU.

    Rule: its mean over seeds is above that of every other series, without tolerance; all must have been run.
    """
    found = _scores(source)
    absent = [item.cell.name for item in source.found if item.cell.name not in {other.cell.name for other, _ in found}]
    if absent or not found:
        return not_run(f"no finished run of {', '.join(absent)}" if absent else "no series")
    ours = next(score for item, score in found if item.cell.name == best)
    others = [score for item, score in found if item.cell.name != best]
    listed = ", ".join(f"{item.label}: {score:.2f}" for item, score in found)
    return decided(all(ours > other for other in others), f"mIoU in %: {listed}; {_amount(found)}")


def best_threshold_inside(source: Source) -> Outcome:
    """Whether the best T is neither the smallest nor the largest of those tried.

    Rule: as said, of the highest mean mIoU over seeds; at least 4 values of T.
    """
    return _best_threshold(source, lambda best, tried: min(tried) < best < max(tried))


def promising_thresholds(source: Source, low: float, high: float) -> Outcome:
    """Whether values of T in the range that the paper calls usually promising do well. What that means is our reading.

    Rule: the mean mIoU (over seeds, then over T) of `low` <= T <= `high` is above that of all other T, and above the
    mean of the figure's series without FPL, if there are any that were run; at least 4 values of T, on both sides.
    """
    found = _scores(source)
    groups: dict[str, list[float]] = {"inside": [], "outside": [], "baseline": []}
    for item, score in found:
        fuzzy = item.cell.configs[0].loss.kind == "fpl"
        groups["baseline" if not fuzzy else "inside" if low <= threshold_of(item) <= high else "outside"].append(score)
    inside, outside, baseline = groups.values()
    if len(inside) + len(outside) < FEWEST or not inside or not outside:
        return not_run(f"at least {FEWEST} values of T are needed, some from {low:g} to {high:g} and some not")
    means = {f"T from {low:g} to {high:g}": float(np.mean(inside)), "other T": float(np.mean(outside))}
    if baseline:
        means["without FPL"] = float(np.mean(baseline))
    ours, *others = means.values()
    listed = ", ".join(f"{name}: {value:.2f}" for name, value in means.items())
    curve = _curve([pair for pair in found if pair[0].cell.configs[0].loss.kind == "fpl"])
    return decided(all(ours > other for other in others), f"mean mIoU in %: {listed} ({curve}); {_amount(found)}")


def more_labels_lower_threshold(source: Source) -> Outcome:
    """Whether the best T falls with the number of labels.

    Rule: that of `fpl.report.search.threshold_claim.falling` on T of the highest mean mIoU at each labeled fraction: it
    never rises with the labels and falls at least once. Fractions with fewer than 2 values of T are passed over.
    """
    fractions: dict[str, list[tuple[Found, float]]] = {}
    for item, score in _scores(source):
        fractions.setdefault(item.cell.configs[0].data.split.fraction, []).append((item, score))
    tried = {name: found for name, found in fractions.items() if len({threshold_of(item) for item, _ in found}) > 1}
    ordered = sorted(tried, key=Fraction)
    state = falling([_best(tried[name]) for name in ordered])
    if state == "not run":
        return not_run("at least 2 labeled fractions are needed, with 2 values of T each")
    listed = "; ".join(f"{name} labeled: T {_best(tried[name]):g} best of {_curve(tried[name])}" for name in ordered)
    return Outcome(state, f"mIoU in %, {listed}; {_amount([pair for name in ordered for pair in tried[name]])}")


def _best_threshold(source: Source, right: Callable[[float, Sequence[float]], bool]) -> Outcome:
    found = [(item, score) for item, score in _scores(source) if item.cell.configs[0].loss.kind == "fpl"]
    tried = sorted({threshold_of(item) for item, _ in found})
    if len(tried) < FEWEST:
        return not_run(f"at least {FEWEST} values of T are needed, there are {len(tried)}")
    best = _best(found)
    return decided(right(best, tried), f"best T {best:g} of {_curve(found)}; {_amount(found)}")


def _scores(source: Source) -> list[tuple[Found, float]]:
    """Mean mIoU over seeds of each series that has one."""
    found = []
    for item in source.drawn:
        values = [value for record in item.records if (value := measure(item.cell, record)) is not None]
        if values:
            found.append((item, float(np.mean(values))))
    return found


def _best(found: Sequence[tuple[Found, float]]) -> float:
    """T of the highest score; the lower of two that are equal."""
    return threshold_of(max(found, key=lambda pair: (pair[1], -threshold_of(pair[0])))[0])


def _curve(found: Sequence[tuple[Found, float]]) -> str:
    ordered = sorted(found, key=lambda pair: threshold_of(pair[0]))
    return ", ".join(f"{threshold_of(item):g}: {score:.2f}" for item, score in ordered)


def _amount(found: Sequence[tuple[Found, float]]) -> str:
    """`6 runs, 1 seed each (provisional), best of all validations`."""
    seeds = sorted({len(item.records) for item, _ in found})
    spread = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    word = "seed" if seeds == [1] else "seeds"
    provisional = " (provisional)" if seeds[0] < ENOUGH_SEEDS else ""
    selection = SELECTIONS[found[0][0].cell.experiment.table.selection]
    return (
        f"{plural(sum(len(item.records) for item, _ in found), 'run')}, {spread} {word} each{provisional}, {selection}"
    )


CHECKS: dict[str, Callable[..., Outcome]] = {
    check.__name__: check
    for check in (best_of_all, best_threshold_inside, promising_thresholds, more_labels_lower_threshold)
}
