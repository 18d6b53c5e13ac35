"""Entropies and their percentiles against plain Python and NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fpl.methods.reliability import lowest, pixel_entropy
from tests.methods.contrast_loops import entropies


def test_entropies_are_those_of_the_formula() -> None:
    logits = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    found = pixel_entropy(logits)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), entropies(logits), rtol=1e-12)
    assert pixel_entropy(logits.bfloat16()).dtype == torch.float32
    assert pixel_entropy(torch.zeros(1, 7, 1, 1)).item() == pytest.approx(math.log(7), rel=1e-6)


def test_an_impossible_class_adds_nothing() -> None:
    logits = torch.tensor([0.0, 0.0, -math.inf]).view(1, 3, 1, 1)
    assert pixel_entropy(logits).item() == pytest.approx(math.log(2), rel=1e-6)
    assert pixel_entropy(torch.tensor([math.nan, 0.0]).view(1, 2, 1, 1)).isnan().all()


@pytest.mark.parametrize("share", [0.0, 0.03, 0.2, 0.5, 0.8, 0.977, 1.0])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_lowest_are_those_up_to_numpys_percentile(share: float, groups: int) -> None:
    values = torch.rand(4, 5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = [own <= np.percentile(own, 100 * share) for own in np.split(values.numpy(), groups)]
    assert np.array_equal(lowest(values, share, groups).numpy(), np.concatenate(expected))


def test_ties_and_what_is_no_number_are_in() -> None:
    values = torch.tensor([1.0, 2.0, 2.0, 2.0, 3.0, 4.0]).view(1, 2, 3)
    assert lowest(values, 0.5, 1).tolist() == [[[True, True, True], [True, False, False]]]
    assert lowest(torch.full((2, 3, 3), 0.7), 0.1, 2).all()
    values[0, 0, 0] = math.nan
    assert lowest(values, 0.5, 1)[0, 0, 0]
