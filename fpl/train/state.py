"""What a run is told, what it remembers and what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpl.config.defaults import DIAGNOSE_EVERY
from fpl.config.identity import digest
from fpl.config.schema import RunConfig
from fpl.models import WeightsReport
from fpl.train.evaluate import scores


@dataclass(frozen=True)
class LoopOptions:
    """How a run is carried out; none of it changes the trained weights.

    Attributes:
        weights_dir: Where pretrained files are looked for first.
        checkpoint_every: Steps between two resumable checkpoints.
        log_every: Steps between two rows of the history.
        diagnose_every: Steps between two diagnostics of the pixel loss, for which the labels of the unlabeled images of
            that step are read, and no others; 0 for none, and then no label of an unlabeled image is ever read.
        examples: Unlabeled and validation images of which pictures are kept.
        loader_workers: Processes that read and augment images; 0 reads in this one.
        threads: CPU threads of torch. On a CPU it decides the last bits of a result.
        on_metrics: Called by rank 0 with (step, metrics), for live displays such as TensorBoard; first of all with the
            step at which training begins or continues, and no metrics.
    """

    weights_dir: Path | None = None
    checkpoint_every: int = 500
    log_every: int = 10
    diagnose_every: int = DIAGNOSE_EVERY
    examples: int = 0
    loader_workers: int = 0
    threads: int = 1
    on_metrics: Callable[[int, dict[str, float]], None] = lambda step, metrics: None


@dataclass
class Outcome:
    """What a finished or stopped run leaves."""

    digest: str
    finished: bool
    step: int
    metrics: dict[str, float]
    history: list[dict[str, Any]]
    fuzziness: list[dict[str, Any]]
    examples: list[dict[str, Any]]
    confusion_last: NDArray[np.int64] | None
    confusion_best: NDArray[np.int64] | None
    weights: WeightsReport | None
    seconds: float
    loss_implementation: str | None = None


@dataclass
class Memory:
    """What the loop remembers besides weights, optimizers and random states; part of every checkpoint."""

    step: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    fuzziness: list[dict[str, Any]] = field(default_factory=list)
    examples: list[dict[str, Any]] = field(default_factory=list)
    best_miou: float = -1.0
    best_step: int = 0
    best_confusion: list[list[int]] | None = None
    last_confusion: list[list[int]] | None = None
    # Which implementations of the fuzzy positive loss have trained, one after the other; none without that loss.
    loss_implementations: list[str] = field(default_factory=list)


def outcome_of(config: RunConfig, memory: Memory, weights: WeightsReport | None) -> Outcome:
    """Sum up a run from what the loop remembers."""
    metrics: dict[str, float] = {"best_step": float(memory.best_step)}
    confusions: dict[str, NDArray[np.int64] | None] = {}
    for choice, counts in (("last", memory.last_confusion), ("best", memory.best_confusion)):
        confusions[choice] = None if counts is None else np.array(counts, dtype=np.int64)
        if (confusion := confusions[choice]) is not None:
            found = scores(confusion, config.eval.absent)
            metrics[f"miou_{config.eval.protocol}_{choice}"] = found.miou
            metrics[f"pixel_accuracy_{config.eval.protocol}_{choice}"] = found.pixel_accuracy
    return Outcome(
        digest=digest(config),
        finished=memory.step == config.train.steps,
        step=memory.step,
        metrics=metrics,
        history=memory.history,
        fuzziness=memory.fuzziness,
        examples=[{**row, "array": row["array"].numpy()} for row in memory.examples],
        confusion_last=confusions["last"],
        confusion_best=confusions["best"],
        weights=weights,
        seconds=memory.seconds,
        loss_implementation=", ".join(memory.loss_implementations) or None,
    )
