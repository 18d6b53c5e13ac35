"""A store of as many runs as one likes, written in a minute: real configurations, made-up numbers."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fpl.config.campaign import load_campaign
from fpl.config.identity import canonical, digest, run_id
from fpl.config.schema import RunConfig
from fpl.store.columns import SCHEMAS
from fpl.store.schema import CLASSES, FUZZINESS, HISTORY, RUNS
from fpl.sweep.plan.wanted import distinct_runs
from fpl.train.progress import Progress

EXPERIMENTS, SCALE = Path("experiments"), "mini"
# Of a run at scale mini: what is logged at a step, classes of two choices of weights, steps with diagnostics.
LOGGED = ("loss", "supervised", "unsupervised", "lr", "mean_k")
CLASSES_OF_A_RUN, FUZZY_ROWS = 19, 12
# Seconds by which the files are older than they are: those of a store of a day are not of the last minute.
AGE = 3600.0
PINS = {"labeled": "0" * 16, "unlabeled": "1" * 16}


def write_store(out: Path, seeds: int, history: int) -> None:
    """Write a store of all runs of the tables at scale mini: nothing of them is left to plan.

    Args:
        out: An empty folder.
        seeds: Of each cell.
        history: Rows of `history` of each run.
    """
    templates = {table: _template(table, history) for table in (HISTORY, CLASSES, FUZZINESS)}
    for table in (*templates, RUNS):
        (out / table).mkdir(parents=True)
    configs, numbers = _configs(seeds), random.Random(0)
    progress = Progress(len(configs), unit="run", pause=5.0, stream=sys.stderr)
    for done, config in enumerate(configs, start=1):
        name = run_id(config)
        for table, rows in templates.items():
            _write(out, table, name, rows.set_column(0, "run_id", pa.array([name] * len(rows))))
        _write(out, RUNS, name, _row(config, name, numbers))
        progress.show(done)
    progress.note()


def seeds_of(runs: int) -> int:
    """Seeds of each cell that make so many runs, or a few more."""
    return -(-runs // len(_configs(1)))


def _configs(seeds: int) -> list[RunConfig]:
    found = []
    for wanted in distinct_runs(load_campaign(EXPERIMENTS, SCALE, seeds=seeds, rows="all").all_cells):
        data = wanted.config.data
        pinned = data.model_copy(update={"split": data.split.model_copy(update=PINS)})
        found.append(wanted.config.model_copy(update={"data": pinned}))
    return found


def _row(config: RunConfig, name: str, numbers: random.Random) -> pa.Table:
    row = {
        "run_id": name,
        "digest": digest(config),
        "config": canonical(config),
        "miou_whole_last": numbers.uniform(10, 60),
        "miou_whole_best": numbers.uniform(10, 60),
        "pixel_accuracy_whole_last": numbers.uniform(10, 60),
        "pixel_accuracy_whole_best": numbers.uniform(10, 60),
        "best_step": 50,
        "constant_class": "road",
        "constant_miou": 2.5,
        "unlabeled_images": 180,
        "train_seconds": numbers.uniform(3, 9),
        "finished_at": f"2026-01-{numbers.randint(1, 28):02d}T12:00:00+00:00",
        "device": "a processor",
        "warnings": [],
    }
    return pa.Table.from_pylist([row], schema=SCHEMAS[RUNS])


def _template(table: str, history: int) -> pa.Table:
    """The rows of a run, without its id."""
    if table == HISTORY:
        rows = [
            {"step": step, "metric": metric, "value": 1.0 / (step + number)}
            for step in range(1, 1 + -(-history // len(LOGGED)))
            for number, metric in enumerate(LOGGED)
        ][:history]
    elif table == CLASSES:
        rows = [
            {"choice": choice, "class_index": number, "class_name": f"class {number}", "iou": 2.0 * number}
            for choice in ("last", "best")
            for number in range(CLASSES_OF_A_RUN)
        ]
    else:
        rows = [
            {"step": 4 * number, "direction": "12", "pixels": 400, "mean_k": 1.5, "k_histogram": [300, 80, 20]}
            for number in range(FUZZY_ROWS)
        ]
    return pa.Table.from_pylist([{"run_id": "", **row} for row in rows], schema=SCHEMAS[table])


def _write(out: Path, table: str, name: str, rows: pa.Table) -> None:
    path = out / table / f"{name}.parquet"
    pq.write_table(rows.cast(SCHEMAS[table]), path, compression="zstd")
    seconds = path.stat().st_mtime - AGE
    os.utime(path, (seconds, seconds))
