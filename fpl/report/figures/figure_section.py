"""The figures on the main page: each as inline SVG, with its caption and what the runs say about its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from fpl.report.claims.check_claims import READING, claims_html, count_text
from fpl.report.figures.drawing_cache import Drawing
from fpl.report.figures.export import FOLDER, Prepared
from fpl.report.page import Extra

# As attributes: the style sheet of the page knows nothing of figures.
FIGURE = "margin: 0 0 1.5rem; padding: 0.5rem; border: 1px solid var(--line); border-radius: 0.5rem; min-width: 0;"
CENTER = "text-align: center;"


def figure_extra(prepared: Sequence[Prepared], drawn: Mapping[str, Drawing], files: Path | None = None) -> list[Extra]:
    """The section of the main page with the figures and claims; nothing where no figure has a run.

    Args:
        prepared: The figures. Those none of whose tables is part of the campaign are left out.
        drawn: Name -> pictures (`fpl.report.figures.drawing_cache.drawings`).
        files: Folder with the files of the figures, which the page links.
    """
    shown = [item for item in prepared if item.source.found or not item.figure.series]
    if not any(item.source.found for item in shown):
        return []
    verdicts = [verdict for item in shown for verdict in item.verdicts]
    head = [
        f'<p class="head">{escape(text)}</p>'
        for text in (f"{count_text(verdicts)[0].upper()}{count_text(verdicts)[1:]}.", READING)
    ]
    missing = [item for item in shown if item.paint is None]
    pictures = (_drawn(item, drawn[item.figure.name], files) for item in shown if item.paint is not None)
    parts = [*head, *pictures, *_missing(missing)]
    return [Extra("figures", "Figures", "\n".join(parts) + "\n")]


def _drawn(item: Prepared, drawing: Drawing, files: Path | None) -> str:
    shown = item.figure.figure
    svg = drawing["svg"].decode()
    gap = f' <span class="down">{escape(item.gap)}</span>' if item.gap else ""
    text = f"<b>{escape(shown.number)}.</b> {escape(item.caption)}{gap}{_links(item.figure.name, files)}"
    claims = claims_html(item.verdicts)
    return (
        f'<figure id="{item.figure.name}" style="{FIGURE}"><div style="{CENTER}">{svg}</div>\n'
        f'<figcaption class="legend">{text}{claims}</figcaption></figure>'
    )


def _links(name: str, files: Path | None) -> str:
    """Links to the files that `fpl figures` has written."""
    kinds = [kind for kind in ("csv", "png", "pdf") if files is not None and (files / f"{name}.{kind}").is_file()]
    links = ", ".join(f'<a href="{FOLDER}/{name}.{kind}">{kind.upper()}</a>' for kind in kinds)
    return f" ({links})" if links else ""


def _missing(items: Sequence[Prepared]) -> list[str]:
    """Figures that cannot be drawn, and why."""
    if not items:
        return []
    listed = "".join(f"<li>{escape(item.figure.figure.number)}: {escape(item.gap)}</li>" for item in items)
    return [f'<h3>Not drawn</h3>\n<ul class="gaps">{listed}</ul>']
