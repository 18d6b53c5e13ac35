"""Options that several commands share: one name, one help and one default for each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from fpl.config import defaults
from fpl.config.defaults import MOST_RUNS, MOST_STEPS, Rows
from fpl.config.shipped import experiments_folder
from fpl.errors import FplError
from fpl.mirror import SCRATCH_VARIABLE
from fpl.storage import is_ours

EXPERIMENTS = experiments_folder()

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="TABLE, TABLE.ROW or TABLE.ROW.COLUMN, with wildcards; section.key=value overrides of the runs; "
        "`reproduce noise` repeats one run.",
        show_default="all tables",
    ),
]
Scale = Annotated[str, typer.Option(help="mini, camvid or paper: experiments/scale/NAME.toml.")]
Seeds = Annotated[
    int | None, typer.Option(min=1, max=MOST_RUNS, help="Runs per cell.", show_default="what the scale says")
]
ROWS_HELP = "paper: the rows that the paper measured; all: the suite's own too, controls and the like."
RowsShown = Annotated[
    Rows | None, typer.Option(help=ROWS_HELP, show_default="the paper's, and others that have results")
]


# Options that name a store, and commands whose option of such a name does not.
OF_STORES = ("--out", "--publish", "--results")
NO_STORE = ("rehearse",)


def store_folder(given: str | Path) -> Path:
    """The folder of a store that an option names; of one on object storage its mirror here, as yet as it is."""
    from fpl.store.remote import folder_of

    return folder_of(given)


def refuse_urls(arguments: Sequence[str]) -> None:
    """Before anything begins: only stores can be on object storage.

    Raises:
        FplError: Another argument is a URL of one.
    """
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    for before, argument in pairwise(["", *arguments]):
        option, _, value = argument.partition("=") if argument.startswith("--") else (before, "", argument)
        # Other URLs have their place elsewhere (`--address ray://HOST:PORT`); that of a store is looked at when opened.
        if is_ours(value) and (option not in OF_STORES or command in NO_STORE):
            raise FplError(
                f"{value} is on object storage, which only stores can be",
                where=option if option.startswith("--") else command,
                hint=f"name a folder; a URL goes with {', '.join(OF_STORES)} of commands that read or write results",
            )


def set_scratch(folder: Path | None) -> None:
    """Tell this process, and those that it starts, where mirrors of object storage lie."""
    if folder is not None:
        os.environ[SCRATCH_VARIABLE] = str(folder.absolute())


def file_to_write(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Of an option that names a file to write: refuse one that cannot be, before the work of the command."""
    if path is not None:
        from fpl.files import check_output

        check_output(path, _said(option, path))
    return path


def folder_to_use(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Of an option that names a folder, which need not exist: refuse a file, before it is said of what is below it."""
    if path is not None:
        from fpl.files import check_folder

        check_folder(path, _said(option, path), "name a folder, which need not exist")
    return path


def _said(option: typer.CallbackParam, path: Path) -> str:
    return f"--{(option.name or '').replace('_', '-')} {path}"


# What a store may be; whoever reads it opens it (`open_store`).
A_STORE: dict[str, Any] = {"parser": store_folder, "metavar": "<path or s3://...>"}
Store = Annotated[
    Path | None,
    typer.Option(
        help="Store: runs, checkpoints, logs, tables, page and figures.", show_default="runs/SCALE", **A_STORE
    ),
]
Publish = Annotated[
    Path | None,
    typer.Option(
        help="Also put results, tables, figures and page there (results/mini): what is equal stays as it is.",
        show_default="nowhere",
        **A_STORE,
    ),
]
Scratch = Annotated[
    Path | None,
    typer.Option(
        envvar=SCRATCH_VARIABLE,
        # Before any store is opened.
        is_eager=True,
        callback=set_scratch,
        help="Folder on a disk of each machine for what stores on object storage hold.",
        show_default="~/.cache/fpl/stores",
    ),
]
Address = Annotated[str | None, typer.Option(help="Of a running Ray cluster (`auto` finds it).")]
Local = Annotated[bool, typer.Option("--local", help="Without Ray, one run after the other.")]
Experiments = Annotated[
    Path, typer.Option(help="Folder of tables, recipes and scales.", show_default="./experiments, or the package's")
]

# Of a run, and None where a scale may say it.
CHECKPOINT: Any = typer.Option(min=1, max=MOST_STEPS, help="Steps between checkpoints.")
DIAGNOSE: Any = typer.Option(
    min=0, max=MOST_STEPS, help="Steps between diagnostics, which read labels of unlabeled images; 0: never."
)

# What a search may be told beside its file; None leaves what the file says.
Sampler = Annotated[
    defaults.Sampler | None,
    typer.Option(help="How trials are proposed; grid: the paper's own settings.", show_default="search file"),
]
Stop = Annotated[
    defaults.Stop | None,
    typer.Option(help="What ends hopeless trials early.", show_default="search file"),
]
Protocol = Annotated[
    defaults.Images | None,
    typer.Option(
        help="What trials are compared on: validation images, or labeled ones kept from training.",
        show_default="search file",
    ),
]
SearchSplits = Annotated[
    int | None,
    typer.Option(
        "--trial-splits", min=1, max=MOST_RUNS, help="Splits per trial, numbers 0, 1, ...", show_default="search file"
    ),
]
