"""`fpl data ...`: parse, call, print."""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fpl.cli.options import folder_to_use
from fpl.config.defaults import MOST_LOADER_WORKERS, MOST_SEED, MOST_SIDE, MOST_THREADS
from fpl.errors import Interrupted
from fpl.interrupt import terminated_like_interrupted
from fpl.text import answer

if TYPE_CHECKING:
    from fpl.data.spec import DatasetSpec
    from fpl.train.progress import Progress

data_app = typer.Typer(help="Data sets on disk.", no_args_is_help=True)

DataRoot = Annotated[
    Path, typer.Option(envvar="FPL_DATA", help="Folder that holds the data sets.", callback=folder_to_use)
]
Splits = Annotated[Path, typer.Option(envvar="FPL_SPLITS", help="Folder of the split lists.", callback=folder_to_use)]

DATA, SPLITS = Path("data"), Path("experiments/splits")
# Images of a drawn set: more than any real one has.
MOST_DRAWN = 100_000


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
        int | None,
        typer.Option("--train", min=1, max=MOST_DRAWN, help="Training images.", show_default="320 (city), 640 (voc)"),
    ] = None,
    validation_images: Annotated[
        int | None,
        typer.Option("--validation", min=1, max=MOST_DRAWN, help="Validation images.", show_default="100, 150"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Another seed draws other scenes.")] = 0,
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
    answer(f"{train} training and {validation} validation images in {data_root / dataset}")


@data_app.command("check")
def check(
    dataset: Annotated[str, typer.Argument(help="Data set, for example camvid.")],
    data_root: DataRoot = DATA,
    fast: Annotated[bool, typer.Option("--fast", help="Decode only 50 images of each part.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_LOADER_WORKERS, help="Processes that decode.", show_default="all cores"),
    ] = None,
) -> None:
    """Decode every image and label, check the lists, and tell all that is wrong; exits with 2 if anything is."""
    from fpl.data.spec import find_root, get_spec

    spec = get_spec(dataset)
    _print_check(spec, find_root(spec, data_root), fast, workers)


def _print_check(spec: DatasetSpec, root: Path, fast: bool, workers: int | None) -> None:
    from fpl.data.check import check_dataset
    from fpl.data.check_report import report_text
    from fpl.train.progress import Progress

    progress = Progress(0, unit="image")
    with interruptible(progress=progress):
        report = check_dataset(spec, root, fast=fast, workers=workers, progress=progress.of)
    progress.note()
    answer(report_text(report))
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
    downscale: Annotated[
        int, typer.Option(min=1, max=MOST_SIDE, help="data.downscale of the runs that will use it.")
    ] = 1,
    workers: Annotated[
        int | None, typer.Option(min=1, max=MOST_THREADS, help="Threads that decode.", show_default="all cores")
    ] = None,
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
        answer(f"{plan.part}: {len(plan.ids)} images, {plan.bytes / 1e9:.2f} GB in {plan.folder}", flush=True)
    with interruptible("nothing is left behind; the same command starts again"):
        for plan in plans:
            progress = Progress(len(plan.ids), unit="image")
            built = build_cache(plan, cores=cores, progress=progress.of, say=answer)
            progress.note()
            answer(f"{plan.part}: {'built' if built else 'is there, complete and undamaged'}")
    if place is not None:
        answer(f"runs find it when FPL_CACHE={place} is set")


@data_app.command("download")
def download_data(
    dataset: Annotated[str, typer.Argument(help="voc; of the others it says what to fetch by hand.")],
    data_root: DataRoot = DATA,
) -> None:
    """Download the archives of PASCAL VOC 2012 and SBD into `downloads` in the data root; checked by their MD5 sums."""
    from fpl.data.download import download

    with interruptible("the same command keeps the archives that are complete"):
        archives = download(dataset, data_root, tell=lambda text: answer(text, flush=True))
    command = ["fpl", "data", "prepare", dataset, *map(str, archives), "--data-root", str(data_root)]
    answer(f"next: {shlex.join(command)}")


@data_app.command("prepare")
def prepare_data(
    dataset: Annotated[str, typer.Argument(help="Data set: cityscapes, voc or camvid.")],
    archives: Annotated[
        list[Path] | None,
        typer.Argument(help="Its archives as downloaded (zip, tar, tgz), or unpacked folders.", show_default=False),
    ] = None,
    data_root: DataRoot = DATA,
    fast: Annotated[bool, typer.Option("--fast", help="Check only 50 images of each part at the end.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, max=MOST_LOADER_WORKERS, help="Processes that check.", show_default="all cores")
    ] = None,
) -> None:
    """Make a data set of its archives and check it; continues where it was stopped. Nothing is unpacked by hand.

    Before it writes, it says what is missing and which archive has it.
    voc takes the labels that it has not itself from SBD (benchmark.tgz) or SegmentationClassAug.zip.
    """
    from fpl.data.archives import open_archives
    from fpl.data.prepare import place_of, prepare
    from fpl.data.prepare_plan import plan_jobs
    from fpl.data.spec import get_spec
    from fpl.train.progress import Progress

    spec = get_spec(dataset)
    root = place_of(spec, data_root)
    progress = Progress(0, unit="MB")

    def read(done: int, total: int) -> None:
        progress.of(done // 10**6, total // 10**6)

    def show(unit: str, done: int, total: int) -> None:
        if progress.unit != unit:
            progress.unit = unit
            progress.begin(done)
        progress.of(done, total)

    with interruptible("the same command continues", progress), open_archives(archives or [], read) as opened:
        jobs = plan_jobs(spec, root, opened)
        done = prepare(spec, root, jobs, show)
        used = Counter(job.source.archive.path for job in jobs for _ in job.targets)
    progress.note()
    for archive in opened:
        answer(f"from {archive.path}: {used[archive.path]} files")
    others = f", {done.replaced} of them in place of others" if done.replaced else ""
    answer(f"{done.written} files written to {root}{others}, {done.kept} were there and the same", flush=True)
    _print_check(spec, root, fast, workers)
