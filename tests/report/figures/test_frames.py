"""Numbers behind figures: against values that were put into a store by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fpl.errors import FplError
from fpl.losses import adaptive_weight
from fpl.report.figures.frames import POINTS, SHAPES, course, scores, sorted_batches, weight, weight_curves
from fpl.report.figures.quantities import QUANTITIES, pooled
from fpl.report.figures.series import missing
from tests.report.world import World
from tests.report.world_figures import figure_of, figure_world, log, source_of


def frame(**columns: list[Any]) -> pd.DataFrame:
    count = len(next(iter(columns.values())))
    return pd.DataFrame({"step": [10] * count, "pixels": [100] * count, **columns})


def value(name: str, **columns: list[Any]) -> tuple[float, float]:
    found = pooled(frame(**columns), QUANTITIES[name])
    return (found["value"].item(), found["pixels"].item()) if len(found) else (math.nan, 0.0)


def test_directions_are_pooled_by_their_pixels_and_seeds_averaged(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    for seed, (first, second) in enumerate([(2.0, 3.0), (1.0, 2.0)]):
        run = world.run("main.fpl_cps.small_8", 60.0, seed)
        log(
            world,
            run,
            [
                {"step": 50, "mean_k": first, "pixels": 100},
                {"step": 50, "mean_k": second, "pixels": 300, "direction": "21"},
                {"step": 200, "mean_k": 1.25, "impurity": 0.5, "labeled_pixels": 80},
            ],
        )
    found = course(figure_of(world, "course"), source_of(world, "course"))
    k = found[found["quantity"] == "mean_k"]
    assert list(k["series"]) == ["T at 1/8"] * 2
    assert (list(k["step"]), list(k["training"])) == ([50, 200], [25.0, 100.0])
    # 2.75 and 1.75; 1.25 and 1.25.
    assert k["value"].tolist() == pytest.approx([2.25, 1.25], abs=1e-12)
    assert k["std"].tolist() == pytest.approx([math.sqrt(0.5), 0.0], abs=1e-12)
    assert (list(k["seeds"]), list(k["pixels"])) == ([2, 2], [800, 200])
    impurity = found[found["quantity"] == "impurity"]
    assert impurity[["step", "value", "pixels"]].values.tolist() == [[200, 50.0, 160]]


def test_scores_count_the_pixels_of_their_case() -> None:
    cases = [[5, 10, 85], [5, 30, 65], [100, 0, 0]]
    fuzzy = [[1.0, 0.5, -0.2], [1.0, 0.1, -0.4], [1.0, None, None]]
    assert value("fuzzy_score_2", case_pixels=cases, fuzzy_score=fuzzy) == pytest.approx((0.2, 40))
    expected = -(0.2 * 85 + 0.4 * 65) / 150
    assert value("fuzzy_score_3", case_pixels=cases, fuzzy_score=fuzzy) == pytest.approx((expected, 150))
    assert value("fuzzy_score_1", case_pixels=[None], fuzzy_score=[None])[1] == 0


def test_shares_are_percent_of_the_pixels_that_they_are_of() -> None:
    histogram = [[60, 20, 10, 4, 6], [20, 40, 20, 20, 0]]
    shares = [value(f"share_k{k}", k_histogram=histogram)[0] for k in (1, 2, 3, 4)]
    assert shares == pytest.approx([40.0, 30.0, 15.0, 15.0])
    ones = {"case_pixels": [[50, 1, 1], [150, 1, 1]], "case_1_k1_pixels": [50, 120]}
    assert value("case_1_share_k1", **ones) == pytest.approx((85.0, 200))
    cosine = {"case_pixels": [[0, 10, 0], [0, 90, 0]], "cosine_fuzzy_positive": [0.5, 1.0]}
    assert value("cosine_fuzzy_positive", **cosine) == pytest.approx((95.0, 100))


def test_the_entropy_of_a_group_counts_each_k_by_its_pixels() -> None:
    row = {"k_histogram": [[60, 0, 0, 30, 10]], "entropy_by_k": [[0.1, None, None, 1.0, 2.0]]}
    assert value("entropy_k1", **row) == pytest.approx((0.1, 60))
    assert value("entropy_k4", **row) == pytest.approx((1.25, 40))
    assert value("entropy_k2", **row)[1] == 0


def test_runs_of_a_series_have_the_same_points_whichever_steps_they_logged(tmp_path: Path) -> None:
    """Of seed 1 a hundred steps have the value, of seed 0 one more: parts of the training for both."""
    world = figure_world(tmp_path)
    for seed, first in ((0, 1), (1, 2)):
        run = world.run("main.fpl_cps.small_8", 60.0, seed)
        log(world, run, [{"step": step, "mean_k": 2.0 + seed, "pixels": 10} for step in range(first, POINTS + 2)])
    found = course(figure_of(world, "course"), source_of(world, "course"))
    assert found["step"].is_monotonic_increasing and found["step"].is_unique
    assert found["value"].tolist()[1:] == [2.5] * (len(found) - 1) and set(found["seeds"].iloc[1:]) == {2}


def test_a_long_run_is_averaged_over_parts_of_its_training(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    log(
        world,
        world.run("main.fpl_cps.small_8", 60.0),
        [{"step": step, "mean_k": float(step), "pixels": 10} for step in range(1, 201)],
    )
    found = course(figure_of(world, "course"), source_of(world, "course"))
    assert len(found) == POINTS
    assert found["step"].tolist() == list(range(2, 201, 2))
    assert found["value"].tolist() == pytest.approx([step - 0.5 for step in range(2, 201, 2)])
    assert found["training"].iloc[[0, -1]].tolist() == [1.0, 100.0]
    assert set(found["pixels"]) == {20}


def test_mini_batches_are_sorted_by_the_sum_with_k_n(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    sums = {10: (0.3, 0.5), 20: (0.1, 0.4), 30: (0.2, 0.6)}
    rows = [{"step": step, "gradient_sum_n": n, "gradient_sum_n_minus_1": less} for step, (n, less) in sums.items()]
    log(world, world.run("main.fpl_cps.small_8", 60.0, 1), [*rows, {"step": 40, "mean_k": 1.0}])
    found = sorted_batches(figure_of(world, "batches"), source_of(world, "batches"))
    assert found[["rank", "step", "gradient_sum_n", "gradient_sum_n_minus_1"]].values.tolist() == [
        [1, 20, 0.1, 0.4],
        [2, 30, 0.2, 0.6],
        [3, 10, 0.3, 0.5],
    ]
    assert set(found["seed"]) == {1}


def test_final_scores_stand_beside_the_paper(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    for seed, (base, ours) in enumerate([(60.0, 61.0), (62.0, 65.0)]):
        world.run("main.cps.small_8", base, seed)
        world.run("main.fpl_cps.small_8", ours, seed)
    found = scores(figure_of(world, "curve"), source_of(world, "curve")).set_index("cell")
    row = found.loc["main.fpl_cps.small_8"]
    assert (row["series"], row["kind"], row["threshold"], row["seeds"]) == ("FPL+CPS", "fpl", 0.9, 2)
    assert (row["miou"], row["gain"], row["paper"], row["paper_gain"]) == (63.0, 2.0, 65.5, 0.5)
    assert row["std"] == pytest.approx(math.sqrt(8.0))
    assert row["gain_std"] == pytest.approx(math.sqrt(2.0))
    # Not run, but printed.
    other = found.loc["main.fpl_cps.small_16"]
    assert (other["seeds"], other["paper"], other["paper_gain"]) == (0, 61.0, 1.0)
    assert math.isnan(other["miou"]) and math.isnan(other["gain"])
    assert len(scores(figure_of(world, "bars"), source_of(world, "bars"))) == 2


def test_printed_numbers_alone_are_no_figure(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    assert scores(figure_of(world, "curve"), source_of(world, "curve")).empty


def test_weight_curves_agree_with_the_loss() -> None:
    q = np.linspace(0.0, 0.475, 96)
    for shape in SHAPES:
        probs = torch.from_numpy(np.stack([np.full_like(q, 0.475), np.full_like(q, 0.475), q])).unsqueeze(0)
        theirs = adaptive_weight(probs, torch.full((1, len(q)), 2), shape=shape, curvature=50.0)
        np.testing.assert_allclose(weight(shape, q, 0.475), theirs[0].numpy(), rtol=1e-9, atol=1e-9)


def test_weight_curves_have_the_published_values(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    found = weight_curves(figure_of(world, "weights"), source_of(world, "weights"))
    # By hand, for m = 0.475 and q = 0.1, 0.2, 0.3, 0.4.
    expected = {
        "concave": [0.9297, 0.8387, 0.7097, 0.4856],
        "linear": [0.7895, 0.5789, 0.3684, 0.1579],
        "convex": [0.4286, 0.2157, 0.1045, 0.0361],
    }
    for shape, values in expected.items():
        group = found[found["shape"] == shape]
        assert np.interp([0.1, 0.2, 0.3, 0.4], group["q"], group["weight"]) == pytest.approx(values, abs=2e-4)
        assert (group["q"].iloc[-1], group["weight"].iloc[0], group["weight"].iloc[-1]) == pytest.approx((0.475, 1, 0))


def test_the_newest_run_of_a_recipe_counts(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    other = {"labeled": "ffffffffffffffff"}
    old = world.run("main.fpl_cps.small_8", 50.0, pins=other, finished_at="2025-01-01T00:00:00+00:00")
    new = world.run("main.fpl_cps.small_8", 60.0)
    assert old != new
    assert [record["run_id"] for record in source_of(world, "batches").records] == [new]


def test_labels_say_what_tells_the_cells_apart(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    assert [item.label for item in source_of(world, "bars").found] == ["CPS", "FPL+CPS"]
    assert [item.label for item in source_of(world, "course").found] == ["T at 1/16", "T at 1/8"]


def test_what_is_missing_is_named_with_its_command(tmp_path: Path) -> None:
    world = figure_world(tmp_path)
    source, figure = source_of(world, "course"), figure_of(world, "course")
    assert missing(figure, source) == "not run: fpl reproduce 'main.fpl_cps.small_*' --scale full"
    for seed in range(3):
        world.run("main.fpl_cps.small_8", 60.0, seed)
        world.run("main.fpl_cps.small_16", 60.0, seed) if seed else world.fail("main.fpl_cps.small_16", "no disk")
    source = source_of(world, "course")
    assert [len(item.records) for item in source.found] == [2, 3]
    text = missing(figure, source)
    assert text.startswith("not run: fpl reproduce 'main.fpl_cps.small_*' --scale full; main.fpl_cps.small_16 failed: ")
    assert "no disk" in text
    assert missing(figure_of(world, "batches"), source_of(world, "batches")) == ""


def test_a_series_that_names_no_cell_is_refused(tmp_path: Path) -> None:
    world: World = figure_world(tmp_path)
    path = world.experiments / "figures" / "batches.toml"
    path.write_text(path.read_text().replace("main.fpl_cps.small_8", "main.fpl_cps.tiny_8"))
    with pytest.raises(FplError, match=r"figure batches: .main\.fpl_cps\.tiny_8. names no cell"):
        source_of(world, "batches")


def test_a_campaign_without_the_table_has_no_series(tmp_path: Path) -> None:
    world = figure_world(tmp_path, names=["again"])
    assert source_of(world, "batches").found == ()
