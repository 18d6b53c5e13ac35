"""Numbers of the systems in docs/ are those of results/camvid_tables and results/benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

import fpl
from fpl.config.compose import load_config
from fpl.config.identity import recipe_digest

ROOT = Path(__file__).parents[2]
# Label, recipe, best and last mIoU.
CAMVID = re.findall(
    r"^\| (.+?) \| `(camvid_\w+)` \| ([\d.]+) \| ([\d.]+) \|$", (ROOT / "docs" / "camvid.md").read_text(), re.MULTILINE
)
# Method, seconds, ratio, its range, memory, ratio.
COSTS = re.findall(
    r"^\| (.+?) \| ([\d.]+) s \| ([\d.]+) \(([\d.]+) to ([\d.]+)\) \| (\d+) MiB \| ([\d.]+) \|$",
    (ROOT / "docs" / "systems.md").read_text(),
    re.MULTILINE,
)


def test_the_tables_are_whole() -> None:
    recipes = {path.stem for path in (ROOT / "experiments" / "base").glob("camvid_*.toml")}
    # UniMatch and FixMatch are in none of the paper's tables.
    ran = {name for name in recipes if not name.endswith("match")}
    assert {recipe for _, recipe, *_ in CAMVID} == ran
    frame = pd.read_csv(ROOT / "results" / "benchmarks" / "methods.csv")
    assert [name for name, *_ in COSTS] == list(frame["method"])


@pytest.mark.parametrize("row", CAMVID, ids=lambda row: row[1])
def test_mious_on_camvid_are_those_of_the_committed_runs(row: tuple[str, str, str, str]) -> None:
    _, recipe, best, last = row
    config = load_config(ROOT / "experiments" / "base" / f"{recipe}.toml")
    runs = fpl.load_results(ROOT / "results" / "camvid_tables").runs
    found = runs[runs["recipe"] == recipe_digest(config.model_dump(mode="json"))]
    assert len(found) == 1
    assert (best, last) == tuple(f"{found.iloc[0][f'miou_whole_{which}']:.2f}" for which in ("best", "last"))


@pytest.mark.parametrize("row", COSTS, ids=lambda row: row[0])
def test_costs_are_those_of_the_benchmark(row: tuple[str, ...]) -> None:
    frame = pd.read_csv(ROOT / "results" / "benchmarks" / "methods.csv", dtype=str).set_index("method")
    name, seconds, ratio, lowest, highest, memory, memory_ratio = row
    found = frame.loc[name]
    assert (ratio, lowest, highest) == (found["to_cps"], found["lowest"], found["highest"])
    assert (memory, memory_ratio) == (found["mib"], found["memory_to_cps"])
    assert float(seconds) == pytest.approx(float(found["seconds"]), abs=0.051)
