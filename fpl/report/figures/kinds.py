"""Kinds of figures: for each the function that makes its numbers, and the one that draws them.

A new kind is one entry of `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from fpl.config.figure import Figure
from fpl.errors import FplError
from fpl.report.figures import curves as figure_curves
from fpl.report.figures import frames as figure_data
from fpl.report.figures import gains as figure_gains
from fpl.report.figures import kept_pictures as pictures
from fpl.report.figures import picture_plots as figure_pictures
from fpl.report.figures.kept_pictures import Pictures
from fpl.report.figures.quantities import QUANTITIES
from fpl.report.figures.series import Source
from fpl.store.pictures import SCORES
from fpl.text import meant

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# Fills an empty canvas; its width is given, a drawing sets the height and may ask for another width.
Paint = Callable[["Canvas"], None]
Numbers = Callable[[Figure, Source], pd.DataFrame]
Drawing = Callable[..., None]
# The numbers of a figure, and what draws them; without rows if the runs hold none.
Make = Callable[[Figure, Source], tuple[pd.DataFrame, Paint]]

PANEL = frozenset({"quantities", "axis", "title", "limits", "mark", "mark_label", "zero"})


@dataclass(frozen=True)
class Kind:
    """One kind of figure.

    Attributes:
        make: Makes numbers and drawing from runs.
        needs: What runs must hold for it, in words.
        options: Keys that `figure.options` may have.
        required: Those it must have.
    """

    make: Make
    needs: str
    options: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()


def check_options(figure: Figure) -> Kind:
    """The kind of a figure whose options it knows.

    Raises:
        FplError: An unknown kind, option or quantity, or a missing option.
    """
    shown = figure.figure
    where = f"figure {figure.name}"
    if shown.kind not in KINDS:
        raise FplError(f"no kind {shown.kind!r}", where=where, hint=_hint(shown.kind, KINDS))
    kind = KINDS[shown.kind]
    known = kind.options | kind.required
    if unknown := sorted(set(shown.options) - known):
        raise FplError(f"unknown option {unknown[0]}", where=where, hint=_hint(unknown[0], known))
    if lacking := sorted(kind.required - set(shown.options)):
        raise FplError(f"kind {shown.kind} needs the option {lacking[0]}", where=where)
    for panel in shown.options.get("panels", []):
        if unknown := sorted(set(panel) - PANEL):
            raise FplError(f"unknown key {unknown[0]} of a panel", where=where, hint=_hint(unknown[0], PANEL))
        if lacking := sorted({"quantities", "axis"} - set(panel)):
            raise FplError(f"a panel needs {lacking[0]}", where=where)
    for name in figure_data.wanted(shown.options):
        if name not in QUANTITIES:
            raise FplError(f"no quantity {name!r}", where=where, hint=_hint(name, QUANTITIES))
    return kind


def _hint(word: str, known: Any) -> str:
    return f"{meant(word, known)}known here: {', '.join(sorted(known)) or 'none'}"


def _curves(numbers: Numbers, drawing: Drawing) -> Make:
    def make(figure: Figure, source: Source) -> tuple[pd.DataFrame, Paint]:
        frame = numbers(figure, source)
        # Not a lambda: other processes draw.
        return frame, partial(drawing, frame=frame, options=figure.figure.options)

    return make


def _k_maps(figure: Figure, source: Source) -> tuple[pd.DataFrame, Paint]:
    run = _first(source)
    run = run.only(_cut(figure, run.images("image", "k")))
    return pictures.k_map_table(run), partial(figure_pictures.paint_k_maps, run=run)


def _score_maps(figure: Figure, source: Source) -> tuple[pd.DataFrame, Paint]:
    run = _first(source)
    run = run.only(_cut(figure, run.images("image", *SCORES)))
    return pictures.score_table(run), partial(figure_pictures.paint_score_maps, run=run)


def _strip(figure: Figure, source: Source) -> tuple[pd.DataFrame, Paint]:
    run = _first(source)
    run = run.only(run.images("image", "k", *SCORES)[:1])
    numbers = pd.concat([pictures.k_map_table(run), pictures.score_table(run)], ignore_index=True)
    return numbers, partial(figure_pictures.paint_strip, run=run)


def _segmentations(figure: Figure, source: Source) -> tuple[pd.DataFrame, Paint]:
    runs = [pictures.pictures_of(source, item, item.records[0]) for item in source.drawn]
    shown = _cut(figure, pictures.segmented(runs))
    runs = [run.only(shown) for run in runs]
    return pictures.segmentation_table(runs), partial(figure_pictures.paint_segmentations, runs=runs)


def _cut(figure: Figure, images: list[str]) -> list[str]:
    """The images that a figure shows; its numbers are of these alone."""
    return images[: figure.figure.options.get("images", IMAGES)]


def _first(source: Source) -> Pictures:
    """Pictures of the first series, of unlabeled images if it keeps any: the figures of maps have one."""
    run = pictures.pictures_of(source, source.drawn[0], source.drawn[0].records[0])
    unlabeled = run.frame[run.frame["part"] == "unlabeled"]
    return run if unlabeled.empty else replace(run, frame=unlabeled)


# The kind of the figure on the first screen of the page.
STRIP = "strip"
# Images that a figure shows unless it says how many.
IMAGES = 5
DIAGNOSTICS, KEPT = "K statistics and diagnostics", "pictures of example images"

KINDS: dict[str, Kind] = {
    "lines": Kind(_curves(figure_data.course, figure_curves.lines), DIAGNOSTICS, required=frozenset({"panels"})),
    "areas": Kind(
        _curves(figure_data.course, figure_curves.areas),
        DIAGNOSTICS,
        frozenset({"mark", "mark_label"}),
        frozenset({"quantities", "axis"}),
    ),
    "sorted": Kind(_curves(figure_data.sorted_batches, figure_curves.sorted_curves), DIAGNOSTICS),
    "bars": Kind(_curves(figure_data.scores, figure_curves.bars), "mIoU"),
    "thresholds": Kind(_curves(figure_data.scores, figure_curves.thresholds), "mIoU", frozenset({"gain"})),
    "lengths": Kind(_curves(figure_data.lengths, figure_curves.lengths), "mIoU"),
    "gains": Kind(_curves(figure_gains.gains, figure_gains.paint), "mIoU", frozenset({"over"})),
    "weights": Kind(
        _curves(figure_data.weight_curves, figure_curves.weights),
        "nothing",
        required=frozenset({"threshold", "k", "curvature"}),
    ),
    "k_maps": Kind(_k_maps, KEPT, frozenset({"images"})),
    "score_maps": Kind(_score_maps, KEPT, frozenset({"images"})),
    STRIP: Kind(_strip, KEPT),
    "segmentations": Kind(_segmentations, KEPT, frozenset({"images"})),
}
