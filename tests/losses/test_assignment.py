from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fpl.losses import FIDELITIES, STRATEGIES, assign, class_rank, fuzzy_positive_gradient
from fpl.losses.rules import Rules

from .reference import columns, first_exceeding, k_of, order, random_probs

CLASS_COUNTS = (2, 3, 19, 21, 150)


@pytest.mark.parametrize("classes", CLASS_COUNTS)
@pytest.mark.parametrize("threshold", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_n_minus_1_follows_algorithm_1(classes: int, threshold: float, fidelity: str) -> None:
    probs = random_probs(classes)
    k = assign(probs, threshold=threshold, fidelity=fidelity)
    assert k.dtype == torch.int64
    assert k.shape == (1, 60)
    assert k[0].tolist() == [k_of(column, threshold, fidelity) for column in columns(probs)]
    if classes == 150 and threshold == 0.999 and fidelity == "paper":
        assert k.max() > 100  # no cap in the paper


@pytest.mark.parametrize("classes", [3, 19, 150])
def test_more_than_one_positive_exactly_if_the_best_two_do_not_exceed(classes: int) -> None:
    probs = random_probs(classes, 400)
    best_two = probs.topk(2, dim=1).values.sum(1)
    several = assign(probs, threshold=0.9) > 1
    assert torch.equal(several, best_two <= 0.9)
    assert 0 < several.sum() < several.numel()


@pytest.mark.parametrize("strategy", [strategy for strategy in STRATEGIES if strategy != "soft"])
@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("classes", CLASS_COUNTS)
def test_every_strategy(strategy: str, fidelity: str, classes: int) -> None:
    probs = random_probs(classes)
    fixed_k = min(2, classes - 1)
    k = assign(probs, strategy=strategy, fidelity=fidelity, fixed_k=fixed_k, ratio=0.6, progress=0.4)
    expected = []
    for column in columns(probs):
        n = first_exceeding(column, 0.9, fidelity)
        number = {
            "n-1": max(n - 1, 1),
            "n": n,
            "fixed": fixed_k,
            "step": min(2, classes - 1),
            "ratio": max(6 * n // 10, 1),
        }[strategy]
        expected.append(min(number, 3, classes - 1) if fidelity == "released" else number)
    assert k[0].tolist() == expected


@pytest.mark.parametrize(
    ("progress", "expected"), [(0, 3), (0.33, 3), (1 / 3, 2), (0.5, 2), (2 / 3, 1), (0.9, 1), (1, 1)]
)
def test_step_decays_in_thirds(progress: float, expected: int) -> None:
    probs = random_probs(6)
    assert assign(probs, strategy="step", progress=progress).unique().tolist() == [expected]
    assert assign(random_probs(3), strategy="step", progress=progress).unique().tolist() == [min(expected, 2)]
    assert assign(random_probs(2), strategy="step", progress=progress).unique().tolist() == [1]


def test_ratio_is_not_fooled_by_rounding() -> None:
    probs = torch.full((1, 100, 1), 0.01, dtype=torch.float64)
    assert assign(probs, threshold=1.0, strategy="n").item() == 100
    assert 0.29 * 100 < 29
    assert assign(probs, threshold=1.0, strategy="ratio", ratio=0.29).item() == 29


def test_all_classes_positive_only_with_n() -> None:
    uniform = torch.full((1, 6, 2), 1 / 6)
    assert assign(uniform, strategy="n").tolist() == [[6, 6]]
    assert assign(uniform, strategy="n", fidelity="released").tolist() == [[3, 3]]
    assert assign(uniform).tolist() == [[5, 5]]
    assert assign(uniform, fidelity="released").tolist() == [[3, 3]]


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_two_classes_have_one_positive(fidelity: str) -> None:
    assert assign(random_probs(2, 200), fidelity=fidelity).unique().tolist() == [1]


def test_one_hot_teacher_has_one_positive() -> None:
    probs = torch.eye(5).view(1, 5, 5)
    for fidelity in FIDELITIES:
        assert assign(probs, fidelity=fidelity).tolist() == [[1] * 5]


def test_threshold_reached_exactly() -> None:
    probs = torch.tensor([0.5, 0.25, 0.125, 0.125]).view(1, 4, 1)
    assert assign(probs, threshold=0.75, strategy="n").item() == 3
    assert assign(probs, threshold=0.75, strategy="n", fidelity="released").item() == 2


@pytest.mark.parametrize("spatial", [(), (7,), (3, 4), (2, 3, 4)])
def test_any_spatial_shape(spatial: tuple[int, ...]) -> None:
    flat = random_probs(6, 24)
    count = 1
    for size in spatial:
        count *= size
    probs = flat[:, :, :count].reshape(1, 6, *spatial)
    assert torch.equal(assign(probs), assign(flat)[:, :count].reshape(1, *spatial))
    assert torch.equal(class_rank(probs), class_rank(flat)[:, :, :count].reshape(1, 6, *spatial))


def test_images_do_not_mix() -> None:
    first, second = random_probs(6, seed=1), random_probs(6, seed=2)
    both = assign(torch.cat([first, second]))
    assert torch.equal(both, torch.cat([assign(first), assign(second)]))


def test_ties_go_to_the_lower_class() -> None:
    scores = torch.tensor([[0.1, 0.3, 0.1, 0.3, 0.2], [0.2, 0.2, 0.2, 0.2, 0.2]]).T.unsqueeze(0)
    assert class_rank(scores)[0].T.tolist() == [[3, 0, 4, 1, 2], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("classes", CLASS_COUNTS)
def test_positives_are_the_lowest_ranks_whatever_the_ties(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    teacher = torch.randint(-2, 3, (1, classes, 50), generator=generator).double()
    ranks = class_rank(teacher)
    for column, rank in zip(columns(teacher), ranks[0].T.tolist(), strict=True):
        assert [rank.index(place) for place in range(classes)] == order(column)
    for k in {1, min(2, classes - 1), classes - 1}:
        gradient = fuzzy_positive_gradient(torch.zeros_like(teacher), teacher, rules=Rules(strategy="fixed", fixed_k=k))
        assert torch.equal(gradient < 0, ranks < k)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"threshold": 0.0}, r"threshold is 0.0; allowed: 0 < threshold <= 1"),
        ({"threshold": 1.5}, r"threshold is 1.5; allowed: 0 < threshold <= 1"),
        ({"strategy": "N"}, r"strategy is 'N'; allowed: 'n-1', 'n', 'fixed', 'step', 'ratio', 'soft'"),
        ({"fidelity": "release"}, r"fidelity is 'release'; allowed: 'paper', 'released'"),
        ({"fixed_k": 0}, r"fixed_k is 0; allowed: a whole number >= 1"),
        ({"fixed_k": 1.5}, r"fixed_k is 1.5; allowed: a whole number >= 1"),
        ({"strategy": "fixed", "fixed_k": 6}, r"fixed_k is 6; allowed: 1 <= fixed_k <= C - 1 = 5"),
        ({"ratio": 1.0}, r"ratio is 1.0; allowed: 0 < ratio < 1"),
        ({"progress": 1.1}, r"progress is 1.1; allowed: 0 <= progress <= 1"),
        ({"threshold": float("nan")}, r"threshold is nan"),
    ],
)
def test_bad_arguments(keywords: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assign(random_probs(6), **keywords)  # type: ignore[arg-type]


def test_largest_fixed_k_is_allowed() -> None:
    assert assign(random_probs(6), strategy="fixed", fixed_k=5).unique().tolist() == [5]


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (torch.ones(2, 1, 4), r"shape \[2, 1, 4\]; allowed: \[B, C, \*spatial\] with C >= 2"),
        (torch.ones(4), r"shape \[4\]"),
        (torch.ones(1, 3, 4, dtype=torch.int64), r"dtype torch.int64; allowed: floating point"),
    ],
)
def test_bad_tensors(probs: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=f"teacher_probs has {message}"):
        assign(probs)


def test_no_gradient_reaches_the_teacher() -> None:
    probs = random_probs(6).requires_grad_()
    assert not assign(probs).requires_grad
