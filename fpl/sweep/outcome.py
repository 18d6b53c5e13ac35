"""A finished run as rows of the store, with where and by what it was made."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import fpl
from fpl.config.identity import canonical
from fpl.data.validation import validated_on
from fpl.errors import FplError
from fpl.store.write import write_run
from fpl.sweep.plan.capacity import instruction_sets, processor_name
from fpl.sweep.prepare import Prepared
from fpl.text import timestamp
from fpl.train.evaluate import constant_miou, scores
from fpl.train.options import LoopOptions
from fpl.train.runtime import Workers, uses_tf32
from fpl.train.state import Outcome


def write_outcome(
    out: Path, prepared: Prepared, outcome: Outcome, workers: Workers, device: torch.device, options: LoopOptions
) -> None:
    """Turn a finished run into its rows.

    Raises:
        FplError: The worker trained another configuration than the one it was given.
    """
    config = prepared.config
    if not prepared.run_id.endswith(outcome.digest[:8]):
        raise FplError(f"asked for {prepared.run_id}, trained digest {outcome.digest}", where="run")
    assert outcome.confusion_last is not None and outcome.confusion_best is not None
    constant_class, constant = constant_miou(outcome.confusion_last, config.eval.absent)
    names = prepared.spec.class_names
    _, validated = validated_on(prepared.split, prepared.spec, prepared.root, config.eval.subsample)
    row: dict[str, Any] = {
        "run_id": prepared.run_id,
        "digest": outcome.digest,
        "config": canonical(config),
        **outcome.metrics,
        "best_step": int(outcome.metrics["best_step"]),
        "constant_class": names[constant_class],
        "constant_miou": constant,
        "labeled_images": len(prepared.split.labeled),
        "unlabeled_images": len(prepared.split.unlabeled),
        "validation_images": len(validated),
        "pixels_counted": int(outcome.confusion_last.sum()),
        "train_seconds": outcome.seconds,
        "warnings": list(prepared.warnings),
        "weights_source": Path(outcome.weights.source).name if outcome.weights else None,
        "weights_sha256": outcome.weights.sha256 if outcome.weights else None,
        "workers": workers.world_size,
        "threads": options.threads,
        "loss_implementation": outcome.loss_implementation,
        "tf32": "on" if uses_tf32(device) else "off",
        **provenance(device),
    }
    classes = [
        *class_rows("last", outcome.confusion_last, names, config.eval.absent),
        *class_rows("best", outcome.confusion_best, names, config.eval.absent),
    ]
    write_run(out, row, outcome.history, classes, outcome.fuzziness, outcome.examples)


def class_rows(choice: str, confusion: NDArray[np.int64], names: Sequence[str], absent: str) -> list[dict[str, Any]]:
    """Rows of the `classes` table from a confusion matrix."""
    iou = scores(confusion, absent).iou
    return [
        {
            "choice": choice,
            "class_index": index,
            "class_name": name,
            "iou": iou[index],
            "label_pixels": int(confusion[index].sum()),
            "predicted_pixels": int(confusion[:, index].sum()),
            "right_pixels": int(confusion[index, index]),
        }
        for index, name in enumerate(names)
    ]


def provenance(device: torch.device) -> dict[str, str | None]:
    """Versions and hardware, for the footnotes of tables."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()
    return {
        "finished_at": timestamp(),
        "device": name,
        "instructions": instruction_sets(),
        "fpl_version": fpl.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if device.type == "cuda" else None,
    }


def _commit() -> str | None:
    """Commit of the checkout this package runs from, `+` when files differ from it; None outside a checkout."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "-C", str(here), "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed else "")
