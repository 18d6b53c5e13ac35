"""The figures on the main page: each as inline SVG, with its caption and what the runs say about its claims."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from fpl.config.campaign import Campaign
from fpl.config.figure import load_figures
from fpl.report.claims import READING, check_claims, claims_html, count_text
from fpl.report.figures import FOLDER, Prepared, prepare
from fpl.report.page import Extra
from fpl.report.search_drawing import draw
from fpl.store.read import Results

# As attributes: the style sheet of the page knows nothing of figures.
FIGURE = "margin: 0 0 1.5rem; padding: 0.5rem; border: 1px solid var(--line); border-radius: 0.5rem; min-width: 0;"
CENTER = "text-align: center;"


def figure_extra(results: Results | None, campaign: Campaign, folder: Path) -> list[Extra]:
    """The section of the main page with the figures and claims; nothing where there are no figure files.

    Args:
        results: The store the page is about.
        campaign: Its tables. Figures none of whose tables is among them are left out.
        folder: `experiments/`.

    Raises:
        FplError: A broken figure file.
    """
    prepared = prepare(load_figures(folder), campaign, results)
    shown = [item for item in prepared if item.source.found or not item.figure.series]
    if not any(item.source.found for item in shown):
        return []
    verdicts = [verdict for item in shown for verdict in check_claims(item.figure, item.source)]
    head = [
        f'<p class="head">{escape(text)}</p>'
        for text in (f"{count_text(verdicts)[0].upper()}{count_text(verdicts)[1:]}.", READING)
    ]
    missing = [item for item in shown if item.paint is None]
    files = results.folder / FOLDER if results is not None else None
    parts = [*head, *(_drawn(item, files) for item in shown if item.paint is not None), *_missing(missing)]
    return [Extra("figures", "Figures", "\n".join(parts) + "\n")]


def _drawn(item: Prepared, files: Path | None) -> str:
    assert item.paint is not None
    shown = item.figure.figure
    svg = draw(item.figure.name.replace("_", "-"), f"{shown.number}: {shown.caption}", item.paint)
    gap = f' <span class="down">{escape(item.gap)}</span>' if item.gap else ""
    text = f"<b>{escape(shown.number)}.</b> {escape(item.caption)}{gap}{_links(item.figure.name, files)}"
    claims = claims_html(check_claims(item.figure, item.source))
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
