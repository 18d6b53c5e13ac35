"""What cells gain on other cells, against differences and intervals computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Canvas

from fpl.config.figure import About, Figure, Series, Shown
from fpl.errors import FplError
from fpl.report.figures.gains import gains, paint
from fpl.report.figures.kinds import check_options
from fpl.report.figures.series import make_source
from fpl.store.lookup import look_up
from tests.report.world_claims import Runs

# Of Student's t with 2 degrees of freedom, 97.5 %, over the root of 3.
HALF = 4.302652729911275 / 3**0.5


def figure_of(*cells: str, **options: Any) -> Figure:
    return Figure(
        about=About(order=1, source="this suite"),
        figure=Shown(name="gains", number="Gains", caption="", kind="gains", options=options),
        series=tuple(Series(label="{row}, {column}", cells=name) for name in cells),
    )


def gains_of(world: Runs, *cells: str, **options: Any) -> pd.DataFrame:
    figure, results = figure_of(*cells, **options), world.results
    return gains(figure, make_source(figure, world.campaign, results, look_up(results)))


def store(world: Runs, cell: str, mious: Sequence[float]) -> None:
    for seed, miou in enumerate(mious):
        world.run(cell, miou, seed)


def test_each_seed_with_itself_and_the_interval_over_seeds(tmp_path: Path) -> None:
    world = Runs(tmp_path, "full")
    store(world, "main.cps.small_16", [40.0, 50.0, 60.0])
    store(world, "main.fpl_cps.small_16", [41.0, 52.0, 63.0])
    store(world, "main.cps.small_8", [40.0])
    store(world, "main.fpl_cps.small_8", [39.0, 70.0])
    found = gains_of(world, "main.fpl_cps.*")
    assert list(found["series"]) == ["FPL+CPS, 1/16", "FPL+CPS, 1/8"]
    assert set(found["over"]) == {"CPS"}
    assert found["gain"].tolist() == pytest.approx([2.0, -1.0], abs=1e-12)
    assert found["low"].tolist() == pytest.approx([2.0 - HALF, float("nan")], abs=1e-9, nan_ok=True)
    assert found["high"].tolist() == pytest.approx([2.0 + HALF, float("nan")], abs=1e-9, nan_ok=True)
    assert list(found["seeds"]) == [3, 1]


def test_rows_and_columns_by_their_keys_and_never_itself(tmp_path: Path) -> None:
    world = Runs(tmp_path, "full")
    store(world, "curve.t50.few", [30.0, 30.0])
    store(world, "curve.t90.few", [33.0, 33.0])
    store(world, "curve.t90.many", [38.0, 38.0])
    found = gains_of(world, "curve.t*.*", over=["few", "t50"])
    assert found[["cell", "over", "gain", "low", "high"]].values.tolist() == [
        ["curve.t90.many", "1/16", 5.0, 5.0, 5.0],
        ["curve.t90.few", "0.5", 3.0, 3.0, 3.0],
    ]
    # The table itself holds nothing of it against anything.
    assert gains_of(world, "curve.t*.*").empty
    with pytest.raises(FplError, match="'fewer' is no column or row") as caught:
        gains_of(world, "curve.t90.few", over=["fewer"])
    assert "columns: few, many" in str(caught.value.hint)


def test_lines_of_a_series_lie_apart_around_its_name(tmp_path: Path) -> None:
    figure = figure_of("main.fpl_cps.*", over=["cps"])
    assert check_options(figure).needs == "mIoU"
    rows = [("a", "x", 1.0, 0.5, 1.5), ("b", "x", -1.0, None, None), ("a", "y", 2.0, 1.0, 3.0)]
    frame = pd.DataFrame(rows, columns=["series", "over", "gain", "low", "high"])
    canvas = Canvas(figsize=(4, 3))
    paint(canvas, frame, {})
    (chart,) = canvas.axes
    x, y = (bar[0].get_xydata().tolist() for bar in chart.containers)
    assert [x[0][0], x[1], y[0][0]] == [1.0, [-1.0, 1.0], 2.0]
    assert x[0][1] == -y[0][1] and -0.5 < x[0][1] < 0
    assert [text.get_text() for text in chart.get_yticklabels()] == ["a", "b"]
    whiskers = [[segment[:, 0].tolist() for segment in bar[2][0].get_segments()] for bar in chart.containers]
    assert whiskers == [[[0.5, 1.5], [-1.0, -1.0]], [[1.0, 3.0]]]
    # Of one seed each, there is none to be drawn, in the legend neither.
    paint(canvas := Canvas(figsize=(4, 3)), frame.assign(low=np.nan, high=np.nan), {})
    assert [bar.has_xerr for bar in canvas.axes[0].containers] == [False, False]


@pytest.mark.parametrize(
    ("first", "second", "state", "text"),
    [
        # Of each seed 1, 2 and 3: the interval reaches below 0.
        ([1.0, 2.0, 3.0], None, "does not hold", "points over CPS: +2.00 (-0.48 to +4.48, n = 3); n counts seeds"),
        ([1.8, 2.0, 2.2], None, "holds", "points over CPS: +2.00 (+1.50 to +2.50, n = 3); n counts seeds"),
        (
            [3.0, 3.0, 3.0],
            [-1.5, -1.0, -0.5],
            "holds",
            "points over CPS: +1.00 (+0.38 to +1.62, n = 3); n counts seeds, of each the mean of 2 (1 above and 1 "
            "below 0 by their own means)",
        ),
        ([-3.0, -3.0], None, "does not hold", "points over CPS: -3.00 (-3.00 to -3.00, n = 2); n counts seeds"),
        ([3.0], None, "not run", "two seeds of each series, and of what it is held against, are needed"),
        ([3.0, 3.0], [1.0], "not run", "two seeds of each series, and of what it is held against, are needed"),
    ],
)
def test_the_claim(tmp_path: Path, first: list[float], second: list[float] | None, state: str, text: str) -> None:
    world = Runs(tmp_path, "full")
    cells = ["small_16"] if second is None else ["small_16", "small_8"]
    for column, values in zip(cells, (first, second), strict=False):
        store(world, f"main.cps.{column}", [40.0] * len(values or ()))
        store(world, f"main.fpl_cps.{column}", [40.0 + value for value in values or ()])
    found = world.verdict([f"main.fpl_cps.{column}" for column in cells], "gains")
    assert (found.state, found.numbers) == (state, text)
