"""T from labeled images: hand-computed probabilities, a moving average in closed form, and a second implementation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fpl.errors import FplError
from fpl.methods.labeled_threshold import MOMENTUM, LabeledThreshold, gathered_probability


def alone(value: Tensor) -> Tensor:
    return value


def logits_of(*pixels: list[float]) -> Tensor:
    """Probabilities of single pixels as logits [1, C, n], shifted by a constant that must not matter."""
    return torch.tensor(pixels, dtype=torch.float64).log().T[None] + 3


def test_by_hand() -> None:
    shares = [0.5, 0.3, 0.2]
    logits = logits_of(shares, shares, shares, shares)
    total, count = gathered_probability(logits, torch.tensor([[0, 1, 2, 255]]))
    assert (float(total), float(count)) == (pytest.approx(0.5 + 0.8 + 1.0), 3)
    assert not total.requires_grad


def test_equal_classes_come_behind_the_true_one() -> None:
    total, _ = gathered_probability(logits_of([0.4, 0.4, 0.2]), torch.tensor([[1]]))
    assert float(total) == pytest.approx(0.4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_as_sorting_finds_it(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = (4 * torch.randn(3, 19, 5, 7, generator=generator)).to(dtype)
    label = torch.randint(0, 19, (3, 5, 7), generator=generator, dtype=torch.uint8)
    label[0, 0] = 255
    total, count = gathered_probability(logits, label)
    expected, scores = [], logits.double().numpy()
    for b, y, x in np.argwhere(label.numpy() != 255):
        exponents = np.exp(scores[b, :, y, x] - scores[b, :, y, x].max())
        ranked = np.sort(exponents)[::-1].cumsum() / exponents.sum()
        expected.append(ranked[(exponents > exponents[label[b, y, x]]).sum()])
    assert int(count) == len(expected)
    assert float(total) == pytest.approx(sum(expected), rel=1e-5)


def test_average_over_steps_and_workers() -> None:
    rule = LabeledThreshold(0.9)
    assert rule.value == 0.9
    for share, pixels in ((0.6, 3), (0.8, 1)):
        # Two passes in a step, and another worker with one pixel that gathers everything.
        rule.observe(logits_of(*[[share, 1 - share]] * pixels), torch.zeros(1, pixels, dtype=torch.int64))
        rule.observe(logits_of([0.7, 0.3]), torch.tensor([[255]]))
        rule.update(lambda own: (own + torch.tensor([1.0, 1.0], dtype=torch.float64)) / 2)
    means = [(0.6 * 3 + 1) / 4, (0.8 + 1) / 2]
    assert rule.value == pytest.approx((MOMENTUM * means[0] + means[1]) / (MOMENTUM + 1))
    other = LabeledThreshold(0.5)
    other.load_state_dict(rule.state_dict())
    assert other.value == rule.value


@pytest.mark.parametrize(
    ("logits", "label"), [([0.6, 0.4], 255), ([float("nan"), 0.4], 0)], ids=["nothing labeled", "not finite"]
)
def test_a_step_that_tells_nothing_changes_nothing(logits: list[float], label: int) -> None:
    rule = LabeledThreshold(0.9)
    rule.observe(logits_of([0.6, 0.4]), torch.tensor([[0]]))
    rule.update(alone)
    rule.observe(logits_of(logits), torch.tensor([[label]]))
    rule.update(alone)
    assert rule.value == pytest.approx(0.6)


def test_below_one_where_all_is_gathered() -> None:
    rule = LabeledThreshold(0.9)
    rule.observe(logits_of([0.6, 0.4]), torch.tensor([[1]]))
    rule.update(alone)
    assert 0.9999 < rule.value < 1


def test_a_method_that_shows_nothing_is_told() -> None:
    with pytest.raises(FplError, match="shows none"):
        LabeledThreshold(0.9).update(alone)
