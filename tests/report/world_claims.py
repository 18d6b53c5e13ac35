"""The small paper with a table of T by labels, and a store of it whose K statistics and pictures are made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fpl.config.campaign import load_campaign
from fpl.config.figure import About, Claim, Figure, Series, Shown
from fpl.report.claims.check_claims import Verdict, check_claims
from fpl.report.figures.series import make_source
from fpl.store.lookup import look_up
from fpl.store.pictures import encode
from fpl.store.write import write_table
from tests.report.world import World

# Rows are values of T, columns labeled fractions; the baseline is row `cps` of table `main`.
CURVE = """
[about]
order = 5
[table]
recipe = "cps"
name = "curve"
number = "5"
caption = "T by labels"
dataset = "city"
selection = "best"
printed = false
[[columns]]
key = "few"
header = "1/16"
set = { data = { split = { fraction = "1/16" } } }
[[columns]]
key = "many"
header = "1/8"
set = { data = { split = { fraction = "1/8" } } }
"""
LEVELS = (0.5, 0.75, 0.9, 0.95, 0.99)


def row(level: float) -> str:
    return f"""
[[rows]]
key = "t{100 * level:.0f}"
label = "{level}"
role = "ablation"
set = {{ loss = {{ kind = "fpl" }} }}
threshold = {level}
"""


class Runs(World):
    """The small paper with a table of T by labels, and its store."""

    def __init__(self, folder: Path, scale: str = "little") -> None:
        super().__init__(folder, scale)
        (self.experiments / "tables" / "curve.toml").write_text(CURVE + "".join(map(row, LEVELS)))
        self.campaign = load_campaign(self.experiments, scale, rows="all")

    def log(self, name: str, rows: Sequence[Mapping[str, Any]], miou: float = 40.0, seed: int = 0) -> str:
        """Store a run of 200 steps with these rows of `fuzziness`."""
        run_id = self.run(name, miou, seed, unlabeled_images=100 + seed)
        full = [{"run_id": run_id, "direction": "12", "pixels": 10, **entry} for entry in rows]
        write_table(self.out / "fuzziness" / f"{run_id}.parquet", "fuzziness", full)
        return run_id

    def pictures(self, run_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        full = [{"run_id": run_id, "part": "unlabeled", "image_id": "a", **encode(entry)} for entry in rows]
        write_table(self.out / "examples" / f"{run_id}.parquet", "examples", full)

    def verdict(self, cells: str | Sequence[str], check: str, **options: Any) -> Verdict:
        results = self.results
        names = [cells] if isinstance(cells, str) else cells
        figure = make_figure(names, check, options)
        lookup = look_up(results)
        (found,) = check_claims(figure, make_source(figure, self.campaign, results, lookup))
        return found


def make_figure(cells: Sequence[str], check: str, options: Mapping[str, Any]) -> Figure:
    return Figure(
        about=About(order=1, source="paper, section 1"),
        figure=Shown(name="figure_0", number="Figure 0", caption="", kind="lines"),
        series=tuple(Series(cells=name) for name in cells),
        claims=(
            Claim(name="it_is_so", says="It is so.", source="paper, section 1", check=check, options=dict(options)),
        ),
    )


RUN = "curve.t90.few"
