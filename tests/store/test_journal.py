"""Searches as Optuna has them: in memory, and as a journal that it opens."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import fpl
from fpl.errors import FplError
from fpl.store.journal import check_journal, write_journal
from tests.report.world_search import EIGHTH, QUARTER, trial, write_world


def opened(path: Path, name: str) -> optuna.Study:
    return optuna.load_study(study_name=name, storage=JournalStorage(JournalFileBackend(str(path))))


def said(study: optuna.Study) -> list[dict[str, Any]]:
    """All that trials say, but for the number that a storage gives them among all of its trials."""
    return [{key: value for key, value in vars(each).items() if key != "_trial_id"} for each in study.trials]


def test_a_study_has_all_that_its_trials_say(tmp_path: Path) -> None:
    study = fpl.load_results(write_world(tmp_path)).study(EIGHTH)
    states = [each.state.name for each in study.trials]
    assert states == [*["COMPLETE"] * 5, "PRUNED", "FAIL", "COMPLETE", "RUNNING"]
    assert (study.best_trial.number, study.best_value) == (4, 42.5)
    assert study.trials[2].params == {"loss.strategy": "ratio", "loss.threshold": 0.7, "loss.ratio": 0.5}
    assert study.trials[5].intermediate_values == {20: 30.0} and study.trials[5].value == 30.0
    assert study.trials[6].user_attrs == {
        "number": 6,
        "origin": "tpe",
        "run_ids": [f"{EIGHTH}-run-6-0"],
        "reason": "the loss is no <number>",
    }
    # In UTC; a trial's last row is its end.
    assert study.trials[4].datetime_start == datetime.datetime(2026, 1, 1, 0, 4)
    assert study.trials[8].datetime_complete is None
    with pytest.raises(FplError) as caught:
        fpl.load_results(tmp_path).study("nothing")
    assert EIGHTH in caught.value.hint and QUARTER in caught.value.hint


def test_a_journal_opens_with_equal_trials_and_is_replaced(tmp_path: Path) -> None:
    out, path = write_world(tmp_path / "store"), tmp_path / "exported" / "journal.log"
    results = fpl.load_results(out)
    write_journal(path, {name: results.study(name) for name in (EIGHTH, QUARTER)})
    for name in (EIGHTH, QUARTER):
        assert said(opened(path, name)) == said(results.study(name))
        assert opened(path, name).directions == results.study(name).directions
    trial(out, 3, {"loss.strategy": "fixed", "loss.fixed_k": 3}, 53.0, name=QUARTER)
    write_journal(path, {QUARTER: fpl.load_results(out).study(QUARTER)})
    assert [each.user_attrs["number"] for each in opened(path, QUARTER).trials] == [0, 1, 2, 3]
    with pytest.raises(KeyError):
        opened(path, EIGHTH)


@pytest.mark.parametrize("content", ["notes\n", '{"a": 1}\n', "[1, 2]\n", "\x00\xff"])
def test_what_is_no_journal_stays(tmp_path: Path, content: str) -> None:
    path = tmp_path / "journal.log"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(FplError, match="it is no journal of Optuna") as caught:
        write_journal(path, {})
    assert str(path) in caught.value.where and path.read_text(encoding="latin-1") == content
    with pytest.raises(FplError, match="irectory"):
        check_journal(tmp_path)


def test_a_pipe_is_no_journal_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FplError, match="is a pipe"):
        check_journal(tmp_path / "pipe")


def test_a_journal_with_trials_of_others_stays(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs.log", tmp_path / "ours.log"
    optuna.create_study(study_name="theirs", storage=JournalStorage(JournalFileBackend(str(theirs))))
    write_journal(ours, {EIGHTH: fpl.load_results(write_world(tmp_path / "store")).study(EIGHTH)})
    check_journal(ours)
    opened(ours, EIGHTH).ask()
    for path, name in ((theirs, "theirs"), (ours, EIGHTH)):
        before = path.read_bytes()
        with pytest.raises(FplError, match=f"its study {name} has trials of others"):
            write_journal(path, {})
        assert path.read_bytes() == before
