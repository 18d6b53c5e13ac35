"""Drawing for a page: one figure as inline SVG that suits light and dark, phone and desk."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

# Inches: as wide as a phone, so that text is not shrunk there.
WIDTH, HEIGHT = 4.6, 3.0
# Stands for the color of the page's text, which is light or dark.
INK = "#010203"
# And for the color behind it.
GROUND = "#030201"
# After Okabe and Ito (2008), whose colors can be told apart by everybody; the blue lighter, for dark ground.
COLORS = ("#2f8bc9", "#d55e00", "#009e73", "#c2649b", "#b88400")
MARKERS = ("o", "s", "^", "D", "v")
SOFT = "#8a8f98"
# mIoU as an axis.
SCORE = "mIoU in %"

SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": SOFT,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "lines.markersize": 6.0,
    # Text as text: it can be searched and read aloud. The salt makes equal figures equal files.
    "svg.fonttype": "none",
    "svg.hashsalt": "fpl",
}


def draw(name: str, words: str, paint: Callable[[Figure], None], *, height: float = HEIGHT) -> Markup:
    """One figure as an `<svg>` for an HTML page.

    Args:
        name: Unlike that of any other figure of the page; its ids begin with it.
        words: What it shows, for those who do not see it.
        paint: Fills the figure.
        height: Inches.

    Returns:
        The element: without links to the outside, and the same text for the same data.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        figure.patch.set_visible(False)
        paint(figure)
        return inline(figure, name, words)


def axes(figure: Figure, x: str, y: str) -> Axes:
    """The one pair of axes of a figure, with names and a grid behind the data."""
    made = figure.subplots()
    made.patch.set_visible(False)
    made.set_xlabel(x)
    made.set_ylabel(y)
    made.grid(True)
    return made


def literal(text: str) -> str:
    """Text that is drawn as it is, whatever dollar signs stand in it: matplotlib takes two for a formula."""
    return text.replace("$", r"\$")


def score_colors() -> Colormap:
    """Colors from a low score to a high one: viridis without its ends, which vanish on dark or light ground."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    scale = matplotlib.colormaps["viridis"]
    # Fewer than 50: a color bar of more becomes a bitmap.
    return ListedColormap([scale(0.28 + 0.54 * step / 31) for step in range(32)])


def inline(figure: Figure, name: str, words: str) -> Markup:
    """A figure as an element of a page: no prolog, no namespaces, ids of its own, the page's text color."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = stream.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", text)
    text = text.replace("xlink:href=", "href=")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(href="|url\()#', rf"\g<1>#{name}-", text)
    text = text.replace(INK, "currentColor").replace(GROUND, "var(--back)")
    text = re.sub(r">\s+<", "><", re.sub(r"<[^>]+>", _short, text))
    label = f'<svg role="img" aria-label="{escape(words)}"'
    return Markup(text.replace("<svg", label, 1))


def _short(tag: re.Match[str]) -> str:
    """A tag whose coordinates have one decimal instead of matplotlib's six, in a line: a unit is a point."""
    return re.sub(r'(?<= )(?:d|x|y)="[^"]*"|translate\([^)]*\)', lambda found: _short_numbers(found[0]), tag[0])


def _short_numbers(text: str) -> str:
    text = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), text)
    return re.sub(r"\s*\n\s*|(?<=[MLCQ]) ", "", text)
