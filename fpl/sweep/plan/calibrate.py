"""How long a step takes on the present device: networks and methods as in a run, on drawn tensors instead of images."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch

from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.methods.base import Clock
from fpl.sweep.outcome import provenance
from fpl.sweep.plan.costs import Costs, step_key
from fpl.sweep.plan.drawn import DrawnImages, bare_method, drawn_batch
from fpl.sweep.plan.speed import Measured
from fpl.text import answer, timestamp
from fpl.train.runtime import check_precision, prepare_torch, select_device
from fpl.train.step import take_step

# Kinds of steps that are measured, those first that most of the campaign's time goes into.
KINDS = 6
# Steps before the clock starts: allocation, and the choice of algorithms on a GPU.
WARM_UP = 2
# BatchNorm needs two images.
SMALLEST_BATCH = 2


def representatives(runs: Iterable[tuple[RunConfig, float]], kinds: int = KINDS) -> list[RunConfig]:
    """One configuration of each kind of step, those first that cost the most seconds together.

    Args:
        runs: Configurations with their expected seconds.
        kinds: How many at most.
    """
    first: dict[str, RunConfig] = {}
    seconds: dict[str, float] = {}
    for config, expected in runs:
        key = step_key(config)
        first.setdefault(key, config)
        seconds[key] = seconds.get(key, 0.0) + expected
    return [first[key] for key in sorted(first, key=lambda key: -seconds[key])[:kinds]]


def calibrate(
    configs: Iterable[RunConfig],
    steps: int,
    *,
    device: str = "auto",
    threads: int = 1,
    workers: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    say: Callable[[str], None] = answer,
) -> list[Measured]:
    """Time `steps` steps of each configuration.

    The batch is the share of one of `workers` workers, at least two images; where it does not fit into the memory of
    a GPU, half of it is tried, and so on.

    Args:
        configs: What to run; their weights are random, their data drawn.
        steps: Steps that count; two more come before them.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        threads: CPU threads of torch.
        workers: Workers that will share a run.
        clock: Gives seconds; `time.process_time` leaves out what other processes took, right for one thread on a CPU.
        say: Told of every kind.
    """
    if steps < 1:
        raise FplError(f"{steps} steps to calibrate", where="--calibrate", hint="1 or more; 5 are enough")
    where = select_device(device)
    name = provenance(where)["device"] or where.type
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found = []
    try:
        for config in configs:
            timed = _fitting(config, steps, where, workers, clock)
            if timed is None:
                say(f"{step_key(config)}: does not fit into the memory of {name}, not measured")
                continue
            used, seconds = timed
            data = used.data
            found.append(_measured(used, seconds, name, where, threads, steps))
            say(f"{step_key(used)}: {seconds:.4g} s a step of {data.labeled_batch} + {data.unlabeled_batch} images")
    finally:
        torch.set_num_threads(before)
    return found


def _measured(used: RunConfig, seconds: float, name: str, device: torch.device, threads: int, steps: int) -> Measured:
    return Measured(
        name,
        device.type == "cuda",
        threads,
        step_key(used),
        used.data.labeled_batch,
        used.data.unlabeled_batch,
        steps,
        seconds,
        # The images were in memory: reading them has its own share of an estimate.
        replace(Costs().of(used).step, images=0.0),
        torch.__version__,
        timestamp(),
    )


def _fitting(
    config: RunConfig, steps: int, device: torch.device, workers: int, clock: Callable[[], float]
) -> tuple[RunConfig, float] | None:
    """The largest share of the batch that fits into memory, and its seconds per step; None if none does."""
    check_precision(config.train, device)
    for used in _shares(config, workers):
        try:
            return used, _time(used, steps, device, clock)
        except torch.OutOfMemoryError:
            pass
        # Only behind the handler are the tensors of the failed attempt free.
        torch.cuda.empty_cache()
    return None


def _shares(config: RunConfig, workers: int) -> Iterator[RunConfig]:
    """The configuration with one worker's share of the batch, then half of that, down to two images."""
    data = config.data
    sizes = [max(SMALLEST_BATCH, size // workers) if size else 0 for size in (data.labeled_batch, data.unlabeled_batch)]
    while True:
        # One group: hard pixels are chosen, and weights taken, in the share as a whole, whatever its size.
        batch = {"labeled_batch": sizes[0], "unlabeled_batch": sizes[1], "groups": 1}
        yield config.model_copy(update={"data": data.model_copy(update=batch)})
        if max(sizes) <= SMALLEST_BATCH:
            return
        sizes = [max(SMALLEST_BATCH, size // 2) if size else 0 for size in sizes]


def _time(config: RunConfig, steps: int, device: torch.device, clock: Callable[[], float]) -> float:
    """Median seconds of a step."""
    prepare_torch(config.train, torch.get_num_threads())
    torch.manual_seed(0)
    method = bare_method(config, device)
    method.attach(DrawnImages(config))
    optimizers = method.optimizers()
    times = []
    for number in range(WARM_UP + steps):
        batch = drawn_batch(config, method, number)
        _wait(device)
        began = clock()
        take_step(method, optimizers, batch, Clock(number, WARM_UP + steps), config.train, device)
        _wait(device)
        times.append(clock() - began)
    return statistics.median(times[WARM_UP:])


def _wait(device: torch.device) -> None:
    """Let the GPU finish: it works on its own clock."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
