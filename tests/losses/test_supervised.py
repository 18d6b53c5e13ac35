from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses import cross_entropy, ohem_cross_entropy

from .reference import normal

CHECK_PROBABILITIES = [0.9, 0.8, 0.75, 0.6, 0.95]


def two_class_logits(probabilities: list[float], label: int = 1) -> tuple[Tensor, Tensor]:
    """One image [1, 2, N] in which the true class of each pixel has the given probability."""
    p = torch.tensor(probabilities, dtype=torch.float64)
    logits = torch.stack([(1 - p).log(), p.log()] if label == 1 else [p.log(), (1 - p).log()])
    return logits.unsqueeze(0), torch.full((1, len(probabilities)), label)


def labels(*shape: int, classes: int = 5, seed: int = 3, ignored: float = 0.3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(0, classes, shape, generator=generator)
    label[torch.rand(shape, generator=generator) < ignored] = 255
    return label


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("label_dtype", [torch.int64, torch.int32, torch.uint8])
def test_cross_entropy(dtype: torch.dtype, label_dtype: torch.dtype) -> None:
    logits = normal(2, 5, 3, 4).to(dtype).requires_grad_()
    label = labels(2, 3, 4)
    loss, count = cross_entropy(logits, label.to(label_dtype))
    valid = label != 255
    picked = logits.detach().double().movedim(1, -1)[valid].log_softmax(-1)
    expected = -picked[torch.arange(int(valid.sum())), label[valid]].mean()
    assert count.dtype == torch.int64
    assert count.item() == int(valid.sum())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12 if dtype == torch.float64 else 1e-6)
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    loss.backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad.movedim(1, -1)[~valid], torch.zeros_like(logits.grad.movedim(1, -1)[~valid]))


@pytest.mark.parametrize("spatial", [(), (7,), (3, 4), (2, 3, 4)])
def test_spatial_shapes(spatial: tuple[int, ...]) -> None:
    logits, label = normal(2, 5, *spatial), labels(2, *spatial, ignored=0.0)
    expected = F.cross_entropy(logits.reshape(2, 5, -1), label.reshape(2, -1))
    torch.testing.assert_close(cross_entropy(logits, label)[0], expected)
    torch.testing.assert_close(ohem_cross_entropy(logits, label)[0], expected)


def test_another_ignore_index() -> None:
    logits, label = normal(1, 5, 8), labels(1, 8, ignored=0.0)
    loss, count = cross_entropy(logits, label, ignore_index=0)
    kept = label[0] != 0
    assert 0 < count.item() == int(kept.sum()) < 8
    torch.testing.assert_close(loss, F.cross_entropy(logits[:, :, kept], label[:, kept]))
    loss, count = ohem_cross_entropy(logits, label, ignore_index=0)
    assert count.item() == int(kept.sum())
    torch.testing.assert_close(loss, F.cross_entropy(logits[:, :, kept], label[:, kept]))


@pytest.mark.parametrize("function", [cross_entropy, ohem_cross_entropy])
@pytest.mark.parametrize("groups", [1, 2])
def test_everything_ignored(function: object, groups: int) -> None:
    logits = normal(2, 5, 6).requires_grad_()
    loss, count = function(logits, torch.full((2, 6), 255), groups=groups)  # type: ignore[operator]
    assert loss.item() == 0
    assert count.item() == 0
    loss.backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros_like(logits))


@pytest.mark.parametrize(
    ("min_kept", "expected", "kept"),
    [
        (0, 0.510826, 1),
        (1, 0.510826, 1),
        (2, 0.399254, 2),
        (3, 0.340550, 3),
        (4, 0.281753, 4),
        (5, 0.235661, 5),
        (6, 0.235661, 5),
        (50_000, 0.235661, 5),
    ],
)
@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("ignored", [0, 3])
def test_ohem_check_values(min_kept: int, expected: float, kept: int, label: int, ignored: int) -> None:
    # Ignored pixels, though their probability is the lowest of all, change nothing.
    logits, target = two_class_logits(CHECK_PROBABILITIES + [0.01] * ignored, label)
    target[0, 5:] = 255
    loss, count = ohem_cross_entropy(logits, target, min_kept=min_kept)
    assert loss.item() == pytest.approx(expected, abs=6e-7)
    assert count.item() == kept


def test_ohem_threshold_keeps_more_than_the_minimum() -> None:
    logits, target = two_class_logits([0.1, 0.2, 0.3, 0.65, 0.8, 0.9])
    assert ohem_cross_entropy(logits, target, min_kept=1)[1].item() == 4
    assert ohem_cross_entropy(logits, target, min_kept=1, threshold=0.25)[1].item() == 2
    assert ohem_cross_entropy(logits, target, min_kept=3, threshold=0.25)[1].item() == 3


