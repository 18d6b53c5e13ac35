"""Statistics against values worked out by hand and against a second way of computing them."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from fpl.report.statistics import (
    Interval,
    SignTest,
    Spread,
    bootstrap_interval,
    margin,
    mean_interval,
    paired,
    repetition,
    sample_std,
    sign_test,
    spread_within,
)
from fpl.report.tables.verdict import (
    ABOVE,
    BELOW,
    NO_DIFFERENCE,
    OTHER_SIGN,
    SAME_SIGN,
    UNKNOWN,
    WITHIN,
    against_paper,
    of_arrow,
)


def test_sample_std_by_hand() -> None:
    # 2, 4, 9: mean 5, squares 9 + 1 + 16 = 26, over 2 is 13.
    assert sample_std([2.0, 4.0, 9.0]) == pytest.approx(math.sqrt(13))
    assert sample_std([2.0]) is None and sample_std([]) is None
    # Exactly nothing, where a rounded mean of the three would leave something.
    assert sample_std([0.1, 0.1, 0.1]) == 0.0 == sample_std([19.53271] * 7)


def test_paired_takes_seeds_that_both_have() -> None:
    assert paired({0: 5.0, 1: 7.0, 3: 1.0}, {1: 6.0, 0: 2.0, 2: 9.0}) == [3.0, 1.0]


@pytest.mark.parametrize(
    ("wins", "losses", "p"),
    [
        (7, 1, 0.0703125),  # (8 + 1) / 256, doubled
        (8, 0, 0.0078125),
        (1, 7, 0.0703125),
        (4, 4, 1.0),
        (0, 0, 1.0),
    ],
)
def test_sign_test_by_hand(wins: int, losses: int, p: float) -> None:
    assert SignTest(wins, losses, ties=3).p == pytest.approx(p, rel=1e-12)
    assert SignTest(wins, losses, ties=3).n == wins + losses + 3


def test_sign_test_against_all_coin_flips() -> None:
    for flips in range(1, 9):
        outcomes = [sum(coins) for coins in itertools.product((0, 1), repeat=flips)]
        for wins in range(flips + 1):
            as_far = sum(abs(2 * heads - flips) >= abs(2 * wins - flips) for heads in outcomes) / len(outcomes)
            assert SignTest(wins, flips - wins).p == pytest.approx(as_far, rel=1e-12)


def test_sign_test_of_many_comparisons_is_finite() -> None:
    assert 0 < SignTest(1500, 500).p < 1e-100


def test_signs_are_counted_with_ties() -> None:
    assert sign_test([0.5, -0.1, 0.0, 1e-12, 3.0]) == SignTest(2, 1, 2)


def test_spread_pools_groups() -> None:
    # 1, 3 has variance 2 of 1 degree; 10, 11, 12 has variance 1 of 2; pooled (2 + 2) / 3. One value is no group.
    assert spread_within([[1.0, 3.0], [10.0, 11.0, 12.0], [50.0]]) == Spread(pytest.approx(math.sqrt(4 / 3)), 2, 5)
    assert spread_within([[1.0], []]) is None
    frame = pd.DataFrame({"recipe": list("aabbbc"), "miou_whole_best": [1.0, 3.0, 10.0, 11.0, 12.0, 50.0]})
    assert repetition(frame, "miou_whole_best") == Spread(pytest.approx(math.sqrt(4 / 3)), 2, 5)
    assert repetition(frame[5:], "miou_whole_best") is None
    assert repetition(frame, "miou_sliding_best") is None
    assert repetition(frame.assign(miou_whole_best=float("nan")), "miou_whole_best") is None


def test_mean_interval_in_closed_form() -> None:
    # Of one degree of freedom t is Cauchy: the quantile of 0.975 is tan(0.475 pi). 1 and 3: standard error 1.
    half = math.tan(0.475 * math.pi)
    assert mean_interval([1.0, 3.0]) == Interval(pytest.approx(2 - half), pytest.approx(2 + half), 2)
    # Of two: q = u sqrt(2 / (1 - u^2)) with u = 2 * 0.975 - 1. 2, 4, 9: mean 5, standard error sqrt(13 / 3).
    half = 0.95 * math.sqrt(2 / (1 - 0.95**2)) * math.sqrt(13 / 3)
    assert mean_interval([2.0, 4.0, 9.0]) == Interval(pytest.approx(5 - half), pytest.approx(5 + half), 3)
    assert mean_interval([2.0]) is None and mean_interval([]) is None


def every_resample(values: Sequence[float], groups: Sequence[str]) -> list[float]:
    """The means of all ways to draw as many groups as there are, with all of their values."""
    parts = [
        [value for value, group in zip(values, groups, strict=True) if group == name] for name in sorted({*groups})
    ]
    return sorted(
        float(np.mean([value for part in drawn for value in part]))
        for drawn in itertools.product(parts, repeat=len(parts))
    )


def test_bootstrap_against_all_resamples() -> None:
    values = [1.0, -2.0, 0.5, 4.0, 4.5, 3.0, -1.0, 0.25, 2.0]
    groups = ["a", "a", "b", "c", "c", "c", "d", "e", "e"]
    means = every_resample(values, groups)  # 5^5 = 3,125
    found = bootstrap_interval(values, groups)
    assert found is not None and found.n == 5
    # The exact distribution has steps. 9,999 draws place a percentile of 2.5 % within 0.5 %, three standard errors.
    for end, share in ((found.low, 0.025), (found.high, 0.975)):
        assert np.mean(np.less(means, end - 1e-9)) - 0.005 <= share <= np.mean(np.less_equal(means, end + 1e-9)) + 0.005
    assert bootstrap_interval(values, groups) == found
    assert bootstrap_interval(values, ["a"] * 9) is None and bootstrap_interval([], []) is None
    assert bootstrap_interval([1.5, 1.5, 1.5], "aab") == Interval(1.5, 1.5, 2)


def test_values_of_a_group_stay_together() -> None:
    # Two groups that differ by 10 and hardly inside: drawn alone, ten values would give a far narrower interval.
    values = [0.0] * 5 + [10.0] * 5
    together, apart = bootstrap_interval(values, ["a"] * 5 + ["b"] * 5), bootstrap_interval(values, range(10))
    assert together is not None and (together.low, together.high, together.n) == (0.0, 10.0, 2)
    assert apart is not None and 1 <= apart.low <= 3 and 7 <= apart.high <= 9


@pytest.mark.parametrize(
    ("values", "repeated", "expected"),
    [
        ([1.0, 3.0], None, 22.007792),  # deviation 1.414214, t of one degree 12.706205, sqrt(1 + 1/2)
        ([1.0, 3.0], 0.2, 22.007792),
        ([1.0, 3.0], 12.0, 24.0),  # repeating one run varies more
        ([1.0], 0.5, 1.0),
        ([1.0], None, None),
        ([1.0], 0.0, None),  # a deterministic machine says nothing about seeds
        ([1.0, 1.0], None, 0.0),
    ],
)
def test_margin(values: list[float], repeated: float | None, expected: float | None) -> None:
    assert margin(values, repeated) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_as_good_a_run_as_ours_is_within_the_margin_in_95_of_100_cases(seeds: int) -> None:
    """However many seeds of ours there are: the paper's number is one draw of the same distribution."""
    draws = np.random.default_rng(0).normal(70.0, 0.8, (4000, seeds + 1))
    within = [abs(np.mean(ours) - paper) <= (margin(list(ours), None) or 0.0) for *ours, paper in draws.tolist()]
    assert 0.94 < np.mean(within) < 0.96


