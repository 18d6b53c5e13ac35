"""A search put into runs: identities, configurations, points, and what is refused before it starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fpl.config.identity import recipe_digest
from fpl.config.layers import flatten
from fpl.config.schema import RunConfig
from fpl.config.study import Study, load_studies
from fpl.errors import FplError
from tests.conftest import RUN

TABLE = """
[about]
order = 1
[table]
recipe = "cps"
name = "wide"
number = "Table 1"
caption = "T in two splits."
dataset = "synthetic_city"
[[columns]]
key = "a"
header = "1/4"
[[columns]]
key = "b"
header = "1/2"
set.data.split = { fraction = "1/2" }
[[columns]]
key = "same"
header = "1/4 again"
[[rows]]
key = "t07"
label = "0.7"
role = "ablation"
threshold = 0.7
values = [50.0, 51.0, 50.0]
[[rows]]
key = "t09"
label = "0.9"
role = "ablation"
threshold = 0.9
values = [52.0, "-", 50.0]
[[rows]]
key = "linear"
label = "linear"
role = "ablation"
set.loss.weight = "linear"
threshold = 0.8
values = [53.0, 54.0, 53.0]
[[rows]]
key = "cited"
label = "Somebody's"
role = "cited"
values = [1.0, 2.0, 3.0]
"""
SEARCH = """
[search]
name = "small"
caption = "Which T?"
on = ["wide.t09.a"]
points = ["wide.t*.*"]
[[space]]
key = "loss.threshold"
low = 0.5
high = 0.99
"""
FIXED = """
[[space]]
key = "loss.strategy"
choices = ["n-1", "fixed"]
[[space]]
key = "loss.fixed_k"
low = 1
high = 4
when = { loss.strategy = "fixed" }
"""
WEIGHT = """
[[space]]
key = "loss.weight"
choices = ["concave", "linear"]
"""

Make = Callable[..., list[Study]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Studies of a search file's text, with what the command line changes."""
    for name, text in (
        ("base/synthetic_city_cps.toml", RUN),
        ("tables/wide.toml", TABLE),
        ("scale/test.toml", '[scale]\nname = "test"'),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def made(text: str = SEARCH, **changes: Any) -> list[Study]:
        file = tmp_path / "small.toml"
        file.write_text(text)
        return load_studies(tmp_path, str(file), "test", **changes)

    return made


@pytest.fixture
def study(make: Make) -> Study:
    (found,) = make()
    return found


def recipe(config: RunConfig) -> str:
    return recipe_digest(config.model_dump(mode="json"))


def differences(one: RunConfig, other: RunConfig) -> dict[str, Any]:
    first, second = (flatten(config.model_dump(mode="json")) for config in (one, other))
    return {key: second[key] for key in second if first.get(key) != second[key]}


# --- runs of a trial ------------------------------------------------------------------------------------------------


def test_parameters_change_what_they_name_and_nothing_else(study: Study) -> None:
    assert (study.cell, study.scale, study.base.loss.threshold) == ("wide.t09.a", "test", 0.9)
    assert study.config({}) == study.base
    assert differences(study.base, study.config({"loss.threshold": 0.625})) == {"loss.threshold": 0.625}
    assert differences(study.base, study.config({}, seed=3, split=2)) == {"seed": 3, "data.split.index": 2}


def test_runs_of_a_trial_are_seeds_within_splits(make: Make) -> None:
    (study,) = make(seeds=2, splits=3)
    assert study.runs_per_trial == 6 and study.steps == 6 * 6
    runs = [(config.data.split.index, config.seed) for config in study.configs({"loss.threshold": 0.6})]
    assert runs == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert len({recipe(config) for config in study.configs({"loss.threshold": 0.6})}) == 6


def test_held_out_images_are_part_of_a_trial_and_not_of_the_final_run(make: Make) -> None:
    (study,) = make(protocol="holdout", seeds=2)
    params = {"loss.threshold": 0.6}
    assert [config.data.split.holdout for config in study.configs(params)] == [4, 4]
    final = study.final_config(params, seed=1)
    # The run that a table would have, to the digest: without any trace of the holdout.
    (plain,) = make()
    assert final.data.split.holdout is None and recipe(final) == recipe(plain.config(params, seed=1))
    assert recipe(study.config(params)) != recipe(plain.config(params))


def test_metric_is_named_by_protocol_and_weights(make: Make) -> None:
    assert make()[0].metric == "miou_whole_best"
    assert make(selection="last", overrides=["eval.protocol=sliding"])[0].metric == "miou_sliding_last"


def test_overrides_change_the_varied_run_and_not_the_points(make: Make) -> None:
    (study,) = make(overrides=["train.steps=12"])
    assert study.base.train.steps == 12 and study.config({"loss.threshold": 0.7}).train.steps == 12
    # The paper's settings are still tried; these runs are not the table's any more.
    assert [point.params for point in study.points] == [{"loss.threshold": 0.7}, {"loss.threshold": 0.9}]
    assert not any(point.own for point in study.points)


# --- points ---------------------------------------------------------------------------------------------------------


def test_own_cells_come_first_and_each_setting_once(make: Make) -> None:
    studies = make(SEARCH.replace('"wide.t09.a"', '"wide.t07.b", "wide.t09.a"'))
    assert [study.cell for study in studies] == ["wide.t07.b", "wide.t09.a"]
    found = [[(point.cell, point.own, point.params["loss.threshold"]) for point in study.points] for study in studies]
    # wide.t09.b is a dash in the paper: its T is tried there because another split has it.
    assert found[0] == [("wide.t07.b", True, 0.7), ("wide.t09.a", False, 0.9)]
    assert found[1] == [("wide.t07.a", True, 0.7), ("wide.t09.a", True, 0.9)]


def test_own_says_that_the_runs_are_the_same(make: Make) -> None:
    (study,) = make(SEARCH.replace("wide.t*.*", "wide.*.a"))
    own = {point.cell: point.own for point in study.points}
    # T = 0.8 with the linear weight is a setting of T, but this study has the concave one.
    assert own == {"wide.t07.a": True, "wide.t09.a": True, "wide.linear.a": False}


def test_cells_that_are_the_same_run_are_one_study(make: Make) -> None:
    studies = make(SEARCH.replace('"wide.t09.a"', '"wide.t09.a", "wide.t07.b", "wide.t09.same"'))
    assert [study.cell for study in studies] == ["wide.t09.a", "wide.t07.b"]
    assert len({study.identity for study in studies}) == 2


# --- identity -------------------------------------------------------------------------------------------------------


CHANGED: dict[str, dict[str, Any]] = {
    "sampler": {"sampler": "random"},
    "seed of the sampler": {"seed": 1},
    "seeds": {"seeds": 2},
    "splits": {"splits": 2},
    "stop": {"stop": "median"},
    "protocol": {"protocol": "holdout"},
    "objectives": {"objectives": ["miou", "cost"]},
    "selection": {"selection": "last"},
    "varied run": {"overrides": ["train.steps=12"]},
    "low": {"text": SEARCH.replace("low = 0.5", "low = 0.6")},
    "log": {"text": SEARCH.replace("high = 0.99", "high = 0.99\nlog = true")},
    "another parameter": {"text": SEARCH + WEIGHT},
    "cell": {"text": SEARCH.replace('on = ["wide.t09.a"]', 'on = ["wide.t07.b"]')},
}
SAME: dict[str, dict[str, Any]] = {
    "nothing": {},
    "trials": {"trials": 99},
    "caption": {"text": SEARCH.replace("Which T?", "Another question")},
    "points": {"text": SEARCH.replace("wide.t*.*", "wide.t07.a")},
    "further cells": {"text": SEARCH.replace('"wide.t09.a"', '"wide.t09.a", "wide.t07.b"')},
}


@pytest.mark.parametrize("what", CHANGED)
def test_identity_changes_with(make: Make, study: Study, what: str) -> None:
    assert make(**CHANGED[what])[0].identity != study.identity


@pytest.mark.parametrize("what", SAME)
def test_identity_does_not_change_with(make: Make, study: Study, what: str) -> None:
    assert make(**SAME[what])[0].identity == study.identity


def test_identity_is_readable_and_that_of_any_process(study: Study) -> None:
    assert study.identity.startswith("small-") and len(study.identity) == len("small-") + 8
    assert replace(study, points=()).identity == study.identity
    # Nothing of it depends on the order in which keys were written.
    base = RunConfig.model_validate(json.loads(json.dumps(study.base.model_dump(mode="json"), sort_keys=True)))
    assert replace(study, base=base).identity == study.identity


# --- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (SEARCH.replace("loss.threshold", "loss.treshold"), "no setting loss.treshold", "did you mean loss.threshold?"),
        (SEARCH + "when = { loss.knid = 'fpl' }", "no setting loss.knid", "did you mean loss.kind?"),
        (SEARCH + "when = { loss.kind = 'fp' }", "loss.threshold would never be varied", "mend its `when`"),
        (
            SEARCH.replace("wide.t*.*", "wide.linear.a").replace("low = 0.5", "low = 0.85"),
            "wide.linear.a, one of",
            "[[sp",
        ),
        (SEARCH.replace('on = ["wide.t09.a"]', 'on = ["wide.t09.c"]'), "'t09.c' fits no cell of wide", "columns: a, b"),
        (
            SEARCH.replace('on = ["wide.t09.a"]', 'on = ["wide.cited.a"]'),
            "'wide.cited.a' is no cell that is",
            "TABLE.ROW",
        ),
        (SEARCH.replace('on = ["wide.t09.a"]', 'on = ["wide.t09"]'), "'wide.t09' is no cell that is run", "TABLE.ROW"),
        # Meaningless, impossible or not allowed: found before the first trial.
        (SEARCH + FIXED, "loss.threshold = 0.99 has no effect beside loss.strategy = 'fixed'", "a `when`"),
        (SEARCH + FIXED.replace("when", "# when"), "has no effect beside", "a `when`"),
        (SEARCH.replace("high = 0.99", "high = 1.0"), "loss.threshold = 1.0 is not allowed", "less than 1"),
        (
            FIXED.join([SEARCH.split("[[space]]")[0], ""]).replace("high = 4", "high = 19"),
            "loss.fixed_k = 19 leaves no",
            "",
        ),
        (
            SEARCH + WEIGHT.replace("concave", "concav"),
            "loss.weight = 'concav'",
            "'concave'",
        ),
    ],
)
def test_searches_that_cannot_be_carried_out(make: Make, text: str, what: str, hint: str) -> None:
    with pytest.raises(FplError) as caught:
        make(text)
    assert what in caught.value.what and hint in caught.value.hint, caught.value.message


def test_no_effect_is_refused_in_any_trial(study: Study) -> None:
    with pytest.raises(FplError, match=r"search small: loss\.ratio = 0\.3 has no effect beside loss\.threshold = 0\.8"):
        study.config({"loss.threshold": 0.8, "loss.ratio": 0.3})


def test_changes_of_the_command_line_are_checked(make: Make) -> None:
    with pytest.raises(FplError, match="search: seeds: Input should be greater"):
        make(seeds=0)


def test_an_override_of_what_is_searched_is_refused(make: Make) -> None:
    with pytest.raises(FplError, match=r"loss\.threshold is searched"):
        make(overrides=["loss.threshold=0.9"])


@pytest.mark.parametrize("key", ["train.steps", "eval.stride_rate"])
def test_trials_are_compared_at_equal_steps_and_protocols(make: Make, key: str) -> None:
    with pytest.raises(FplError, match="equal steps and protocols"):
        make(SEARCH.replace("loss.threshold", key))
