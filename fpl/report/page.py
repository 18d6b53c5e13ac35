"""All tables on one page: a single HTML file that needs nothing else, neither network nor script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from fpl.files import write_changed
from fpl.report.elements import document
from fpl.report.statistics import MARGIN_RULE
from fpl.report.tables.entry import Grid
from fpl.report.tables.head_to_head import RULE
from fpl.report.tables.html import section
from fpl.report.tables.latex import latex, latex_table
from fpl.report.tables.longform import longform
from fpl.report.tables.markdown import markdown
from fpl.report.tables.remarks import READING, legend, scale_notes, short_title
from fpl.report.tables.summary import Summary

PAGE = "index.html"
# Folder of the tables as LaTeX, one file each.
FRAGMENTS = "tables"


@dataclass(frozen=True)
class Extra:
    """A further section of the page.

    Attributes:
        anchor: Its id, for links.
        title: Its heading, as plain text.
        html: What stands below the heading, as HTML that is put in as it is.
    """

    anchor: str
    title: str
    html: str


def page(grids: Sequence[Grid], summary: Summary, environment: str = "", extra: Sequence[Extra] = ()) -> str:
    """The page as text.

    Args:
        grids: Tables of one scale, at least one.
        summary: What stands at the top.
        environment: Versions and hardware, shown as they are; empty for none.
        extra: Sections between the tables and the environment.
    """
    scale = grids[0].scale
    heading = f"Fuzzy Positive Learning: the paper's tables at scale {scale.name}"
    links = [(grid.name, short_title(grid)) for grid in grids] + [(item.anchor, item.title) for item in extra]
    if environment:
        links.append(("environment", "Environment"))
    body = [
        f"<h1>{escape(heading)}</h1>",
        *_scale(grids),
        *_summary(summary),
        "<nav><ul>" + "".join(f'<li><a href="#{key}">{escape(text)}</a></li>' for key, text in links) + "</ul></nav>",
        *_legend(grids),
        "<main>",
        *map(section, grids),
        *(f'<section id="{item.anchor}"><h2>{escape(item.title)}</h2>\n{item.html}</section>' for item in extra),
        "</main>",
        *_environment(environment),
    ]
    return document(heading, body)


def write_page(
    folder: Path, grids: Sequence[Grid], summary: Summary, environment: str = "", extra: Sequence[Extra] = ()
) -> Path:
    """Write the page as `index.html`; arguments as for `page`.

    Returns:
        Its path.
    """
    path = folder / PAGE
    write_changed(path, page(grids, summary, environment, extra).encode())
    return path


def write_tables(folder: Path, grids: Sequence[Grid], summary: Summary) -> list[Path]:
    """Write the tables as `tables.md`, `tables.tex` and `tables.csv`; `tables/NAME.tex` is one for another document.

    Returns:
        Their paths.
    """
    fragments = {f"{FRAGMENTS}/{grid.name}.tex": latex_table(grid) + "\n" for grid in grids}
    inputs = [rf"\input{{{name.removesuffix('.tex')}}}" for name in fragments]
    texts = {"tables.md": markdown(grids, summary), "tables.tex": latex(grids, inputs), "tables.csv": longform(grids)}
    texts |= fragments
    for path in (folder / FRAGMENTS).glob("*.tex"):
        if f"{FRAGMENTS}/{path.name}" not in fragments:
            path.unlink()
    for name, text in texts.items():
        write_changed(folder / name, text.encode())
    return [folder / name for name in texts]


def _summary(summary: Summary) -> list[str]:
    lines = [_opened(line) for line in summary.lines]
    lines += [escape(f"warning: {warning}") for warning in summary.warnings]
    return ['<div class="summary">', *(f"<p>{line}</p>" for line in lines), "</div>"]


def _opened(line: str) -> str:
    """A line of the summary whose subject, up to the colon, is bold."""
    subject, colon, rest = line.partition(": ")
    return f"<b>{escape(subject)}</b>{colon}{escape(rest)}" if colon else escape(line)


def _scale(grids: Sequence[Grid]) -> list[str]:
    lines = scale_notes(grids[0].scale)
    return ['<div class="scale">', *(f"<p>{escape(line)}</p>" for line in lines), "</div>"] if lines else []


def _legend(grids: Sequence[Grid]) -> list[str]:
    lines = [f"{READING} Italic numbers are cited there from others, on hatched ground where ours are missing."]
    if signs := legend(grids):
        lines.append("Signs: " + "; ".join(signs) + ".")
    lines.append(RULE)
    if grids[0].scale.comparable:
        lines.append(MARGIN_RULE)
    return [f'<p class="legend">{escape(line)}</p>' for line in lines]


def _environment(environment: str) -> list[str]:
    if not environment:
        return []
    return ['<section id="environment"><h2>Environment</h2>', f"<pre>{escape(environment)}</pre>", "</section>"]