def test_ohem_gradient_is_that_of_the_kept_pixels() -> None:
    logits, target = two_class_logits(CHECK_PROBABILITIES)
    logits.requires_grad_()
    ohem_cross_entropy(logits, target, min_kept=2)[0].backward()
    assert logits.grad is not None
    # d loss / d z_true = (p - 1) / kept for the two lowest probabilities, 0.75 and 0.6.
    assert logits.grad[0, 1].tolist() == pytest.approx([0, 0, -0.125, -0.2, 0], abs=1e-12)


@pytest.mark.parametrize("function", [cross_entropy, partial(ohem_cross_entropy, min_kept=10)])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_groups_are_workers(function: Any, groups: int) -> None:
    logits, label = normal(4, 5, 6, 7) * 3, labels(4, 6, 7)
    label[1, :5] = 255
    leaf = logits.clone().requires_grad_()
    loss, count = function(leaf, label, groups=groups)
    loss.backward()
    parts, counts, gradients = [], 0, []
    for share, own in zip(logits.chunk(groups), label.chunk(groups), strict=True):
        part = share.clone().requires_grad_()
        value, number = function(part, own)
        value.backward()
        parts.append(value.detach())
        counts += int(number)
        assert part.grad is not None
        gradients.append(part.grad / groups)
    torch.testing.assert_close(loss.detach(), torch.stack(parts).mean())
    assert count.item() == counts
    torch.testing.assert_close(leaf.grad, torch.cat(gradients))


def test_ohem_grouping_matters() -> None:
    """One easy and one hard image: alone, each gives its share; together, the hard one takes it all."""
    easy, target = two_class_logits([0.9, 0.91, 0.92, 0.93])
    hard, _ = two_class_logits([0.71, 0.72, 0.73, 0.74])
    logits, target = torch.cat([easy, hard]), torch.cat([target, target])
    apart, _ = ohem_cross_entropy(logits, target, min_kept=2, groups=2)
    together, _ = ohem_cross_entropy(logits, target, min_kept=2)
    logs = torch.log(torch.tensor([0.9, 0.91, 0.71, 0.72], dtype=torch.float64))
    assert apart.item() == pytest.approx(-logs.mean().item())
    assert together.item() == pytest.approx(-logs[2:].mean().item())


def test_ohem_empty_group_counts_as_zero() -> None:
    logits, target = two_class_logits(CHECK_PROBABILITIES)
    logits, target = torch.cat([logits, logits]), torch.cat([target, torch.full_like(target, 255)])
    loss, count = ohem_cross_entropy(logits, target, min_kept=5, groups=2)
    assert loss.item() == pytest.approx(0.235661 / 2, abs=6e-7)
    assert count.item() == 5


@pytest.mark.parametrize("min_kept", [1, 3, 50])
def test_ohem_shows_nan(min_kept: int) -> None:
    logits, target = two_class_logits(CHECK_PROBABILITIES)
    logits[0, 0, 4] = torch.nan
    assert ohem_cross_entropy(logits, target, min_kept=min_kept)[0].isnan()
    assert cross_entropy(logits, target)[0].isnan()


def test_ohem_half_precision_computes_in_float32() -> None:
    logits, label = normal(2, 5, 6).bfloat16(), labels(2, 6)
    loss, _ = ohem_cross_entropy(logits, label, min_kept=2)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, ohem_cross_entropy(logits.float(), label, min_kept=2)[0])


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"threshold": 1.2}, "threshold is 1.2; allowed: 0 <= threshold <= 1"),
        ({"min_kept": -1}, "min_kept is -1; allowed: a whole number >= 0"),
        ({"groups": 3}, "groups is 3; allowed: a divisor of the batch size 4"),
        ({"groups": 0}, "groups is 0; allowed: a divisor of the batch size 4"),
    ],
)
def test_ohem_bad_arguments(keywords: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ohem_cross_entropy(normal(4, 5, 6), labels(4, 6), **keywords)


@pytest.mark.parametrize("function", [cross_entropy, ohem_cross_entropy])
def test_bad_tensors(function: object) -> None:
    with pytest.raises(ValueError, match=r"label has dtype torch.float32; allowed: an integer type"):
        function(normal(1, 5, 6), torch.zeros(1, 6))  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"label has shape \[6\]; allowed: \[B, \*spatial\] = \[1, 6\]"):
        function(normal(1, 5, 6), torch.zeros(6, dtype=torch.int64))  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"logits has shape \[1, 1, 6\]"):
        function(normal(1, 1, 6), torch.zeros(1, 6, dtype=torch.int64))  # type: ignore[operator]
