"""Files of searches: what they mean, in which order they ask, and what is said about wrong ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from fpl.config.search import Search, Value, load_search, search_names, with_changes
from fpl.errors import FplError

HEAD = """
[search]
name = "small"
caption = "Which?"
on = ["table4.fpl_cps.t090"]
"""
SPACE = """
[[space]]
key = "loss.strategy"
choices = ["n-1", "ratio", "fixed"]
[[space]]
key = "loss.ratio"
low = 0.1
high = 0.9
when = { loss.strategy = "ratio" }
[[space]]
key = "loss.fixed_k"
low = 1
high = 4
when = { loss.strategy = ["fixed"], loss.kind = "fpl" }
[[space]]
key = "loss.curvature"
low = 1
high = 100.0
log = true
"""
SETTINGS = {"loss.strategy": "n-1", "loss.ratio": 0.5, "loss.fixed_k": 2, "loss.curvature": 50.0, "loss.kind": "fpl"}


class Asked:
    """An `optuna.Trial` that answers from a script and notes what it was asked for."""

    def __init__(self, answers: dict[str, Value]) -> None:
        self.answers, self.calls = answers, []  # type: ignore[var-annotated]

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        self.calls.append(("float", name, low, high, log))
        return float(self.answers[name])

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        self.calls.append(("int", name, low, high, log))
        return int(self.answers[name])

    def suggest_categorical(self, name: str, choices: list[Value]) -> Value:
        self.calls.append(("choice", name, *choices))
        return self.answers[name]


def write(folder: Path, text: str) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


@pytest.fixture
def search(tmp_path: Path) -> Search:
    return load_search(tmp_path, str(write(tmp_path, HEAD + SPACE)))


# --- what is asked for ----------------------------------------------------------------------------------------------


def test_defaults(search: Search) -> None:
    head = search.search
    assert (head.trials, head.seeds, head.splits, head.objectives) == (24, 1, 1, ("miou",))
    assert (head.sampler, head.stop, head.protocol, head.selection) == ("tpe", "asha", "val", "best")
    assert search.name == "small"
    assert search.keys == ["loss.strategy", "loss.ratio", "loss.fixed_k", "loss.curvature"]


STRATEGY = ("choice", "loss.strategy", "n-1", "ratio", "fixed")
CURVATURE = ("float", "loss.curvature", 1.0, 100.0, True)


@pytest.mark.parametrize(
    ("strategy", "between"),
    [
        ("n-1", []),
        ("ratio", [("float", "loss.ratio", 0.1, 0.9, False)]),
        ("fixed", [("int", "loss.fixed_k", 1, 4, False)]),
    ],
)
def test_parameters_are_asked_for_in_order_and_only_where_they_mean_something(
    search: Search, strategy: str, between: list[tuple[Any, ...]]
) -> None:
    answers: dict[str, Value] = {"loss.ratio": 0.3, "loss.fixed_k": 4, "loss.curvature": 7.5, "loss.strategy": strategy}
    trial = Asked(answers)
    # The run that is varied has another strategy: what has been drawn counts.
    params = search.suggest(trial, {**SETTINGS, "loss.strategy": "fixed" if strategy == "ratio" else "ratio"})
    assert trial.calls == [STRATEGY, *between, CURVATURE]
    keys = [call[1] for call in trial.calls]
    assert list(params) == keys and params == {key: answers[key] for key in keys}


def test_all_conditions_must_hold_and_those_on_the_run_itself_count(search: Search) -> None:
    trial = Asked({"loss.strategy": "fixed", "loss.curvature": 2.0})
    assert search.suggest(trial, {**SETTINGS, "loss.kind": "ce"}) == {"loss.strategy": "fixed", "loss.curvature": 2.0}


def test_a_run_is_read_as_the_parameters_that_it_depends_on(search: Search) -> None:
    read = search.read
    assert read(SETTINGS) == {"loss.strategy": "n-1", "loss.curvature": 50.0}
    assert read({**SETTINGS, "loss.strategy": "ratio"}) == {
        "loss.strategy": "ratio",
        "loss.ratio": 0.5,
        "loss.curvature": 50.0,
    }
    # Outside: an unknown choice, beyond an end, a setting that the run does not have.
    assert read({**SETTINGS, "loss.strategy": "step"}) is None
    assert read({**SETTINGS, "loss.curvature": 100.5}) is None
    assert read({**SETTINGS, "loss.strategy": "fixed", "loss.fixed_k": 5}) is None
    assert read({key: value for key, value in SETTINGS.items() if key != "loss.curvature"}) is None
    # What means nothing may lie where it wants.
    assert read({**SETTINGS, "loss.fixed_k": 99}) is not None


def test_ends_are_part_of_a_range_and_whole_numbers_have_no_parts(search: Search) -> None:
    strategy, ratio, fixed, curvature = search.space
    assert [fixed.allows(value) for value in (1, 4, 2.0, 2.5, 0, True, "2")] == [True] * 3 + [False] * 4
    assert [ratio.allows(value) for value in (0.1, 0.9, 0.95, math.nan)] == [True, True, False, False]
    # One end with a point is enough for a number that is not whole.
    assert fixed.whole and not curvature.whole and curvature.allows(1.5)
    assert strategy.ends == ["n-1", "ratio", "fixed"] and fixed.ends == [1, 4]


# --- changes --------------------------------------------------------------------------------------------------------


def test_the_head_can_be_changed_and_the_rest_stays(search: Search) -> None:
    changed = with_changes(search, {"trials": 3, "objectives": ["miou", "cost"], "sampler": "random"})
    assert (changed.search.trials, changed.search.objectives, changed.search.sampler) == (3, ("miou", "cost"), "random")
    assert changed.space == search.space and changed.search.on == search.search.on and search.search.trials == 24


@pytest.mark.parametrize(
    ("changes", "what", "hint"),
    [
        ({"trial": 3}, "search: unknown key trial", "did you mean trials?"),
        ({"seeds": 0}, "search: seeds: Input should be greater than or equal to 1", ""),
        ({"sampler": "cmaes"}, "search: sampler: Input should be 'tpe', 'random', 'gp' or 'grid'", ""),
        ({"objectives": ["cost"]}, "search: objectives begin with miou and name nothing twice", ""),
        ({"objectives": ["miou", "miou"]}, "search: objectives begin with miou and name nothing twice", ""),
    ],
)
def test_wrong_changes(search: Search, changes: dict[str, Any], what: str, hint: str) -> None:
    with pytest.raises(FplError) as caught:
        with_changes(search, changes)
    assert what in caught.value.message and hint in caught.value.hint
    assert caught.value.where == "changes to search small"


# --- wrong files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "what", "hint"),
    [
        ("caption", "capton", "search: unknown key capton", "did you mean caption? known here: name, caption, on,"),
        ("[search]", "[seach]", "unknown key seach", "did you mean search? known here: search, space, about"),
        ("low = 0.1", "lo = 0.1", "space loss.ratio: unknown key lo", "did you mean low? known here: key, low, high,"),
        ('caption = "Which?"', "", "search: caption: Field required", ""),
        ('"small"', '"Small search"', "search: name: 'Small search' is no name", ""),
        ("low = 0.1", "low = 0.9", "space loss.ratio: low = 0.9 must be below high = 0.9", ""),
        ("low = 0.1", "low = 1.5", "space loss.ratio: low = 1.5 must be below high = 0.9", ""),
        ("low = 0.1", "low = nan", "space loss.ratio: low = nan must be below high = 0.9", ""),
        ("high = 0.9", "high = inf", "space loss.ratio: low = 0.1 must be below high = inf, both finite", ""),
        ("low = 0.1", "", "space loss.ratio: low = None must be below", ""),
        ("low = 1\nhigh = 100.0", "low = 0\nhigh = 100.0", "space loss.curvature: log needs low > 0", ""),
        ('"n-1", "ratio"', '"ratio", "ratio"', "space loss.strategy: choices must differ", ""),
        ('choices = ["n-1", "ratio", "fixed"]', "", "space loss.strategy: give either choices, or low and high", ""),
        ("low = 0.1", "low = 0.1\nchoices = [0.2]", "space loss.ratio: give either choices, or low and high", ""),
        ('"loss.curvature"', '"loss.ratio"', "loss.ratio is varied twice", ""),
        ('"loss.curvature"', '"seed"', "seed is no setting to search", ""),
        ('strategy = "ratio"', "curvature = 2", "loss.ratio: its condition on loss.curvature must come after", ""),
        ('strategy = "ratio"', "ratio = 0.2", "loss.ratio: its condition on loss.ratio must come after", ""),
        (
            'strategy = "ratio"',
            'strategy = "ration"',
            "loss.ratio: its condition loss.strategy = 'ration' is",
            "",
        ),
        (SPACE, "", "space: Field required", ""),
        ('key = "loss.ratio"\n', "", "space 2: key: Field required", ""),
        ("[search]", "[search", "not valid TOML", ""),
    ],
)
def test_wrong_files(tmp_path: Path, before: str, after: str, what: str, hint: str) -> None:
    text = HEAD + SPACE
    assert before in text
    path = write(tmp_path, text.replace(before, after, 1))
    with pytest.raises(FplError) as caught:
        load_search(tmp_path, str(path))
    assert what in caught.value.message and hint in caught.value.hint
    # The file is named whatever is wrong.
    assert str(path) in caught.value.where


def test_files_are_found_by_name_and_missing_ones_are_told_with_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()
    with pytest.raises(FplError, match="there are: none"):
        load_search(tmp_path, "small")
    write(tmp_path / "search", HEAD + SPACE)
    (tmp_path / "search" / "other.toml").write_text("")
    assert search_names(tmp_path) == ["other", "small"]
    assert load_search(tmp_path, "small").name == "small"
    with pytest.raises(FplError) as caught:
        load_search(tmp_path, "smal")
    assert caught.value.where == str(tmp_path / "search" / "smal.toml")
    assert caught.value.hint == "did you mean small? there are: other, small"
