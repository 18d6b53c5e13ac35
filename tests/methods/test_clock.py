"""Ramps by their closed forms."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from fpl.methods.base import Clock


def test_linear_ramp() -> None:
    values = [Clock(step, 100).ramp(0.2) for step in (0, 5, 10, 19, 20, 21, 99)]
    assert values == pytest.approx([0.0, 0.25, 0.5, 0.95, 1.0, 1.0, 1.0], rel=1e-15)


def test_sigmoid_ramp() -> None:
    values = [Clock(step, 100).ramp(0.2, "sigmoid") for step in (0, 10, 20, 60)]
    assert values == pytest.approx([math.exp(-5), math.exp(-1.25), 1.0, 1.0], rel=1e-15)


def test_log_ramp() -> None:
    values = [Clock(step, 100).ramp(0.4, "log") for step in (0, 10, 20, 60)]
    assert values == pytest.approx([0.0, 1 - math.exp(-1.25), 1 - math.exp(-2.5), 1 - math.exp(-5)], rel=1e-15)


@pytest.mark.parametrize("shape", ["linear", "sigmoid", "log"])
def test_ramps_rise_within_0_and_1_and_are_none_without_a_share(shape) -> None:
    values = [Clock(step, 1000).ramp(0.7, shape) for step in range(1000)]
    assert all(0 <= one <= other <= 1 for one, other in pairwise(values))
    assert values[0] < 0.01 and values[700] == values[-1] > 0.99
    assert Clock(0, 1000).ramp(0.0, shape) == 1.0
