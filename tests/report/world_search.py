"""A small store of two studies of one search, whose numbers are small enough to reckon with by hand.

Study `demo-aaaa0001` (1/8, 40 labeled images) has trials 0 to 8, study `demo-bbbb0002` (1/4, 80) trials 0 to 2. A whole
trial has one run of 100 steps in both.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from fpl.config.search import Parameter
from fpl.store.trials import TrialRow, write_study, write_trial

EIGHTH, QUARTER = "demo-aaaa0001", "demo-bbbb0002"
SPACE = [
    Parameter(key="loss.strategy", choices=["n-1", "ratio", "fixed"]),
    Parameter(key="loss.threshold", low=0.5, high=0.99, when={"loss.strategy": ["n-1", "ratio"]}),
    Parameter(key="loss.ratio", low=0.1, high=0.9, when={"loss.strategy": ["ratio"]}),
    Parameter(key="loss.fixed_k", low=1, high=4, when={"loss.strategy": ["fixed"]}),
]
T_ONLY = [Parameter(key="loss.threshold", low=0.5, high=0.99)]
CELL = "table5.t090.c1_8"


def study(out: Path, name: str = EIGHTH, **changes: Any) -> None:
    """Write a study; `fraction` and `space` are put where they belong."""
    fraction = changes.pop("fraction", "1/8")
    space = changes.pop("space", SPACE)
    base = {
        "data": {"dataset": "synthetic_city", "contents": fraction, "split": {"fraction": fraction}},
        "model": {"backbone": "tiny", "tiny_depth": changes.pop("depth", 1)},
        "method": {"name": "cps", "cutmix": changes.pop("cutmix", False)},
    }
    row = {
        "study": name,
        "search": "demo",
        "caption": "What <is> worth searching?",
        "cell": CELL,
        "scale": "mini",
        "base": json.dumps(base),
        "space": json.dumps([parameter.model_dump(mode="json") for parameter in space]),
        "labeled_images": 40,
        "seeds": 1,
        "splits": 1,
        "steps": 100,
        "metric": "miou_whole_best",
        "objectives": ["miou"],
        "protocol": "val",
        "holdout": 4,
        "sampler": "tpe",
        "sampler_seed": 0,
        "stop": "asha",
        "budget": "9trials",
        "device_unit": "core",
        "device": "cpu",
        "wall_seconds": 60.0,
        "fpl_version": "0.1.0",
    }
    write_study(out, {**row, **changes})


def trial(out: Path, number: int, params: dict[str, Any], *scores: float, name: str = EIGHTH, **changes: Any) -> None:
    """Write a trial: complete if it has scores, one a run, each of 100 steps."""
    row = TrialRow(name, number, params, "tpe", [f"{name}-run-{number}-{run}" for run in range(max(1, len(scores)))])
    if scores:
        row.state, row.run_scores = "complete", list(scores)
        row.step, row.steps, row.values = 100 * len(scores), [100 * len(scores)], [sum(scores) / len(scores)]
        row.device_hours = row.cost = 0.5 * len(scores)
    row.started_at = f"2026-01-01T00:{number:02d}:00+00:00"
    for key, value in changes.items():
        setattr(row, key, value)
    write_trial(out, row)


def write_world(out: Path) -> Path:
    """Both studies."""
    study(out)
    trial(out, 0, {"loss.strategy": "n-1", "loss.threshold": 0.9}, 40.0, origin=CELL)
    trial(out, 1, {"loss.strategy": "n-1", "loss.threshold": 0.85}, 41.0, origin="table5.t085.c1_8")
    trial(out, 2, {"loss.strategy": "ratio", "loss.threshold": 0.7, "loss.ratio": 0.5}, 38.0)
    trial(out, 3, {"loss.strategy": "fixed", "loss.fixed_k": 2}, 39.5)
    trial(out, 4, {"loss.strategy": "n-1", "loss.threshold": 0.8}, 42.5)
    stopped: dict[str, Any] = {"state": "pruned", "step": 20, "steps": [10, 20], "values": [math.nan, 30.0]}
    trial(out, 5, {"loss.strategy": "fixed", "loss.fixed_k": 4}, **stopped, device_hours=0.1)
    failed = {"state": "failed", "step": 50, "reason": "the loss is no <number>", "device_hours": 0.25}
    trial(out, 6, {"loss.strategy": "ratio", "loss.threshold": 0.99, "loss.ratio": 0.9}, **failed)
    trial(out, 7, {"loss.strategy": "n-1", "loss.threshold": 0.95}, 39.0)
    trial(out, 8, {"loss.strategy": "n-1", "loss.threshold": 0.6}, step=30, steps=[30], values=[33.0])
    study(out, QUARTER, fraction="1/4", labeled_images=80, cell="table5.t090.c1_4")
    trial(out, 0, {"loss.strategy": "n-1", "loss.threshold": 0.9}, 50.0, name=QUARTER, origin="table5.t090.c1_4")
    trial(out, 1, {"loss.strategy": "n-1", "loss.threshold": 0.7}, 51.0, name=QUARTER)
    trial(out, 2, {"loss.strategy": "fixed", "loss.fixed_k": 1}, 52.0, name=QUARTER)
    return out
