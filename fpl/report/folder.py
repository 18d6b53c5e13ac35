"""Everything a folder of results shows: tables, figures, claims, searches, and the page with all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from fpl.config.figure import load_figures
from fpl.files import write_changed
from fpl.report.claims.check_claims import scale_note, write_claims
from fpl.report.figures.drawing_cache import Map, drawings, forget_others, in_order
from fpl.report.figures.export import FOLDER, Prepared, prepare, write_figures
from fpl.report.figures.figure_section import figure_extra, first_figure
from fpl.report.page import PAGE, Extra, page, write_tables
from fpl.report.search.search_page import search_extra, write_search_pages
from fpl.report.tables.shown import Shown
from fpl.store.read import Results

ENVIRONMENT = "ENVIRONMENT"
LATER = Markup("<p>Figures are drawn when the runs are done; <code>fpl figures</code> draws those there are.</p>\n")


@dataclass(frozen=True)
class Written:
    """Where a report stands.

    Attributes:
        page: Its main page.
        searches: Pages of the searches that were asked for.
        figures: Its figures, drawn or not; empty if they were left for later.
    """

    page: Path
    searches: list[Path] = field(default_factory=list)
    figures: list[Prepared] = field(default_factory=list)


def write_report(
    folder: Path,
    shown: Shown,
    experiments: Path,
    searches: Sequence[str] = (),
    *,
    draw: bool = True,
    run: Map = in_order,
) -> Written:
    """Write tables, figures with claims, pages of searches and the main page; files that stay the same are left alone.

    Args:
        folder: Where it goes. What it says about its environment is read there.
        shown: The tables.
        experiments: `experiments/`, for the figures.
        searches: Those whose pages are written.
        draw: Whether there are figures; without them it is made in a moment.
        run: Draws figures (`fpl.report.figures.drawing_cache`).

    Raises:
        FplError: A broken figure file, or an unknown search.
    """
    store = shown.results or Results(folder)
    pages = [path for name in searches for path in write_search_pages(folder, name, main=True, store=store)]
    write_tables(folder, shown.grids, shown.summary)
    prepared: list[Prepared] = []
    extra: list[Extra] = []
    picture: Markup | None = None
    figures = load_figures(experiments)
    if draw and figures:
        prepared = prepare(figures, shown.campaign, store)
        target = folder / FOLDER
        drawn = drawings(target, prepared, run)
        write_figures(target, prepared, drawn=drawn)
        write_claims(target, [one for item in prepared for one in item.verdicts], scale_note(shown.campaign))
        forget_others(target, prepared)
        picture = first_figure(prepared, drawn, target)
        extra += figure_extra(prepared, drawn, target)
    elif figures:
        extra.append(Extra("figures", "Figures", LATER))
    environment = folder / ENVIRONMENT
    text = environment.read_text(encoding="utf-8", errors="replace") if environment.is_file() else ""
    html = page(shown.grids, shown.summary, text, [*extra, *search_extra(store)], picture)
    write_changed(folder / PAGE, html.encode())
    return Written(folder / PAGE, pages, prepared)
