"""How much memory a run takes on each of its GPUs, and what fits into one. Without torch.

What a step computes is counted (`fpl.sweep.plan.count_memory`); what is added here stands in `Needed`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from fpl.config.checks import worker_problem
from fpl.config.defaults import BATCH_PIXELS
from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.sweep.plan.cost import Cost, image_size, validation_images, window_count, window_of
from fpl.text import size_text

# What no count sees, and is assumed: CUDA's context, the libraries and their workspaces; and the share of what was
# allocated that the allocator cannot use again.
CONTEXT = 1e9
UNUSED = 0.05
UNITS = {"GB": 1e9, "GiB": 2.0**30, "MB": 1e6, "MiB": 2.0**20}
WORKERS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Needed:
    """Bytes on each GPU of a run.

    Attributes:
        held: From one step to the next: networks, teachers, optimizers' states, gradients, and with several workers the
            buffer in which these are averaged.
        computed: What is alive besides when a step, or a validation, is at its fullest.
    """

    held: float
    computed: float

    @property
    def least(self) -> float:
        """With less it cannot be: all of it is counted."""
        return self.held + self.computed

    @property
    def total(self) -> float:
        """What to expect: with the context of CUDA, the libraries' workspaces and what the allocator cannot use."""
        return self.least * (1 + UNUSED) + CONTEXT


def needed(cost: Cost, config: RunConfig, workers: int = 1, precision: str | None = None) -> Needed:
    """Memory of a run on each of its GPUs.

    Args:
        cost: What the run takes.
        config: The run.
        workers: GPUs that share it.
        precision: Instead of that of the run.
    """
    memory = cost.memory
    half = (precision or config.train.precision) == "bf16"
    step = memory.step_bf16 / workers + memory.copies_bf16 if half else memory.step / workers
    held = cost.weights + cost.optimizer + memory.gradients * (2 if workers > 1 else 1)
    return Needed(held, max(step, _validation(cost, config)))


def _validation(cost: Cost, config: RunConfig) -> float:
    """Bytes alive while a batch of validation images is looked at (`fpl.train.evaluate`), in float32."""
    classes, most = config.data.num_classes, BATCH_PIXELS["cuda"]
    window = math.prod(window_of(config))
    label = math.prod(image_size(config, full=True))
    seen = window if config.eval.protocol == "center" else max(window, math.prod(image_size(config)))
    count = min(validation_images(config), max(1, most // max(seen, label)))
    looks = count
    if config.eval.protocol == "sliding":
        looks = count * min(window_count(config), max(1, most // (count * window)))
    # The images, their scores summed over windows, and the logits of the windows, maybe as probabilities.
    predicting = looks * (cost.memory.look + 4.0 * classes * window) + count * seen * (12.0 + 4.0 * classes)
    # The scores, enlarged where labels are larger; the highest and its class; both, as int64, in the confusion matrix.
    counting = count * (4.0 * classes * (seen + label * (label > seen)) + 36.0 * label)
    return max(predicting, counting)


def memory_problem(cost: Cost, config: RunConfig, workers: int, there: float) -> str:
    """Why a run cannot fit into GPUs of so many bytes, with what would behind an arrow; empty if it can."""
    least = needed(cost, config, workers).least
    if least <= there:
        return ""
    on = f"on each of {workers} GPUs" if workers > 1 else "on one GPU"
    run = f"{config.method.label}, {config.model.backbone}, {config.data.crop[0]}x{config.data.crop[1]}"
    return (
        f"{size_text(least)} of memory needed {on}, {size_text(there)} there ({run}) "
        f"-> {_remedy(cost, config, workers, there)}"
    )


def _remedy(cost: Cost, config: RunConfig, workers: int, there: float) -> str:
    """What of more workers, bf16 and both would fit; else larger GPUs."""
    more = [count for count in WORKERS if count >= workers and worker_problem(config, count) is None]
    found = []
    own = config.train.precision
    for precision, word in ((own, ""), *([("bf16", "train.precision=bf16")] if own != "bf16" else [])):
        fits = (count for count in more if needed(cost, config, count, precision).total <= there)
        if (count := next(fits, None)) is not None:
            parts = [*([f"--workers {count}"] if count != workers else []), *([word] if word else [])]
            found.append(" with ".join(parts))
    if found:
        return " or ".join(dict.fromkeys(found))
    return f"larger GPUs; data.groups = {config.data.groups or 1} allows at most {max(more, default=workers)} workers"


def parse_memory(text: str) -> float:
    """Read `24GB`, `32GiB` or `16000MB` as bytes.

    Raises:
        FplError: It is none of these, or 0.
    """
    match = re.fullmatch(rf"\s*([0-9]+(?:\.[0-9]+)?)\s*({'|'.join(UNITS)})\s*", text)
    if match is None or not float(match[1]):
        raise FplError(
            f"{text!r} is no amount of memory", where="--gpu-memory", hint="24GB, 32GiB, 16000MB or 16000MiB"
        )
    return float(match[1]) * UNITS[match[2]]
