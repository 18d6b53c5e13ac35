"""The figures of a search. Each takes frames of `fpl.report.search.findings` and gives an inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fpl.config.search import Parameter
from fpl.report.search.studies import short, value_text
from fpl.report.svg import COLORS, GROUND, INK, MARKERS, SCORE, SOFT, axes, draw, literal, score_colors
from fpl.store.trials import is_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Fewer points than these are not joined to a surface.
SURFACE = 6
PAPER = "the paper's setting"


def history_figure(name: str, frame: pd.DataFrame) -> str:
    """Score by trial, with the best so far."""

    def paint(figure: Figure) -> None:
        chart = axes(figure, "trial", SCORE)
        done = frame[frame["state"] == "complete"]
        paper = np.array([is_cell(origin) for origin in done["origin"]], dtype=bool)
        _dots(chart, done["number"], done["score"], paper)
        _pruned(chart, frame[frame["state"] == "pruned"], "number")
        chart.step(frame["number"], frame["best"], where="post", color=COLORS[1], label="best so far")
        _whole(chart.xaxis)
        _legend(figure, chart)

    return draw(name, "score of each trial in the order of their numbers, and the best so far", paint)


def importance_figure(name: str, frame: pd.DataFrame) -> str:
    """Importance of each parameter as bars, for one objective."""
    keys = list(frame["parameter"])

    def paint(figure: Figure) -> None:
        chart = axes(figure, "importance (sums to 1)", "")
        chart.grid(False, axis="y")
        labels = [f"{short(key, keys)} (n = {trials})" for key, trials in zip(keys, frame["trials"], strict=True)]
        bars = chart.barh(range(len(keys)), frame["importance"], color=COLORS[0], height=0.6)
        chart.bar_label(bars, [f"{value:.2f}" for value in frame["importance"]], padding=3)
        chart.set_yticks(range(len(keys)), labels)
        chart.invert_yaxis()
        chart.set_xlim(0, min(1.15, 1.2 * float(frame["importance"].max()) + 0.05))

    return draw(name, "importance of each parameter", paint, height=0.9 + 0.36 * len(keys))


def slice_figure(name: str, frame: pd.DataFrame, parameter: Parameter) -> str:
    """Score by one parameter; of words, with the mean per word."""

    def paint(figure: Figure) -> None:
        chart = axes(figure, parameter.key, SCORE)
        place = _axis(chart, parameter, "x")
        done, pruned = (frame[frame["state"] == state] for state in ("complete", "pruned"))
        paper = np.array([is_cell(origin) for origin in done["origin"]], dtype=bool)
        _dots(chart, place(done["value"]), done["score"], paper)
        _pruned(chart, pruned.assign(place=place(pruned["value"])), "place")
        if parameter.choices:
            for value, group in done.groupby("value"):
                (at,) = place([value])
                chart.hlines(group["score"].mean(), at - 0.28, at + 0.28, color=COLORS[1], linewidth=2)
            chart.plot([], [], color=COLORS[1], linewidth=2, label="mean of complete trials")
        _legend(figure, chart)

    return draw(name, f"score by {parameter.key}", paint)


def contour_figure(name: str, frame: pd.DataFrame, x: Parameter, y: Parameter) -> str:
    """Score over two parameters: dots, and a surface through them where both are numbers and the dots are enough."""
    from matplotlib.tri import Triangulation

    def paint(figure: Figure) -> None:
        chart = axes(figure, x.key, y.key)
        across, up = _axis(chart, x, "x")(frame["x_value"]), _axis(chart, y, "y")(frame["y_value"])
        scores = frame["score"].to_numpy(dtype=float)
        low, high = float(scores.min()), float(scores.max())
        colors: dict[str, Any] = {"cmap": score_colors(), "vmin": low, "vmax": max(high, low + 1e-6)}
        triangles = None if x.choices or y.choices else _triangles(_unit(across, x), _unit(up, y))
        if triangles is not None and high > low:
            chart.use_sticky_edges = False
            chart.margins(0.06)
            surface = Triangulation(across, up, triangles)
            chart.tricontourf(surface, scores, levels=np.linspace(low, high, 9), alpha=0.55, **colors)
        dots = chart.scatter(across, up, c=scores, s=46, edgecolors=INK, linewidths=0.8, zorder=3, **colors)
        figure.colorbar(dots, ax=chart, label=SCORE, pad=0.02)

    return draw(name, f"score over {x.key} and {y.key}", paint, height=3.3)


def parallel_figure(name: str, frame: pd.DataFrame, space: Sequence[Parameter]) -> str:
    """Complete trials as lines through one axis per parameter, from top to bottom; the last axis is the score.

    An axis lies across, so that a phone shows as many as there are. A parameter that means nothing in a trial is
    passed at the left, beside its axis.
    """
    keys = [parameter.key for parameter in space]
    scores = frame["score"].to_numpy(dtype=float)
    low, high = float(scores.min()), float(scores.max())
    place = (scores - low) / (high - low) if high > low else np.full(len(scores), 0.5)
    partial = {key for key in keys if frame[key].isna().any()}

    def paint(figure: Figure) -> None:
        chart = axes(figure, "", "")
        chart.grid(False)
        chart.axis("off")
        colors = score_colors()
        levels = [_positions(parameter, frame[parameter.key]) for parameter in space] + [place]
        for row in range(len(frame)):
            line = [level[row] for level in levels]
            last = row == len(frame) - 1
            chart.plot(
                line,
                range(len(levels)),
                color=COLORS[1] if last else colors(place[row]),
                linewidth=2.4 if last else 1.1,
                alpha=1.0 if last else 0.75,
                label="best trial" if last else None,
            )
        for number, parameter in enumerate(space):
            _rail(chart, number, short(parameter.key, keys), _ticks(parameter), parameter.key in partial)
        _rail(chart, len(space), SCORE, [(0.0, f"{low:.1f}"), (1.0, f"{high:.1f}")] if high > low else [], False)
        chart.set_ylim(len(levels) - 0.4, -0.55)
        chart.set_xlim(-0.2 if partial else -0.06, 1.06)
        _legend(figure, chart)

    return draw(name, "complete trials as lines through all parameters", paint, height=0.6 + 0.74 * (len(space) + 1))


def threshold_figure(name: str, frame: pd.DataFrame, joined: bool) -> str:
    """Score by T, a color per study; a bar is the standard deviation over a trial's runs.

    `joined`: by a line, which says something only where nothing but T differs.
    """

    def paint(figure: Figure) -> None:
        chart = axes(figure, "T (loss.threshold)", SCORE)
        for number, (title, group) in enumerate(frame.groupby("title", sort=False)):
            color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
            if joined:
                curve = group.groupby("threshold")["score"].mean()
                chart.plot(curve.index, curve, color=color, linewidth=1.2, alpha=0.8)
            look: dict[str, Any] = {
                "fmt": marker,
                "color": color,
                "capsize": 2,
                "elinewidth": 0.9,
                "label": literal(str(title)),
            }
            chart.errorbar(group["threshold"], group["score"], group["score_std"].fillna(0.0), **look)
            top = group.sort_values(["score", "number"], ascending=[False, True]).iloc[0]
            chart.plot(top["threshold"], top["score"], marker="o", ms=13, mfc="none", mec=color, mew=1.6, ls="none")
        chart.plot([], [], marker="o", ms=11, mfc="none", mec=INK, ls="none", label="best T")
        _legend(figure, chart, columns=1)

    return draw(name, "score by T, a curve per labeled fraction", paint, height=3.9)


def pareto_figure(name: str, complete: pd.DataFrame, front: pd.DataFrame) -> str:
    """Score by cost, with the trials that no other beats in both."""

    def paint(figure: Figure) -> None:
        chart = axes(figure, "cost in device-hours of training", SCORE)
        paper = np.array([is_cell(origin) for origin in complete["origin"]], dtype=bool)
        _dots(chart, complete["cost"], complete["score"], paper)
        chart.step(front["cost"], front["score"], where="post", color=COLORS[1], label="Pareto front")
        _legend(figure, chart)

    return draw(name, "score by cost", paint)


def _dots(chart: Axes, x: Any, y: Any, paper: np.ndarray) -> None:
    """Complete trials; those with the paper's settings as diamonds."""
    across, up = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    look: dict[str, Any] = {"linewidths": 0.7, "edgecolors": INK, "zorder": 3}
    chart.scatter(across[~paper], up[~paper], s=38, color=COLORS[0], label="complete", **look)
    if paper.any():
        chart.scatter(across[paper], up[paper], s=52, color=COLORS[2], marker="D", label=PAPER, **look)


