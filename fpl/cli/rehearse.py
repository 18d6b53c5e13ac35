"""`fpl rehearse`: parse, call, print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fpl.cli.data import DATA, SPLITS, DataRoot, Splits, interruptible
from fpl.cli.options import EXPERIMENTS, Experiments
from fpl.config.defaults import MOST_THREADS
from fpl.errors import FplError
from fpl.text import answer, say, size_text

if TYPE_CHECKING:
    from fpl.sweep.rehearsal.rows import Row

# Workers of a run for which the memory of a GPU is said.
WORKERS = (8, 4, 2, 1)


def rehearse(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="TABLE.ROW.COLUMN, with wildcards; section.key=value overrides: train.precision=bf16.",
            show_default="what the scale has under `rehearsal`",
        ),
    ] = None,
    *,
    scale: Annotated[str, typer.Option(help="Of which scale: experiments/scale/NAME.toml.")] = "paper",
    out: Annotated[Path, typer.Option(help="Folder of what is drawn, trained and found.")] = Path("runs/rehearsal"),
    publish: Annotated[Path | None, typer.Option(help="Also put what was found there.", show_default="nowhere")] = None,
    lists: Annotated[
        Path | None,
        typer.Option(
            help="Folder of public split lists: drawn sets then have the published names.",
            show_default="the imported ones in --splits",
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="On a CPU, too, all crops in their size: hours.")] = False,
    ray: Annotated[bool, typer.Option("--ray/--no-ray", help="One run on two workers of Ray Train besides.")] = True,
    data_root: DataRoot = DATA,
    splits: Splits = SPLITS,
    weights: Annotated[
        Path | None, typer.Option(envvar="FPL_WEIGHTS", help="Folder of pretrained weights, if you have them.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, max=MOST_THREADS, help="CPU threads.", show_default="all cores")
    ] = None,
    experiments: Experiments = EXPERIMENTS,
) -> None:
    """Try the paper's scale on this machine: full-size files, networks, crops; two steps a run, one kill -9 between."""
    from fpl.files import write_changed
    from fpl.sweep.places import Places
    from fpl.sweep.plan.capacity import capacity
    from fpl.sweep.rehearsal.rows import write
    from fpl.sweep.rehearsal.whole import Rehearsal, load_cells

    _check_folders(lists, weights, data_root, [out, publish])
    cells = [name for name in names or [] if "=" not in name]
    overrides = [name for name in names or [] if "=" in name]
    campaign, has = load_cells(experiments, scale, cells, overrides), capacity()
    rehearsal = Rehearsal(
        campaign=campaign,
        overrides=overrides,
        out=out.resolve(),
        user=Places(out.resolve(), data_root.resolve(), splits.resolve(), weights and weights.resolve()),
        lists=[lists or splits],
        has=has,
        threads=threads or has.cores,
        workers=int(campaign.scale.launch.get("workers", 1)),
        full=full,
        on_ray=ray,
        say=say,
        experiments=experiments.resolve(),
    )
    with interruptible("what was found is kept: the same command continues"):
        found, done = rehearsal.carry_out()
    text = "\n".join(report(found)) + "\n"
    answer(text, end="")
    for folder in (rehearsal.out, *([publish] if publish else [])):
        write(folder, found)
        write_changed(folder / "rehearsal.txt", text.encode())
    if not done:
        raise typer.Exit(1)


def _check_folders(lists: Path | None, weights: Path | None, data_root: Path, results: Sequence[Path | None]) -> None:
    """What was named on purpose is there: else it would be drawn and made up without a word."""
    from fpl.data.splits.published import ORDERS
    from fpl.files import check_folder
    from fpl.sweep.rehearsal.inputs import names_of

    for option, folder, else_ in (
        ("--lists", lists, "names are made up"),
        ("--weights or FPL_WEIGHTS", weights, "random weights are made"),
        ("--data-root", None if data_root == DATA else data_root, "data sets are drawn"),
    ):
        if folder is not None and not folder.is_dir():
            raise FplError("no such folder", where=f"{option} {folder}", hint=f"without the option {else_}")
    if lists is not None and not any(names_of(name, (lists,)).published for name in ORDERS):
        sets = " or ".join(sorted(ORDERS))
        hint = f"expected are text files with the training list, or a split's two lists, of {sets}"
        raise FplError("no published list is in it", where=f"--lists {lists}", hint=hint)
    for folder in results:
        if folder is not None:
            check_folder(folder, str(folder), "--out and --publish name folders, new or there")


