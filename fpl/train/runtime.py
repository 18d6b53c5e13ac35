"""Device, precision, seeds, threads and workers: what surrounds a run without being part of its identity."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from fpl.config.defaults import MOST_THREADS
from fpl.config.schema import RunConfig
from fpl.config.sections import TrainConfig
from fpl.errors import FplError
from fpl.train.launched import launch_value

State = dict[str, Any]
# The first GPUs with TF32: Ampere.
TF32_CAPABILITY = (8, 0)


class TrainingError(FplError):
    """Training itself went wrong (a non-finite loss, say): the input was fine, so the exit code is 1."""

    exit_code = 1


class Verdict(Enum):
    """What the caller of the loop decides at a report."""

    GO = "go"
    STOP = "stop"


class Context(Protocol):
    """All that the training loop sees of whatever launched it."""

    rank: int
    world_size: int
    device: torch.device

    def latest(self, check: Callable[[State], None]) -> State | None:
        """The newest complete checkpoint of this run for which `check` raises no error, or None."""

    def report(self, step: int, metrics: dict[str, float], state: State | None) -> Verdict:
        """Take metrics and, if given, a checkpoint's state; called by every rank at the same steps."""


@dataclass(frozen=True)
class Workers:
    """This process among the processes that share the global batch."""

    rank: int = 0
    world_size: int = 1

    def total(self, value: Tensor) -> Tensor:
        """Sum of a detached tensor over all workers; the tensor itself with one worker."""
        if self.world_size == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total

    def average(self, value: Tensor) -> Tensor:
        """Mean of a detached tensor over all workers; the tensor itself with one worker."""
        return value if self.world_size == 1 else self.total(value) / self.world_size

    def concatenate(self, value: Tensor) -> Tensor:
        """Tensors [n, ...] of equal shape in the order of the ranks, [world_size * n, ...]; `value` with one worker."""
        if self.world_size == 1:
            return value
        parts = [torch.empty_like(value) for _ in range(self.world_size)]
        dist.all_gather(parts, value.contiguous())
        return torch.cat(parts)

    def gather(self, value: Any) -> list[Any]:
        """Objects of all workers, in the order of their ranks."""
        if self.world_size == 1:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, value)
        return gathered


