"""From work to seconds: the speed of a device, measured here (`fpl plan --calibrate`) or assumed. Without torch."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from fpl.config.schema import RunConfig
from fpl.sweep.plan.cost import Work
from fpl.sweep.plan.costs import Costs, precision_of, step_key
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
        faster: Precision -> how many times as many operations a second as in float32; 1 where it is not named.
    """

    source: str
    per_call: float
    per_gflop: float
    per_gigabyte: float
    per_image: float = 0.0
    per_shared_call: float = 0.0
    faster: Mapping[str, float] = field(default_factory=dict)

    def seconds(self, work: Work, workers: int = 1, precision: str = "float32") -> float:
        """Time of an amount of work that `workers` devices share equally. Each of them makes every call."""
        arithmetic = self.per_gflop * work.gflop / self.faster.get(precision, 1.0)
        shared = arithmetic + self.per_gigabyte * work.gigabytes + self.per_image * work.images
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
# NVIDIA's own training of a ResNet-50 (DeepLearningExamples, PyTorch, resnet50v1.5) handles 367 images a second on a
# V100 in float32; on an A100 938 in TF32, and 2470 in mixed precision (float16, channels last: a bound for bf16). In
# float32 an A100 is as much faster as its data sheet's 19.5 TFLOP/s are more than 15.7; of its 2.0 TB/s two thirds are
# taken. tests/sweep/plan/test_public_times.py holds both speeds to times of others.
A100_FLOAT32 = 19.5 / 15.7
A100 = Speed(
    "an A100 by the speed of a V100 in the paper's Table A6 and NVIDIA's own times of a ResNet-50 on both",
    per_call=V100.per_call,
    per_gflop=V100.per_gflop / A100_FLOAT32,
    per_gigabyte=1 / 1330,
    faster={"tf32": 938 / 367 / A100_FLOAT32, "bf16": 2470 / 367 / A100_FLOAT32},
)
# GPUs that are taken for an A100: it, and newer ones, which are faster.
LIKE_A100 = ("A100", "A800", "H100", "H800", "H200", "GH200", "B100", "B200")


def assumed_gpu(name: str) -> Speed:
    """The speed of a GPU that was not measured, by its name; a V100 where that says nothing."""
    return A100 if _words(name) & set(LIKE_A100) else V100


def _words(name: str) -> set[str]:
    """`NVIDIA A100-SXM4-80GB` is an A100, whatever else its name says."""
    return set(filter(None, re.split(r"[^A-Z0-9]+", name.upper())))


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
        threads: That share a step where nothing was measured; what was measured was so with as many.
    """

    speed: Speed
    measured: tuple[Measured, ...] = ()
    costs: Costs = field(default_factory=Costs, compare=False)
    threads: int = 1

    @cached_property
    def ratios(self) -> dict[str, float]:
        """Measured over expected time by kind of step."""
        return {
            entry.key: entry.seconds_per_step / self.speed.seconds(entry.work, precision=precision_of(entry.key))
            for entry in self.measured
        }

    @property
    def source(self) -> str:
        """`measured on ...` or `assumed: ...`."""
        if not self.measured:
            return f"assumed: {self.speed.source}" + (f", over {self.threads} threads" if self.threads > 1 else "")
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
        precision = config.train.precision
        seconds = ratio * self.speed.seconds(computed, workers, precision) + self.speed.seconds(read, workers)
        return seconds if self.measured else seconds / self.threads


def measured_on(name: str, entries: Sequence[Measured]) -> list[Measured]:
    """Those of a device: of that very name, or else of the first whose name has all words of it (`A100`)."""
    wanted = _words(name)
    fitting = [entry.device for entry in entries if wanted and wanted <= _words(entry.device)]
    device = name if name in fitting else next(iter(fitting), name)
    return [entry for entry in entries if entry.device == device]


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
