"""Curves as they are drawn: what stands at the ticks."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.figure import Figure

from fpl.report.figures.curves import sorted_curves


@pytest.mark.parametrize(
    ("sums", "ticks"),
    [
        ([0.36, 0.7, 1.0], ["0.4", "0.6", "0.8", "1"]),
        ([0.02, 0.3, 1.0], ["0.02", "0.05", "0.1", "0.2", "0.5", "1"]),
        ([5e-4, 1e-2, 1.0], ["0.001", "0.01", "0.1", "1"]),
    ],
)
def test_logarithmic_ticks_are_plain_numbers(sums: list[float], ticks: list[str]) -> None:
    figure = Figure(figsize=(3, 3), layout="constrained")
    frame = pd.DataFrame({"rank": [1, 2, 3], "gradient_sum_n": sums, "gradient_sum_n_minus_1": sums})
    sorted_curves(figure, frame, {})
    figure.draw_without_rendering()
    (chart,) = figure.axes
    low, high = chart.get_ylim()
    axis = chart.yaxis
    shown = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    assert [label.get_text() for place, label in shown if low <= place <= high] == ticks
    assert not len(axis.get_minorticklocs())
