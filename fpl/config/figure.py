"""Figures of the paper as data, read from `experiments/figures/`: what each shows, of which cells, what it claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from fpl.config.explain import Parts, check_names, validated
from fpl.config.layers import read_tables
from fpl.config.section import Part
from fpl.errors import FplError
from fpl.files import visible
from fpl.names import Name
from fpl.text import meant

FIGURES = "figures"
# The source of what is not in the paper.
OURS = "this suite"


class About(Part):
    """Where a figure stands in the paper.

    Attributes:
        order: Place among the figures.
        source: Section and figure of the paper.
    """

    order: float
    source: str


class Series(Part):
    """Runs that make one curve, bar or row of pictures.

    Attributes:
        label: As in the legend; `{row}` and `{column}` stand for a cell's label and header. Empty: whichever of the two
            tells the cells of a wildcard apart.
        cells: Name of a table's cell (`table4.fpl_cps.t090`), with wildcards: one series per cell.
    """

    label: str = ""
    cells: str


class Claim(Part):
    """A sentence of the paper that a figure supports, as a check.

    Attributes:
        name: For example `small_t_small_k`.
        says: The claim, in our words.
        source: Where the paper says it.
        check: Name of the function of `fpl.report.claims.check_claims` that decides.
        options: Its further arguments.
        by_formula: Whether it holds by its formula, or nearly so, whatever the runs are: it is checked, and not counted
            among what was found.
    """

    name: Name
    says: str
    source: str
    check: str
    options: dict[str, Any] = Field(default_factory=dict)
    by_formula: bool = False


class Shown(Part):
    """What is drawn.

    Attributes:
        name: For example `figure_4`; the stem of the files that are written.
        number: As the paper counts, for example `Figure 4`.
        caption: What is seen, with what the paper leaves open; n and settings are added from the runs.
        kind: Name of the drawing function (`fpl.report.figures.export`).
        options: Its further arguments.
        examples: Whether its runs keep pictures of fixed images.
    """

    name: Name
    number: str
    caption: str
    kind: str
    options: dict[str, Any] = Field(default_factory=dict)
    examples: bool = False


class Figure(Part):
    """One file of `experiments/figures/`."""

    about: About
    figure: Shown
    series: tuple[Series, ...] = ()
    claims: tuple[Claim, ...] = ()

    @property
    def name(self) -> str:
        """Short name."""
        return self.figure.name


_PARTS: Parts = {
    "about": (About, "", ""),
    "figure": (Shown, "", ""),
    "series": (Series, "series", "cells"),
    "claims": (Claim, "claim", "name"),
}


def load_figure(path: Path) -> Figure:
    """Read one figure file.

    Raises:
        FplError: A missing or malformed file.
    """
    return validated(Figure, read_tables(path), str(path), _PARTS)


def load_figures(folder: Path, names: Sequence[str] = ()) -> list[Figure]:
    """Read the figures of `experiments/`, in the paper's order.

    Args:
        folder: `experiments/`.
        names: Those to read; empty for all. A folder without figures has none.

    Raises:
        FplError: A broken file, two figures of one name, or a name that is none; lists those there are.
    """
    files = visible(folder / FIGURES, "*.toml")
    found = [load_figure(path) for path in files]
    check_names("figure", [figure.name for figure in found], files)
    found.sort(key=lambda figure: figure.about.order)
    known = [figure.name for figure in found]
    if unknown := [name for name in names if name not in known]:
        guess = meant(unknown[0], known)
        raise FplError(f"no figure {unknown[0]!r}", hint=f"{guess}there are: {', '.join(known) or 'none'}")
    return [figure for figure in found if not names or figure.name in names]
