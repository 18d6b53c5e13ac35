"""`fpl report`: parse, call, print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fpl.cli_options import EXPERIMENTS, Controls, Experiments, Scale, Seeds
from fpl.errors import FplError

if TYPE_CHECKING:
    from fpl.config.campaign import Campaign


def report(
    names: Annotated[
        list[str] | None, typer.Argument(help="Searches whose pages are written.", show_default="all searches")
    ] = None,
    scale: Scale = "mini",
    results: Annotated[
        Path | None, typer.Option(help="Folder of the results, and of what is written.", show_default="results/SCALE")
    ] = None,
    seeds: Seeds = None,
    controls: Controls = None,
    experiments: Experiments = EXPERIMENTS,
) -> None:
    """Write tables, main page and a page with CSV per search from results that are there; nothing is trained."""
    from fpl.config.campaign import load_campaign
    from fpl.report.search_text import search_summary_lines
    from fpl.store.read import load_results

    campaign = load_campaign(experiments, scale, [], seeds, controls)
    folder = results if results is not None else Path("results") / campaign.scale_name
    try:
        store = load_results(folder)
    except FplError as error:
        raise FplError(
            error.what,
            where=error.where,
            hint="`fpl reproduce` or `fpl search` makes some; --results names another folder",
        ) from None
    wanted = names or store.searches
    for name in wanted:
        # An unknown name is said before anything is written.
        store.search(name)
    main, pages = write_report(campaign, folder, wanted, experiments)
    for name, page in zip(wanted, pages, strict=True):
        print("\n".join(search_summary_lines(store, name)))
        print(f"page and CSV of {name}: {page}")
    print(f"tables and main page in {folder}: open {main}")


def write_report(
    campaign: Campaign, folder: Path, names: Sequence[str], experiments: Path = EXPERIMENTS
) -> tuple[Path, list[Path]]:
    """Write tables and main page of what is in a folder, and the pages of some searches; the paths of the pages."""
    from fpl.report.figure_page import figure_extra
    from fpl.report.grid import build_grids
    from fpl.report.page import write_page, write_tables
    from fpl.report.search_page import search_extra, write_search_pages
    from fpl.report.summary import summarize
    from fpl.store.read import load_results

    store = load_results(folder)
    pages = [page for name in names for page in write_search_pages(folder, name, main=True)]
    grids = build_grids(campaign, store)
    summary = summarize(grids, store)
    environment = folder / "ENVIRONMENT"
    text = environment.read_text(encoding="utf-8") if environment.is_file() else ""
    write_tables(folder, grids, summary)
    extra = [*figure_extra(store, campaign, experiments), *search_extra(store)]
    return write_page(folder, grids, summary, text, extra), pages
