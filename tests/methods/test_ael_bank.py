"""AEL's banks against values worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fpl.methods.ael.bank import ConfidenceBank, ImageBank, class_confidence
from fpl.train.runtime import Workers


class Two:
    """Two workers in one process: the other one's tensors are given."""

    rank, world_size = 0, 2

    def __init__(self, other: Tensor) -> None:
        self.other = other

    def average(self, value: Tensor) -> Tensor:
        return (value + self.other) / 2

    def concatenate(self, value: Tensor) -> Tensor:
        return torch.cat([value, self.other])


def logits_of(probs: list[list[list[float]]]) -> Tensor:
    """Logits [B, C, 1, w] from probabilities written as [B][w][C]."""
    return torch.tensor(probs).log().permute(0, 2, 1).unsqueeze(2)


# Two images of three pixels, three classes.
LOGITS = logits_of(
    [
        [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.6, 0.2]],
        [[0.9, 0.05, 0.05], [0.7, 0.2, 0.1], [0.3, 0.3, 0.4]],
    ]
)
LABEL = torch.tensor([[[0, 1, 0]], [[0, 1, 255]]])


def test_confidence_of_a_class_is_the_mean_probability_of_its_pixels() -> None:
    # Class 0: pixels .5, .2 and .9; class 1: .8 and .2; class 2 has none.
    expected = torch.tensor([(0.5 + 0.2 + 0.9) / 3, (0.8 + 0.2) / 2, 0.0])
    torch.testing.assert_close(class_confidence(LOGITS, LABEL, groups=1), expected)


def test_every_group_has_its_own_means() -> None:
    # As two processes would: class 0 .35 and .9, class 1 .8 and .2.
    expected = torch.tensor([(0.35 + 0.9) / 2, (0.8 + 0.2) / 2, 0.0])
    torch.testing.assert_close(class_confidence(LOGITS, LABEL, groups=2), expected)


def test_bank_moves_by_a_thousandth_and_absent_classes_decay() -> None:
    bank = ConfidenceBank(3, 0.999)
    bank.confidence.copy_(torch.tensor([0.2, 0.4, 0.6]))
    bank.update(LOGITS, LABEL, 1, Workers())
    expected = [0.999 * 0.2 + 0.001 * 1.6 / 3, 0.999 * 0.4 + 0.001 * 0.5, 0.999 * 0.6]
    torch.testing.assert_close(bank.confidence, torch.tensor(expected))


def test_two_workers_with_one_group_each_are_one_with_two() -> None:
    alone, shared = ConfidenceBank(3, 0.9), ConfidenceBank(3, 0.9)
    shared.load_state_dict(alone.state_dict())
    alone.update(LOGITS, LABEL, 2, Workers())
    shared.update(LOGITS[:1], LABEL[:1], 1, Two(class_confidence(LOGITS[1:], LABEL[1:], 1)))
    torch.testing.assert_close(shared.confidence, alone.confidence)


def test_bank_begins_at_random_between_0_and_1() -> None:
    torch.manual_seed(3)
    confidence = ConfidenceBank(1000, 0.999).confidence
    assert confidence.min() >= 0 and confidence.max() <= 1 and abs(confidence.mean() - 0.5) < 0.05


@pytest.fixture
def unsure() -> ConfidenceBank:
    bank = ConfidenceBank(4, 0.999)
    bank.confidence.copy_(torch.tensor([1.0, 0.75, 0.36, 0.0]))
    return bank


def test_cutmix_looks_for_classes_by_softmax_of_doubt(unsure: ConfidenceBank) -> None:
    powers = np.exp([0.0, 0.25, 0.64, 1.0])
    np.testing.assert_allclose(unsure.cutmix_probabilities(), powers / powers.sum(), rtol=1e-6)


def test_pasting_draws_targets_by_softmax_of_the_root_of_doubt(unsure: ConfidenceBank) -> None:
    powers = np.exp([0.5, 0.8, 1.0])
    np.testing.assert_allclose(unsure.paste_probabilities(np.array([1, 2, 3])), powers / powers.sum(), rtol=1e-6)


