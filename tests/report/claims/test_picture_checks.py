"""Checks on the pictures that runs keep: holds, does not hold, not run, with hand-counted pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fpl.config.campaign import load_campaign
from fpl.report.claims.picture_checks import near_border
from tests.report.world_claims import RUN, Runs

AT_BORDERS: Any = {"of": "with K > 1", "are": "at borders", "stage": "last", "more_than_of_all": True}
CERTAIN: Any = {"of": "in the background", "are": "with K = 1", "stage": "all"}
ON_OBJECTS: Any = {"of": "with K > 1 and a label", "are": "on objects", "stage": "first"}


def square(inner: int, outer: int, size: int = 100) -> np.ndarray:
    """A square of 40 x 40 pixels within something else."""
    made = np.full((size, size), outer, np.uint8)
    made[30:70, 30:70] = inner
    return made


def test_pictures_of_k(tmp_path: Path) -> None:
    world = Runs(tmp_path)
    run_id = world.log(RUN, [])
    scene = square(7, 0)
    truth = {"step": 0, "kind": "ground_truth", "array": scene}
    late = np.where(near_border(scene), 2, 1).astype(np.uint8)
    world.pictures(
        run_id, [truth, {"step": 0, "kind": "k", "array": square(3, 1)}, {"step": 200, "kind": "k", "array": late}]
    )
    fewer = world.verdict(RUN, "fewer_uncertain")
    # 1,600 of 10,000 pixels, then a frame of two pixels to each side of the border: 44 x 44 - 4 - 36 x 36 = 636.
    assert fewer.state == "holds"
    assert fewer.numbers == "share of K > 1: 16.0 % at the first stage, 6.4 % at the last; 1 image of 1 run"
    at_border = world.verdict(RUN, "most_pixels", **AT_BORDERS)
    assert at_border.state == "holds"
    assert at_border.numbers.startswith(
        "100.0 % of the pixels with K > 1 at the last stage are at borders, of all pixels 6.4 %"
    )
    # A run whose first pictures are of step 51 of 200.
    world.pictures(
        run_id, [truth, {"step": 51, "kind": "k", "array": square(3, 1)}, {"step": 200, "kind": "k", "array": late}]
    )
    begun_late = world.verdict(RUN, "fewer_uncertain")
    assert begun_late.state == "not run" and "step 51 of 200" in begun_late.numbers
    assert world.verdict(RUN, "most_pixels", **AT_BORDERS).state == "holds"
    # Street scenes have no class for the background.
    assert (
        world.verdict(RUN, "most_pixels", **CERTAIN).numbers
        == "the runs are on data without a class for the background"
    )
    world.pictures(
        run_id, [truth, {"step": 0, "kind": "k", "array": late}, {"step": 200, "kind": "k", "array": square(3, 1)}]
    )
    assert world.verdict(RUN, "fewer_uncertain").state == "does not hold"
    # Of the 1,600 pixels 1,600 - 36 x 36 = 304 are at the border.
    away = world.verdict(RUN, "most_pixels", **AT_BORDERS)
    assert away.state == "does not hold" and away.numbers.startswith("19.0 %")


@pytest.mark.parametrize(
    ("k", "certain", "early"),
    [
        (square(3, 1), ("holds", "100.0 %"), ("holds", "100.0 %")),
        (square(1, 2), ("does not hold", "0.0 %"), ("does not hold", "0.0 %")),
    ],
)
def test_background(tmp_path: Path, k: np.ndarray, certain: tuple[str, str], early: tuple[str, str]) -> None:
    world = Runs(tmp_path)
    world.experiments.joinpath("base/city_cps.toml").write_text(
        world.experiments.joinpath("base/city_cps.toml")
        .read_text()
        .replace("synthetic_city", "synthetic_voc")
        .replace("num_classes = 19", "num_classes = 21")
    )
    world.campaign = load_campaign(world.experiments, "little", rows="all")
    run_id = world.log(RUN, [])
    assert world.verdict(RUN, "most_pixels", **CERTAIN).state == "not run"
    world.pictures(
        run_id, [{"step": 0, "kind": "ground_truth", "array": square(7, 0)}, {"step": 0, "kind": "k", "array": k}]
    )
    background, objects = world.verdict(RUN, "most_pixels", **CERTAIN), world.verdict(RUN, "most_pixels", **ON_OBJECTS)
    assert background.state == certain[0] and background.numbers.startswith(
        f"{certain[1]} of the pixels in the background over all stages are with K = 1"
    )
    world.pictures(
        run_id, [{"step": 200, "kind": "ground_truth", "array": square(7, 0)}, {"step": 60, "kind": "k", "array": k}]
    )
    assert world.verdict(RUN, "most_pixels", **ON_OBJECTS).state == "not run"
    assert world.verdict(RUN, "most_pixels", **CERTAIN).state == certain[0]
    assert objects.state == early[0] and objects.numbers.startswith(
        f"{early[1]} of the pixels with K > 1 and a label at the first stage are on objects"
    )


def test_pushed_up_instead(tmp_path: Path) -> None:
    world = Runs(tmp_path)
    run_id = world.log(RUN, [])
    assert world.verdict(RUN, "pushed_up_instead", share=0.25).state == "not run"
    # In float16 small scores round to zeros, whose signs tell.
    vanilla = np.array([[1, -0.5, -0.0], [-0.1, -0.1, np.nan]], np.float16)
    fuzzy = np.array([[1, 0.0, -0.0], [-0.1, -0.1, np.nan]], np.float16)
    rows = [
        {"step": step, "kind": kind, "array": array}
        for step, sign in ((10, -1), (200, 1))
        for kind, array in (("vanilla_score", vanilla), ("fuzzy_score", sign * fuzzy))
    ]
    world.pictures(run_id, rows)
    found = world.verdict(RUN, "pushed_up_instead", share=0.2)
    assert found.state == "holds" and found.numbers.startswith("Rᶠ > 0 at 25.0 % of the pixels with Rᵛ < 0")
    assert world.verdict(RUN, "pushed_up_instead", share=0.25).state == "does not hold"


def test_border_is_as_wide_as_said() -> None:
    truth = square(7, 0)
    # 1/50 of 100 pixels: two to each side, but for the four outer corners, which are further away.
    assert near_border(truth).sum() == 44 * 44 - 4 - 36 * 36
    assert near_border(square(7, 7)).sum() == 0
    # Never less than one.
    small = near_border(np.array([[1, 1, 2, 2]] * 3, np.uint8))
    assert small.tolist() == [[False, True, True, False]] * 3
