"""The figures of the paper, drawn from the store alone: PNG, PDF and CSV of each, and one file of captions."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fpl.config.campaign import Campaign
from fpl.config.figure import Figure
from fpl.files import remove, write_changed
from fpl.report.claims.check_claims import Verdict, check_claims
from fpl.report.figures.caption import caption
from fpl.report.figures.kinds import Kind, Paint, check_options
from fpl.report.figures.series import Source, command, make_source, missing
from fpl.report.spreadsheet import csv_bytes
from fpl.report.svg import SETTINGS, WIDTH
from fpl.report.tables.markdown import escape
from fpl.store.lookup import look_up
from fpl.store.read import Results
from fpl.text import plural

FOLDER, CAPTIONS = "figures", "captions.md"
# Inches: a column of the paper. The page draws the same figures wider, with everything in them larger in proportion.
COLUMN = 3.4
DPI = 200
FILE_SETTINGS: Any = {
    **SETTINGS,
    "font.size": 7.4,
    "legend.fontsize": 7.0,
    "axes.linewidth": SETTINGS["axes.linewidth"] * COLUMN / WIDTH,
    "grid.linewidth": SETTINGS["grid.linewidth"] * COLUMN / WIDTH,
    "lines.markersize": SETTINGS["lines.markersize"] * COLUMN / WIDTH,
    "lines.linewidth": 1.1,
    "xtick.major.size": 2.6,
    "ytick.major.size": 2.6,
    "pdf.fonttype": 42,
}
# Nothing in a file says when or by what it was made: equal figures are equal files.
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
}


@dataclass(frozen=True)
class Prepared:
    """A figure with the numbers behind it.

    Attributes:
        figure: The figure.
        source: Its runs.
        frame: The numbers; without rows if it cannot be drawn.
        paint: Fills a canvas; None if it cannot be drawn.
        caption: Without the number; empty if it cannot be drawn.
        gap: Why it cannot be drawn and what makes what is missing, or what a drawn one lacks; empty if nothing.
    """

    figure: Figure
    source: Source
    frame: pd.DataFrame
    paint: Paint | None
    caption: str
    gap: str

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """What the runs say about its claims."""
        return check_claims(self.figure, self.source)

    @property
    def line(self) -> str:
        """What there is to say about it in one line: how many runs, or why it is not drawn."""
        if self.paint is None:
            return f"{self.figure.name}: {self.gap}"
        count = plural(len(self.source.records), "run") if self.source.found else "no run needed"
        return f"{self.figure.name}: {count}" + (f"; {self.gap}" if self.gap else "")


def prepare(figures: Sequence[Figure], campaign: Campaign, results: Results | None) -> list[Prepared]:
    """Find the runs of some figures and make the numbers behind them.

    Raises:
        FplError: A figure of an unknown kind or with unknown options, or a series that names no cell.
    """
    kinds = [check_options(figure) for figure in figures]
    lookup = look_up(results)
    return [
        _prepare(figure, kind, make_source(figure, campaign, results, lookup))
        for figure, kind in zip(figures, kinds, strict=True)
    ]


def _prepare(figure: Figure, kind: Kind, source: Source) -> Prepared:
    gap = missing(figure, source)
    if figure.series and not source.drawn:
        return Prepared(figure, source, pd.DataFrame(), None, "", gap or "its tables are no part of this campaign")
    frame, paint = kind.make(figure, source)
    if not len(frame):
        again = command(figure, source, [item.cell.name for item in source.found])
        older = f"its runs were recorded without {kind.needs}: {again} --out FOLDER trains them anew"
        return Prepared(figure, source, frame, None, "", gap or older)
    return Prepared(figure, source, frame, paint, caption(figure, source, frame), gap)


def write_figures(
    folder: Path,
    prepared: Sequence[Prepared],
    names: Sequence[str] = (),
    drawn: Mapping[str, Mapping[str, bytes]] | None = None,
) -> list[Path]:
    """Write `NAME.png`, `NAME.pdf` and `NAME.csv` of figures, and the captions of all as `captions.md`.

    Args:
        folder: Where they go; files of figures that cannot be drawn any more are removed.
        prepared: All figures.
        names: Those to write; empty for all.
        drawn: Name -> pictures (`fpl.report.figures.drawing_cache.drawings`); None draws them.

    Returns:
        Paths of the PNG files.
    """
    paths = []
    for item in prepared:
        if names and item.figure.name not in names:
            continue
        pictures = None if drawn is None else drawn.get(item.figure.name)
        for kind, data in _files(item, pictures).items():
            path = folder / f"{item.figure.name}.{kind}"
            if data is None:
                remove(path)
            else:
                write_changed(path, data)
        if item.paint is not None:
            paths.append(folder / f"{item.figure.name}.png")
    write_changed(folder / CAPTIONS, captions(prepared).encode())
    return paths


def captions(prepared: Sequence[Prepared]) -> str:
    """The captions of figures as Markdown, with what is missing."""
    parts = ["# Figures\n"]
    for item in prepared:
        text = item.caption if item.paint is not None else f"Not drawn: {escape(item.gap)}"
        parts.append(f"**{item.figure.figure.number}** (`{item.figure.name}`; {item.figure.about.source}). {text}\n")
    return "\n".join(parts)


def _files(item: Prepared, pictures: Mapping[str, bytes] | None) -> dict[str, bytes | None]:
    """Ending -> content; None if it cannot be drawn."""
    if item.paint is None:
        return dict.fromkeys((*METADATA, "csv"))
    pictures = save(item.paint) if pictures is None else pictures
    return {**{kind: pictures[kind] for kind in METADATA}, "csv": numbers_csv(item.frame)}


def numbers_csv(frame: pd.DataFrame) -> bytes:
    """The numbers behind a figure as CSV."""
    return csv_bytes(frame, digits=12)


def save(paint: Paint) -> dict[str, bytes]:
    """Draw a figure at the width of a column: ending -> content of the file, the same for the same figure.

    Args:
        paint: Fills the canvas.
    """
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    found = {}
    with matplotlib.rc_context(FILE_SETTINGS):
        canvas = Canvas(figsize=(COLUMN, COLUMN), layout="constrained")
        paint(canvas)
        for kind, metadata in METADATA.items():
            stream = io.BytesIO()
            canvas.savefig(stream, format=kind, dpi=DPI, facecolor="white", metadata=metadata)
            found[kind] = stream.getvalue()
            # Where things stand is found once, for all files.
            canvas.set_layout_engine("none")
    return found