def test_drawn_classes_have_these_frequencies(unsure: ConfidenceBank) -> None:
    chances = unsure.cutmix_probabilities()
    drawn = np.random.default_rng(0).choice(4, 20_000, p=chances)
    # Three standard deviations of 20,000 draws are at most 0.0106.
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 20_000, chances, atol=0.011)


@pytest.mark.parametrize(("power", "expected"), [(1.0, [0.0, 0.3125, 0.8, 1.0]), (2.0, [0.0, 0.09765625, 0.64, 1.0])])
def test_sampling_rates_are_doubt_over_the_largest(power: float, expected: list[float]) -> None:
    bank = ConfidenceBank(4, 0.999)
    bank.confidence.copy_(torch.tensor([1.0, 0.75, 0.36, 0.2]))
    torch.testing.assert_close(bank.sampling_rates(power), torch.tensor(expected))


def prediction(*rows: list[int]) -> Tensor:
    return torch.tensor([[row] for row in rows])


def test_image_bank_holds_classes_of_enough_area() -> None:
    bank = ImageBank(3, area=0.5)
    bank.resize(5)
    # Image 3: class 0 on one pixel of four, class 1 on three; image 1: classes 0 and 2 on exactly half.
    bank.update(prediction([0, 1, 1, 1], [0, 0, 2, 2]), torch.tensor([3, 1]), Workers())
    expected = torch.zeros(3, 5, dtype=torch.bool)
    expected[1, 3] = expected[0, 1] = expected[2, 1] = True
    assert torch.equal(bank.bits, expected)
    bank.update(prediction([2, 2, 2, 2]), torch.tensor([3]), Workers())
    expected[1, 3], expected[2, 3] = False, True
    assert torch.equal(bank.bits, expected), "what the teacher no longer sees is forgotten"


def test_an_absent_class_is_not_held_even_where_no_area_is_asked() -> None:
    bank = ImageBank(2, area=0.0)
    bank.resize(1)
    bank.update(prediction([0, 0]), torch.tensor([0]), Workers())
    assert bank.bits.tolist() == [[True], [False]]


def test_of_an_image_seen_twice_the_later_prediction_counts() -> None:
    bank = ImageBank(2, area=0.5)
    bank.resize(2)
    bank.update(prediction([0, 0], [1, 1]), torch.tensor([0, 0]), Workers())
    assert bank.bits[:, 0].tolist() == [False, True]


def test_a_worker_learns_of_the_images_of_all() -> None:
    bank = ImageBank(2, area=0.5)
    bank.resize(3)
    # The other worker saw class 1 on image 2.
    bank.update(prediction([0, 0]), torch.tensor([0]), Two(torch.tensor([[2, 0, 1]])))
    assert bank.bits.tolist() == [[True, False, False], [False, False, True]]


def test_images_are_drawn_among_those_that_hold_the_class_and_else_among_all() -> None:
    bank = ImageBank(2, area=0.5)
    bank.resize(6)
    bank.bits[0, [2, 4]] = True
    generator = np.random.default_rng(0)
    held = np.bincount([bank.draw(0, generator) for _ in range(2000)], minlength=6)
    assert held[[0, 1, 3, 5]].sum() == 0 and abs(held[2] - 1000) < 100
    everywhere = np.bincount([bank.draw(1, generator) for _ in range(3000)], minlength=6)
    assert (abs(everywhere - 500) < 80).all()


def test_a_bank_of_unknown_size_takes_that_of_a_checkpoint() -> None:
    trained, empty = ImageBank(2, 0.5), ImageBank(2, 0.5)
    trained.resize(4)
    trained.bits[1, 2] = True
    outer: dict[str, Any] = torch.nn.ModuleDict({"bank": trained}).state_dict()
    torch.nn.ModuleDict({"bank": empty}).load_state_dict(outer)
    assert torch.equal(empty.bits, trained.bits)
    other = ImageBank(2, 0.5)
    other.resize(3)
    with pytest.raises(RuntimeError, match="size mismatch"):
        torch.nn.ModuleDict({"bank": other}).load_state_dict(outer)
