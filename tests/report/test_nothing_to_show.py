"""Searches, tables and pages with next to nothing in the store: what there is, and no traceback."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest

from fpl.report.search.search_page import PER_STUDY, search_extra, write_search_pages
from fpl.report.search.studies import read_search
from fpl.report.search.words import search_summary_lines
from fpl.store.read import Results
from tests.report.world_search import CELL, T_ONLY, study, trial

STOPPED: dict[str, Any] = {"state": "pruned", "step": 10, "steps": [10], "values": [20.0]}
Trials = list[tuple[dict[str, Any], tuple[float, ...], dict[str, Any]]]


def setting(value: float) -> dict[str, Any]:
    return {"loss.threshold": value}


SCENES: dict[str, tuple[Trials, str]] = {
    "none": ([], "no trials yet"),
    "one": ([(setting(0.8), (40.0,), {})], "1 trial: 1 complete"),
    "one of the paper": ([(setting(0.9), (40.0,), {"origin": CELL})], "nothing found is better"),
    "all failed": ([(setting(0.8 + n / 100), (), {"state": "failed", "reason": "lost"}) for n in range(3)], "3 failed"),
    "all stopped": ([(setting(0.8 + n / 100), (), STOPPED) for n in range(3)], "3 stopped early"),
    "stopped at no number": ([(setting(0.8), (), {**STOPPED, "values": [math.nan]})], "1 stopped early"),
    "stopped before a report": ([(setting(0.8), (), {"state": "pruned"})], "1 stopped early"),
    "unfinished": ([(setting(0.8), (), {"step": 5})], "1 unfinished"),
    "equal settings": ([(setting(0.8), (40.0,), {}) for _ in range(3)], "3 complete"),
    "equal scores": ([(setting(0.8 + n / 100), (40.0,), {}) for n in range(3)], "3 complete"),
    "final alone": ([(setting(0.8), (40.0,), {"state": "final"})], "no trials yet"),
}


def rows_of(trials: Trials, objectives: list[str]) -> dict[str, int]:
    """Of each frame of a study; all complete trials cost the same."""
    states = [changes.get("state", "complete" if scores else "running") for _, scores, changes in trials]
    last = [changes["values"][-1] for _, _, changes in trials if changes.get("values")]
    complete = states.count("complete")
    return {
        "best": complete,
        "pareto": min(complete, 1) if "cost" in objectives else 0,
        "importances": len(objectives) if complete > 1 else 0,
        "history": len(trials) - states.count("final"),
        "early_stopping": 1,
        "slice": complete + sum(not math.isnan(value) for value in last),
        "contour": 0,
        "parallel": complete,
        "failures": states.count("failed"),
    }


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("objectives", [["miou"], ["miou", "cost"]])
def test_a_search(tmp_path: Path, name: str, objectives: list[str]) -> None:
    trials, expected = SCENES[name]
    study(tmp_path, space=T_ONLY, objectives=objectives)
    for number, (params, scores, changes) in enumerate(trials):
        trial(tmp_path, number, params, *scores, **changes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = Results(tmp_path)
        assert results.warnings() == []
        (view,) = read_search(results, "demo").studies
        assert {kind: len(make(view)) for kind, make in PER_STUDY.items()} == rows_of(trials, objectives)
        text = " ".join(search_summary_lines(results, "demo"))
        (page,) = write_search_pages(tmp_path)
        search_extra(results)
    assert expected in " ".join(text.split()) and page.is_file()


def test_a_trial_whose_score_is_no_number_is_named_and_the_others_shown(tmp_path: Path) -> None:
    study(tmp_path, space=T_ONLY)
    trial(tmp_path, 0, setting(0.8), 40.0)
    trial(tmp_path, 1, setting(0.9), math.nan)
    results = Results(tmp_path)
    assert "1 trial: 1 complete" in " ".join(search_summary_lines(results, "demo"))
    (told,) = results.warnings()
    assert "00001.parquet" in told and "no number" in told


def test_an_empty_store_has_empty_frames(tmp_path: Path) -> None:
    results = Results(tmp_path)
    frames = ("runs", "history", "classes", "fuzziness", "examples", "failures", "noise", "studies", "trials")
    for name in frames:
        assert len(getattr(results, name)) == 0
    assert (
        results.warnings() == [] and results.left_out == [] and results.searches == [] and search_extra(results) == []
    )
