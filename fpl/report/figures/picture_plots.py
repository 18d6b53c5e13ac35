"""Figures made of pictures: maps of K (6, A7), of gradient scores (3a) and segmentations (A8).

Each is painted into a matplotlib figure of text width; `kept_pictures.py` has the tables of numbers behind them.
Pixels stay square and sharp, and the colors can be told apart by everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fpl.config.classes import CAMVID_CLASSES, CITYSCAPES_CLASSES, VOC_CLASSES
from fpl.report.figures.kept_pictures import UNKNOWN, Pictures, found_classes, segmented
from fpl.report.svg import literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: the width of a page's text, room at its sides and between pictures; a line of titles and of a legend, a color
# bar.
WIDTH, LEFT, RIGHT, GAP = 7.0, 0.18, 0.02, 0.06
TITLE_LINE, LINE, BAR = 0.15, 0.185, 0.56
# Points.
SMALL, TINY = 7.5, 6.0
# Entries of a legend that stand side by side.
ACROSS = 6
Entries = Sequence[tuple[str, str]]
# Behind pixels without a label.
GREY = "#c9ccd1"
# K = 1, 2, 3, >= 4, from light to dark, so that they also differ in print without color.
K_COLORS = ("#f1eee4", "#f0b440", "#d55e00", "#4b1750")
K_LABELS = ("K = 1", "K = 2", "K = 3", "K ≥ 4")
SCORE_TITLES = ("$R^v$ (cross-entropy)", "$R^f$ (FPL)")
# Who errs at a pixel: nobody, the baseline alone, FPL alone, both. After Okabe and Ito (2008).
ERROR_COLORS = ("#f1f1f1", "#e69f00", "#0072b2", "#303030")
# Data sets whose published colors are what readers know their classes by.
PALETTES = (VOC_CLASSES, CITYSCAPES_CLASSES, CAMVID_CLASSES)
# Of other classes, the most frequent of a figure first: those after Okabe and Ito, then Tol's muted (2021) and further.
CLASS_COLORS = (
    "#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00", "#cc79a7", "#f0e442", "#000000",
    "#882255", "#ddcc77", "#332288", "#88ccee", "#117733", "#aa4499", "#999933", "#7f4f24",
    "#b5e48c", "#ffafcc", "#6c757d", "#023047", "#9d4edd", "#fb8500", "#2a9d8f", "#e63946",
)  # fmt: skip


def paint_k_maps(figure: Figure, run: Pictures) -> None:
    """Figures 6 and A7: an image a line, the maps of K at each stored step beside it.

    Args:
        figure: To fill; its size is set.
        run: With pictures of kinds `image` and `k`.

    Raises:
        ValueError: No image has them.
    """
    from matplotlib.colors import ListedColormap

    look = {"cmap": ListedColormap(K_COLORS), "vmin": 0.5, "vmax": 4.5}
    steps, names = run.stored_steps("k"), run.images("image", "k")
    entries = list(zip(K_LABELS, K_COLORS, strict=True))
    images_of = [run.get(name, "image") for name in names]
    page = _Page(figure, images_of, names, ["image", *map(run.when, steps)], legend_height(entries))
    for line, name, image in zip(page.lines, names, images_of, strict=True):
        _show(line[0], image, interpolation="auto")
        for chart, step in zip(line[1:], steps, strict=True):
            k = run.get(name, "k", step)
            _show(chart, None if k is None else np.minimum(k, 4), **look)
    page.legend(entries)


def paint_score_maps(figure: Figure, run: Pictures) -> None:
    """Figure 3a: an image a line, its last R^v and R^f beside it; white is 0, blue below, red above, grey unknown.

    Args:
        figure: To fill; its size is set.
        run: With pictures of kinds `image`, `vanilla_score` and `fuzzy_score`.

    Raises:
        ValueError: No image has them.
    """
    look = _score_look()
    shown = list(run.scores())
    names = [name for name, *_ in shown]
    images_of = [run.get(name, "image") for name in names]
    when = run.when(shown[0][1]).replace("\n", ", ") if shown else ""
    unknown = _unknown(shown)
    below = BAR + (legend_height(unknown) if unknown else 0.0)
    page = _Page(figure, images_of, names, ["image", *(f"{title}\n{when}" for title in SCORE_TITLES)], below)
    for line, (*_, vanilla, fuzzy), image in zip(page.lines, shown, images_of, strict=True):
        _show(line[0], image, interpolation="auto")
        for chart, scores in zip(line[1:], (vanilla, fuzzy), strict=True):
            # float32: the colors of float16 are rounded.
            drawn = _show(chart, scores.astype(np.float32), **look)
    if unknown:
        page.legend(unknown)
    place = page.place(WIDTH / 4, page.end + 0.06, WIDTH / 2, 0.1)
    bar = figure.colorbar(drawn, cax=place, orientation="horizontal", ticks=[-1, -0.5, 0, 0.5, 1])
    bar.set_label("positive gradient score: the true class is pushed down (< 0) or up (> 0)", fontsize=SMALL)
    place.tick_params(labelsize=SMALL)


def paint_strip(figure: Figure, run: Pictures) -> None:
    """The method in one line: an image, its maps of K at two steps, and what both losses do with its true classes.

    Args:
        figure: To fill; its size is set.
        run: Of one image, with pictures of kinds `image`, `k`, `vanilla_score` and `fuzzy_score`.

    Raises:
        ValueError: The image lacks one of them.
    """
    from matplotlib.colors import ListedColormap

    kinds: dict[str, Any] = {"cmap": ListedColormap(K_COLORS), "vmin": 0.5, "vmax": 4.5}
    scores = _score_look()
    shown, steps = list(run.scores())[:1], run.stored_steps("k")
    early, late = steps[0], steps[len(steps) // 2]
    entries = [*zip(K_LABELS, K_COLORS, strict=True), ("true class pushed down", "#2166ac")]
    entries += [("up (white: neither)", "#b2182b")]
    entries += _unknown(shown)
    titles = ["image", *(f"K, {run.when(step)}" for step in (early, late))]
    titles += ["cross-entropy,\none pseudo-label", "FPL,\nK fuzzy positives"]
    images = [run.get(name, "image") for name, *_ in shown]
    page = _Page(figure, images, [""] * len(shown), titles, legend_height(entries))
    for line, (name, _, vanilla, fuzzy), image in zip(page.lines, shown, images, strict=True):
        _show(line[0], image, interpolation="auto")
        for chart, step in zip(line[1:3], (early, late), strict=True):
            k = run.get(name, "k", step)
            _show(chart, None if k is None else np.minimum(k, 4), **kinds)
        for chart, values in zip(line[3:], (vanilla, fuzzy), strict=True):
            _show(chart, values.astype(np.float32), **scores)
    page.legend(entries)


def paint_segmentations(figure: Figure, runs: Sequence[Pictures]) -> None:
    """Figure A8: image, ground truth, segmentation of each run, and with two runs which of them errs where.

    Args:
        figure: To fill; its size is set.
        runs: The baseline's first; each with pictures of kinds `image`, `ground_truth` and `prediction`.

    Raises:
        ValueError: No image has them in all runs.
    """
    from matplotlib.colors import ListedColormap

    names, known = segmented(runs), runs[0].classes if runs else ()
    maps = [[run.get(name, kind) for run, kind in _columns(runs)] for name in names]
    colors = class_colors([array for line in maps for array in line if array is not None], known)
    entries = [(_class_name(known, index), color) for index, color in colors.items()]
    entries.append(("no label", GREY))
    errors = _errors(runs) if len(runs) == 2 else []
    found = [f"{label}\n{right} of {there} classes found" for label, right, there in found_classes(runs)]
    titles = ["image", "ground truth", *found, *(["errors"] if errors else [])]
    below = legend_height(entries) + (legend_height(errors) if errors else 0.0)
    images_of = [runs[0].get(name, "image") for name in names]
    page = _Page(figure, images_of, names, titles, below)
    keys = [*colors, UNKNOWN]
    classes = {"cmap": ListedColormap([*colors.values(), GREY]), "vmin": -0.5, "vmax": len(keys) - 0.5}
    blames = {"cmap": ListedColormap(ERROR_COLORS).with_extremes(bad=GREY), "vmin": -0.5, "vmax": 3.5}
    for line, image, arrays in zip(page.lines, images_of, maps, strict=True):
        _show(line[0], image, interpolation="auto")
        for chart, array in zip(line[1:], arrays, strict=False):
            _show(chart, np.searchsorted(keys, np.asarray(array)), **classes)
        if errors:
            truth, baseline, ours = (np.asarray(array) for array in arrays)
            blame = np.not_equal(baseline, truth) + 2 * np.not_equal(ours, truth)
            _show(line[-1], np.ma.masked_where(truth == UNKNOWN, blame), **blames)
    page.legend(entries)
    if errors:
        page.legend(errors)


def _score_look() -> dict[str, Any]:
    """How a map of gradient scores is shown: white is 0, blue below, red above, grey unknown."""
    import matplotlib

    return {"cmap": matplotlib.colormaps["RdBu_r"].with_extremes(bad=GREY), "vmin": -1, "vmax": 1}


def _unknown(shown: Sequence[tuple[str, int, np.ndarray, np.ndarray]]) -> list[tuple[str, str]]:
    """The entry of a legend for pixels whose score is unknown, where there are any."""
    return [("no true class", GREY)] if any(np.isnan(vanilla).any() for *_, vanilla, _ in shown) else []


def _columns(runs: Sequence[Pictures]) -> list[tuple[Pictures, str]]:
    return [(runs[0], "ground_truth"), *((run, "prediction") for run in runs)] if runs else []


def class_colors(arrays: Sequence[np.ndarray], classes: Sequence[str] = ()) -> dict[int, str]:
    """A color for each class of some maps, by rising index.

    Args:
        arrays: Class indices, `UNKNOWN` where there is no label.
        classes: Their names. Those of a data set of `PALETTES` have its colors; of others the most frequent get those
            that differ most.
    """
    counts = np.zeros(UNKNOWN + 1, dtype=int)
    for array in arrays:
        counts += np.bincount(array.ravel(), minlength=UNKNOWN + 1)
    counts[UNKNOWN] = 0
    frequent = [int(index) for index in np.argsort(-counts, kind="stable") if counts[index]]
    palette = next((known for known in PALETTES if tuple(known) == tuple(classes)), None)
    if palette is not None and all(index < len(palette) for index in frequent):
        own = ["#{:02x}{:02x}{:02x}".format(*color) for color in palette.values()]
        return {index: own[index] for index in sorted(frequent)}
    given = {index: CLASS_COLORS[place % len(CLASS_COLORS)] for place, index in enumerate(frequent)}
    return dict(sorted(given.items()))


def _errors(runs: Sequence[Pictures]) -> list[tuple[str, str]]:
    words = ("both right", f"only {runs[0].label} wrong", f"only {runs[1].label} wrong", "both wrong")
    return list(zip(words, ERROR_COLORS, strict=True))


def _class_name(classes: Sequence[str], index: int) -> str:
    return literal(str(classes[index])) if index < len(classes) else f"class {index}"


class _Page:
    """Pictures in lines and columns at places in inches: every pixel of a line is as large, and nothing moves.

    Args:
        figure: To fill; its size is set.
        pictures: The first of each line.
        names: Words left of each line.
        titles: Words above each column.
        below: Inches kept free below.
    """

    def __init__(
        self, figure: Figure, pictures: Sequence[Any], names: Sequence[str], titles: Sequence[str], below: float
    ) -> None:
        if not names:
            raise ValueError("no image has all the pictures that this figure shows")
        width = (WIDTH - LEFT - RIGHT + GAP) / len(titles) - GAP
        head = TITLE_LINE * max(title.count("\n") + 1 for title in titles) + 0.06
        heights = [width * picture.shape[0] / picture.shape[1] for picture in pictures]
        self.figure = figure
        self.height = head + sum(heights) + GAP * len(heights) + below
        figure.set_layout_engine("none")
        figure.set_size_inches(WIDTH, self.height)
        self.lines: list[list[Axes]] = []
        top = head
        for name, height in zip(names, heights, strict=True):
            places = [(LEFT + number * (width + GAP), top, width, height) for number in range(len(titles))]
            self.lines.append([self._frame(*place) for place in places])
            self.lines[-1][0].set_ylabel(literal(_short(name, height)), fontsize=TINY, labelpad=2)
            top += height + GAP
        self.end = top
        for chart, title in zip(self.lines[0], titles, strict=True):
            chart.set_title(title, fontsize=SMALL, pad=3)

    def place(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes whose upper left corner is there; all in inches from the figure's."""
        rectangle = (left / WIDTH, 1 - (top + height) / self.height, width / WIDTH, height / self.height)
        return self.figure.add_axes(rectangle)

    def legend(self, entries: Entries) -> None:
        """Squares with their words below all that is there."""
        from matplotlib.patches import Patch

        handles = [Patch(facecolor=color, edgecolor="#606060", linewidth=0.5, label=label) for label, color in entries]
        chart = self.place(0, self.end, WIDTH, legend_height(entries))
        chart.set_axis_off()
        columns = min(len(handles), ACROSS)
        look: dict[str, Any] = {"fontsize": SMALL, "frameon": False, "handlelength": 1.1}
        look |= {"handleheight": 1.1, "columnspacing": 1.4, "borderaxespad": 0.2, "ncols": columns}
        chart.legend(handles=handles, loc="upper center", **look)
        self.end += legend_height(entries)

    def _frame(self, *place: float) -> Axes:
        chart = self.place(*place)
        chart.set(xticks=[], yticks=[])
        chart.grid(False)
        for spine in chart.spines.values():
            spine.set(visible=True, linewidth=0.5, color="#808080")
        return chart


def legend_height(entries: Entries) -> float:
    """Inches of a legend."""
    return LINE * -(-len(entries) // ACROSS) + 0.08


def _short(name: str, height: float) -> str:
    """The end of a file's name without its ending, as much as fits beside a picture of that height."""
    stem = name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    most = max(4, int(height * 72 / (0.7 * TINY)))
    return stem if len(stem) <= most else f"…{stem[1 - most :]}"


def _show(chart: Axes, array: Any, **look: Any) -> Any:
    """One picture; nothing at all where there is none. All of a line have the same area, however fine they are.

    Maps are sharp. Images are smoothed where they are shrunk.
    """
    if array is None:
        chart.set_axis_off()
        return None
    return chart.imshow(array, **{"interpolation": "nearest", "aspect": "auto", **look})
