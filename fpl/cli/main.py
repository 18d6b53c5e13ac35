"""The `fpl` command: parse, call, print. Everything heavy is imported inside the command that needs it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

import fpl
from fpl.cli.data import DATA, DataRoot, data_app, interruptible
from fpl.cli.figures import figures
from fpl.cli.groups import grouped
from fpl.cli.option_groups import Folders
from fpl.cli.options import A_STORE, CHECKPOINT, DIAGNOSE, Scratch, file_to_write, folder_to_use, refuse_urls
from fpl.cli.plan import plan
from fpl.cli.rehearse import rehearse
from fpl.cli.report import report
from fpl.cli.reproduce import reproduce
from fpl.cli.search import search
from fpl.cli.show import show
from fpl.cli.splits import splits_app
from fpl.cli.streams import prepare_streams
from fpl.cli.tables import tables
from fpl.config.defaults import (
    DIAGNOSE_EVERY,
    MOST_CHANNELS,
    MOST_DEPTH,
    MOST_LOADER_WORKERS,
    MOST_PICTURES,
    MOST_SEED,
    MOST_STEPS,
    MOST_THREADS,
)
from fpl.config.stores import LOCAL, STORES
from fpl.data.parallel import core_count
from fpl.errors import FplError, file_error, shortage
from fpl.interrupt import terminated_like_interrupted
from fpl.text import answer, say
from fpl.train.launched import launch_value
from fpl.train.options import LoopOptions

app = typer.Typer(
    name="fpl",
    help="Fuzzy Positive Learning for semi-supervised semantic segmentation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data")
app.add_typer(splits_app, name="splits")
app.command()(plan)
app.command()(rehearse)
app.command()(reproduce)
app.command()(tables)
app.command()(show)
app.command()(figures)
app.command()(report)
app.command()(search)

Out = Annotated[Path, typer.Option(help="Folder of results and checkpoints.", **A_STORE)]
Found = Annotated[
    Path | None, typer.Option("--out", help="Folder of results and checkpoints.", show_default=STORES, **A_STORE)
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Threads = Annotated[int, typer.Option(min=1, max=MOST_THREADS, help="CPU threads of torch.", show_default="all cores")]
Choice = Annotated[
    Literal["best", "last"] | None,
    typer.Option(help="Which weights: best (on validation) or last.", show_default="best"),
]


def _threads() -> int:
    """Workers of one machine share its cores; what is wrong with their number is said where workers meet."""
    try:
        return max(1, core_count() // launch_value("LOCAL_WORLD_SIZE"))
    except FplError:
        return core_count()


def _speaks() -> bool:
    """Whether this is the worker that speaks for all; what is wrong with its number is said by each, as above."""
    try:
        return launch_value("RANK") == 0
    except FplError:
        return False


THREADS = _threads()
MAIN = _speaks()


def main() -> None:
    """Entry point: user errors become one message on stderr and an exit code, never a traceback."""
    prepare_streams()
    try:
        refuse_urls(sys.argv[1:])
        # Also where no command says how to go on: what it has begun is cleared away.
        with terminated_like_interrupted():
            app()
    except FplError as error:
        _end(error)
    except OSError as error:
        # A full disk, a folder that is not writable, a file that vanished: nothing a traceback would explain better.
        _end(file_error(error))
    except (MemoryError, RuntimeError, ImportError) as error:
        if (lack := shortage(error)) is None:
            raise
        _end(lack)


def _end(error: FplError) -> NoReturn:
    # Several workers may meet the same error or each its own: all speak, each with its rank.
    rank, workers = os.environ.get("RANK"), os.environ.get("WORLD_SIZE") or "1"
    speaker = f" (rank {rank})" if rank and workers != "1" else ""
    say(f"error{speaker}: {error.message}")
    sys.exit(error.exit_code)


def _version(wanted: bool) -> None:
    if wanted:
        answer(f"fpl {fpl.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


@dataclass(frozen=True)
class TrainOptions(LoopOptions):
    """How a single run is carried out, on the command line."""

    threads: Threads = THREADS
    loader_workers: Annotated[
        int, typer.Option(min=0, max=MOST_LOADER_WORKERS, help="Processes that read images; 0: this one.")
    ] = 0
    checkpoint_every: Annotated[int, CHECKPOINT] = 100
    log_every: Annotated[int, typer.Option(min=1, max=MOST_STEPS, help="Steps between rows of the history.")] = 10
    diagnose_every: Annotated[int, DIAGNOSE] = DIAGNOSE_EVERY
    examples: Annotated[int, typer.Option(min=0, max=MOST_PICTURES, help="Images of which pictures are kept.")] = 0
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard files below OUT.")] = False


@app.command()
@grouped
def train(
    config: Annotated[Path, typer.Argument(help="TOML file of the run, or the name of a recipe: camvid_fpl.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="loss.threshold=0.85 seed=1 ...")] = None,
    scale: Annotated[str | None, typer.Option(help="Sizes and steps from experiments/scale/NAME.toml.")] = None,
    *,
    out: Out = LOCAL,
    folders: Folders,
    device: Device = "auto",
    options: TrainOptions,
) -> None:
    """Train one run; the same command continues it after a kill, and answers at once when it is done."""
    from fpl.config.compose import load_config, without_effect
    from fpl.config.shipped import experiment_file

    run = load_config(experiment_file(config), scale=scale, overrides=overrides or [])
    if MAIN:
        for note in without_effect(run, overrides or []):
            say(f"note: {note}")
    from fpl.cli.planning import compact_store
    from fpl.report.results import print_run
    from fpl.sweep.local import run_local

    places = folders.places(out, [])
    with interruptible("the same command continues from the last checkpoint"):
        done = run_local(run, places, device=device, options=options)
    if MAIN:
        compact_store(out)
        print_run(out, done.stem)


@app.command()
def pretrain(
    network: Annotated[Literal["tiny"], typer.Argument(help="Which backbone.")],
    weights: Annotated[
        Path, typer.Option(envvar="FPL_WEIGHTS", help="Folder of pretrained weights.", callback=folder_to_use)
    ],
    width: Annotated[int, typer.Option(min=8, max=MOST_CHANNELS, help="model.tiny_width.")] = 16,
    depth: Annotated[int, typer.Option(min=1, max=MOST_DEPTH, help="model.tiny_depth.")] = 1,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Another seed, other weights.")] = 0,
) -> None:
    """Pre-train the tiny backbone on drawn textures: its stand-in for ImageNet weights, made once."""
    from fpl.train.pretrain import STEPS, pretrain_tiny
    from fpl.train.progress import Progress

    progress = Progress(STEPS, unit="step", pause=5.0)

    def show(done: int, accuracy: float) -> None:
        progress.show(done, {"pixels right": f"{100 * accuracy:.0f} %"})

    path = pretrain_tiny(weights, width=width, depth=depth, seed=seed, progress=show)
    progress.note()
    answer(f'{network} backbone in {path}: use it with model.pretrained="imagenet" and --weights {weights}')


@app.command("eval")
def evaluate(
    run: Annotated[str, typer.Argument(help="Run id, a unique beginning of one, or a weights file.")],
    out: Found = None,
    data_root: DataRoot = DATA,
    choice: Choice = None,
    protocol: Annotated[
        Literal["sliding", "whole", "center"] | None,
        typer.Option(help="sliding, whole or center; default: the run's own."),
    ] = None,
    device: Device = "auto",
    threads: Threads = THREADS,
    csv: Annotated[
        Path | None, typer.Option(help="Also write the IoU per class there.", callback=file_to_write)
    ] = None,
    scratch: Scratch = None,
) -> None:
    """Evaluate a trained run on the data set's validation part, per class."""
    from fpl.report.results import print_scores
    from fpl.train.evaluate import scores
    from fpl.train.runtime import select_device
    from fpl.train.trained import evaluate_trained, find_weights, is_weights_file, load_trained

    trained = load_trained(find_weights(out, run, choice), select_device(device), threads)
    found = scores(evaluate_trained(trained, data_root, protocol), trained.config.eval.absent)
    used = protocol or trained.config.eval.protocol
    weights = Path(run).name if is_weights_file(run) else f"{choice or 'best'} weights"
    title = f"{used} protocol, {weights} (step {trained.step})"
    iou = dict(zip(trained.spec.class_names, found.iou, strict=True))
    print_scores(title, found.miou, found.pixel_accuracy, iou, csv)
    if (holdout := trained.config.data.split.holdout) is not None:
        answer(f"on the validation part; the run's own scores are of its held-out labeled images (1 of {holdout})")