def test_verdicts() -> None:
    assert against_paper(0.6, 0.6, 3) == WITHIN
    assert against_paper(0.7, 0.6, 3) == ABOVE
    assert against_paper(-0.7, 0.6, 3) == BELOW
    assert against_paper(-0.7, 0.6, 2).provisional and str(against_paper(-0.7, 0.6, 2)) == "below (provisional)"
    assert against_paper(5.0, None, 1) == UNKNOWN
    assert of_arrow(0.2, 1.0) == SAME_SIGN == of_arrow(-0.2, -1.0)
    assert of_arrow(-0.2, 1.0) == OTHER_SIGN
    assert of_arrow(0.0, 1.0) == NO_DIFFERENCE
    assert not of_arrow(None, 1.0).text and not of_arrow(1.0, None).text and not of_arrow(1.0, 0.0).text


def test_what_takes_long_to_import_is_not_imported() -> None:
    code = (
        "import sys, fpl.report.tables.summary, fpl.report.page; print('scipy' in sys.modules)\n"
        "from fpl.report.statistics import SignTest, bootstrap_interval, mean_interval\n"
        "print(SignTest(2, 1).p, mean_interval([1.0, 3.0]).n, bootstrap_interval([1.0, 2.0], 'ab').n)\n"
        "print('scipy.stats' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "1.0", "2", "2", "False"]
