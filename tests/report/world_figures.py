"""Figures of the small paper of `world`, and made-up K statistics of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fpl.config.figure import Figure, load_figures
from fpl.report.figures.series import Source, make_source
from fpl.store.lookup import look_up
from fpl.store.write import write_table
from tests.report.world import World

COURSE = """
[about]
order = 1
source = "section 1"
[figure]
name = "course"
number = "Figure 1"
caption = "K & <impurity> over training."
kind = "lines"
[[figure.options.panels]]
axis = "mean K"
quantities = ["mean_k"]
[[figure.options.panels]]
axis = "impurity (%)"
quantities = ["impurity"]
limits = [0, 100]
[[series]]
label = "T at {column}"
cells = "main.fpl_cps.small_*"
[[claims]]
name = "impure"
says = "Impurity stays above 10 %."
source = "section 1"
check = "compare"
options = { quantity = "impurity", side = ">", to = 10.0 }
"""

BARS = """
[about]
order = 2
source = "section 2"
[figure]
name = "bars"
number = "Figure 2"
caption = "mIoU of each row."
kind = "bars"
[[series]]
cells = "main.*cps.small_8"
"""

CURVE = """
[about]
order = 3
source = "section 3"
[figure]
name = "curve"
number = "Figure 3"
caption = "mIoU over T."
kind = "thresholds"
options = { gain = true }
[[series]]
label = "{row}"
cells = "main.fpl_cps.*"
"""

WEIGHTS = """
[about]
order = 4
source = "section 4"
[figure]
name = "weights"
number = "Figure 4"
caption = "Weights."
kind = "weights"
options = { threshold = 0.95, k = 2, curvature = 50.0 }
"""

BATCHES = """
[about]
order = 5
source = "section 5"
[figure]
name = "batches"
number = "Figure 5"
caption = "Gradient sums."
kind = "sorted"
[[series]]
label = "FPL"
cells = "main.fpl_cps.small_8"
"""

AREAS = """
[about]
order = 6
source = "section 6"
[figure]
name = "areas"
number = "Figure 6"
caption = "Pixels by K."
kind = "areas"
options = { axis = "pixels (%)", quantities = ["share_k1", "share_k2", "share_k3", "share_k4"] }
[[series]]
label = "FPL"
cells = "main.fpl_cps.small_8"
"""

FIGURES = {"course": COURSE, "bars": BARS, "curve": CURVE, "weights": WEIGHTS, "batches": BATCHES, "areas": AREAS}


def figure_world(folder: Path, scale: str = "full", **options: Any) -> World:
    """The small paper with its figures; three seeds a cell at scale `full`, 200 steps a run."""
    world = World(folder, scale, **options)
    (world.experiments / "figures").mkdir()
    for name, text in FIGURES.items():
        (world.experiments / "figures" / f"{name}.toml").write_text(text)
    return world


def figure_of(world: World, name: str) -> Figure:
    """One of its figures."""
    (figure,) = load_figures(world.experiments, [name])
    return figure


def source_of(world: World, name: str) -> Source:
    """The runs of one of its figures."""
    results = world.results
    return make_source(figure_of(world, name), world.campaign, results, look_up(results))


def log(world: World, run: str, rows: Sequence[dict[str, Any]]) -> None:
    """Store rows of `fuzziness` of a run."""
    table = [{"run_id": run, "direction": "12", "pixels": 100, **row} for row in rows]
    write_table(world.out / "fuzziness" / f"{run}.parquet", "fuzziness", table)
