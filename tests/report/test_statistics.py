"""Statistics against values worked out by hand and against a second way of computing them."""

from __future__ import annotations

import itertools
import math

import pandas as pd
import pytest

from fpl.report.statistics import SignTest, margin, mean, noise_floor, paired, sample_std, sign_test
from fpl.report.verdict import (
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


def test_mean_and_sample_std_by_hand() -> None:
    # 2, 4, 9: mean 5, squares 9 + 1 + 16 = 26, over 2 is 13.
    assert mean([2.0, 4.0, 9.0]) == 5.0
    assert sample_std([2.0, 4.0, 9.0]) == pytest.approx(math.sqrt(13))
    assert sample_std([2.0]) is None
    with pytest.raises(ValueError, match="no values"):
        mean([])


def test_paired_takes_seeds_that_both_have() -> None:
    assert paired({0: 5.0, 1: 7.0, 3: 1.0}, {1: 6.0, 0: 2.0, 2: 9.0}) == [3.0, 1.0]


@pytest.mark.parametrize(
    ("wins", "losses", "two_sided", "one_sided"),
    [
        (7, 1, 0.0703125, 0.03515625),  # (8 + 1) / 256, doubled
        (8, 0, 0.0078125, 0.00390625),
        (1, 7, 0.0703125, 255 / 256),
        (4, 4, 1.0, 163 / 256),
        (0, 0, 1.0, 1.0),
    ],
)
def test_sign_test_by_hand(wins: int, losses: int, two_sided: float, one_sided: float) -> None:
    test = SignTest(wins, losses, ties=3)
    assert test.two_sided == two_sided
    assert test.one_sided == one_sided


def test_sign_test_against_all_coin_flips() -> None:
    for flips in range(1, 9):
        outcomes = [sum(coins) for coins in itertools.product((0, 1), repeat=flips)]
        for wins in range(flips + 1):
            as_many = sum(heads >= wins for heads in outcomes) / len(outcomes)
            as_far = sum(abs(2 * heads - flips) >= abs(2 * wins - flips) for heads in outcomes) / len(outcomes)
            test = SignTest(wins, flips - wins)
            assert (test.one_sided, test.two_sided) == (as_many, as_far)


def test_sign_test_of_many_comparisons_is_finite() -> None:
    assert SignTest(1500, 500).two_sided < 1e-100


def test_signs_are_counted_with_ties() -> None:
    assert sign_test([0.5, -0.1, 0.0, 1e-12, 3.0]) == SignTest(2, 1, 2)


def test_noise_floor_pools_recipes() -> None:
    # Recipe a: 1, 3 has variance 2 of 1 degree; b: 10, 11, 12 has variance 1 of 2; pooled (2 + 2) / 3. c is no repeat.
    frame = pd.DataFrame({"recipe": list("aabbbc"), "miou_whole_best": [1.0, 3.0, 10.0, 11.0, 12.0, 50.0]})
    assert noise_floor(frame, "miou_whole_best") == pytest.approx(math.sqrt(4 / 3))
    assert noise_floor(frame[5:], "miou_whole_best") is None
    assert noise_floor(frame, "miou_sliding_best") is None
    assert noise_floor(frame.assign(miou_whole_best=float("nan")), "miou_whole_best") is None


@pytest.mark.parametrize(
    ("std", "n", "noise", "expected"),
    [
        (0.9, 9, None, 0.6),  # 2 * 0.9 / 3
        (0.9, 9, 0.2, 0.6),
        (0.9, 9, 0.5, 1.0),  # the floor is higher
        (None, 1, 0.5, 1.0),
        (None, 1, None, None),
        (None, 1, 0.0, None),  # a deterministic machine says nothing about seeds
        (0.0, 2, None, 0.0),
    ],
)
def test_margin(std: float | None, n: int, noise: float | None, expected: float | None) -> None:
    assert margin(std, n, noise) == (None if expected is None else pytest.approx(expected))


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
