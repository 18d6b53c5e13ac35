"""What a rehearsal found, one row a rehearsed run, and what follows for GPUs. Without torch."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from fpl.files import write_changed
from fpl.sweep.plan.rows import read_rows, write_rows

NAME = "rehearsal"
DONE, FAILED, NO_MEMORY = "done", "failed", "no memory"
_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run of a rehearsal.

    Attributes:
        cell: Cell of the tables that it is of.
        key: Digest of what it is a rehearsal of: settings, inputs, device, code.
        code: Digest of the code.
        state: `done`, `failed` or `no memory`; empty before.
        reason: Why it is not done; empty otherwise.
        dataset: Data set.
        data: Whether its files are real or drawn, and under which names.
        weights: Whether the pretrained file is real or made; none without.
        backbone: Of the networks.
        crop_height: Height of a crop in pixels.
        crop_width: Its width.
        labeled: Labeled images a step, all processes together.
        unlabeled: Unlabeled images a step.
        groups: Groups that they make.
        whole: Whether crops have their size; else their sides were halved.
        precision: Of the passes through networks.
        processes: 1, or workers on Ray Train.
        device: CPU or GPU.
        threads: CPU threads of each process.
        steps: Steps of the run.
        step_seconds: Mean time of a step, images read and logs written.
        validation_images: Images of the validation.
        validation_seconds: What it took.
        predict_seconds: What `fpl predict` of one image took, from its start to its end; 0 where it was left out.
        wall_seconds: What the rehearsal of the run took.
        peak_bytes: Largest memory of a process: on a CPU resident, on a GPU allocated by torch.
        base_bytes: Of that, what the process has before it has networks.
        model_bytes: Of that, weights, gradients and optimizers, counted.
        checkpoint_bytes: A resumable checkpoint.
        weights_bytes: A file of weights.
        checked: What was exercised, in words.
        planned_step_seconds: The same step by `fpl plan`, on this device.
        paper_labeled: Labeled images of a published step.
        paper_unlabeled: Unlabeled ones.
        paper_steps: Published steps.
        paper_workers: Workers that share a published run.
        planned_bytes: Memory of each of them, by `fpl plan`.
        paper_hours: A published run on so many V100, by `fpl plan`.
        on_gpu: Whether it was trained on GPUs.
        commit: Of the code; + if it was changed.
        measured_at: ISO time.
    """

    cell: str
    key: str
    code: str
    state: str = ""
    reason: str = ""
    dataset: str
    data: str
    weights: str
    backbone: str
    crop_height: int
    crop_width: int
    labeled: int = 0
    unlabeled: int = 0
    groups: int = 0
    whole: bool
    precision: str
    processes: int = 1
    device: str
    threads: int
    steps: int = 0
    step_seconds: float = 0.0
    validation_images: int = 0
    validation_seconds: float = 0.0
    predict_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_bytes: int = 0
    base_bytes: int = 0
    model_bytes: int = 0
    checkpoint_bytes: int = 0
    weights_bytes: int = 0
    checked: str = ""
    planned_step_seconds: float = 0.0
    paper_labeled: int = 0
    paper_unlabeled: int = 0
    paper_steps: int = 0
    paper_workers: int = 1
    planned_bytes: int = 0
    paper_hours: float = 0.0
    on_gpu: bool = False
    commit: str = ""
    measured_at: str = ""

    @property
    def images(self) -> int:
        """Images that one process had in a step."""
        return (self.labeled + self.unlabeled) // self.processes

    @property
    def hours(self) -> float | None:
        """A published run on GPUs as that of the rehearsal, validations left out; None where there was none."""
        if self.state != DONE or not (self.whole and self.on_gpu):
            return None
        share = (self.paper_labeled + self.paper_unlabeled) / self.paper_workers / self.images
        return self.step_seconds * share * self.paper_steps / 3600

    def peak_at(self, workers: int) -> float | None:
        """Bytes that each of some workers needs for the published batch; None where nothing of the kind was measured.

        What is neither the process's own nor weights, gradients and optimizers grows with the images of a worker.
        """
        fixed = self.base_bytes + self.model_bytes
        if self.state != DONE or not self.whole or not self.images or self.peak_bytes <= fixed:
            return None
        published = (self.paper_labeled + self.paper_unlabeled) / workers
        return self.model_bytes + (self.peak_bytes - fixed) * published / self.images


SCHEMA = pa.schema([(item.name, _TYPES[str(item.type)]) for item in fields(Row)])


def read(folder: Path) -> list[Row]:
    """Rows of a rehearsal; none where there was none.

    Raises:
        FplError: The file is damaged.
    """
    rows = read_rows(folder / f"{NAME}.parquet", SCHEMA, "remove the file: the rehearsal begins anew")
    return [Row(**row) for row in rows]


def write(folder: Path, rows: Sequence[Row]) -> None:
    """Write rows as Parquet and as CSV; whole or not at all."""
    plain: list[Mapping[str, Any]] = [asdict(row) for row in rows]
    write_rows(folder / f"{NAME}.parquet", plain, SCHEMA)
    text = io.StringIO()
    writer = csv.DictWriter(text, SCHEMA.names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    write_changed(folder / f"{NAME}.csv", text.getvalue().encode())
