"""The golden steps are those of ARITHMETIC: who changes what is computed raises it, and old results answer no more."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fpl.config.compose import load_config
from fpl.config.identity import ARITHMETIC
from fpl.sweep.places import Places
from tests.train.arithmetic import CASES, GOLDEN, TOLERANCE, evaluated, pretrained, trained

WHAT_TO_DO = (
    "the arithmetic has changed: raise ARITHMETIC in fpl/config/identity.py, write the golden steps anew with "
    "`python -m tests.train.arithmetic`, and the results with `make evidence`"
)


def golden() -> dict:
    return json.loads(GOLDEN.read_text())


def test_the_golden_steps_are_of_this_arithmetic() -> None:
    assert golden()["arithmetic"] == ARITHMETIC, "write them anew: python -m tests.train.arithmetic"
    assert set(golden()["steps"]) == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_golden_steps(case: str, run_file: Path, places: Places) -> None:
    expected = golden()["steps"][case]
    found = trained(run_file, places, CASES[case])
    assert found == pytest.approx(expected, rel=TOLERANCE), WHAT_TO_DO


def test_golden_evaluation(run_file: Path) -> None:
    assert evaluated(load_config(run_file)) == golden()["evaluation"], WHAT_TO_DO


def test_golden_pretraining(tmp_path: Path) -> None:
    assert pretrained(tmp_path) == pytest.approx(golden()["pretrained"], rel=TOLERANCE), WHAT_TO_DO


@pytest.mark.parametrize("change", ["optim.momentum=0.95", "loss.curvature=45", "method.ramp=0.1", "data.flip=false"])
def test_a_change_of_meaning_is_larger_than_the_tolerance(change: str, run_file: Path, places: Places) -> None:
    found = trained(run_file, dataclasses.replace(places, out=places.out), [change])
    assert found != pytest.approx(golden()["steps"]["fpl cps cutmix"], rel=TOLERANCE)
