"""Options that `fpl plan`, `reproduce`, `search` and `tables` share: one name and one help for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fpl.config.defaults import MOST_THREADS, Rows

EXPERIMENTS = Path("experiments")

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="TABLE, TABLE.ROW or TABLE.ROW.COLUMN, with wildcards; section.key=value overrides of the runs; "
        "`reproduce noise` repeats one run.",
        show_default="all tables",
    ),
]
Scale = Annotated[str, typer.Option(help="mini, camvid or paper: experiments/scale/NAME.toml.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Runs per cell.", show_default="what the scale says")]
ROWS_HELP = "paper: the rows that the paper measured; all: the suite's own too, controls and the like."
RowsRun = Annotated[Rows, typer.Option(help=ROWS_HELP)]
RowsShown = Annotated[
    Rows | None, typer.Option(help=ROWS_HELP, show_default="the paper's, and others that have results")
]
Store = Annotated[
    Path | None,
    typer.Option(help="Store: runs, checkpoints, logs, tables, page and figures.", show_default="runs/SCALE"),
]
Publish = Annotated[
    Path | None,
    typer.Option(
        help="Also put results, tables, figures and page there (results/mini): what is equal stays as it is.",
        show_default="nowhere",
    ),
]
WeightsFolder = Annotated[
    Path | None,
    typer.Option(
        envvar="FPL_WEIGHTS", help="Folder of pretrained weights.", show_default="DATA_ROOT/weights, if it is there"
    ),
]
Address = Annotated[str | None, typer.Option(help="Of a running Ray cluster (`auto` finds it).")]
Local = Annotated[bool, typer.Option("--local", help="Without Ray, one run after the other.")]
Launcher = Annotated[
    Literal["inline", "gang", "train"] | None,
    typer.Option(help="One process a run; warm Ray Train workers; a Ray Train run each."),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes per run of gang and train.")]
GpusPerWorker = Annotated[float | None, typer.Option(min=0.0, help="GPUs that each process holds.")]
CpusPerWorker = Annotated[float | None, typer.Option(min=0.01, help="CPUs that each process holds.")]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Runs at once.", show_default="all that fit")]
WorkerThreads = Annotated[int | None, typer.Option(min=1, max=MOST_THREADS, help="CPU threads of each process.")]
Experiments = Annotated[Path, typer.Option(help="Folder of tables, recipes and scales.")]

# What a search may be told beside its file; None leaves what the file says.
Budget = Annotated[
    str | None,
    typer.Option(
        help="What all studies of the search may spend together: 40trials, 200gpuh, 50coreh, 6h, 90min.",
        show_default="trials of the search file",
    ),
]
Sampler = Annotated[
    Literal["tpe", "random", "gp", "grid"] | None,
    typer.Option(help="How trials are proposed; grid: the paper's own settings.", show_default="search file"),
]
SamplerSeed = Annotated[int, typer.Option(min=0, help="Of the sampler.")]
Stop = Annotated[
    Literal["asha", "median", "none"] | None,
    typer.Option(help="What ends hopeless trials early.", show_default="search file"),
]
Protocol = Annotated[
    Literal["val", "holdout"] | None,
    typer.Option(
        help="What trials are compared on: validation images, or labeled ones kept from training.",
        show_default="search file",
    ),
]
Objectives = Annotated[
    list[str] | None,
    typer.Option(
        "--objective", help="miou; a second one, cost, is device-hours of training.", show_default="search file"
    ),
]
SearchSeeds = Annotated[int | None, typer.Option(min=1, help="Runs per trial and split.", show_default="search file")]
SearchSplits = Annotated[
    int | None,
    typer.Option("--trial-splits", min=1, help="Splits per trial, numbers 0, 1, ...", show_default="search file"),
]


def split_names(names: list[str] | None) -> tuple[list[str], list[str]]:
    """Names of cells, and `section.key=value` overrides, from what stands on the command line."""
    given = names or []
    return [name for name in given if "=" not in name], [name for name in given if "=" in name]