@app.command()
def predict(
    run: Annotated[str, typer.Argument(help="Run id, a unique beginning of one, or a weights file.")],
    images: Annotated[Path, typer.Argument(help="Folder of images, or one image.")],
    to: Annotated[Path, typer.Argument(help="Folder for class maps and overlays.")],
    out: Found = None,
    choice: Choice = None,
    device: Device = "auto",
    threads: Threads = THREADS,
    scratch: Scratch = None,
) -> None:
    """Predict class maps (palette PNG) and colour overlays for a folder of images."""
    from fpl.train.predict import predict_folder
    from fpl.train.runtime import select_device
    from fpl.train.trained import find_weights, load_trained

    with interruptible("what is written stays whole; the same command starts again"):
        trained = load_trained(find_weights(out, run, choice), select_device(device), threads)
        count = predict_folder(trained, images, to)
    answer(
        f"{count} class maps and overlays in {to}, the colours in {to / 'legend.png'} (weights of step {trained.step})"
    )


@app.command()
def results(
    out: Found = None,
    query: Annotated[str | None, typer.Option(help="pandas expression: \"`loss.kind` == 'fpl'\".")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns, separated by commas; 'all' for every one.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table there instead.", callback=file_to_write)] = None,
    scratch: Scratch = None,
) -> None:
    """Show the runs of a store as a table."""
    from fpl.report.results import print_results
    from fpl.store.read import find_store

    print_results(out or find_store(), query, columns, csv)


@app.command()
@grouped
def doctor(folders: Folders) -> None:
    """Say what this machine has (versions, devices, data, weights) and what to do about what it lacks."""
    from fpl.doctor import print_doctor

    print_doctor(folders.places(LOCAL, []))
