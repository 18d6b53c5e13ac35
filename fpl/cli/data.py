"""`fpl data ...`: parse, call, print."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fpl.errors import Interrupted
from fpl.interrupt import terminated_like_interrupted

if TYPE_CHECKING:
    from fpl.train.progress import Progress

data_app = typer.Typer(help="Data sets on disk.", no_args_is_help=True)

DataRoot = Annotated[Path, typer.Option(envvar="FPL_DATA", help="Folder that holds the data sets.")]
Splits = Annotated[Path, typer.Option(envvar="FPL_SPLITS", help="Folder of the split lists.")]

DATA, SPLITS = Path("data"), Path("experiments/splits")


@contextlib.contextmanager
def interruptible(hint: str = "", progress: Progress | None = None) -> Iterator[None]:
    """Turn Ctrl-C or SIGTERM into one line that says how to go on, below the progress line if there is one."""
    try:
        with terminated_like_interrupted():
            yield
    except KeyboardInterrupt:
        if progress is not None:
            progress.note()
        raise Interrupted("stopped", hint=hint) from None


@data_app.command("draw")
def draw(
    dataset: Annotated[Literal["synthetic_city", "synthetic_voc"], typer.Argument(help="Which synthetic set.")],
    data_root: DataRoot = DATA,
    train_images: Annotated[
        int | None, typer.Option("--train", min=1, help="Training images.", show_default="320 (city), 640 (voc)")
    ] = None,
    validation_images: Annotated[
        int | None, typer.Option("--validation", min=1, help="Validation images.", show_default="100, 150")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed draws other scenes.")] = 0,
) -> None:
    """Draw a synthetic data set in the file layout of the real one."""
    from fpl.data.synthetic import CITY_COUNTS, VOC_COUNTS, draw_city, draw_voc
    from fpl.train.progress import Progress

    is_city = dataset == "synthetic_city"
    counts = CITY_COUNTS if is_city else VOC_COUNTS
    train, validation = train_images or counts[0], validation_images or counts[1]
    progress = Progress(train + validation, unit="image")

    def show(done: int, total: int) -> None:
        progress.show(done)

    if is_city:
        draw_city(data_root / dataset, train=train, validation=validation, seed=seed, progress=show)
    else:
        # A quarter is clean, as in the default drawing.
        clean = -(-train // 4)
        draw_voc(data_root / dataset, train=train, clean=clean, validation=validation, seed=seed, progress=show)
    progress.note()
    print(f"{train} training and {validation} validation images in {data_root / dataset}")


@data_app.command("check")
def check(
    dataset: Annotated[str, typer.Argument(help="Data set, for example camvid.")],
    data_root: DataRoot = DATA,
    fast: Annotated[bool, typer.Option("--fast", help="Decode only 50 images of each part.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that decode.", show_default="all cores")] = None,
) -> None:
    """Decode every image and label, check the lists, and tell all that is wrong; exits with 2 if anything is."""
    from fpl.data.check import check_dataset
    from fpl.data.check_report import report_text
    from fpl.data.spec import find_root, get_spec
    from fpl.train.progress import Progress

    spec = get_spec(dataset)
    root = find_root(spec, data_root)
    progress = Progress(0, unit="image")
    with interruptible(progress=progress):
        report = check_dataset(spec, root, fast=fast, workers=workers, progress=progress.of)
    progress.note()
    print(report_text(report))
    if report.faults:
        raise typer.Exit(2)


@data_app.command("cache")
def cache(
    dataset: Annotated[str, typer.Argument(help="Data set, for example cityscapes.")],
    data_root: DataRoot = DATA,
    place: Annotated[
        Path | None,
        typer.Option(
            "--cache", envvar="FPL_CACHE", help="Folder of the caches.", show_default=".cache/fpl in the data set"
        ),
    ] = None,
    downscale: Annotated[int, typer.Option(min=1, help="data.downscale of the runs that will use it.")] = 1,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that decode.", show_default="all cores")] = None,
) -> None:
    """Decode all images once per machine, for training to map into memory; repairs and completes what is there."""
    from fpl.data.build_cache import build_cache, plan_cache
    from fpl.data.parallel import core_count
    from fpl.data.spec import find_root, get_spec
    from fpl.train.progress import Progress

    spec = get_spec(dataset)
    root, cores = find_root(spec, data_root), workers or core_count()
    plans = [plan_cache(spec, root, part, downscale, place, cores) for part in ("train", "val")]
    for plan in plans:
        print(f"{plan.part}: {len(plan.ids)} images, {plan.bytes / 1e9:.2f} GB in {plan.folder}", flush=True)
    with interruptible("nothing is left behind; the same command starts again"):
        for plan in plans:
            progress = Progress(len(plan.ids), unit="image")
            built = build_cache(plan, cores=cores, progress=progress.of, say=print)
            progress.note()
            print(f"{plan.part}: {'built' if built else 'is there, complete and undamaged'}")
    if place is not None:
        print(f"runs find it when FPL_CACHE={place} is set")


@data_app.command("download")
def download_data(
    dataset: Annotated[str, typer.Argument(help="voc; of the others it says what to fetch by hand.")],
    data_root: DataRoot = DATA,
) -> None:
    """Download PASCAL VOC 2012 and SBD, checked by their MD5 sums, and unpack them into the data root."""
    from fpl.data.download import download

    with interruptible("the same command keeps the archives that are complete"):
        download(dataset, data_root, tell=lambda text: print(text, flush=True))
    print(f"next: fpl data prepare {dataset} --data-root {data_root}")


@data_app.command("prepare")
def prepare(
    dataset: Annotated[Literal["voc"], typer.Argument(help="Which data set.")],
    data_root: DataRoot = DATA,
    sbd: Annotated[
        Path | None, typer.Option(help="The unpacked SBD archive.", show_default="sbd in the data root")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="all cores")] = None,
) -> None:
    """Make SegmentationClassAug from the SBD annotations and VOC's own labels; continues where it was stopped."""
    from fpl.data.download import SBD
    from fpl.data.prepare_voc import prepare_voc, prepared_text
    from fpl.data.spec import find_root, get_spec
    from fpl.train.progress import Progress

    spec = get_spec(dataset)
    progress = Progress(0, unit="label")
    with interruptible("the same command continues", progress):
        done = prepare_voc(
            spec, find_root(spec, data_root), sbd or data_root / SBD, workers=workers, progress=progress.of
        )
    progress.note()
    print(prepared_text(done, spec))
    if not done.is_complete(spec):
        raise typer.Exit(2)
    print(f"next: fpl data check {dataset} --data-root {data_root}")
