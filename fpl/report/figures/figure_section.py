"""The figures on the main page: each as inline SVG, with its caption and what the runs say about its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from fpl.report.claims.check_claims import READING, claims_html, count_text
from fpl.report.figures.drawing_cache import Files
from fpl.report.figures.export import FOLDER, Prepared
from fpl.report.figures.kinds import STRIP
from fpl.report.page import Extra
from fpl.report.template import render


def first_figure(prepared: Sequence[Prepared], drawn: Mapping[str, Files], files: Path | None = None) -> Markup | None:
    """The figure of the first screen; None where it cannot be drawn. Arguments as for `figure_extra`."""
    found = (item for item in prepared if item.figure.figure.kind == STRIP and item.paint is not None)
    return next((_drawn(item, drawn[item.figure.name], files) for item in found), None)


def figure_extra(prepared: Sequence[Prepared], drawn: Mapping[str, Files], files: Path | None = None) -> list[Extra]:
    """The section of the main page with the figures and claims; nothing where no figure has a run.

    Args:
        prepared: The figures. Those none of whose tables is part of the campaign are left out, and the first screen's.
        drawn: Name -> pictures (`fpl.report.figures.drawing_cache.drawings`).
        files: Folder with the files of the figures, which the page links.
    """
    rest = [item for item in prepared if item.figure.figure.kind != STRIP]
    shown = [item for item in rest if item.source.found or not item.figure.series]
    if not any(item.source.found for item in shown):
        return []
    verdicts = [verdict for item in shown for verdict in item.verdicts]
    count = count_text(verdicts)
    html = render(
        "figures.html",
        head=[f"{count[0].upper()}{count[1:]}.", READING],
        figures=[_drawn(item, drawn[item.figure.name], files) for item in shown if item.paint is not None],
        missing=[item for item in shown if item.paint is None],
    )
    return [Extra("figures", "Figures", html)]


def _drawn(item: Prepared, drawing: Files, files: Path | None) -> Markup:
    name = item.figure.name
    kinds = ("csv", "png", "pdf")
    return render(
        "figure.html",
        name=name,
        kind=item.figure.figure.kind,
        folded=item.figure.figure.kind == STRIP,
        # Made by `fpl.report.svg`.
        svg=Markup(drawing["svg"].decode()),
        number=item.figure.figure.number,
        caption=item.caption,
        gap=item.gap,
        folder=FOLDER,
        files=[kind for kind in kinds if files is not None and (files / f"{name}.{kind}").is_file()],
        claims=claims_html(item.verdicts),
    )
