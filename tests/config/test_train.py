"""Options of the training step, and the identities of runs that do without them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from fpl.config.compose import load_config
from fpl.config.identity import canonical, digest
from fpl.config.schema import RunConfig

RESULTS = Path(__file__).parents[2] / "results" / "mini" / "runs"


def test_runs_of_before_keep_their_identity() -> None:
    stored = pd.read_parquet(RESULTS, columns=["digest", "config"])
    assert len(stored)
    for known, text in zip(stored["digest"], stored["config"], strict=True):
        tree = json.loads(text)
        config = RunConfig.model_validate({key: value for key, value in tree.items() if key != "arithmetic"})
        assert digest(config) == known


@pytest.mark.parametrize("key", ["concatenate", "compile"])
def test_option_is_written_where_it_is_on(run_file: Path, key: str) -> None:
    off, on = load_config(run_file), load_config(run_file, overrides=[f"train.{key}=true"])
    assert key not in canonical(off) and f'"{key}":true' in canonical(on)
    assert digest(load_config(run_file, overrides=[f"train.{key}=false"])) == digest(off) != digest(on)
    assert RunConfig.model_validate_json(on.model_dump_json()) == on


@pytest.mark.parametrize("method", [["method.name=supervised"], ["method.cutmix=false"], ["method.name=ael"]])
def test_only_cps_with_cutmix_concatenates(run_file: Path, method: list[str]) -> None:
    if method == ["method.name=ael"]:
        method = [*method, "data.groups=2"]
    config = load_config(run_file, overrides=[*method, "train.concatenate=true"])
    assert config == load_config(run_file, overrides=method)
