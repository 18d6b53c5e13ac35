"""A small search on the tiny drawn data set: experiments folder, study, jobs that nobody carries out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fpl.config.schema import RunConfig
from fpl.config.search import Value
from fpl.config.study import Study, load_studies
from fpl.sweep.execution import Execution
from fpl.sweep.job import Job
from fpl.sweep.places import Places
from tests.conftest import RUN

TABLE = """
[table]
recipe = "cps"
name = "small"
number = "1"
caption = "Two settings."
dataset = "synthetic_city"
[[columns]]
key = "quarter"
header = "1/4"
[[rows]]
key = "t08"
label = "0.8"
role = "ablation"
threshold = 0.8
values = [60.0]
[[rows]]
key = "t09"
label = "0.9"
role = "proposed"
threshold = 0.9
values = [61.0]
"""
SCALE = """
[scale]
name = "little"
comparable = false
[launch]
launcher = "inline"
checkpoint_every = 2
[train]
steps = {steps}
evaluate_every = 2
"""
SEARCH = """
[search]
name = "tiny"
caption = "T and the rule for K."
on = ["small.t09.quarter"]
points = ["small.*.*"]
trials = 6
{head}
[[space]]
key = "loss.strategy"
choices = ["n-1", "fixed"]
[[space]]
key = "loss.threshold"
low = 0.5
high = 0.99
when = {{ loss.strategy = "n-1" }}
[[space]]
key = "loss.fixed_k"
low = 1
high = 4
when = {{ loss.strategy = "fixed" }}
{more}
"""


def write_experiments(folder: Path, *, steps: int = 4, head: str = "", more: str = "") -> Path:
    """`experiments/` with one table, one scale and the search `tiny`."""
    for name, text in (
        ("base/synthetic_city_cps.toml", RUN),
        ("tables/small.toml", TABLE),
        ("scale/little.toml", SCALE.format(steps=steps)),
        ("search/tiny.toml", SEARCH.format(head=head, more=more)),
    ):
        path = folder / "experiments" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "experiments"


def tiny_study(folder: Path, **changes: object) -> Study:
    (study,) = load_studies(write_experiments(folder), "tiny", "little", **changes)  # type: ignore[arg-type]
    return study


class Jobs:
    """Makes jobs of a study without looking at data: their pins are invented."""

    def __init__(self, study: Study, out: Path) -> None:
        self.study, self.places = study, Places(out, out, out)

    def __call__(self, params: Mapping[str, Value]) -> list[Job]:
        return [self._job(config) for config in self.study.configs(params)]

    def _job(self, config: RunConfig) -> Job:
        tree = config.model_dump(mode="json")
        tree["data"]["split"] |= {"labeled": "0" * 16, "unlabeled": "1" * 16}
        pinned = RunConfig.model_validate(tree)
        return Job.of(pinned, self.places, Execution())
