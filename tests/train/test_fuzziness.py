"""Rows of the table `fuzziness` from sums, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from fpl.losses import PixelLoss, PixelTerm
from fpl.store.columns import SCHEMAS
from fpl.store.schema import FUZZINESS
from fpl.train.fuzziness import fuzziness_row
from fpl.train.runtime import Workers

BASIC = {
    "k_histogram": torch.tensor([6, 2, 0]),
    "pixels": torch.tensor(8),
    "weight_sum": torch.tensor(4.0, dtype=torch.float64),
    "loss_sum": torch.tensor(6.0),
    "weighted_loss_sum": torch.tensor(3.0),
    "cross_entropy_sum": torch.tensor(12.0),
}
DIAGNOSED = BASIC | {
    "k_histogram_uncapped": torch.tensor([5, 2, 1]),
    "entropy_sum_by_k": torch.tensor([3.0, 2.0, 0.0]),
    "entropy_square_sum_by_k": torch.tensor([3.0, 2.5, 0.0]),
    "gradient_sum_n_minus_1": torch.tensor(4.0),
    "gradient_sum_n": torch.tensor(1.0),
    "labeled_pixels": torch.tensor(5),
    "case_pixels": torch.tensor([2, 2, 1]),
    "case_1_k1_pixels": torch.tensor(1),
    "vanilla_score_sum": torch.tensor([2.0, -1.0, -0.5]),
    "vanilla_score_square_sum": torch.tensor([2.0, 1.0, 0.25]),
    "fuzzy_score_sum": torch.tensor([1.5, 1.0, -0.25]),
    "fuzzy_score_square_sum": torch.tensor([1.25, 0.5, 0.0625]),
    "cosine_fuzzy_sum": torch.tensor(0.5),
    "cosine_vanilla_sum": torch.tensor(-1.0),
    "cosine_fuzzy_positive": torch.tensor(2),
    "norm_fuzzy_sum": torch.tensor(1.0),
    "norm_ideal_sum": torch.tensor(2.0),
    "norm_fuzzy_sum_all": torch.tensor(2.5),
    "norm_ideal_sum_all": torch.tensor(4.0),
}


def row(statistics: dict[str, torch.Tensor]) -> dict[str, object]:
    term = PixelTerm(torch.zeros(()), torch.zeros(()), None, statistics)
    found = fuzziness_row(7, "12", term, Workers())
    assert found is not None
    assert set(found) <= set(SCHEMAS[FUZZINESS].names)
    return found


def test_a_step_without_diagnostics_has_the_basic_columns() -> None:
    assert row(BASIC) == {
        "step": 7,
        "direction": "12",
        "pixels": 8,
        "mean_k": 1.25,
        "share_k1": 0.75,
        "mean_weight": 0.5,
        "mean_fuzzy_loss": 0.75,
        "mean_weighted_loss": 0.375,
        "mean_cross_entropy": 1.5,
        "k_histogram": [6, 2, 0],
    }


def test_diagnostics_become_means_and_deviations() -> None:
    found = row(DIAGNOSED)
    expected = {
        "fuzzy_to_cross_entropy": 0.5,
        "gradient_sum_n_minus_1": 0.5,
        "gradient_sum_n": 0.125,
        "labeled_pixels": 5,
        "impurity": 0.2,
        "case_1_k1_pixels": 1,
        "cosine_fuzzy": 0.25,
        "cosine_vanilla": -0.5,
        "cosine_fuzzy_positive": 1.0,
        "norm_fuzzy": 0.5,
        "norm_ideal": 1.0,
        "norm_fuzzy_all": 0.5,
        "norm_ideal_all": 0.8,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    lists = {
        "case_pixels": [2, 2, 1],
        "vanilla_score": [1.0, -0.5, -0.5],
        "vanilla_score_std": [0.0, 0.5, 0.0],
        "fuzzy_score": [0.75, 0.5, -0.25],
        "fuzzy_score_std": [0.25, 0.0, 0.0],
        "entropy_by_k": [0.5, 1.0, math.nan],
        "entropy_std_by_k": [0.5, 0.5, math.nan],
    }
    for name, values in lists.items():
        assert found[name] == pytest.approx(values, nan_ok=True), name


def test_the_entropy_is_that_of_the_histogram_of_the_loss() -> None:
    found = row({**DIAGNOSED, "k_histogram": torch.tensor([3, 4, 1])})
    assert found["entropy_by_k"] == pytest.approx([1.0, 0.5, 0.0])


def test_without_a_known_class_nothing_is_said_of_it() -> None:
    none = {name: torch.zeros_like(DIAGNOSED[name]) for name in DIAGNOSED.keys() - BASIC.keys()}
    found = row(BASIC | none)
    assert found["labeled_pixels"] == 0
    assert "impurity" not in found and "vanilla_score" not in found
    assert found["gradient_sum_n"] == 0.0


def test_every_kind_of_loss_is_diagnosed() -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(2, 4, 5, 6, generator=generator) for _ in range(2))
    truth = torch.randint(0, 5, (2, 5, 6), generator=generator).to(torch.uint8)
    rows = {}
    for kind in ("ce", "fpl", "soft", "mse", "mse_logits"):
        slot = PixelLoss(kind)
        slot.collect = slot.diagnose = True
        found = fuzziness_row(1, "12", slot(student, teacher, ground_truth=truth), Workers())
        assert found is not None
        rows[kind] = found
        assert found["labeled_pixels"] == int((truth < 4).sum())
        # A method may have no true classes to hand over.
        blind = fuzziness_row(1, "12", slot(student, teacher), Workers())
        assert blind is not None and blind["labeled_pixels"] == 0 and "impurity" not in blind
        assert blind["mean_k"] == found["mean_k"]
    for other in rows.values():
        for name, value in rows["fpl"].items():
            assert other[name] == (pytest.approx(value, rel=1e-5, nan_ok=True) if name != "direction" else "12"), name
