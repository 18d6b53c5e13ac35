"""Random search against TPE at an equal budget: the joint search at scale mini, several seeds of each sampler.

The best score of a search is the largest of many noisy numbers. So each winner is trained again with seeds that the
search has not seen, beside the paper's setting (T = 0.9, n-1, concave), and the means are what is to be compared.

    python benchmarks/search.py [--trials 24] [--sampler-seeds 3] [--fresh-seeds 3] [--out runs/benchmark_search]
                                [--csv results/benchmarks/search.csv]

Twelve minutes on two idle cores; the same command continues after a kill.
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path
from typing import Any

import pandas as pd

from fpl.config.campaign import scale_file
from fpl.config.identity import recipe_digest, run_id
from fpl.config.schema import RunConfig
from fpl.config.study import Study, load_studies
from fpl.files import write_atomic
from fpl.store.read import Results
from fpl.sweep.execution import Execution
from fpl.sweep.inputs import make_inputs
from fpl.sweep.places import Places
from fpl.sweep.plan.capacity import capacity
from fpl.sweep.plan.search_plan import plan_search
from fpl.sweep.plan.wanted import Wanted
from fpl.sweep.prepare import pin
from fpl.sweep.reproduce import carry_out
from fpl.sweep.search.budget import Budget
from fpl.sweep.search.carry_out import run_search
from fpl.sweep.search.study_view import setting_words

EXPERIMENTS, SCALE, SEARCH = Path("experiments"), "mini", "joint"
SAMPLERS = ("random", "tpe")
PAPER = {"loss.strategy": "n-1", "loss.threshold": 0.9, "loss.weight": "concave", "loss.curvature": 50.0}


def main() -> None:
    """Search, train the winners again, print and write the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--sampler-seeds", type=int, default=3)
    parser.add_argument("--fresh-seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark_search"))
    parser.add_argument("--csv", type=Path, default=Path("results/benchmarks/search.csv"))
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    data = Path("data").resolve()
    places = Places(asked.out.resolve(), data, Path("experiments/splits").resolve(), data / "weights")
    execution = Execution.of_scale(scale_file(EXPERIMENTS, SCALE).launch)
    rows = []
    for seed in range(asked.sampler_seeds):
        for sampler in SAMPLERS:
            rows.append(search(sampler, seed, asked.trials, places, execution))
    study = joint("tpe", 0)
    paper = {"sampler": "none: the paper's setting", "params": PAPER}
    for row in (*rows, paper):
        row |= fresh(study, row["params"], asked.fresh_seeds, places, execution)
    frame = pd.DataFrame([*rows, paper]).assign(setting=lambda f: f.pop("params").map(setting_words)).convert_dtypes()
    write_atomic(asked.csv, frame.to_csv(index=False, float_format="%.4f").encode())
    print(frame.to_string(index=False, float_format=lambda value: f"{value:.2f}"))
    means = frame.groupby("sampler")[["best", "fresh_mean", "steps", "stopped"]].agg(["mean", "std"])
    print(means.to_string(float_format=lambda value: f"{value:.2f}"))


def joint(sampler: str, seed: int) -> Study:
    """The study of one sampler and seed."""
    (study,) = load_studies(EXPERIMENTS, SEARCH, SCALE, sampler=sampler, seed=seed)
    return study


def search(sampler: str, seed: int, trials: int, places: Places, execution: Execution) -> dict[str, Any]:
    """One search: its best trial, and what it spent."""
    study = joint(sampler, seed)
    make_inputs([study.base], places, print)
    plan = plan_search([study], places, capacity(), execution, Budget("trials", trials, "trials"))
    print(f"\n{sampler}, seed {seed}")
    (book,) = run_search(plan.studies, places, execution)
    best = book.best
    assert best is not None
    return {
        "sampler": sampler,
        "seed": seed,
        "trials": len(book.rows),
        "stopped": sum(row.state == "pruned" for row in book.rows),
        # Of training: what a search costs, whatever else the machine does.
        "steps": sum(row.step for row in book.rows),
        "best": best.score,
        "found_at": best.number,
        "params": best.params,
    }


def fresh(
    study: Study, params: dict[str, Any], seeds: int, places: Places, execution: Execution
) -> dict[str, float | None]:
    """Mean and spread of a setting over seeds that no search has seen."""
    configs = [study.config(params, seed) for seed in range(1, seeds + 1)]
    wanted = [Wanted(recipe_digest(config.model_dump(mode="json")), config) for config in configs]
    carry_out(wanted, places, execution, estimate=lambda run: 8.0)
    scores = [_score(study, config, places) for config in configs]
    return {"fresh_mean": statistics.fmean(scores), "fresh_std": statistics.stdev(scores) if seeds > 1 else None}


def _score(study: Study, config: RunConfig, places: Places) -> float:
    pinned, *_ = pin(config, places)
    runs = Results(places.out).runs.set_index("run_id")
    return float(runs[study.metric][run_id(pinned)])


if __name__ == "__main__":
    main()
