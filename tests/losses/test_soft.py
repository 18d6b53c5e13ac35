"""Strategy ``soft``: a set whose probabilities add up to T exactly, its last class a member in part."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses import (
    FIDELITIES,
    WEIGHTS,
    FuzzyPositiveLoss,
    PixelLoss,
    adaptive_weight,
    assign,
    fuzzy_positive_gradient,
    fuzzy_positive_loss,
    fuzzy_positive_terms,
    kernels,
)
from fpl.losses.rules import Rules

from .reference import columns, integers, mixed_losses, normal, random_probs, rows, soft_of, weight_of

SOFT = Rules(strategy="soft")
OVER_CLASSES = pytest.mark.parametrize("classes", [2, 3, 19, 150])
# At T = 0.75 the two first reach T exactly, at T = 0.875 the three first; everything is exact in binary.
EXACT = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625], dtype=torch.float64).view(1, 5, 1)


@OVER_CLASSES
@pytest.mark.parametrize("threshold", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_k_against_a_loop(classes: int, threshold: float, fidelity: str) -> None:
    probs = random_probs(classes)
    k = assign(probs, threshold=threshold, strategy="soft", fidelity=fidelity)
    assert k.dtype == torch.float64
    known = [sum(soft_of(column, threshold, fidelity)) for column in columns(probs)]
    assert k[0].tolist() == pytest.approx(known, rel=1e-9)


@OVER_CLASSES
def test_memberships_add_up_to_t(classes: int) -> None:
    probs = random_probs(classes)
    k = assign(probs, threshold=0.9, strategy="soft")
    places = torch.arange(classes).view(1, -1, 1)
    memberships = (k.unsqueeze(1) - places).clamp(0, 1)
    total = (probs.sort(1, descending=True).values * memberships).sum(1)
    # Where the first class exceeds T, K is 1.
    torch.testing.assert_close(total, probs.amax(1).clamp(min=0.9))
    assert (k == 1).any()
    assert classes == 2 or (k != k.round()).any()
    whole = assign(probs, threshold=0.9)
    assert ((whole <= k) & (k <= assign(probs, threshold=0.9, strategy="n"))).all()


@pytest.mark.parametrize(
    ("threshold", "k"), [(0.4, 1), (0.5, 1), (0.5625, 1.25), (0.75, 2), (0.828125, 2.625), (0.875, 3)]
)
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_known_k(threshold: float, k: float, fidelity: str) -> None:
    found = assign(EXACT, threshold=threshold, strategy="soft", fidelity=fidelity)
    assert found.tolist() == [[k]]
    terms = fuzzy_positive_terms(EXACT.log(), EXACT.log(), rules=SOFT._replace(threshold=threshold, fidelity=fidelity))
    # For counts a class belongs to the set from one half on.
    assert terms.k.tolist() == [[int(k + 0.5)]]


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize(("threshold", "k"), [(0.3, 1), (0.75, 2), (0.875, 3)])
def test_whole_k_is_that_strategy_exactly(weight: str, fidelity: str, threshold: float, k: int) -> None:
    student, teacher = normal(1, 5, 40), EXACT.log().expand(1, 5, 40)
    soft = Rules(threshold, "soft", weight, 50.0, fidelity)
    fixed = soft._replace(strategy="fixed", fixed_k=k)
    for found, known in zip(*(fuzzy_positive_terms(student, teacher, rules) for rules in (soft, fixed)), strict=True):
        torch.testing.assert_close(found, known, rtol=1e-12, atol=1e-14)
    found, known = (fuzzy_positive_gradient(student, teacher, rules) for rules in (soft, fixed))
    torch.testing.assert_close(found, known, rtol=1e-12, atol=1e-14)


@OVER_CLASSES
@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("teachers", ["random", "tied", "flat", "peaked"])
def test_loss_weight_and_gradient_against_autograd_of_the_means(classes: int, fidelity: str, teachers: str) -> None:
    teacher = {
        "random": normal(1, classes, 40, seed=1) * 2,
        "tied": integers(1, classes, 40, seed=1),
        "flat": normal(1, classes, 40, seed=1) * 1e-3,
        "peaked": normal(1, classes, 40, seed=1) * 5,
    }[teachers]
    logits = (normal(1, classes, 40) * 3).requires_grad_()
    rules = SOFT._replace(fidelity=fidelity)
    terms = fuzzy_positive_terms(logits, teacher, rules)
    (measured,) = torch.autograd.grad(terms.loss.sum(), logits)
    probs = columns(teacher.softmax(1))
    sets = [soft_of(column, 0.9, fidelity) for column in probs]
    reference = rows(logits.detach()).clone().requires_grad_()
    losses = mixed_losses(reference, rows(teacher), torch.tensor([sum(each) for each in sets], dtype=torch.float64))
    (gradient,) = torch.autograd.grad(losses.sum(), reference)
    torch.testing.assert_close(terms.loss[0], losses, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(rows(measured), gradient, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fuzzy_positive_gradient(logits, teacher, rules), measured, rtol=1e-12, atol=1e-15)

    def weight(column: list[float], k: int) -> float:
        return weight_of(column, k, "concave", fidelity) if k < classes else 1.0

    known = [
        (1 - part) * weight(column, whole) + part * weight(column, whole + 1)
        for column, (whole, part) in zip(probs, sets, strict=True)
    ]
    assert terms.weight[0].tolist() == pytest.approx(known, abs=1e-9)


def crossing(steps: int) -> Tensor:
    """Float64 teachers [1, 5, steps] in small steps; the sums of two, then of three classes fall below T = 0.9."""
    path = torch.linspace(0, 1, steps, dtype=torch.float64)
    start = torch.tensor([0.60, 0.32, 0.05, 0.02, 0.01], dtype=torch.float64).unsqueeze(1)
    end = torch.tensor([0.36, 0.28, 0.22, 0.09, 0.05], dtype=torch.float64).unsqueeze(1)
    return (start + (end - start) * path).log().unsqueeze(0)


def steepest(strategy: str, steps: int) -> dict[str, float]:
    """Largest change from one teacher to the next of K, loss, weight and gradient, for one student."""
    teacher = crossing(steps)
    # The student is against each class that joins.
    student = torch.tensor([3.0, 1.0, -9.0, -12.0, 2.0], dtype=torch.float64).view(1, 5, 1).expand(1, 5, steps)
    rules = Rules(strategy=strategy)
    terms = fuzzy_positive_terms(student, teacher, rules)
    found = {
        "k": assign(teacher.softmax(1), strategy=strategy).double(),
        "loss": terms.loss,
        "weight": terms.weight,
        "weighted loss": terms.loss * terms.weight,
        "gradient": fuzzy_positive_gradient(student, teacher, rules),
    }
    return {name: values.diff(dim=-1).abs().max().item() for name, values in found.items()}


def test_everything_is_continuous_in_the_teacher_where_whole_k_jumps() -> None:
    coarse, fine = steepest("soft", 1001), steepest("soft", 8001)
    whole = steepest("n-1", 8001)
    for name, change in fine.items():
        # Of steps an eighth as long, changes an eighth as large.
        assert change < coarse[name] / 7, name
        assert change < whole[name] / 100, name
    assert whole["k"] == 1 and whole["loss"] > 5


def test_rounding_the_teacher_moves_k_by_rounding_alone() -> None:
    """An error of e in a sum moves K by at most e (C - n + 1) / (1 - T); n - 1 moves by 1."""
    exact = random_probs(21, 4000)
    rounded = exact.float()
    for threshold in (0.7, 0.95):
        k = assign(exact, threshold=threshold, strategy="soft")
        error = (assign(rounded, threshold=threshold, strategy="soft").double() - k).abs()
        # Each of 21 sums and probabilities is within a unit in its last place, 6e-8.
        assert error.max() < 21 * 6e-8 * 21 / (1 - threshold)


@pytest.mark.parametrize("teacher_scale", [0.3, 1.0, 4.0])
def test_bounds_and_shifts(teacher_scale: float) -> None:
    student, teacher = normal(1, 19, 300) * 4, normal(1, 19, 300, seed=1) * teacher_scale
    gradient = fuzzy_positive_gradient(student, teacher, SOFT)
    assert gradient.abs().max() <= 1
    assert gradient.square().sum(1).sqrt().max() <= 2**0.5
    torch.testing.assert_close(gradient.sum(1), torch.zeros(1, 300, dtype=torch.float64), rtol=0, atol=1e-14)
    shifted = fuzzy_positive_terms(student + 7.5, teacher - 3.25, SOFT)
    for found, known in zip(shifted, fuzzy_positive_terms(student, teacher, SOFT), strict=True):
        torch.testing.assert_close(found, known, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("threshold", [0.6, 0.9, 0.99])
def test_the_gradient_does_not_vanish_where_the_student_is_the_teacher(threshold: float) -> None:
    teacher = normal(1, 19, 2000, seed=1) * 2
    several = assign(teacher.softmax(1), threshold=threshold, strategy="soft") > 1
    assert several.any()
    # What the two sets are pushed by, the n-th class in both of them.
    pushed = torch.zeros_like(several, dtype=torch.float64)
    k = assign(teacher.softmax(1), threshold=threshold, strategy="soft")
    for share, number in ((1 - (k - k.floor()), k.floor()), (k - k.floor(), k.floor() + 1)):
        for whole in number[several].unique().tolist():
            fixed = Rules(strategy="fixed", fixed_k=int(whole))
            slope = fuzzy_positive_gradient(teacher, teacher, fixed).clamp(min=0).sum(1)
            pushed += torch.where(number == whole, share * slope, 0)
    assert pushed[several].min() >= (1 - threshold) / 2


def test_the_gradient_does_not_vanish_where_that_of_n_does() -> None:
    teacher = torch.tensor([0.89, 0.11 - 1e-9, 1e-9], dtype=torch.float64).log().view(1, 3, 1)
    with_n = fuzzy_positive_gradient(teacher, teacher, Rules(strategy="n")).clamp(min=0).sum()
    assert with_n < 2e-8
    # K is 1.09: of the first class alone 0.11 of 1 is left, which is pushed by 0.11.
    assert fuzzy_positive_gradient(teacher, teacher, SOFT).clamp(min=0).sum() > 0.05


def test_k_1_is_cross_entropy() -> None:
    student, teacher = normal(1, 7, 50), normal(1, 7, 50, seed=1) * 0.1
    teacher[:, 3] += 6
    loss = fuzzy_positive_loss(student, teacher, strategy="soft", weight="none")
    torch.testing.assert_close(loss, F.cross_entropy(student, teacher.argmax(1)), rtol=1e-13, atol=0)


def test_the_last_class_in_part_is_pushed_both_ways() -> None:
    """By hand: p = 1/2, 1/4, 1/8, ..., T = 5/8, so that K is 1.5; all logits 0.

    Of one positive the gradient is -4/5 and 1/5 for the others; of two it is s = 6/7, shared by halves and thirds.
    """
    gradient = fuzzy_positive_gradient(torch.zeros_like(EXACT), EXACT.log(), SOFT._replace(threshold=0.625))
    first = (-4 / 5 - 3 / 7) / 2
    second = (1 / 5 - 3 / 7) / 2
    assert gradient.flatten().tolist() == pytest.approx([first, second, *[(1 / 5 + 2 / 7) / 2] * 3], rel=1e-12)


def test_the_released_bound_holds() -> None:
    probs = random_probs(19)
    k = assign(probs, threshold=0.99, strategy="soft", fidelity="released")
    assert k.max() == 3 and assign(probs, threshold=0.99, strategy="soft").max() > 10
    assert assign(random_probs(3), threshold=0.99, strategy="soft", fidelity="released").max() == 2
    assert assign(random_probs(2), strategy="soft", fidelity="released").max() == 1


def test_weight_of_a_k_between_whole_numbers() -> None:
    probs = random_probs(6)
    two, three = (adaptive_weight(probs, torch.full((1, 60), k)) for k in (2, 3))
    found = adaptive_weight(probs, torch.full((1, 60), 2.25, dtype=torch.float64))
    torch.testing.assert_close(found, 0.75 * two + 0.25 * three)
    assert torch.equal(adaptive_weight(probs, torch.full((1, 60), 6.0)), torch.ones(1, 60, dtype=torch.float64))


def test_a_teacher_that_is_no_number_has_no_k() -> None:
    probs = random_probs(6)
    probs[0, 2, 7] = torch.nan
    k = assign(probs, strategy="soft")
    assert k.isnan().nonzero().tolist() == [[0, 7]]
    assert adaptive_weight(probs, k).isnan().nonzero().tolist() == [[0, 7]]


def test_pixel_loss_and_module() -> None:
    student, teacher = normal(2, 6, 40), normal(2, 6, 40, seed=1)
    terms = fuzzy_positive_terms(student, teacher, SOFT)
    expected = (terms.loss * terms.weight).mean()
    assert torch.equal(FuzzyPositiveLoss(strategy="soft")(student, teacher), expected)
    pixel = PixelLoss("fpl", strategy="soft")
    pixel.collect = True
    with kernels.use("tensor"):
        term = pixel(student, teacher)
    torch.testing.assert_close(term.value, expected)
    assert term.statistics["k_histogram"].tolist() == torch.bincount(terms.k.flatten() - 1, minlength=6).tolist()
