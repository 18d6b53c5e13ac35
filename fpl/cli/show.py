"""`fpl show`: parse, call, print."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fpl.cli.options import A_STORE, EXPERIMENTS, Experiments, Scale, Scratch, Seeds
from fpl.errors import FplError
from fpl.text import answer


def show(
    name: Annotated[str, typer.Argument(metavar="CELL", help="TABLE.ROW.COLUMN.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.key=value of its runs.")] = None,
    scale: Scale = "mini",
    results: Annotated[
        Path | None,
        typer.Option(help="Folder of the results.", show_default="runs/SCALE, else results/SCALE", **A_STORE),
    ] = None,
    seeds: Seeds = None,
    experiments: Experiments = EXPERIMENTS,
    scratch: Scratch = None,
) -> None:
    """Show one cell: its settings and where each comes from, the command that makes it, its runs and their logs."""
    from fpl.config.campaign import BASE, load_campaign, scale_file
    from fpl.config.cells import Resolver
    from fpl.report.cell import cell_lines
    from fpl.report.tables.shown import seeds_of
    from fpl.store.read import has_results, load_results

    read = scale_file(experiments, scale)
    folder = results or next(filter(has_results, (Path(place) / read.name for place in ("runs", "results"))), None)
    store = load_results(folder) if folder is not None else None
    # As in the tables: what was trained with --seeds 3 is shown without saying it again.
    count = seeds or (read.seeds if store is None else seeds_of(store, read.seeds))
    campaign = load_campaign(experiments, scale, [name], count, "all", overrides or [])
    cells = campaign.all_cells
    if len(cells) > 1:
        listed = ", ".join(cell.name for cell in cells[:8]) + (", ..." if len(cells) > 8 else "")
        raise FplError(f"{name} is {len(cells)} cells", hint=f"name one, TABLE.ROW.COLUMN: {listed}")
    resolver = Resolver(experiments / BASE, campaign.scale, campaign.seeds, "all", overrides or [], [name])
    origins = resolver.origins(cells[0]) if cells[0].configs else {}
    given = [f"--seeds {count}"] if count != read.seeds else []
    command = " ".join(["fpl reproduce", cells[0].name, *map(shlex.quote, overrides or []), "--scale", scale, *given])
    answer("\n".join(cell_lines(cells[0], origins, store, command)))
