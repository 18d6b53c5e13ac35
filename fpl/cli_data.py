"""`fpl data ...` and `fpl splits ...`: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

data_app = typer.Typer(help="Data sets on disk.", no_args_is_help=True)
splits_app = typer.Typer(help="Lists of labeled and unlabeled images.", no_args_is_help=True)

DataRoot = Annotated[Path, typer.Option(envvar="FPL_DATA", help="Folder that holds the data sets.")]
Splits = Annotated[Path, typer.Option(envvar="FPL_SPLITS", help="Folder of the split lists.")]

DATA, SPLITS = Path("data"), Path("experiments/splits")


@data_app.command("draw")
def draw(
    dataset: Annotated[Literal["synthetic_city"], typer.Argument(help="Which synthetic set.")],
    data_root: DataRoot = DATA,
    train_images: Annotated[int, typer.Option("--train", min=1, help="Training images.")] = 320,
    validation_images: Annotated[int, typer.Option("--validation", min=1, help="Validation images.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Another seed draws other scenes.")] = 0,
) -> None:
    """Draw a synthetic data set in the file layout of the real one."""
    from fpl.data.synthetic import draw_city
    from fpl.train.progress import Progress

    progress = Progress(train_images + validation_images, unit="image")
    draw_city(
        data_root / dataset,
        train=train_images,
        validation=validation_images,
        seed=seed,
        progress=lambda done, total: progress.show(done),
    )
    progress.note()
    print(f"{train_images} training and {validation_images} validation images in {data_root / dataset}")


@splits_app.command("make")
def make(
    dataset: Annotated[str, typer.Argument(help="Data set, for example camvid.")],
    fraction: Annotated[str, typer.Option(help="Share of labeled images, for example 1/8.")],
    family: Annotated[str, typer.Option(help="Rule that picks them.")] = "every-nth",
    index: Annotated[int, typer.Option(min=0, help="Another split of the same fraction; 0 is the published one.")] = 0,
    data_root: DataRoot = DATA,
    splits: Splits = SPLITS,
) -> None:
    """Write the lists of labeled and unlabeled images that a rule gives."""
    from fpl.data.spec import find_root, get_spec
    from fpl.data.splits import make_split, split_folder, write_split

    spec = get_spec(dataset)
    split = make_split(spec, find_root(spec, data_root), family, fraction, index)
    folder = split_folder(splits, dataset, family, fraction, index)
    write_split(split, folder)
    print(
        f"{len(split.labeled)} labeled ({split.labeled_digest}) and "
        f"{len(split.unlabeled)} unlabeled ({split.unlabeled_digest}) ids in {folder}"
    )
