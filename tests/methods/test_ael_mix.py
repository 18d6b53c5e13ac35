"""Boxes, pasting and pixel weights of AEL against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fpl.methods.ael.mix import Box, box_mask, component_box, copy_paste, pixel_weights, random_box

# Two components: an L of 4 pixels that hangs together at a corner alone, and a single pixel.
MASK = np.array(
    [
        [1, 0, 0, 0, 0],
        [1, 0, 0, 0, 1],
        [0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0],
    ],
    dtype=bool,
)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_box_is_that_of_a_component_of_eight_neighbours() -> None:
    # More than 1 of 20 pixels: the single one is out.
    assert {component_box(MASK, 1 / 20, generator(seed)) for seed in range(20)} == {Box(0, 0, 3, 3)}


def test_a_component_must_exceed_the_area() -> None:
    assert component_box(MASK, 3.9 / 20, generator()) == Box(0, 0, 3, 3)
    assert component_box(MASK, 4 / 20, generator()) is None
    assert component_box(np.zeros((4, 4), dtype=bool), 0.0, generator()) is None


def test_components_are_equally_likely_whatever_their_size() -> None:
    boxes = [component_box(MASK, 0.0, generator(seed)) for seed in range(1000)]
    small = boxes.count(Box(1, 4, 2, 5))
    assert small + boxes.count(Box(0, 0, 3, 3)) == 1000 and abs(small - 500) < 80


def test_random_boxes_cover_half_and_lie_inside() -> None:
    size, draw = (200, 300), generator()
    heights = []
    for _ in range(2000):
        box = random_box(size, draw)
        assert 0 <= box.top < box.bottom <= 200 and 0 <= box.left < box.right <= 300
        rows, columns = box.bottom - box.top, box.right - box.left
        # Each side is rounded by half a pixel at most.
        assert abs(rows * columns / 60_000 - 0.5) < 0.005
        heights.append(rows / 200)
    # Height = 0.5^u: its mean is (1 - 0.5) / ln 2, its median 0.5^0.5.
    assert abs(np.mean(heights) - 0.5 / np.log(2)) < 0.01 and abs(np.median(heights) - 0.5**0.5) < 0.015


def test_random_boxes_lie_everywhere_alike() -> None:
    draw = generator()
    tops = [(box.top, 100 - box.bottom) for box in (random_box((100, 100), draw) for _ in range(2000))]
    above, below = np.array(tops, dtype=float).T
    assert abs(above.mean() - below.mean()) < 1.5


def test_a_box_of_the_same_grid_is_itself_and_one_of_a_coarser_grid_covers_its_pixels() -> None:
    mask = box_mask(Box(1, 2, 3, 5), (4, 6), (4, 6))
    assert mask.nonzero().tolist() == [[row, column] for row in (1, 2) for column in (2, 3, 4)]
    large = box_mask(Box(1, 2, 3, 5), (4, 6), (16, 24))
    assert torch.equal(large, mask.repeat_interleave(4, 0).repeat_interleave(4, 1))


def test_only_wanted_classes_are_pasted_and_never_what_is_ignored() -> None:
    image, other = torch.zeros(2, 3, 1, 4), torch.ones(2, 3, 1, 4)
    label, other_label = torch.full((2, 1, 4), 1), torch.tensor([[[0, 2, 3, 255]], [[0, 2, 3, 255]]])
    wanted = torch.tensor([[False, False, True, False], [True, False, False, True]])
    mixed, labels = copy_paste(image, label, other, other_label, wanted)
    assert labels.tolist() == [[[1, 2, 1, 1]], [[0, 1, 3, 1]]]
    assert mixed[:, 0, 0].tolist() == [[0, 1, 0, 0], [1, 0, 1, 0]]
    assert torch.equal(mixed, mixed[:, :1].expand(-1, 3, -1, -1))


def test_ignored_pixels_stay_even_if_the_last_class_is_wanted() -> None:
    wanted, other_label = torch.ones(1, 4, dtype=torch.bool), torch.full((1, 1, 1), 255)
    _, labels = copy_paste(
        torch.zeros(1, 3, 1, 1), torch.zeros(1, 1, 1).long(), torch.ones(1, 3, 1, 1), other_label, wanted
    )
    assert labels.item() == 0


def logits(*probs: list[float]) -> Tensor:
    """One image of one row, [1, C, 1, w]."""
    return torch.tensor(probs).log().T[None, :, None, :]


TEACHER = logits([0.8, 0.2], [0.6, 0.4], [0.1, 0.9])
STUDENT = logits([0.7, 0.3], [0.2, 0.8], [0.3, 0.7])


def test_weights_are_confidence_squared_over_their_sum() -> None:
    squares = torch.tensor([0.64, 0.36, 0.81])
    weights = pixel_weights(TEACHER, STUDENT, power=2.0)
    torch.testing.assert_close(weights.flatten(), squares / squares.sum())


def test_gated_pixels_stay_in_the_sum() -> None:
    weights = pixel_weights(TEACHER, STUDENT, power=2.0, gate=0.7)
    torch.testing.assert_close(weights.flatten(), torch.tensor([0.64, 0.0, 0.81]) / 1.81)


def test_sampling_goes_by_the_class_the_student_predicts_and_leaves_the_sum() -> None:
    # The student predicts 0, 1, 1; rates 1 and 0.5 keep a pixel whose number is below them.
    uniform, rates = torch.tensor([[[0.99, 0.6, 0.4]]]), torch.tensor([1.0, 0.5])
    weights = pixel_weights(TEACHER, STUDENT, power=2.0, rates=rates, uniform=uniform)
    torch.testing.assert_close(weights.flatten(), torch.tensor([0.64, 0.0, 0.81]) / (0.64 + 0.81))


def test_a_class_of_rate_0_is_left_out_and_nothing_left_is_no_error() -> None:
    weights = pixel_weights(TEACHER, STUDENT, power=2.0, rates=torch.zeros(2), uniform=torch.zeros(1, 1, 3))
    assert weights.tolist() == [[[0.0, 0.0, 0.0]]]


def test_rates_are_the_share_of_pixels_kept() -> None:
    teacher = torch.tensor([0.9, 0.1]).log().view(1, 2, 1, 1).expand(1, 2, 200, 200)
    uniform = torch.rand(1, 200, 200, generator=torch.Generator().manual_seed(0))
    weights = pixel_weights(teacher, teacher, power=1.0, rates=torch.tensor([0.3, 1.0]), uniform=uniform)
    kept = (weights > 0).float().mean().item()
    assert abs(kept - 0.3) < 0.01 and weights.sum().item() == pytest.approx(1.0, abs=1e-4)


def test_every_group_has_the_same_share() -> None:
    teacher, student = torch.cat([TEACHER, TEACHER.flip(1) * 0.1]), torch.cat([STUDENT, STUDENT])
    weights = pixel_weights(teacher, student, power=2.0, groups=2)
    torch.testing.assert_close(weights.sum((1, 2)), torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(weights[0], pixel_weights(TEACHER, STUDENT, power=2.0)[0] / 2)