def _pruned(chart: Axes, frame: pd.DataFrame, x: str) -> None:
    """Trials that were stopped: crosses at what they last reported."""
    if len(frame):
        across = np.asarray(frame[x], dtype=float)
        chart.scatter(across, frame["score"], s=32, color=SOFT, marker="x", label="stopped early (last report)")


def _legend(figure: Figure, chart: Axes, columns: int = 2) -> None:
    handles, labels = chart.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper left", ncols=columns, handlelength=1.4, columnspacing=1.2)


def _whole(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True))


def _axis(chart: Axes, parameter: Parameter, which: str) -> Any:
    """Prepare an axis for a parameter; what turns its values into places there."""
    axis = chart.xaxis if which == "x" else chart.yaxis
    if parameter.choices:
        words = [literal(str(choice)) for choice in parameter.choices]
        axis.set_ticks(range(len(words)), words)
        (chart.set_xlim if which == "x" else chart.set_ylim)(-0.5, len(words) - 0.5)
        return lambda values: np.array([parameter.choices.index(value) for value in values], dtype=float)
    if parameter.log:
        (chart.set_xscale if which == "x" else chart.set_yscale)("log")
    elif parameter.whole:
        _whole(axis)
    return lambda values: np.asarray(values, dtype=float)


def _unit(values: np.ndarray, parameter: Parameter) -> np.ndarray:
    """Numbers as 0 to 1 of the range searched, evenly in the logarithm if that is searched evenly."""
    assert parameter.low is not None and parameter.high is not None
    ends = np.array([parameter.low, parameter.high], dtype=float)
    if parameter.log:
        values, ends = np.log(values), np.log(ends)
    return np.asarray((values - ends[0]) / (ends[1] - ends[0]), dtype=float)


