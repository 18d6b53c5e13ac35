"""The numbers behind the figures that are curves and bars: pure functions from the runs to frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fpl.config.figure import Figure
from fpl.report.figures.quantities import QUANTITIES, Quantity, numbers, pooled
from fpl.report.figures.series import Source
from fpl.report.statistics import sample_std

# A curve has at most so many points: longer runs are averaged over equal parts of their training.
POINTS = 100
COURSE = ["series", "cell", "quantity", "label", "step", "training", "value", "std", "seeds", "pixels"]
SORTED = ["series", "cell", "seed", "step", "rank", "gradient_sum_n", "gradient_sum_n_minus_1"]
SCORES = ["series", "cell", "kind", "threshold", "miou", "std", "seeds", "gain", "gain_std", "paper", "paper_gain"]
WEIGHTS = ["shape", "q", "weight"]


def course(figure: Figure, source: Source) -> pd.DataFrame:
    """Quantities over training, both directions of a step pooled by their pixels, then averaged over seeds.

    Args:
        figure: Its `panels` name the quantities, as does `quantities` where there is but one panel.
        source: Its runs.

    Returns:
        One row per series, quantity and point: `step` (the last logged one of the point), `training` (share in
        percent), `value`, `std` over seeds (NaN for one), `seeds`, `pixels` (of all directions and seeds together).
    """
    frames = []
    for item in source.drawn:
        for name in dict.fromkeys(wanted(figure.figure.options)):
            quantity = QUANTITIES[name]
            rows = {int(record["seed"]): source.fuzziness(record) for record in item.records}
            points = _points(rows, quantity, item.cell.configs[0].train.steps)
            if len(points):
                means = _over_seeds(points)
                frames.append(means.assign(series=item.label, cell=item.cell.name, quantity=name, label=quantity.label))
    return pd.concat(frames, ignore_index=True)[COURSE] if frames else pd.DataFrame(columns=COURSE)


def wanted(options: Mapping[str, Any]) -> list[str]:
    """Names of the quantities of a figure, panel by panel."""
    return [name for panel in [options, *options.get("panels", [])] for name in panel.get("quantities", [])]


def sorted_batches(figure: Figure, source: Source) -> pd.DataFrame:
    """Gradient sums of each logged mini-batch with K = n - 1 and K = n, by rising sum with K = n.

    Returns:
        One row per series, seed and logged step with diagnostics; `rank` from 1 within a series.
    """
    frames = []
    names = ("gradient_sum_n", "gradient_sum_n_minus_1")
    for item in source.drawn:
        parts = []
        for record in item.records:
            rows = source.fuzziness(record)
            sums = [pooled(rows, QUANTITIES[name]).rename(columns={"value": name})[["step", name]] for name in names]
            parts.append(sums[0].merge(sums[1], on="step").assign(seed=int(record["seed"])))
        ordered = pd.concat(parts).sort_values(["gradient_sum_n", "seed", "step"], ignore_index=True)
        frames.append(ordered.assign(series=item.label, cell=item.cell.name, rank=np.arange(1, len(ordered) + 1)))
    frames = [frame for frame in frames if len(frame)]
    return pd.concat(frames, ignore_index=True)[SORTED] if frames else pd.DataFrame(columns=SORTED)


def scores(figure: Figure, source: Source) -> pd.DataFrame:
    """Final mIoU of each series beside the paper's, and what each gains on the row that it is `over`.

    Returns:
        One row per cell with a finished run or a printed number: `kind` (of the loss), `threshold` (T; NaN without
        FPL), `miou`, `std`, `seeds`, `gain` (mean over shared seeds) and `gain_std` in points, `paper`, `paper_gain`
        (as printed).
    """
    entries = source.entries
    rows = []
    for item in source.found:
        entry, cell = entries[item.cell.name], item.cell
        loss = cell.configs[0].loss
        rows.append(
            {
                "series": item.label,
                "cell": cell.name,
                "kind": loss.kind,
                "threshold": loss.threshold if loss.kind == "fpl" else None,
                "miou": entry.ours,
                "std": entry.std,
                "seeds": entry.measured,
                "gain": entry.arrow,
                "gain_std": sample_std(entry.gains),
                "paper": cell.printed,
                "paper_gain": cell.arrow,
            }
        )
    frame = pd.DataFrame(rows, columns=SCORES)
    for name in SCORES[3:]:
        frame[name] = numbers(frame[name])
    # The paper's numbers alone are no figure of ours.
    measured = frame["seeds"].sum() > 0
    return frame.astype({"seeds": int}) if measured else frame.head(0)


def lengths(figure: Figure, source: Source) -> pd.DataFrame:
    """`scores` with a column `steps`: how long the run of a cell trains."""
    steps = {item.cell.name: item.cell.configs[0].train.steps for item in source.found}
    frame = scores(figure, source)
    return frame.assign(steps=frame["cell"].map(steps))


def weight_curves(figure: Figure, source: Source) -> pd.DataFrame:
    """Adaptive weights over the largest negative probability q: figure A5, from the formulas alone.

    The K positives share T evenly, m = T / K: the paper states T and K, not how the positives share them.
    """
    options = figure.figure.options
    frames = []
    for shape in SHAPES:
        q = np.linspace(0.0, options["threshold"] / options["k"], POINTS + 1)
        frames.append(pd.DataFrame({"shape": shape, "q": q, "weight": weight(shape, q, q[-1], options["curvature"])}))
    return pd.concat(frames, ignore_index=True)[WEIGHTS]


SHAPES = ("concave", "linear", "convex")


def weight(shape: str, q: np.ndarray, m: float, curvature: float = 50.0) -> np.ndarray:
    """Adaptive weight as the paper prints it (section 3.3 and appendix, "Adaptive Weight").

    Args:
        shape: `concave`, `linear` or `convex`.
        q: Largest probability of a negative, 0 to m.
        m: Mean probability of the positives.
        curvature: A of the concave weight.
    """
    if shape == "concave":
        return np.asarray(np.log1p(curvature * (m - q)) / np.log1p(curvature * m))
    return np.asarray((m - q) / (m + 4.0 * q) if shape == "convex" else (m - q) / m)


def _points(runs: Mapping[int, pd.DataFrame], quantity: Quantity, steps: int) -> pd.DataFrame:
    """Values of the runs of a series, by seed: `point`, `step`, `training`, `value`, `pixels`, `seed`.

    A point is a step, or for all runs alike a number of an equal part of the training.
    """
    parts = []
    every = {seed: pooled(rows, quantity) for seed, rows in runs.items()}
    each_step = all(len(points) <= POINTS for points in every.values())
    for seed, rows in runs.items():
        if each_step:
            points = every[seed].assign(point=every[seed]["step"])
        else:
            by_part = rows.assign(point=np.ceil(rows["step"] * POINTS / steps).clip(1, POINTS).astype(int))
            last = by_part.groupby("point")["step"].max()
            points = pooled(by_part, quantity, by=["point"])
            points = points.assign(step=points["point"].map(last))
        parts.append(points.assign(training=100.0 * points["step"] / steps, seed=seed))
    return pd.concat(parts)


def _over_seeds(points: pd.DataFrame) -> pd.DataFrame:
    groups = points.groupby("point", sort=True)
    found = groups[["step", "training"]].max().assign(value=groups["value"].mean(), std=groups["value"].std(ddof=1))
    return found.assign(seeds=groups["seed"].nunique(), pixels=groups["pixels"].sum().astype(int)).reset_index(
        drop=True
    )
