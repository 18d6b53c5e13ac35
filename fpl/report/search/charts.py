"""The figures of a search as inline SVG: Optuna's charts in the colors of the page, and those that Optuna has not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pandas as pd
from markupsafe import Markup

from fpl.config.search import Parameter
from fpl.report.search.studies import StudyView, short
from fpl.report.svg import COLORS, HEIGHT, INK, MARKERS, SCORE, SETTINGS, SOFT, WIDTH, axes, draw, inline, literal
from fpl.report.svg import score_colors as colors
from fpl.store.trials import is_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches of one axis of the parallel coordinates.
RAIL = 1.15
OPTUNA: Any = {
    **SETTINGS,
    "axes.grid": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "figure.constrained_layout.use": True,
    # Words of a space are drawn as they are, whatever dollar signs stand in them.
    "text.parse_math": False,
}


def history_figure(name: str, study: StudyView, frame: pd.DataFrame) -> Markup:
    """Score by trial, with the best so far."""
    from optuna.visualization import matplotlib as optuna

    def plot() -> Axes:
        chart = optuna.plot_optimization_history(study.rebuilt(), target_name=SCORE)
        _mark(chart, frame, frame["number"])
        return chart

    return _drawn(name, "score of each trial in the order of their numbers, and the best so far", plot)


def slice_figure(name: str, study: StudyView, frame: pd.DataFrame, parameter: Parameter) -> Markup:
    """Score by one parameter; of words, with the mean per word."""
    from optuna.visualization import matplotlib as optuna

    def plot() -> Any:
        # Of one parameter: one pair of axes.
        chart: Any = optuna.plot_slice(study.rebuilt(), params=[parameter.key], target_name=SCORE)
        # Optuna shows words as Python writes them.
        _mark(chart, frame, frame["value"].map(repr) if parameter.choices else frame["value"])
        if parameter.choices:
            means = frame[frame["state"] == "complete"].groupby("value")["score"].mean()
            look: dict[str, Any] = {"marker": "_", "s": 900, "color": COLORS[1], "label": "mean of complete trials"}
            chart.scatter([repr(value) for value in means.index], means, **look)
            words = [label.get_text().strip("'") for label in chart.get_xticklabels()]
            chart.set_xticks(chart.get_xticks(), words)
            chart.set_xlim(-0.5, len(words) - 0.5)
        else:
            # Optuna's limits are those of the complete trials.
            chart.autoscale(axis="x")
        return chart

    return _drawn(name, f"score by {parameter.key}", plot)


def contour_figure(name: str, study: StudyView, x: str, y: str) -> Markup:
    """Score over two parameters: dots, and a surface between them."""
    from optuna.visualization import matplotlib as optuna

    return _drawn(
        name, f"score over {x} and {y}", lambda: optuna.plot_contour(study.rebuilt(), [x, y], target_name=SCORE)
    )


def parallel_figure(name: str, study: StudyView) -> Markup:
    """Complete trials as lines through one axis per parameter; the first axis is the score."""
    from optuna.visualization import matplotlib as optuna

    def plot() -> Axes:
        chart = optuna.plot_parallel_coordinate(study.rebuilt(), target_name=SCORE)
        names = [short(label.get_text(), study.keys) for label in chart.get_xticklabels()]
        chart.set_xticks(chart.get_xticks(), names, rotation=330, ha="left")
        for rail in chart.figure.axes:
            rail.grid(False)
        return chart

    return _drawn(name, "complete trials as lines through all parameters", plot, RAIL * (len(study.keys) + 1))


def pareto_figure(name: str, study: StudyView) -> Markup:
    """Score by cost, with the trials that no other beats in both."""
    from optuna.visualization import matplotlib as optuna

    def plot() -> Axes:
        chart = optuna.plot_pareto_front(
            study.rebuilt(["miou", "cost"]),
            target_names=["cost in device-hours of training", SCORE],
            targets=lambda trial: (trial.values[1], trial.values[0]),
        )
        _mark(chart, study.complete, study.complete["cost"])
        return chart

    return _drawn(name, "score by cost", plot)


def importance_figure(name: str, frame: pd.DataFrame) -> Markup:
    """Importance of each parameter as bars, for one objective. Of equal ones Optuna's own chart has no fixed order."""
    keys = list(frame["parameter"])

    def paint(figure: Figure) -> None:
        chart = axes(figure, "importance (sums to 1)", "")
        chart.grid(False, axis="y")
        labels = [f"{short(key, keys)} (n = {trials})" for key, trials in zip(keys, frame["trials"], strict=True)]
        bars = chart.barh(labels, frame["importance"], color=COLORS[0], height=0.6)
        chart.bar_label(bars, fmt="%.2f", padding=3)
        chart.invert_yaxis()
        chart.set_xlim(0, min(1.15, 1.2 * float(frame["importance"].max()) + 0.05))

    return draw(name, "importance of each parameter", paint, height=0.9 + 0.36 * len(keys))


