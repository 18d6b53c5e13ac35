"""Drawing of curves, areas and bars: each fills a canvas of a given width from one of the frames of `frames.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fpl.report.figures.quantities import G_FUZZY, G_IDEAL, G_VANILLA, QUANTITIES, R_FUZZY, R_VANILLA
from fpl.report.svg import COLORS, INK, MARKERS, SCORE, SOFT, score_colors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Options = Mapping[str, Any]

TRAINING = "training (% of its steps)"
SIGNS = (*MARKERS, "P")
# Markers of a curve; more would hide it.
SHOWN = 9
# More curves than these are of ordered things, such as T, and take their colors from a scale.
APART = 4
# What stands for the same thing in several figures looks the same in all.
OWN = {R_VANILLA: 0, G_VANILLA: 0, R_FUZZY: 1, G_FUZZY: 1, G_IDEAL: 2}


def lines(figure: Figure, frame: pd.DataFrame, options: Options) -> None:
    """Quantities over training, a panel below the other; a band is the standard deviation over seeds."""
    panels = options["panels"]
    charts = _panels(figure, len(panels), 0.40 if len(panels) > 1 else 0.62)
    several = frame["series"].nunique() > 1
    mixed = several and any(len(panel["quantities"]) > 1 for panel in panels)
    names = [
        (row.series, row.quantity) if mixed else row.series if several else row.label
        for row in frame[["series", "quantity", "label"]].itertuples()
    ]
    looks = _looks(list(dict.fromkeys(names)))
    for chart, panel in zip(charts, panels, strict=True):
        shown = frame[frame["quantity"].isin(panel["quantities"])]
        for (series, quantity), group in shown.groupby(["series", "quantity"], sort=False):
            label = group["label"].iloc[0]
            key = (series, quantity) if mixed else series if several else label
            text = f"{series}, {label}" if mixed else str(key)
            _curve(chart, group["training"], group["value"], group["std"], text, looks[key])
        _dress(chart, panel, shown)
    charts[-1].set_xlabel(_training(frame))
    _legend(figure, charts)


def areas(figure: Figure, frame: pd.DataFrame, options: Options) -> None:
    """Shares of the pixels over training, stacked; one series."""
    (chart,) = _panels(figure)
    names = options["quantities"]
    table = frame[frame["series"] == frame["series"].iloc[0]].pivot(
        index="training", columns="quantity", values="value"
    )[names]
    colors = score_colors()
    labels = [QUANTITIES[name].label for name in names]
    shades = [colors(1.0 - place / (len(names) - 1)) for place in range(len(names))]
    chart.stackplot(
        table.index, table.to_numpy().T, colors=shades, labels=labels, edgecolor=INK, linewidth=0.5, alpha=0.85
    )
    if "mark" in options:
        chart.axhline(options["mark"], color=INK, linestyle=(0, (4, 2)), linewidth=1.2, label=options["mark_label"])
    chart.set_ylim(0, 100)
    chart.set_xlim(table.index.min(), table.index.max())
    chart.set_ylabel(options["axis"])
    chart.set_xlabel(_training(frame))
    _legend(figure, [chart])


def sorted_curves(figure: Figure, frame: pd.DataFrame, options: Options) -> None:
    """Gradient sums of mini-batches, sorted by that with K = n."""
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    (chart,) = _panels(figure)
    many = len(frame) > 4 * SHOWN
    small = 0.5 * matplotlib.rcParams["lines.markersize"]
    joined: dict[str, Any] = {"linestyle": "none", "alpha": 0.8, "markersize": small} if many else {}
    for place, name in enumerate(("gradient_sum_n_minus_1", "gradient_sum_n")):
        look: dict[str, Any] = {"color": COLORS[place], "marker": SIGNS[place], "label": QUANTITIES[name].label}
        chart.plot(frame["rank"], frame[name], **look, **joined)
    _log_ticks(chart)
    chart.set_ylabel("mean gradient sum of the negatives")
    chart.set_xlabel("mini-batches, sorted by the sum with K = n")
    chart.xaxis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True))
    _legend(figure, [chart])


def bars(figure: Figure, frame: pd.DataFrame, options: Options) -> None:
    """Final mIoU of each series; a bar begins at the baseline's, so that its length is the difference."""
    (chart,) = _panels(figure)
    shown = frame[frame["seeds"] > 0].reset_index(drop=True)
    base = shown.loc[shown["kind"] == "ce", "miou"]
    floor = float(base.iloc[0]) if len(base) else 0.0
    places = np.arange(len(shown))
    height = shown["miou"] - floor
    look: dict[str, Any] = {"width": 0.62, "edgecolor": INK, "linewidth": 0.6, "zorder": 2}
    chart.bar(places, height, bottom=floor, color=COLORS[0], **look)
    spread = shown["std"].fillna(0.0)
    if (spread > 0).any():
        chart.errorbar(places, shown["miou"], spread, fmt="none", ecolor=INK, capsize=2, elinewidth=0.8, zorder=3)
    if len(base):
        chart.axhline(floor, color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
        low = min(float((shown["miou"] - spread).min()), floor)
        high = max(float((shown["miou"] + spread).max()), floor)
        room = 0.2 * max(high - low, 0.1)
        chart.set_ylim(low - room, high + room)
    for place, (value, delta, std) in enumerate(zip(shown["miou"], height, spread, strict=True)):
        down = delta < 0
        offset = (0, -2 if down else 2)
        at = (place, value - std if down else value + std)
        chart.annotate(
            f"{value:.2f}", at, offset, textcoords="offset points", ha="center", va="top" if down else "bottom"
        )
    chart.grid(False, axis="x")
    chart.set_xticks(places, shown["series"])
    chart.set_ylabel(SCORE)


def thresholds(figure: Figure, frame: pd.DataFrame, options: Options) -> None:
    """Final mIoU over T beside what the paper prints: two panels, a curve per series, dashed lines without FPL.

    T is spaced evenly: those that matter lie close together.
    """
    gain = options.get("gain", False)
    columns = ("gain", "paper_gain") if gain else ("miou", "paper")
    charts = _panels(figure, 2, 0.40)
    curves = list(dict.fromkeys(frame.loc[frame["kind"] == "fpl", "series"]))
    flat = list(dict.fromkeys(frame.loc[frame["kind"] != "fpl", "series"]))
    ticks = sorted(set(frame["threshold"].dropna()))
    for chart, column, title in zip(charts, columns, ("(a) here", "(b) printed in the paper"), strict=True):
        for place, series in enumerate(curves):
            group = frame[(frame["series"] == series) & frame[column].notna()].sort_values("threshold")
            std = group["gain_std" if gain else "std"] if chart is charts[0] else pd.Series(np.nan, group.index)
            _curve(
                chart,
                group["threshold"].map(ticks.index),
                group[column],
                std,
                series,
                _look(place, len(curves)),
                every=1,
            )
        for series in flat:
            for value in frame.loc[(frame["series"] == series) & frame[column].notna(), column]:
                chart.axhline(value, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label=series)
        if gain:
            chart.axhline(0.0, color=INK, linewidth=0.8)
        chart.set_title(title, fontsize="medium", loc="left")
        chart.set_ylabel("gain in points" if gain else SCORE)
    charts[-1].set_xticks(range(len(ticks)), [f"{tick:g}" for tick in ticks])
    charts[-1].set_xlabel("T")
    _legend(figure, charts)


def lengths(figure: Figure, frame: pd.DataFrame, options: Options) -> None:
    """Final mIoU over the steps of a run, on a logarithmic axis: a curve per series, its deviation over seeds."""
    (chart,) = _panels(figure)
    names = list(dict.fromkeys(frame["series"]))
    for place, series in enumerate(names):
        group = frame[(frame["series"] == series) & frame["miou"].notna()].sort_values("steps")
        _curve(chart, group["steps"], group["miou"], group["std"], series, _look(place, len(names)), every=1)
    ticks = sorted(set(frame["steps"]))
    chart.set_xscale("log", base=2)
    chart.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    chart.minorticks_off()
    chart.set_xlabel("steps of a run")
    chart.set_ylabel(SCORE)
    _legend(figure, [chart])


def weights(figure: Figure, frame: pd.DataFrame, options: Options) -> None:
    """Weight functions over the largest probability of a negative."""
    (chart,) = _panels(figure)
    shapes = list(dict.fromkeys(frame["shape"]))
    for place, shape in enumerate(shapes):
        group = frame[frame["shape"] == shape]
        _curve(chart, group["q"], group["weight"], None, shape, _look(place, len(shapes)))
    chart.set_xlabel("largest probability of a negative, q")
    chart.set_ylabel("weight w")
    _legend(figure, [chart])


def _panels(figure: Figure, count: int = 1, ratio: float = 0.62) -> list[Axes]:
    """Axes below each other, each `ratio` of the canvas' width high; the canvas becomes as high as that."""
    wide = figure.get_figwidth()
    figure.set_size_inches(wide, wide * (ratio * count + 0.15))
    charts = figure.subplots(count, 1, sharex=True, squeeze=False)
    for chart in charts.flat:
        chart.patch.set_visible(False)
        chart.grid(True)
    return list(charts.flat)


def _curve(
    chart: Axes, x: pd.Series, y: pd.Series, std: pd.Series | None, label: str, look: dict[str, Any], every: int = 0
) -> None:
    every = every or max(1, len(x) // SHOWN)
    start = look.get("start", 0) * every // 6
    drawn = {name: value for name, value in look.items() if name != "start"}
    chart.plot(x, y, label=label, markevery=(min(start, max(len(x) - 1, 0)), every), **drawn)
    if std is not None and std.notna().any():
        spread = std.fillna(0.0)
        chart.fill_between(x, y - spread, y + spread, color=look["color"], alpha=0.2, linewidth=0)


def _look(place: int, count: int) -> dict[str, Any]:
    """Color, marker and where its markers begin, so that those of curves on top of each other are all seen."""
    color: Any = COLORS[place % len(COLORS)]
    if count > APART:
        # Yellow alone is too pale on white; the scale has no ends.
        color = score_colors()(1.0 - place / (count - 1))
    return {"color": color, "marker": SIGNS[place % len(SIGNS)], "start": place}


def _looks(names: Sequence[Any]) -> dict[Any, dict[str, Any]]:
    """Looks by name: those of `OWN` always the same, the others in their order."""
    others = [name for name in names if name not in OWN]
    found = {name: _look(OWN[name], APART) for name in names if name in OWN}
    first = len(set(OWN.values())) if found else 0
    return found | {name: _look(first + place, len(others)) for place, name in enumerate(others)}


def _dress(chart: Axes, panel: Options, shown: pd.DataFrame) -> None:
    """Names, limits and lines of reference of one panel."""
    chart.set_ylabel(panel["axis"])
    if panel.get("title"):
        chart.set_title(panel["title"], fontsize="medium", loc="left")
    if panel.get("zero"):
        chart.axhline(0.0, color=INK, linewidth=0.8)
    if "mark" in panel:
        chart.axhline(panel["mark"], color=INK, linestyle=(0, (4, 2)), linewidth=1.0, label=panel.get("mark_label"))
    if "limits" in panel:
        chart.set_ylim(*panel["limits"])
    if shown.empty:
        chart.text(0.5, 0.5, "none recorded", transform=chart.transAxes, ha="center", color=SOFT)


def _log_ticks(chart: Axes) -> None:
    """A logarithmic axis with plain numbers at round places: 0.4, 0.6, 0.8, or 0.1, 0.2, 0.5 over some decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    chart.set_yscale("log")
    low, high = chart.get_ylim()
    decades = float(np.log10(high / low))
    steps = (1.0, 2.0, 4.0, 6.0, 8.0) if decades < 1 else (1.0, 2.0, 5.0) if decades < 3 else (1.0,)
    chart.yaxis.set_major_locator(LogLocator(subs=steps))
    chart.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    chart.yaxis.set_minor_locator(NullLocator())


def _training(frame: pd.DataFrame) -> str:
    """Name of the axis of training; with the number of steps where all runs have the same."""
    totals = {round(step * 100 / training) for step, training in zip(frame["step"], frame["training"], strict=True)}
    return f"training (% of {totals.pop():,} steps)" if len(totals) == 1 else TRAINING


def _legend(figure: Figure, charts: Sequence[Axes]) -> None:
    """One legend above all panels; what several have in common once."""
    handles: dict[str, Any] = {}
    for chart in charts:
        for handle, label in zip(*chart.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if not handles:
        return
    longest = max(map(len, handles))
    columns = 1 if longest > 34 else 2 if longest > 18 else 3
    look: dict[str, Any] = {
        "loc": "outside upper left",
        "handlelength": 1.8,
        "columnspacing": 1.1,
        "borderaxespad": 0.1,
    }
    figure.legend(handles.values(), handles.keys(), ncols=columns, **look)
