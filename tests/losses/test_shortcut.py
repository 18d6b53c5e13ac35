"""The two highest classes of most pixels against sorting all classes of all pixels, in the same precision."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from fpl.losses import FIDELITIES, STRATEGIES, WEIGHTS, shortcut
from fpl.losses.checks import poison
from fpl.losses.regularization import regularize
from fpl.losses.rules import Rules
from fpl.losses.shortcut import Decision, decide, decide_by_two, decide_sorted, two_highest

from .reference import integers, normal

CLASSES = [2, 3, 4, 19, 21, 150]
PIXELS = 240
PAPER = Rules(0.9, "n-1", "concave", 50.0, "paper", 1, 0.5, 0.0, None)
# What K follows from. With the second ratio the rounding of `ratio` makes K = 2 of n = 2.
# K = 1 everywhere for "fixed", and in the last third for "step": what the shortcut is for.
ALL_RULES = [
    Rules(threshold, strategy, "concave", 50.0, fidelity, 1, ratio, 1.0, None)
    for threshold, strategy, fidelity, ratio in itertools.product(
        (0.5, 0.9, 0.999), STRATEGIES, FIDELITIES, (0.3, 1 - 1e-10)
    )
    if strategy == "ratio" or ratio == 0.3
]


def rules_for(classes: int) -> Iterator[Rules]:
    """All of them, each with one shape of the weight, which K has no part in: over the numbers of classes with all."""
    for number, rules in enumerate(ALL_RULES, CLASSES.index(classes)):
        yield rules._replace(weight=WEIGHTS[number % len(WEIGHTS)])


def family(name: str, classes: int) -> Tensor:
    """Float32 teachers [2, C, 12, 10], channels last in memory for one of them."""
    shape = (2, classes, 12, 10)
    random = normal(*shape, seed=classes)
    scores = {
        "random": random * 3,
        "channels last": (random * 3).contiguous(memory_format=torch.channels_last),
        "flat": random * 1e-4,
        "peaked": random * 40,
        "all equal": torch.zeros(shape),
        "ties": integers(*shape, seed=classes) * 4,
        "huge": random.sign() * 1e4,
        "offset": random + 5e3,
        "not a number": random.masked_fill(normal(*shape, seed=1) > 2.0, torch.nan),
        "infinite": random.masked_fill(normal(*shape, seed=1) > 2.0, torch.inf),
        "impossible": random.masked_fill(normal(*shape, seed=1) > 0.5, -torch.inf),
    }[name]
    if name == "impossible":
        # A pixel whose classes are all impossible has no softmax.
        scores[:, 0] = 0
    return scores.float()


FAMILIES = pytest.mark.parametrize(
    "name",
    [
        "random",
        "channels last",
        "flat",
        "peaked",
        "all equal",
        "ties",
        "huge",
        "offset",
        "not a number",
        "infinite",
        "impossible",
    ],
)


def near_threshold(teacher: Tensor, threshold: float) -> Tensor:
    """Pixels one of whose running sums is within rounding of the threshold: either K is right there."""
    sums = teacher.double().softmax(1).sort(1, descending=True).values.cumsum(1)
    return ((sums - threshold).abs() < 1e-5).any(1)


def assert_same(teacher: Tensor, found: Decision, expected: Decision, rules: Rules) -> None:
    same = found.k == expected.k
    assert (same | near_threshold(teacher, rules.threshold)).all()
    torch.testing.assert_close(found.weight[same], expected.weight[same], rtol=0, atol=3e-6, equal_nan=True)
    assert torch.equal(found.top.isfinite(), expected.top.isfinite())
    finite = expected.top.isfinite()
    assert torch.equal(found.top[finite], expected.top[finite])
    same &= finite
    assert torch.equal(found.positive.movedim(1, -1)[same], expected.positive.movedim(1, -1)[same])
    assert (found.part is None) == (expected.part is None) == (rules.strategy != "soft")
    if found.part is not None and expected.part is not None and found.wider is not None and expected.wider is not None:
        torch.testing.assert_close(found.part[same], expected.part[same], rtol=0, atol=3e-6)
        partly = same & (expected.part > 0)
        assert torch.equal(found.wider.movedim(1, -1)[partly], expected.wider.movedim(1, -1)[partly])


@FAMILIES
@pytest.mark.parametrize("classes", CLASSES)
def test_decisions_are_those_of_the_full_sort(name: str, classes: int) -> None:
    teacher = family(name, classes)
    for rules in rules_for(classes):
        assert_same(teacher, decide_by_two(teacher, rules), decide_sorted(teacher, rules), rules)


@FAMILIES
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_loss_and_gradient_are_those_of_the_full_sort(name: str, fidelity: str) -> None:
    teacher, rules = family(name, 19), PAPER._replace(fidelity=fidelity)
    student = normal(*teacher.shape, seed=7).float() * 2
    results = []
    for way in (decide_by_two, decide_sorted):
        decision, logits = way(teacher, rules), student.clone().requires_grad_()
        loss = poison(regularize(logits, decision.positive), decision.top) * decision.weight
        loss.sum().backward()
        assert logits.grad is not None
        results.append((decision.k, loss.detach(), logits.grad.movedim(1, -1)))
    (k, loss, gradient), (expected_k, expected_loss, expected_gradient) = results
    same = k == expected_k
    torch.testing.assert_close(loss[same], expected_loss[same], rtol=1e-6, atol=1e-5, equal_nan=True)
    torch.testing.assert_close(gradient[same], expected_gradient[same], rtol=0, atol=3e-6, equal_nan=True)


def test_bad_teachers_stay_in_their_pixel() -> None:
    clean = family("random", 19)
    bad = normal(2, 12, 10, seed=3) > 1
    broken = torch.where(bad.unsqueeze(1) & (torch.arange(19).view(1, -1, 1, 1) == 11), torch.nan, clean)
    found, expected = decide_by_two(broken, PAPER), decide_by_two(clean, PAPER)
    assert torch.equal(found.top.isnan(), bad)
    assert torch.equal(found.weight.isnan(), bad)
    for one, other in zip(found[1:4], expected[1:4], strict=True):
        assert torch.equal(one[~bad], other[~bad])


def test_of_equal_scores_the_lower_class_is_the_highest() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0], [0.0, -1.0, 0.5, 0.0]]).T.unsqueeze(0)
    first, second, index = two_highest(scores)
    assert first.tolist() == [[3.0, 5.0, 0.5]]
    assert second.tolist() == [[3.0, 5.0, 0.0]]
    assert index.tolist() == [[1, 0, 2]]


def test_many_ties_against_the_stable_sort() -> None:
    scores = integers(2, 21, 60, 50).float()
    first, second, index = two_highest(scores)
    values, classes = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(first, values[:, 0])
    assert torch.equal(second, values[:, 1])
    assert torch.equal(index, classes[:, 0])


@pytest.mark.parametrize("rules", [PAPER, PAPER._replace(strategy="n"), PAPER._replace(fidelity="released")])
def test_only_open_pixels_are_sorted(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = family("random", 19)
    expected = decide_sorted(teacher, rules)
    rows = []

    def watch(scores: Tensor, with_rules: Rules) -> Decision:
        rows.append(len(scores))
        return decide_sorted(scores, with_rules)

    monkeypatch.setattr(shortcut, "decide_sorted", watch)
    decide(teacher, rules)
    assert rows == [(expected.k > 1).sum()]


@pytest.mark.parametrize(
    ("rules", "dtype", "by_two"),
    [
        (PAPER, torch.float32, True),
        (PAPER, torch.float64, False),
        (PAPER._replace(strategy="fixed"), torch.float32, True),
        (PAPER._replace(strategy="fixed", fixed_k=2), torch.float32, False),
        (PAPER._replace(strategy="step"), torch.float32, False),
        (PAPER._replace(strategy="step", progress=1.0), torch.float32, True),
    ],
)
def test_the_way_is_chosen(rules: Rules, dtype: torch.dtype, by_two: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(shortcut, "decide_by_two", lambda teacher, rules: taken.append(True))
    monkeypatch.setattr(shortcut, "decide_sorted", lambda teacher, rules: taken.append(False))
    decide(family("random", 5).to(dtype), rules)
    assert taken == [by_two]
