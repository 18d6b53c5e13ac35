"""Draws docs/method.png, the picture of the README, from the pictures that a run of results/mini kept."""

from __future__ import annotations

from pathlib import Path

import matplotlib

from fpl.report.figures.export import DPI, FILE_SETTINGS, METADATA
from fpl.report.figures.kept_pictures import Pictures
from fpl.report.figures.picture_plots import paint_strip
from fpl.store.read import load_results

ROOT = Path(__file__).parents[1]
IMAGE = "2008_000001"


def main() -> None:
    """The run of Figure 6: FPL+CPS with CutMix on the drawn objects."""
    matplotlib.use("agg")
    from matplotlib.figure import Figure

    results = load_results(ROOT / "results" / "mini")
    runs = results.runs.set_index("run_id")
    found = results.examples
    found = found[(found["part"] == "unlabeled") & (found["image_id"] == IMAGE)]
    found = found[found["run_id"].map(runs["loss.kind"]) == "fpl"]
    (run_id,) = found["run_id"].unique()
    with matplotlib.rc_context(FILE_SETTINGS):
        figure = Figure()
        paint_strip(figure, Pictures("FPL+CPS", found, int(runs.loc[run_id, "train.steps"])))
        figure.savefig(ROOT / "docs" / "method.png", dpi=DPI, metadata=METADATA["png"])


if __name__ == "__main__":
    main()
