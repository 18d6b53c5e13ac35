"""What a run is told, what it remembers and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpl.config.identity import digest
from fpl.config.schema import RunConfig
from fpl.models import WeightsReport
from fpl.train.evaluate import scores


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
    history: list[dict[str, float]] = field(default_factory=list)
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
