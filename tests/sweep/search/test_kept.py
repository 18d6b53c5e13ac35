"""What is tried next: from a study that is kept, from one that is made anew, and from Optuna's own."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest

from fpl.config.search import Value
from fpl.config.study import Study
from fpl.store.as_optuna import as_optuna
from fpl.store.trials import TrialRow, read_trials
from fpl.sweep.job import JobResult
from fpl.sweep.search import kept
from fpl.sweep.search.budget import Budget
from fpl.sweep.search.sampling import ATTEMPTS, STARTUP_TRIALS, Proposals, make_sampler
from fpl.sweep.search.trials import Book
from tests.sweep.search_world import Jobs, tiny_study

METRIC = "miou_whole_best"


def by_optuna(
    study: Study, rows: Sequence[TrialRow], number: int, wanted: Mapping[str, Value] | None, attempt: int
) -> dict[str, Value]:
    """What Optuna proposes when it is told everything from the beginning, with the sampler as it comes."""
    sampler = make_sampler(study.head.sampler, study.seed, number, attempt)
    if study.head.sampler == "tpe" and attempt < ATTEMPTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            plain = optuna.samplers.TPESampler(
                n_startup_trials=STARTUP_TRIALS, multivariate=True, group=True, constant_liar=True
            )
        # Both draw from generators that are seeded alike.
        plain._rng, plain._random_sampler = sampler._rng, sampler._random_sampler  # type: ignore[attr-defined]
        sampler = plain
    told = as_optuna(study.search.space, sorted(rows, key=lambda row: row.number), study.head.objectives)
    told.sampler = sampler
    if wanted is not None:
        told.enqueue_trial(dict(wanted))
    return study.suggest(told.ask())


class Compared(Proposals):
    """Compares each proposal with Optuna's, and now and then with that of a process that begins with the store."""

    def __init__(self, study: Study, out: Path) -> None:
        super().__init__(study)
        self.out, self.asked, self.attempts = out, 0, 0

    def propose(
        self, rows: Sequence[TrialRow], number: int, wanted: Mapping[str, Value] | None = None, attempt: int = 0
    ) -> dict[str, Value]:
        self.asked += 1
        self.attempts += attempt > 0
        found = super().propose(rows, number, wanted, attempt)
        assert found == by_optuna(self.study, rows, number, wanted, attempt)
        if self.asked % 10 == 0:
            stored = {row.number: row for row in read_trials(self.out, self.study.identity)}
            rebuilt = [stored[row.number] for row in rows]
            assert found == Proposals(self.study).propose(rebuilt, number, wanted, attempt)
        return found


@pytest.mark.parametrize(
    ("sampler", "objectives", "trials"),
    [("tpe", ("miou",), 30), ("tpe", ("miou", "cost"), 18), ("gp", ("miou",), 12), ("random", ("miou",), 12)],
)
def test_a_kept_study_proposes_what_a_rebuilt_one_and_optuna_do(
    tmp_path: Path, sampler: str, objectives: tuple[str, ...], trials: int
) -> None:
    study = tiny_study(tmp_path, sampler=sampler, objectives=objectives)
    book = Book(study, tmp_path, Budget("trials", trials, "trials"), Jobs(study, tmp_path), devices=1, trial_hours=1)
    book._proposals = compared = Compared(study, tmp_path)
    draw = random.Random(0)
    # Up to four at once, which end in any order: complete, stopped after a report, or failed.
    while len(book.rows) < trials or book.running:
        proposal = book.next() if len(book.running) < 4 and len(book.rows) < trials else None
        if proposal is not None:
            continue
        number = draw.choice(list(book.running))
        (run_id,) = book.running[number].row.run_ids
        book.started(run_id)
        score = draw.uniform(10, 20)
        book.report(run_id, 2, {"miou": score - 1})
        if (end := draw.choice(["complete", "complete", "pruned", "failed"])) == "pruned":
            book.prune(number)
        elif end == "failed":
            book.run_ended(JobResult(run_id, "failed", "it does"))
        else:
            book.run_ended(JobResult(run_id, "done", metrics={METRIC: score, "train_seconds": 3600 * score}))
        book.end(number)
    assert {row.state for row in book.rows} == {"complete", "pruned", "failed"}
    assert len({str(row.params) for row in book.rows}) == trials
    assert compared.asked == trials + compared.attempts
    # Of fixed K there are but four settings: what proposes another is asked again.
    assert compared.attempts > 0


def test_what_has_not_changed_is_not_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = tiny_study(tmp_path, sampler="tpe")
    rows = [
        TrialRow(study.identity, number, {"loss.strategy": "fixed", "loss.fixed_k": 1}, "tpe", [])
        for number in range(30)
    ]
    for row in rows[:-1]:
        row.report(4, 20.0)
        row.state, row.run_scores = "complete", [20.0]
    told: list[int] = []
    frozen = kept.frozen

    def counted(row: TrialRow, *more: Any) -> Any:
        told.append(row.number)
        return frozen(row, *more)

    monkeypatch.setattr(kept, "frozen", counted)
    proposals = Proposals(study)
    proposals.propose(rows, 30)
    assert told == list(range(30))
    rows[-1].state = "failed"
    rows.append(TrialRow(study.identity, 30, {"loss.strategy": "n-1", "loss.threshold": 0.9}, "tpe", []))
    # A twin of one that is known is no news.
    proposals.propose([*rows, rows[3]], 31, attempt=1)
    assert told[30:] == [29, 30]