def threshold_figure(name: str, frame: pd.DataFrame, joined: bool) -> Markup:
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
            look: dict[str, Any] = {"color": color, "capsize": 2, "elinewidth": 0.9, "label": literal(str(title))}
            chart.errorbar(group["threshold"], group["score"], group["score_std"].fillna(0.0), fmt=marker, **look)
            top = group.sort_values(["score", "number"], ascending=[False, True]).iloc[0]
            chart.plot(top["threshold"], top["score"], marker="o", ms=13, mfc="none", mec=color, mew=1.6, ls="none")
        chart.plot([], [], marker="o", ms=11, mfc="none", mec=INK, ls="none", label="best T")
        _legend(chart, columns=1)

    return draw(name, "score by T, a curve per labeled fraction", paint, height=3.9)


def _drawn(name: str, words: str, plot: Callable[[], Any], width: float = WIDTH) -> Markup:
    """A chart of Optuna's, which takes the style `ggplot` and a new figure for each, in the look of the others."""
    import matplotlib
    from matplotlib import pyplot
    from matplotlib.ticker import LogFormatter, NullFormatter

    styles = patch.dict(matplotlib.style.library, ggplot=matplotlib.RcParams(OPTUNA))
    with warnings.catch_warnings(), matplotlib.rc_context(OPTUNA), styles:
        # Optuna calls all of its charts experimental; equal values make axes without extent, which matplotlib widens.
        warnings.simplefilter("ignore")
        # No window is wanted, and in a thread none can be had.
        pyplot.switch_backend("agg")
        chart = plot()
        figure = chart.figure
        chart.set_title("")
        for dots in [dots for shown in figure.axes for dots in shown.collections if dots.get_array() is not None]:
            # The blue that Optuna takes ends in white.
            dots.set_cmap(colors())
        for axis in [axis for shown in figure.axes for axis in (shown.xaxis, shown.yaxis) if axis.get_scale() == "log"]:
            axis.set_major_formatter(LogFormatter())
            axis.set_minor_formatter(NullFormatter())
        if chart.get_legend() is not None:
            chart.get_legend().remove()
        _legend(chart)
        figure.set_layout_engine("constrained")
        figure.set_size_inches(width, HEIGHT)
        drawn = inline(figure, name, words)
        pyplot.close(figure)
    return drawn


def _mark(chart: Axes, frame: pd.DataFrame, x: pd.Series) -> None:
    """What is special on top of a chart: the paper's settings as diamonds, and what was stopped at its last report."""
    state = frame["state"]
    paper = (state == "complete") & frame["origin"].map(is_cell)
    look: dict[str, Any] = {"marker": "D", "s": 52, "color": COLORS[2], "edgecolors": INK, "linewidths": 0.7}
    for chosen, words, how in (
        (paper, "the paper's setting", look),
        (state == "pruned", "stopped early (last report)", {"marker": "x", "s": 32, "color": SOFT}),
    ):
        if chosen.any():
            chart.scatter(x[chosen], frame.loc[chosen, "score"], label=words, zorder=3, **how)


def _legend(chart: Axes, columns: int = 2) -> None:
    handles, labels = chart.get_legend_handles_labels()
    # Optuna's entry for trials that break a constraint; no search here has one.
    shown = {label: handle for label, handle in zip(labels, handles, strict=True) if label != "Infeasible Trial"}
    if shown:
        where: Any = {"loc": "outside upper left", "handlelength": 1.4, "columnspacing": 1.2}
        chart.figure.legend(shown.values(), shown.keys(), ncols=columns, **where)
