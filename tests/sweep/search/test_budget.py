"""Budgets by cases worked out by hand, and by a simulated search that must stay within them."""

from __future__ import annotations

import random

import pytest

from fpl.errors import FplError
from fpl.sweep.search.budget import Budget, Kind, Spent, check_budget, parse_budget, study_budget


@pytest.mark.parametrize(
    ("text", "kind", "amount", "words"),
    [
        ("40trials", "trials", 40, "40 trials"),
        ("1trial", "trials", 1, "1 trial"),
        ("200gpuh", "device", 200, "200 GPU-hours"),
        ("0.25gpuh", "device", 0.25, "0.25 GPU-hours"),
        ("50 coreh", "device", 50, "50 core-hours"),
        ("6h", "wall", 6, "6 hours"),
        ("90min", "wall", 1.5, "90 minutes"),
        (" 1h ", "wall", 1, "1 hour"),
        ("4000gpuh", "device", 4000, "4,000 GPU-hours"),
    ],
)
def test_budgets_are_read(text: str, kind: Kind, amount: float, words: str) -> None:
    budget = parse_budget(text)
    assert (budget.kind, budget.amount, budget.words) == (kind, pytest.approx(amount), words)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "40",
        "trials",
        "40 runs",
        "-3trials",
        "0trials",
        "0.0h",
        "1.5trials",
        "6 h 30 min",
        "nan h",
        "1e3gpuh",
        "6hh",
    ],
)
def test_what_is_no_budget_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(FplError) as caught:
        parse_budget(text)
    assert caught.value.where == "--budget" and "40trials, 200gpuh or 50coreh" in caught.value.hint


@pytest.mark.parametrize("text", ["9999999999999999999trials", "100001trials", "999999999999h", "70000000min"])
def test_a_budget_beyond_all_searches_is_refused(text: str) -> None:
    with pytest.raises(FplError, match="a budget of") as caught:
        parse_budget(text)
    assert caught.value.where == "--budget" and "100,000 trials or 1,000,000 hours" in caught.value.hint


def test_an_endless_budget_is_none() -> None:
    with pytest.raises(FplError, match="a budget of 9999"):
        parse_budget("9" * 400 + "h")


def test_hours_are_of_the_device_that_runs_use() -> None:
    for text in ("3trials", "2h", "90min"):
        check_budget(parse_budget(text), on_gpu=True)
        check_budget(parse_budget(text), on_gpu=False)
    check_budget(parse_budget("3gpuh"), on_gpu=True)
    check_budget(parse_budget("3coreh"), on_gpu=False)
    with pytest.raises(FplError, match=r"use no GPU\n  -> --budget 2\.5coreh"):
        check_budget(parse_budget("2.5gpuh"), on_gpu=False)
    with pytest.raises(FplError, match=r"use GPUs\n  -> --budget 200gpuh"):
        check_budget(parse_budget("200coreh"), on_gpu=True)


def test_shares() -> None:
    assert [parse_budget("40trials").share(number, 3).amount for number in range(3)] == [14, 13, 13]
    assert [parse_budget("2trials").share(number, 3).amount for number in range(3)] == [1, 1, 0]
    assert [parse_budget("90min").share(number, 3).words for number in range(3)] == ["30 minutes"] * 3
    assert parse_budget("200gpuh").share(1, 4) == Budget("device", 50, "gpuh")
    assert study_budget(parse_budget("41trials"), 0, 2, 7).amount == 21
    # Without a budget the search file's number is each study's.
    assert study_budget(None, 1, 3, 7) == Budget("trials", 7, "trials")


def test_trials_are_counted_when_they_begin() -> None:
    budget = parse_budget("3trials")
    assert [budget.admits(Spent(trials=begun), 1e9, 1e9, 1e9) for begun in range(5)] == [True] * 3 + [False] * 2
    assert not budget.over(Spent(trials=3, device_hours=1e9, wall_hours=1e9))
    assert not Budget("trials", 0.0, "trials").admits(Spent(), 0, 0, 0)


def test_device_hours_of_running_trials_are_reserved() -> None:
    budget = parse_budget("10gpuh")
    # 4 spent; a running trial needs 3 more; 3 are left for a new one, whatever its wall time.
    assert budget.admits(Spent(device_hours=4), 3, 3, 99)
    assert not budget.admits(Spent(device_hours=4), 3, 3.01, 0)
    assert not budget.admits(Spent(device_hours=4), 3.01, 3, 0)
    # Three times a third is one, and ten times a tenth.
    assert parse_budget("1coreh").admits(Spent(device_hours=sum([0.1] * 9)), 0, 0.1, 0)
    assert [budget.over(Spent(device_hours=hours, wall_hours=99)) for hours in (9.99, 10, 10.5)] == [False, True, True]


def test_wall_time_has_to_be_left_for_a_whole_trial() -> None:
    budget = parse_budget("90min")
    assert budget.admits(Spent(wall_hours=1), 99, 99, 0.5)
    assert not budget.admits(Spent(wall_hours=1), 0, 0, 0.51)
    assert [budget.over(Spent(device_hours=99, wall_hours=hours)) for hours in (1.4, 1.5)] == [False, True]


def simulate(budget: Budget, slots: int, devices: float, costs: list[float]) -> tuple[Spent, int]:
    """A search on equal slots, minute by minute: trials begin where the budget admits them and last as expected.

    Returns what was spent when the last one ended, and the trials that began.
    """
    waiting, running, time, device_hours, begun = list(costs), [], 0.0, 0.0, 0
    while True:
        while waiting and len(running) < slots:
            left = sum(running) * devices
            spent = Spent(begun, device_hours, time)
            assert not budget.over(spent) or not budget.admits(spent, left, waiting[0] * devices, waiting[0])
            if not budget.admits(spent, left, waiting[0] * devices, waiting[0]):
                break
            running.append(waiting.pop(0))
            begun += 1
        if not running:
            return Spent(begun, device_hours, time), begun
        step = min(*running, 1 / 60) if len(running) > 1 else min(running[0], 1 / 60)
        time += step
        device_hours += step * len(running) * devices
        running = [left - step for left in running if left - step > 1e-12]


@pytest.mark.parametrize("text", ["7trials", "6gpuh", "0.7gpuh", "2h", "25min"])
def test_admitted_trials_that_cost_what_is_expected_stay_within_the_budget(text: str) -> None:
    budget = parse_budget(text)
    for seed in range(20):
        draw = random.Random(seed)
        slots, devices = draw.randint(1, 5), draw.choice([1.0, 2.0, 8.0])
        costs = [draw.uniform(0.02, 0.5) for _ in range(60)]
        spent, begun = simulate(budget, slots, devices, costs)
        used = {"trials": spent.trials, "device": spent.device_hours, "wall": spent.wall_hours}[budget.kind]
        assert used <= budget.amount * (1 + 1e-6), (seed, used)
        # And nothing that fits is refused: the dearest trial would not have fitted any more.
        rest = {"trials": 0.5, "device": max(costs) * devices, "wall": max(costs)}[budget.kind]
        assert begun == len(costs) or used + rest > budget.amount - 1e-6, (seed, used)
