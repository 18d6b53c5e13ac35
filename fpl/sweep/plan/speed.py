"""From work to seconds: the speed of a device, measured here (`fpl plan --calibrate`) or assumed. Without torch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from fpl.config.schema import RunConfig
from fpl.sweep.plan.cost import Work
from fpl.sweep.plan.costs import Costs, step_key
from fpl.sweep.plan.rows import read_rows, write_rows

CALIBRATION = "calibration.parquet"

# One row per kind of step and device; the work is kept so that the estimate can be compared with what was measured.
CALIBRATION_SCHEMA = pa.schema(
    [
        ("device", pa.string()),
        ("on_gpu", pa.bool_()),
        ("threads", pa.int64()),
        ("key", pa.string()),
        ("labeled_batch", pa.int64()),
        ("unlabeled_batch", pa.int64()),
        ("steps", pa.int64()),
        ("seconds_per_step", pa.float64()),
        ("calls", pa.float64()),
        ("gflop", pa.float64()),
        ("gigabytes", pa.float64()),
        ("torch", pa.string()),
        ("measured_at", pa.string()),
    ]
)


@dataclass(frozen=True)
class Speed:
    """Seconds per unit of work on one device: a GPU, or a core of a CPU.

    Attributes:
        source: Where the numbers come from, for the reader of an estimate.
        per_call: Per convolution, whatever its size.
        per_gflop: Per 10^9 operations.
        per_gigabyte: Per 10^9 bytes.
        per_image: Per training image, where nothing else prepares it meanwhile.
        per_shared_call: More per convolution where workers share the run: their norm layers wait for each other.
    """

    source: str
    per_call: float
    per_gflop: float
    per_gigabyte: float
    per_image: float = 0.0
    per_shared_call: float = 0.0

    def seconds(self, work: Work, workers: int = 1) -> float:
        """Time of an amount of work that `workers` devices share equally. Each of them makes every call."""
        shared = self.per_gflop * work.gflop + self.per_gigabyte * work.gigabytes + self.per_image * work.images
        return (self.per_call + (self.per_shared_call if workers > 1 else 0.0)) * work.calls + shared / workers


# `python benchmarks/steps.py`: least squares over 40 kinds of steps of the tiny network on one core, nearly all within
# 10 %; the last two numbers from preparing images and from runs on two workers. The first three were measured with the
# traffic of the losses alone, and have been rescaled, within 1 % for all 40 kinds, since that of mixing, pasting and
# normalising images is counted with it (4 % to 28 % more at full size).
CPU_CORE = Speed(
    "as measured on one core of an Intel Xeon at 2.5 GHz with AVX-512, tiny networks",
    per_call=2.06e-4,
    per_gflop=2.34e-2,
    per_gigabyte=0.242,
    per_image=4e-4,
    per_shared_call=9e-4,
)
# Table A6 prints AEL's seconds per epoch on 8 V100: 4.48 s a step on Cityscapes, 1.44 s on VOC. Its network and passes
# make 17.4 and 7.8 TFLOP a step and GPU (tests/sweep/plan/test_count.py), so 3.9 and 5.4 TFLOP/s; taken is their mean.
# The bandwidth is two thirds of the device's 0.9 TB/s, the time per call that of three kernel launches.
V100 = Speed(
    "a V100 at the 4.6 TFLOP/s that the AEL times of the paper's Table A6 amount to",
    per_call=3e-5,
    per_gflop=1 / 4600,
    per_gigabyte=1 / 600,
)


@dataclass(frozen=True)
class Measured:
    """Time of one kind of step on one device.

    Attributes:
        device: Name of the device.
        on_gpu: Whether it is a GPU.
        threads: CPU threads of torch.
        key: Kind of step (`fpl.sweep.plan.costs.step_key`).
        labeled_batch: Labeled images of the step.
        unlabeled_batch: Unlabeled images of the step.
        steps: Steps that were timed.
        seconds_per_step: Their median.
        work: Work of such a step, images left out: they were in memory.
        torch: Version.
        measured_at: ISO time.
    """

    device: str
    on_gpu: bool
    threads: int
    key: str
    labeled_batch: int
    unlabeled_batch: int
    steps: int
    seconds_per_step: float
    work: Work
    torch: str = ""
    measured_at: str = ""


@dataclass(frozen=True)
class CostModel:
    """Seconds of steps and runs on one kind of device.

    What was measured scales the counted estimate: a kind of step by its own ratio of measured to expected, other kinds
    by the median of all.

    Attributes:
        speed: The device's assumed speed.
        measured: Calibration of the device; empty for none.
        costs: Of runs.
    """

    speed: Speed
    measured: tuple[Measured, ...] = ()
    costs: Costs = field(default_factory=Costs, compare=False)

    @cached_property
    def ratios(self) -> dict[str, float]:
        """Measured over expected time by kind of step."""
        return {entry.key: entry.seconds_per_step / self.speed.seconds(entry.work) for entry in self.measured}

    @property
    def source(self) -> str:
        """`measured on ...` or `assumed: ...`."""
        if not self.measured:
            return f"assumed: {self.speed.source}"
        return f"measured on {self.measured[0].device}, {len(self.ratios)} kinds of steps"

    def step_seconds(self, config: RunConfig, workers: int = 1) -> float:
        """Seconds of one step on the global batch, shared by `workers`."""
        return self._seconds(config, self.costs.of(config).step, workers)

    def run_seconds(self, config: RunConfig, workers: int = 1) -> float:
        """Seconds of a whole run, validations included, shared by `workers`."""
        return self._seconds(config, self.costs.of(config).run(config), workers)

    def _seconds(self, config: RunConfig, work: Work, workers: int) -> float:
        ratio = self.ratios.get(step_key(config))
        if ratio is None:
            ratio = statistics.median(self.ratios.values()) if self.ratios else 1.0
        computed, read = replace(work, images=0.0), Work(images=work.images)
        return ratio * self.speed.seconds(computed, workers) + self.speed.seconds(read, workers)


def write_calibration(out: Path, measured: Sequence[Measured]) -> Path:
    """Put measurements into the calibration of a store; older ones of the same device, threads and kind give way."""
    replaced = {(entry.device, entry.threads, entry.key) for entry in measured}
    kept = [entry for entry in read_calibration(out) if (entry.device, entry.threads, entry.key) not in replaced]
    rows = []
    for entry in [*kept, *measured]:
        row = asdict(entry)
        work = row.pop("work")
        rows.append(row | {name: work[name] for name in ("calls", "gflop", "gigabytes")})
    path = out / CALIBRATION
    write_rows(path, rows, CALIBRATION_SCHEMA)
    return path


def read_calibration(out: Path) -> list[Measured]:
    """Measurements in the calibration of a store, of any device; none without the file.

    Raises:
        FplError: The file is damaged or lacks a column.
    """
    remedy = "remove the file; fpl plan --calibrate 5 makes a new one"
    rows = read_rows(out / CALIBRATION, CALIBRATION_SCHEMA, remedy)
    works = [Work(*(row.pop(name) for name in ("calls", "gflop", "gigabytes"))) for row in rows]
    return [Measured(**row, work=work) for row, work in zip(rows, works, strict=True)]
