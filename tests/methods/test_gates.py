"""Gates by hand, with the denominators that methods give, and what a high one does to fuzzy positives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fpl.config.gates import gate_warnings
from fpl.config.sections import LossConfig
from fpl.losses import PixelLoss
from fpl.methods.gates import gate
from fpl.train.runtime import Workers


class Two(Workers):
    """The second of two workers; the first one's share of sure pixels is 1."""

    def average(self, value: Tensor) -> Tensor:
        return (value + 1) / 2


def logits_of(*pixels: list[float]) -> Tensor:
    """Logits [1, C, 2, n / 2] of probabilities."""
    return torch.tensor(pixels, dtype=torch.float64).log().T.reshape(1, len(pixels[0]), 2, -1)


TEACHER = logits_of([0.98, 0.01, 0.01], [0.5, 0.3, 0.2], [0.01, 0.02, 0.97], [0.34, 0.33, 0.33])


def test_gates_by_hand() -> None:
    assert gate(TEACHER, 0.96, "pixel", Workers()).tolist() == [[[1, 0], [1, 0]]]
    assert gate(TEACHER, 0.4, "pixel", Workers()).tolist() == [[[1, 1], [1, 0]]]
    for kind in ("pixel", "mean"):
        assert gate(TEACHER, 0.0, kind, Workers()).eq(1).all()  # type: ignore[arg-type]
    assert gate(TEACHER, 0.96, "mean", Workers()).tolist() == [[[0.5, 0.5], [0.5, 0.5]]]
    assert gate(TEACHER, 0.96, "mean", Two()).eq(0.75).all()
    weights = gate(TEACHER.bfloat16(), 0.4, "pixel", Workers())
    assert weights.dtype == torch.float32 and weights.shape == (1, 2, 2)


def test_broken_teacher_is_seen() -> None:
    teacher = TEACHER.clone()
    teacher[0, 1, 0, 0] = torch.nan
    for kind in ("pixel", "mean"):
        weights = gate(teacher, 0.9, kind, Workers())  # type: ignore[arg-type]
        assert PixelLoss("mse")(torch.zeros_like(teacher), teacher, weights).value.isnan()


def test_cutmix_seg_by_hand() -> None:
    """Squared error, summed over classes, on valid pixels, mean over all pixels, times the share of sure ones."""
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(1, 3, 2, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    valid = torch.tensor([[[True, True], [True, False]]])
    weights = gate(TEACHER, 0.96, "mean", Workers()) * valid
    term = PixelLoss("mse")(student, TEACHER, weights, denominator=float(valid.numel()))
    errors = (student.softmax(1) - TEACHER.softmax(1)).square().sum(1)
    assert 3 * term.value.item() == pytest.approx((errors * valid).sum().item() / 4 * 0.5, rel=1e-12)


def test_u2pl_by_hand() -> None:
    """Cross-entropy of the kept pixels, mean over them, times all pixels over the kept ones."""
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(1, 3, 2, 2, generator=generator, dtype=torch.float64)
    kept = gate(TEACHER, 0.4, "pixel", Workers())
    term = PixelLoss("ce")(student, TEACHER, kept, denominator=kept.sum().square() / kept.numel())
    errors = torch.nn.functional.cross_entropy(student, TEACHER.argmax(1), reduction="none")
    assert term.value.item() == pytest.approx((errors[kept.bool()].mean() * 4 / 3).item(), rel=1e-6)


@pytest.mark.parametrize("strategy", ["n-1", "n", "ratio", "fixed", "soft"])
def test_warning_tells_when_every_pixel_has_one_positive(strategy: str) -> None:
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(1, 7, 40, 40, generator=generator) * 4
    loss = LossConfig(kind="fpl", threshold=0.8, strategy=strategy, ratio=0.9)  # type: ignore[arg-type]
    slot = PixelLoss("fpl", threshold=0.8, strategy=strategy, ratio=0.9)
    slot.collect = True
    for threshold in (0.0, 0.5, 0.8, 0.9):
        passing = gate(teacher, threshold, "pixel", Workers())
        assert passing.sum() > 100
        histogram = slot(torch.zeros_like(teacher), teacher, passing).statistics["k_histogram"]
        assert bool(gate_warnings("method.gate", threshold, loss)) == (histogram[1:].sum().item() == 0)


def test_a_gate_on_the_whole_batch_is_told_of_in_other_words() -> None:
    """It leaves FPL its pixels, and weighs them by the share of those that FPL does nothing with."""
    (found,) = gate_warnings("method.gate", 0.97, LossConfig(kind="fpl", threshold=0.9), "mean")
    assert "weighed by the share of those that pass, which have K = 1" in found and "set method.gate = 0" in found
    assert not gate_warnings("method.gate", 0.8, LossConfig(kind="fpl", threshold=0.9), "mean")


def test_words_of_the_warning() -> None:
    (found,) = gate_warnings("method.gate", 0.97, LossConfig(kind="fpl", threshold=0.9))
    assert found.startswith("method.gate = 0.97 is not below loss.threshold = 0.9: every pixel")
    assert not gate_warnings("method.gate", 0.97, LossConfig(kind="ce"))