def _triangles(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Corners of triangles between the dots [n, 3]; None for too few, or for dots on one line."""
    from scipy.spatial import Delaunay

    dots = np.stack([x, y], axis=1)
    if len(np.unique(dots, axis=0)) < SURFACE or np.linalg.svd(dots - dots.mean(0), compute_uv=False)[1] < 0.05:
        return None
    return np.asarray(Delaunay(dots).simplices)


def _positions(parameter: Parameter, values: pd.Series) -> np.ndarray:
    """Places 0 to 1 on an axis of the parallel coordinates; -0.14 where the parameter means nothing."""
    places = np.full(len(values), -0.14)
    there = values.notna().to_numpy()
    held = list(values[there])
    if parameter.choices:
        last = max(1, len(parameter.choices) - 1)
        places[there] = [parameter.choices.index(value) / last for value in held]
    else:
        places[there] = _unit(np.asarray(held, dtype=float), parameter)
    return places


def _ticks(parameter: Parameter) -> list[tuple[float, str]]:
    if parameter.choices:
        last = max(1, len(parameter.choices) - 1)
        return [(number / last, literal(str(choice))) for number, choice in enumerate(parameter.choices)]
    assert parameter.low is not None and parameter.high is not None
    return [(0.0, value_text(parameter.low)), (1.0, value_text(parameter.high))]


def _rail(chart: Axes, y: float, name: str, ticks: Sequence[tuple[float, str]], partial: bool) -> None:
    """One axis of the parallel coordinates: a line across, its name above, its values below."""
    chart.plot([0, 1], [y, y], color=INK, linewidth=1.0, zorder=4)
    if partial:
        chart.plot([-0.14], [y], marker="o", ms=4, color=SOFT, zorder=4)
        chart.text(-0.14, y + 0.08, "–", ha="center", va="top", fontsize=8.5)
    behind = {"facecolor": GROUND, "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
    chart.text(0, y - 0.09, name, ha="left", va="bottom", fontsize=9, fontweight="bold", zorder=6, bbox=behind)
    for at, label in ticks:
        chart.plot([at, at], [y - 0.05, y + 0.05], color=INK, linewidth=1.0, zorder=4)
        side = "left" if at == 0 else "right" if at == 1 else "center"
        chart.text(at, y + 0.09, label, ha=side, va="top", fontsize=8.5, zorder=6, bbox=behind)
