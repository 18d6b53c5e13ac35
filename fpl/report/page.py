"""All tables on one page: a single HTML file that needs nothing else, neither network nor script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from fpl.files import remove, write_changed
from fpl.report.statistics import MARGIN_RULE
from fpl.report.tables.entry import Grid
from fpl.report.tables.head_to_head import RULE
from fpl.report.tables.html import section, table
from fpl.report.tables.latex import latex, latex_table
from fpl.report.tables.longform import longform
from fpl.report.tables.markdown import markdown
from fpl.report.tables.remarks import READING, legend, scale_notes, short_title
from fpl.report.tables.summary import Summary
from fpl.report.template import render

PAGE = "index.html"
# Folder of the tables as LaTeX, one file each.
FRAGMENTS = "tables"
# Rows of the main table that stand on the first screen.
MAIN_ROLES = ("baseline", "proposed")
CITED = "Italic numbers are cited there from others, on hatched ground where ours are missing."


@dataclass(frozen=True)
class Extra:
    """A further section of the page.

    Attributes:
        anchor: Its id, for links.
        title: Its heading, as plain text.
        html: What stands below the heading.
    """

    anchor: str
    title: str
    html: Markup


def page(
    grids: Sequence[Grid],
    summary: Summary,
    environment: str = "",
    extra: Sequence[Extra] = (),
    picture: Markup | None = None,
) -> str:
    """The page as text: verdict, picture and main table on the first screen, then all there is.

    Args:
        grids: Tables of one scale, at least one.
        summary: What is said about them.
        environment: Versions and hardware, shown as they are; empty for none.
        extra: Sections between the tables and the environment.
        picture: The figure of the first screen; None for none.
    """
    links = [(grid.name, short_title(grid)) for grid in grids] + [(item.anchor, item.title) for item in extra]
    if environment:
        links.append(("environment", "Environment"))
    main = _main(grids)
    html = render(
        "page.html",
        heading=f"Fuzzy Positive Learning: the paper's tables at scale {grids[0].scale.name}",
        summary=summary,
        picture=picture or "",
        main=main,
        main_title=short_title(main) if main else "",
        main_table=table(main, MAIN_ROLES) if main else "",
        reading=READING,
        scale_notes=scale_notes(grids[0].scale),
        links=links,
        legend=_legend(grids),
        sections=[section(grid) for grid in grids],
        extra=extra,
        environment=environment,
    )
    return str(html)


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
            remove(path)
    for name, text in texts.items():
        write_changed(folder / name, text.encode())
    return [folder / name for name in texts]


def _main(grids: Sequence[Grid]) -> Grid | None:
    """The table of the first screen: the first of mIoU with rows of FPL. None where it is the only table anyway."""
    if len(grids) == 1:
        return None
    miou = (grid for grid in grids if grid.experiment.table.metric == "miou")
    return next((grid for grid in miou if any(line.row.role == "proposed" for line in grid.lines)), None)


def _legend(grids: Sequence[Grid]) -> list[str]:
    lines = [f"{READING} {CITED}"]
    if signs := legend(grids):
        lines.append("Signs: " + "; ".join(signs) + ".")
    lines.append(RULE)
    if grids[0].scale.comparable:
        lines.append(MARGIN_RULE)
    return lines
