"""What a search itself takes between two trials: its next proposal, and its verdict on a report.

    python benchmarks/proposals.py [--trials 500 2000] [--rounds 9] [--csv FILE]

Invented trials of the search `joint` at scale mini, half of them complete, a few failed, the others stopped. Process
milliseconds of one thread, medians, so that other programs do not count. `first proposal` is that of a process that has
just begun, which turns every trial into Optuna's record of it; `next proposal` has all but the newest. A minute.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import optuna
from rounds import write_rows

from fpl.config.defaults import Sampler
from fpl.config.study import Study, load_studies
from fpl.store.rows import State
from fpl.store.trials import TrialRow
from fpl.sweep.plan.capacity import processor_name
from fpl.sweep.search.sampling import Proposals
from fpl.sweep.search.stopping import first_rung, is_hopeless
from fpl.text import table

STATES: list[State] = ["complete", "pruned", "failed"]
# A Gaussian process over two thousand trials is Optuna's own affair; a grid proposes nothing.
SAMPLERS = [name for name in get_args(Sampler) if name not in ("gp", "grid")]


def main() -> None:
    """Measure, print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    rows = [row for sampler in SAMPLERS for count in asked.trials for row in measured(sampler, count, asked.rounds)]
    print(f"{processor_name()}, optuna {optuna.__version__}\n{table(rows)}")
    if asked.csv:
        write_rows(asked.csv, rows)


def measured(sampler: str, count: int, rounds: int) -> list[dict[str, str]]:
    """A row for each thing that is timed, at so many trials."""
    (study,) = load_studies(Path("experiments"), "joint", "mini", sampler=sampler)
    known = invented(study, count)
    kept = Proposals(study)
    kept.propose(known, count)
    newest = replace(known[0], number=count, state="running", steps=[], values=[])
    newest.report(first_rung(study), 15.0)
    timed = {
        "first proposal": lambda number: Proposals(study).propose(known, number),
        "next proposal": lambda number: kept.propose([*known, newest], number),
        "verdict on a report": lambda number: is_hopeless(study, known, newest),
    }
    return [
        {"sampler": sampler, "trials": str(count), "what": what, "ms": f"{milliseconds(step, count, rounds):.1f}"}
        for what, step in timed.items()
    ]


def milliseconds(step: Callable[[int], object], count: int, rounds: int) -> float:
    """The median over the rounds, each for a trial of another number."""
    took = []
    for number in range(count + 1, count + 1 + rounds):
        began = time.process_time()
        step(number)
        took.append(1000 * (time.process_time() - began))
    return statistics.median(took)


def invented(study: Study, count: int) -> list[TrialRow]:
    """Trials with settings drawn at random and validations at every eighth of their steps."""
    draw, steps = random.Random(0), [study.steps * eighth // 8 for eighth in range(1, 9)]
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    asked = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    rows = []
    for number in range(count):
        row = TrialRow(study.identity, number, study.suggest(asked.ask()), study.head.sampler, [f"run-{number}"])
        row.state = draw.choices(STATES, [50, 45, 5])[0]
        for step in steps if row.state == "complete" else steps[:4]:
            row.report(step, draw.uniform(10, 20))
        row.run_scores = row.values[-1:] if row.state == "complete" else []
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