def report(found: Sequence[Row]) -> Iterator[str]:
    """Lines of the printout: what was exercised, what it took, and what follows for GPUs."""
    from fpl.sweep.rehearsal.rows import NO_MEMORY
    from fpl.text import table

    rows = sorted(found, key=lambda row: (row.cell, row.processes))
    yield "rehearsed, each with the command that trains the published run: two steps of a worker's share of its batch"
    yield table([_measured(row) for row in rows])
    for row in rows:
        if row.reason:
            yield f"{row.state}: {row.cell}: {row.reason}"
    if any(row.state == NO_MEMORY and row.precision == "float32" for row in rows):
        yield "what lacks memory takes less of it with train.precision=bf16 in the same --out: its row takes this place"
    yield from _exercised(rows)
    if memory := [row for row in rows if row.peak_at(1) is not None]:
        yield ""
        yield "GB on each of so many GPUs for the published batch, as measured; then GB and hours by fpl plan"
        on_gpu = any(row.hours is not None for row in memory)
        yield table([_memory(row, on_gpu) for row in memory])


def _measured(row: Row) -> dict[str, str]:
    """A row of the first table."""
    from fpl.sweep.rehearsal.rows import DONE

    crop = f"{row.crop_width}x{row.crop_height}" + ("" if row.whole else " (half)")
    at = f" on {row.processes} workers" if row.processes > 1 else ""
    return {
        "run": f"{_name(row)}{at}",
        "network": row.backbone,
        "images": f"{row.labeled} + {row.unlabeled}",
        "crop": crop,
        "s/step": _number(row.step_seconds),
        "planned": _number(row.planned_step_seconds),
        # Measured in whole seconds.
        "validation s": "<1" if row.state == DONE and not row.validation_seconds else _number(row.validation_seconds),
        "predict s": _number(row.predict_seconds),
        "memory": size_text(row.peak_bytes) if row.peak_bytes else "-",
        "checkpoint": size_text(row.checkpoint_bytes) if row.checkpoint_bytes else "-",
        "weights": size_text(row.weights_bytes) if row.weights_bytes else "-",
        "state": row.state,
    }


def _name(row: Row) -> str:
    return row.cell if row.precision == "float32" else f"{row.cell}, {row.precision}"


def _number(value: float) -> str:
    return "-" if not value else f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _memory(row: Row, on_gpu: bool) -> dict[str, str]:
    """A row of the second table; with `on_gpu` there is a column for the hours on GPUs such as those here."""
    sizes = {f"{workers} GPU{'s' * (workers > 1)}": row.peak_at(workers) or 0.0 for workers in WORKERS}
    here = {"h on such": "-" if row.hours is None else f"{row.hours:.0f}"} if on_gpu else {}
    return {
        "run": _name(row),
        "batch": f"{row.paper_labeled} + {row.paper_unlabeled}",
        "steps": f"{row.paper_steps:,}",
        **{name: f"{size / 1e9:.1f}" for name, size in sizes.items()},
        "by fpl plan": f"{row.planned_bytes / 1e9:.1f} on {row.paper_workers}",
        "h on V100": f"{row.paper_hours:.0f}",
        **here,
    }


def _exercised(rows: Sequence[Row]) -> Iterator[str]:
    """What was read and done, in words."""
    for kind, name in (("data", "data"), ("weights", "pretrained weights")):
        told = sorted({f"{row.dataset}: {row.data}" if kind == "data" else row.weights for row in rows})
        yield f"{name}: {'; '.join(told)}"
    devices = sorted({f"{row.device}, {row.threads} threads, {row.precision}" for row in rows})
    yield f"on: {'; '.join(devices)}; commit {', '.join(sorted({row.commit for row in rows if row.commit})) or '-'}"
    for text in dict.fromkeys(row.checked for row in rows if row.checked):
        count = sum(row.checked == text for row in rows)
        yield f"{count} run{'s' * (count > 1)}: {text}"
    if any(not row.whole for row in rows):
        yield "(half): crops of half the sides, as this would take hours on a CPU; --full has them whole"
