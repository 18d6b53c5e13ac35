"""Pieces of HTML that the pages share."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import pandas as pd

from fpl.report.style import STYLE


def document(heading: str, body: Sequence[str], style: str = "") -> str:
    """A page that needs nothing else, as text; its heading is plain text."""
    head = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(heading)}</title>",
        f"<style>{STYLE}{style}</style>",
        "</head>",
        "<body>",
    ]
    return "\n".join([*head, *body, "</body>", "</html>"]) + "\n"


def bullets(kind: str, texts: Sequence[str]) -> list[str]:
    """A list of plain texts; nothing for none."""
    return [f'<ul class="{kind}">{"".join(f"<li>{escape(text)}</li>" for text in texts)}</ul>'] if texts else []


def scroll(label: str, inside: str) -> str:
    """A box that scrolls by itself where its table is wider than the page."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">\n{inside}\n</div>'


def table(kind: str, label: str, frame: pd.DataFrame, *, plain: bool = True) -> str:
    """A frame of texts, its index the labels of the rows and the name of its columns what is said above these.

    HTML in it stays what it is unless the texts are `plain`.
    """
    # pandas would cut long texts.
    with pd.option_context("display.max_colwidth", None):
        return scroll(label, frame.to_html(classes=kind, border=0, escape=plain, justify="left"))
