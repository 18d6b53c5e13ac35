"""The four searches of the suite at all three scales: spaces without meaningless settings, and the paper's own ones."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest

from fpl.config.campaign import load_campaign
from fpl.config.identity import recipe_digest
from fpl.config.layers import merge, nested
from fpl.config.schema import RunConfig
from fpl.config.search import load_search, search_names
from fpl.config.study import Study, load_studies

FOLDER = Path(__file__).parents[2] / "experiments"
SCALES = ("mini", "camvid", "paper")
SEARCHES = ("joint", "k_strategy", "threshold", "weight")
DRAWS = 300

# Which parameters a setting depends on, by the paper: T bounds the cumulative probability in Algorithm 1, which the
# rules n-1, n and ratio follow; alpha is the ratio's, K the fixed rule's, A the concave weight's.
STRATEGIES: dict[str, set[str]] = {
    "n-1": {"loss.threshold"},
    "n": {"loss.threshold"},
    "ratio": {"loss.threshold", "loss.ratio"},
    "fixed": {"loss.fixed_k"},
    "step": set(),
}
# This suite's own, in the searches that were not published before it came.
OWN: dict[str, dict[str, set[str]]] = {"joint": {}, "k_strategy": {"soft": {"loss.threshold"}}}
# Other values that are allowed, none of them a default.
OTHERS: dict[str, tuple[Any, Any]] = {
    "loss.threshold": (0.515, 0.785),
    "loss.ratio": (0.115, 0.885),
    "loss.fixed_k": (1, 4),
    "loss.curvature": (1.5, 750.0),
    "loss.weight": ("linear", "none"),
    "loss.strategy": ("n", "step"),
}


@functools.cache
def studies(name: str, scale: str) -> tuple[Study, ...]:
    return tuple(load_studies(FOLDER, name, scale))


def recipe(base: RunConfig, params: Mapping[str, Any]) -> str:
    """Digest of a run with some settings put over it, made without `Study`."""
    tree = base.model_dump(mode="json")
    for key, value in params.items():
        merge(tree, nested(key, value))
    return recipe_digest(RunConfig.model_validate(tree).model_dump(mode="json"))


@functools.cache
def cell_recipes(scale: str) -> dict[str, str]:
    """Recipe digest of each cell of the tables, seed 0."""
    cells = load_campaign(FOLDER, scale, seeds=1, rows="all").all_cells
    return {cell.name: cell.recipes[0] for cell in cells if cell.recipes}


def draws(study: Study, count: int = DRAWS) -> list[dict[str, Any]]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.RandomSampler(seed=7)
    found = optuna.create_study(direction="maximize", sampler=sampler)
    return [study.suggest(found.ask()) for _ in range(count)]


def test_all_files_are_tested_and_are_documents() -> None:
    assert tuple(search_names(FOLDER)) == SEARCHES
    for name in SEARCHES:
        search = load_search(FOLDER, name)
        assert search.name == name
        assert search.about["source"].startswith("paper, ")
        assert search.about["command"].startswith(f"fpl search {name} --scale paper --budget ")


# --- spaces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", SEARCHES)
def test_every_parameter_that_is_drawn_matters_and_no_other(name: str, scale: str) -> None:
    study = studies(name, scale)[0]
    for params in draws(study):
        own = recipe(study.base, params)
        config = study.config(params)
        assert recipe_digest(config.model_dump(mode="json")) == own
        for key in study.search.keys:
            other = next(value for value in OTHERS[key] if value != params.get(key))
            changed = recipe(study.base, {**params, key: other})
            # One that was not drawn may be anything: it is the same run.
            assert (changed != own) is (key in params), (params, key, other)


@pytest.mark.parametrize("name", ["joint", "k_strategy"])
def test_strategies_have_the_parameters_that_the_paper_gives_them(name: str) -> None:
    study = studies(name, "mini")[0]
    strategies = STRATEGIES | OWN[name]
    seen = set()
    for params in draws(study):
        strategy = params["loss.strategy"]
        seen.add(strategy)
        wanted = strategies[strategy] | {"loss.strategy"}
        if name == "joint":
            concave = params["loss.weight"] == "concave"
            wanted |= {"loss.weight"} | ({"loss.curvature"} if concave else set())
        else:
            # T and the weight are the cell's there.
            wanted -= {"loss.threshold"}
        assert set(params) == wanted
    assert seen == set(strategies)


def test_a_parameter_is_asked_for_after_those_that_decide_about_it() -> None:
    for params in draws(studies("joint", "mini")[0], 100):
        keys = list(params)
        assert keys[0] == "loss.strategy"
        if "loss.curvature" in keys:
            assert keys[-2:] == ["loss.weight", "loss.curvature"]
        if "loss.ratio" in keys:
            assert keys[:3] == ["loss.strategy", "loss.threshold", "loss.ratio"]


@pytest.mark.parametrize("name", SEARCHES)
def test_draws_stay_within_the_space_and_reach_its_ends(name: str) -> None:
    drawn: dict[str, list[Any]] = {}
    for params in draws(studies(name, "mini")[0]):
        for key, value in params.items():
            drawn.setdefault(key, []).append(value)
    for key, (low, high) in {"loss.threshold": (0.5, 0.99), "loss.ratio": (0.1, 0.9)}.items():
        if key in drawn:
            span = high - low
            assert low <= min(drawn[key]) < low + span / 5 and high - span / 5 < max(drawn[key]) <= high
    if "loss.fixed_k" in drawn:
        assert set(drawn["loss.fixed_k"]) == {1, 2, 3, 4}
    if "loss.curvature" in drawn:
        # Evenly in the logarithm: about a third in each decade from 1 to 1000.
        share = sum(value < 10 for value in drawn["loss.curvature"]) / len(drawn["loss.curvature"])
        assert 0.15 < share < 0.55 and min(drawn["loss.curvature"]) >= 1 and max(drawn["loss.curvature"]) <= 1000


# --- the paper's settings -------------------------------------------------------------------------------------------

# Tables 4 and 5, A5 and Figure A6, written down by hand: cell of the study -> cell of the paper -> what is set there.
GRIDS: dict[str, dict[str, dict[str, dict[str, Any]]]] = {
    "threshold": {
        "table5.t090.c1_32": {
            "table5.t085.c1_32": {"loss.threshold": 0.85},
            "table5.t090.c1_32": {"loss.threshold": 0.9},
            "table5.t095.c1_32": {"loss.threshold": 0.95},
        },
        # The three of Table 5 at 1/16 are among the six of Table 4.
        "table5.t090.c1_16": {
            "table4.fpl_cps.t050": {"loss.threshold": 0.5},
            "table4.fpl_cps.t075": {"loss.threshold": 0.75},
            "table4.fpl_cps.t085": {"loss.threshold": 0.85},
            "table4.fpl_cps.t090": {"loss.threshold": 0.9},
            "table4.fpl_cps.t095": {"loss.threshold": 0.95},
            "table4.fpl_cps.t099": {"loss.threshold": 0.99},
        },
        "table5.t090.c1_8": {
            "table5.t085.c1_8": {"loss.threshold": 0.85},
            "table5.t090.c1_8": {"loss.threshold": 0.9},
            "table5.t095.c1_8": {"loss.threshold": 0.95},
        },
    },
    "weight": {
        "figure_a6.weight_concave.c1_8": {
            "figure_a6.weight_none.c1_8": {"loss.weight": "none"},
            "figure_a6.weight_linear.c1_8": {"loss.weight": "linear"},
            "figure_a6.weight_convex.c1_8": {"loss.weight": "convex"},
            "figure_a6.weight_concave.c1_8": {"loss.weight": "concave", "loss.curvature": 50.0},
        },
    },
    "k_strategy": {
        "table_a5.fpl_cps.n_1": {
            "table_a5.fpl_cps.k3": {"loss.strategy": "fixed", "loss.fixed_k": 3},
            "table_a5.fpl_cps.k2": {"loss.strategy": "fixed", "loss.fixed_k": 2},
            "table_a5.fpl_cps.step": {"loss.strategy": "step"},
            "table_a5.fpl_cps.n": {"loss.strategy": "n"},
            "table_a5.fpl_cps.n_1": {"loss.strategy": "n-1"},
            "table_a5.fpl_cps_soft.n_1": {"loss.strategy": "soft"},
        },
    },
    "joint": {
        "table4.fpl_cps.t090": {
            f"table5.t0{percent}.c1_16": {
                "loss.strategy": "n-1",
                "loss.threshold": percent / 100,
                "loss.weight": "concave",
                "loss.curvature": 50.0,
            }
            for percent in (85, 90, 95)
        },
    },
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", SEARCHES)
def test_the_grid_form_is_the_papers_ablation(name: str, scale: str) -> None:
    found = studies(name, scale)
    assert [study.cell for study in found] == list(GRIDS[name])
    assert len({study.identity for study in found}) == len(found)
    for study in found:
        grid = {point.cell: point.params for point in study.points if point.own}
        assert grid == GRIDS[name][study.cell]
        for cell, params in grid.items():
            # The run of a trial is the table's, to the digest: one answers for the other in the store.
            (config,) = study.configs(params)
            assert recipe_digest(config.model_dump(mode="json")) == cell_recipes(scale)[cell], cell


@pytest.mark.parametrize("scale", SCALES)
def test_the_grid_of_t_is_all_of_tables_4_and_5(scale: str) -> None:
    grid = {
        recipe_digest(study.config(point.params).model_dump(mode="json"))
        for study in studies("threshold", scale)
        for point in study.points
        if point.own
    }
    named = [f"table4.fpl_cps.t0{percent}" for percent in (50, 75, 85, 90, 95, 99)]
    named += [f"table5.t0{percent}.c1_{parts}" for percent in (85, 90, 95) for parts in (32, 16, 8)]
    assert grid == {cell_recipes(scale)[cell] for cell in named} and len(grid) == 12


def test_points_of_other_tables_are_tried_first_too() -> None:
    few, middle, many = studies("threshold", "paper")
    assert not [point for point in middle.points if not point.own]
    for study in (few, many):
        others = {point.cell: point.params["loss.threshold"] for point in study.points if not point.own}
        assert others == {"table4.fpl_cps.t050": 0.5, "table4.fpl_cps.t075": 0.75, "table4.fpl_cps.t099": 0.99}
        # Its own come first.
        assert [point.own for point in study.points] == [True] * 3 + [False] * 3


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", SEARCHES)
def test_the_varied_run_and_all_points_lie_within_the_space(name: str, scale: str) -> None:
    for study in studies(name, scale):
        base = study.search.read(study.settings)
        assert base is not None and study.config(base) == study.base
        for point in study.points:
            # What Optuna is asked for with these values is all of them and nothing besides.
            assert study.suggest(optuna.trial.FixedTrial(point.params)) == point.params
