"""`fpl figures`: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fpl.cli.options import A_STORE, EXPERIMENTS, Experiments, RowsShown, Scale, Scratch, Seeds
from fpl.errors import FplError
from fpl.text import answer


def figures(
    names: Annotated[
        list[str] | None, typer.Argument(help="Figures that are drawn: figure_4, ...", show_default="all figures")
    ] = None,
    scale: Scale = "mini",
    results: Annotated[
        Path | None, typer.Option(help="Folder of the results.", show_default="results/SCALE", **A_STORE)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the figures.", show_default="figures in the results", **A_STORE)
    ] = None,
    seeds: Seeds = None,
    rows: RowsShown = None,
    experiments: Experiments = EXPERIMENTS,
    scratch: Scratch = None,
) -> None:
    """Draw the paper's figures from results that are there, as PNG, PDF and CSV; nothing is trained."""
    from fpl.cli.report import on_all_cores
    from fpl.config.campaign import scale_name
    from fpl.config.figure import FIGURES, load_figures
    from fpl.report.claims.check_claims import count_text, scale_note, write_claims
    from fpl.report.figures.drawing_cache import drawings
    from fpl.report.figures.export import FOLDER, prepare, write_figures
    from fpl.report.tables.shown import load_shown
    from fpl.store.read import load_results

    # An unknown name is said before anything is read.
    wanted = [figure.name for figure in load_figures(experiments, names or [])]
    if not wanted:
        where = str(experiments / FIGURES)
        raise FplError("no figure files here", where=where, hint="run in a checkout, or give --experiments")
    folder = results if results is not None else Path("results") / scale_name(experiments, scale)
    target = out if out is not None else folder / FOLDER
    store = load_results(folder)
    campaign = load_shown(experiments, scale, store, seeds=seeds, rows=rows).campaign
    prepared = prepare(load_figures(experiments), campaign, store)
    drawn = drawings(target, [item for item in prepared if item.figure.name in wanted], on_all_cores)
    paths = write_figures(target, prepared, wanted, drawn)
    places = {path.stem: path for path in paths}
    for item in prepared:
        if item.figure.name in wanted:
            path = places.get(item.figure.name)
            answer(f"{path} ({item.line.partition(': ')[2]})" if path else item.line)
    if any(item.gap.startswith("not run") for item in prepared if item.figure.name in wanted):
        answer(f"runs made so are in runs/{campaign.scale_name}: --results names that folder")
    verdicts = [verdict for item in prepared for verdict in item.verdicts]
    write_claims(target, verdicts, scale_note(campaign))
    answer(count_text(verdicts))
    answer(f"{len(paths)} of {len(wanted)} figures, with PDF, CSV, captions and claims, in {target}")