class Gradients:
    """Averages the gradients of some parameters over the workers.

    They are copied once, into a buffer that is kept, and are views of it from then on; nothing is copied back. Adding
    to such views from the start would move more: the buffer would have to be zeroed, and read again by every addition.

    Args:
        parameters: Whose gradients; all on one device.
        workers: The processes that share the global batch.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], workers: Workers) -> None:
        self.parameters, self.workers = parameters, workers
        self._flat: dict[torch.dtype, Tensor] = {}

    def average(self) -> None:
        """Replace every gradient by its mean over the workers, in one collective call per dtype.

        A parameter without a gradient keeps none; it must have none on all workers.
        """
        if self.workers.world_size == 1:
            return
        for dtype in dict.fromkeys(parameter.dtype for parameter in self.parameters):
            own = [item for item in self.parameters if item.dtype == dtype and item.grad is not None]
            if own:
                self._average(own, self._buffer(dtype))

    def _average(self, parameters: list[torch.nn.Parameter], flat: Tensor) -> None:
        views, given, start = [], [], 0
        for parameter in parameters:
            assert parameter.grad is not None
            given.append(parameter.grad)
            # As the parameter lies in memory: optimizers go through both side by side.
            views.append(flat.as_strided(parameter.shape, parameter.stride(), start))
            start += parameter.numel()
        torch._foreach_copy_(views, given)
        used = flat[:start]
        dist.all_reduce(used)
        used /= self.workers.world_size
        for parameter, view in zip(parameters, views, strict=True):
            parameter.grad = view

    def _buffer(self, dtype: torch.dtype) -> Tensor:
        if dtype not in self._flat:
            same = [parameter for parameter in self.parameters if parameter.dtype == dtype]
            self._flat[dtype] = same[0].new_empty(sum(parameter.numel() for parameter in same), requires_grad=False)
        return self._flat[dtype]


def compile_networks(networks: Iterable[torch.nn.Module], device: torch.device, workers: Workers) -> None:
    """Compile the training passes of networks in place, once it is known that something can be compiled here.

    Raises:
        FplError: Nothing can, for want of a compiler say; or several workers share a run on CPUs.
    """
    if workers.world_size > 1 and device.type == "cpu":
        raise FplError(
            "torch.compile cannot look through batch norm over several CPU workers",
            where="train.compile",
            hint="train with one worker, on GPUs, or with train.compile = false",
        )
    try:
        # Inductor looks for a compiler, or for Triton, only when it has something to compile.
        torch.compile(lambda value: value + 1, dynamic=False)(torch.zeros(8, device=device))
    except RuntimeError as error:
        raise FplError(
            f"torch.compile does not work here: {str(error).splitlines()[0]}",
            where="train.compile",
            hint="install a C++ compiler (CPU) or Triton (GPU), or set train.compile = false",
        ) from error
    for network in networks:
        network.compile(dynamic=False)


def select_device(name: str) -> torch.device:
    """The device of this process: `auto` takes this worker's GPU where there is one, else the CPU.

    Raises:
        FplError: The named device does not exist here.
    """
    local_rank = launch_value("LOCAL_RANK")
    if name == "auto":
        name = f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu"
    elif name == "cuda":
        name = f"cuda:{local_rank}"
    # By its name: torch takes "cpu:5" too, which no file can be read to, and numbers beyond its own for others.
    found = re.fullmatch(r"cpu|cuda:(0|[1-9][0-9]{0,8})", name)
    if found is None:
        raise FplError(f"{name!r} is no device to compute on", where="--device", hint="auto, cpu, cuda or cuda:N")
    if name != "cpu":
        count = torch.cuda.device_count()
        if int(found[1]) >= count:
            raise FplError(f"{name} asked for, {count} GPUs seen here", where="--device", hint="use auto or cpu")
        torch.cuda.set_device(name)
    return torch.device(name)


def prepare_torch(train: TrainConfig, threads: int) -> None:
    """Set threads, determinism and TF32 for this process. The thread count decides the last bits of a CPU run.

    Raises:
        FplError: So many threads no machine has.
    """
    if not 1 <= threads <= MOST_THREADS:
        raise FplError(f"{threads} threads", where="--threads", hint=f"between 1 and {MOST_THREADS}")
    torch.set_num_threads(threads)
    if train.deterministic != "off":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if train.compile:  # which is told too, and loaded by it: that takes as long as torch itself
        torch.use_deterministic_algorithms(train.deterministic != "off", warn_only=train.deterministic == "warn")
    else:
        torch.set_deterministic_debug_mode({"off": "default", "warn": "warn", "strict": "error"}[train.deterministic])
    torch.backends.cudnn.benchmark = train.deterministic == "off"
    # PyTorch leaves it on for convolutions and off for products: every run says it for both.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = train.precision == "tf32"


def has_tf32(device: torch.device) -> bool:
    """Whether a device can multiply in TF32: a GPU of compute capability 8.0 or more."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= TF32_CAPABILITY


def uses_tf32(device: torch.device) -> bool:
    """Whether convolutions or products of float32 are in TF32 on a device, as this process is set."""
    return has_tf32(device) and (torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32)


def check_precision(train: TrainConfig, device: torch.device) -> None:
    """Refuse to train in a precision that the device does not have: it would be float32 under another name.

    Raises:
        FplError: TF32 is asked of a CPU or of an older GPU.
    """
    if train.precision != "tf32" or has_tf32(device):
        return
    what = "a CPU" if device.type != "cuda" else f"this GPU ({torch.cuda.get_device_name(device)})"
    raise FplError(
        f"{what} has no TF32",
        where="train.precision = tf32",
        hint="a GPU of compute capability 8.0 or more (A100, RTX 30 and newer), or train.precision=float32",
    )


def seed_training(config: RunConfig) -> None:
    """Seed torch's generators after the networks are built, alike on all ranks.

    What is drawn while training is drawn for the global batch, of which each rank takes its share
    (`fpl.models.dropout.global_uniform`), so that the number of workers changes nothing.
    """
    torch.manual_seed(config.seed * 1_000_003)


def rng_state(device: torch.device) -> State:
    """Random state of this process, as tensors."""
    state: State = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_rng(state: State, device: torch.device) -> None:
    """Put back what `rng_state` gave."""
    torch.set_rng_state(state["cpu"].cpu())
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)


def autocast(train: TrainConfig, device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Mixed precision as configured; losses compute in float32 in either case."""
    if train.precision == "bf16":
        # The cache would hand weight copies made under a teacher's no_grad to the student, whose weights then get no
        # gradient (in some versions of torch), without any error.
        return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)
    return contextlib.nullcontext()
