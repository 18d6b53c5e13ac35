"""The directional contrastive loss of CAC against loops and the released arithmetic; and CAC's options."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fpl.config.compose import load_config
from fpl.errors import FplError
from fpl.losses.rules import Rules
from fpl.methods.cac.contrast import BLOCK, directional_contrast, fuzzy_classes, log_negatives, own_class
from fpl.methods.cac.method import Cac
from fpl.methods.cac.options import CacOptions
from tests.losses.reference import columns, k_of, order, random_probs
from tests.methods.support import build

BASE = Path(__file__).parents[2] / "experiments" / "base"


def unit(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    vectors = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return vectors / vectors.norm(dim=1, keepdim=True)


def labels_of(count: int, classes: int, seed: int = 0) -> Tensor:
    """Classes, and -1 for a few."""
    return torch.randint(-1, classes, (count,), generator=torch.Generator().manual_seed(seed))


def by_loops(anchors: Tensor, positives: Tensor, out: Tensor, bank: Tensor, labels: Tensor, t: float) -> list[float]:
    losses = []
    for anchor, positive, classes in zip(anchors.tolist(), positives.tolist(), out.tolist(), strict=True):
        above = math.exp(sum(a * b for a, b in zip(anchor, positive, strict=True)) / t)
        below = above
        for feature, label in zip(bank.tolist(), labels.tolist(), strict=True):
            if label >= 0 and not classes[label]:
                below += math.exp(sum(a * b for a, b in zip(anchor, feature, strict=True)) / t)
        losses.append(-math.log(above / below))
    return losses


def released(anchors: Tensor, positives: Tensor, prediction: Tensor, bank: Tensor, labels: Tensor, t: float) -> Tensor:
    """The arithmetic of `models/model.py` in one block: shifted by the largest similarity, with its two 1e-8."""
    positive = (anchors * positives.detach()).sum(1, keepdim=True) / t
    similar = torch.cat([positive, anchors @ bank.T / t], dim=1)
    counted = torch.cat([torch.ones(len(anchors), 1), (labels != prediction[:, None]).float()], dim=1)
    most = similar.max(1, keepdim=True).values
    share = torch.exp(positive - most).squeeze(1) / ((torch.exp(similar - most) * counted).sum(1) + 1e-8)
    return -torch.log(share + 1e-8)


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_contrast_is_that_of_loops(temperature: float) -> None:
    anchors, positives, bank, labels = unit(7, 4), unit(7, 4, seed=1), unit(30, 4, seed=2), labels_of(30, 5)
    out = torch.rand(7, 5, generator=torch.Generator().manual_seed(3)) < 0.4
    assert (labels == -1).any()
    negatives = log_negatives(anchors, out, bank, labels, temperature)
    found = directional_contrast(anchors, positives, negatives, temperature)
    assert found.tolist() == pytest.approx(by_loops(anchors, positives, out, bank, labels, temperature), rel=1e-9)


def test_contrast_by_hand() -> None:
    """One anchor, its counterpart at right angles, two negatives equal to it, one of its class, one place empty."""
    anchor, positive = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    bank = torch.tensor([[1.0, 0.0]] * 4)
    negatives = log_negatives(anchor, torch.tensor([[True, False]]), bank, torch.tensor([1, 1, 0, -1]), 0.5)
    found = directional_contrast(anchor, positive, negatives, 0.5)
    assert found.item() == pytest.approx(math.log(1 + 2 * math.exp(2)), rel=1e-6)


def test_contrast_is_that_of_the_released_code() -> None:
    """In float32, in which it runs; positives are near, so that its 1e-8 do not count."""
    anchors, bank = unit(50, 16, dtype=torch.float32).requires_grad_(), unit(900, 16, seed=2, dtype=torch.float32)
    positives = anchors.detach() + 0.3 * unit(50, 16, seed=1, dtype=torch.float32)
    positives = positives / positives.norm(dim=1, keepdim=True)
    prediction, labels = torch.arange(50) % 6, torch.arange(900) % 6
    negatives = log_negatives(anchors, own_class(prediction.view(50, 1, 1), 6).flatten(1), bank, labels, 0.1, block=128)
    found = directional_contrast(anchors, positives, negatives, 0.1)
    expected = released(anchors, positives, prediction, bank, labels, 0.1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    ours, theirs = (torch.autograd.grad(loss.sum(), anchors)[0] for loss in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block", [1, 7, 40, 63, 64])
def test_blocks_give_what_one_piece_gives(block: int) -> None:
    """Values and gradients; with one feature in a block, some blocks hold no negative of an anchor."""
    bank, labels = unit(64, 5, seed=2), labels_of(64, 4)
    out = own_class(torch.arange(9).view(9, 1, 1) % 4, 4).flatten(1)
    results = []
    for size in (block, BLOCK):
        anchors = unit(9, 5).requires_grad_()
        negatives = log_negatives(anchors, out, bank, labels, 0.1, block=size)
        loss = directional_contrast(anchors, unit(9, 5, seed=1), negatives, 0.1)
        (gradient,) = torch.autograd.grad((loss * torch.arange(9)).sum(), anchors)
        results.append((loss, gradient))
    assert bool(results[0][1][1:].any(1).all())
    torch.testing.assert_close(results[0], results[1], rtol=1e-11, atol=1e-13)


def test_memory_is_that_of_a_block() -> None:
    """Nothing of the size of anchors times bank is kept for the way back, and on the way nothing beyond a block is."""
    anchors = unit(40, 8).requires_grad_()
    bank, labels = unit(1000, 8, seed=2), labels_of(1000, 4)
    out = own_class(torch.zeros(40, 1, 1, dtype=torch.int64), 4).flatten(1)
    kept: list[int] = []

    def remember(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        negatives = log_negatives(anchors, out, bank, labels, 0.1, block=50)
    assert kept and max(kept) < 40 * 50
    made: list[int] = []

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            made.extend(
                each.numel()
                for each in (result if isinstance(result, tuple) else (result,))
                if isinstance(each, Tensor)
            )
            return result

    with Watching():
        negatives.sum().backward()  # type: ignore[no-untyped-call]
    # The bank itself is 8,000 numbers; a block of similarities 2,000, all of them 40,000.
    assert 40 * 50 in made and max(made) <= 8000


def test_gradients_reach_the_anchors_alone() -> None:
    anchors, positives, bank = (unit(6, 4, seed=seed).requires_grad_() for seed in range(3))
    out = own_class(torch.zeros(6, 1, 1, dtype=torch.int64), 3).flatten(1)
    loss = directional_contrast(anchors, positives, log_negatives(anchors, out, bank, labels_of(6, 3), 0.1), 0.1)
    found = torch.autograd.grad(loss.sum(), [anchors, positives, bank], allow_unused=True)
    assert found[0] is not None and bool(found[0].any()) and found[1:] == (None, None)


def test_without_any_negative_there_is_no_loss() -> None:
    anchors = unit(3, 4, dtype=torch.float32).requires_grad_()
    for labels in (torch.full((5,), -1), torch.zeros(5, dtype=torch.int64)):
        out = torch.tensor([[True, False]]).expand(3, -1)
        negatives = log_negatives(anchors, out, unit(5, 4, dtype=torch.float32), labels, 0.1, block=2)
        loss = directional_contrast(anchors, anchors, negatives, 0.1)
        (gradient,) = torch.autograd.grad(loss.sum(), anchors)
        assert not loss.any() and not gradient.any()


def test_similarities_are_in_float32_under_autocast() -> None:
    anchors, bank = unit(20, 16, dtype=torch.float32), unit(70, 16, seed=2, dtype=torch.float32)
    out, labels = own_class(torch.zeros(20, 1, 1, dtype=torch.int64), 3).flatten(1), labels_of(70, 3)
    expected = log_negatives(anchors, out, bank, labels, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        found = log_negatives(anchors, out, bank, labels, 0.1)
    assert found.dtype == torch.float32 and torch.equal(found, expected)


def test_excluded_classes_are_the_predicted_one_or_the_fuzzy_positives() -> None:
    probabilities = random_probs(6)
    prediction = probabilities.argmax(1)
    one = own_class(prediction.unsqueeze(-1), 6).squeeze(-1)
    fuzzy = fuzzy_classes(probabilities.unsqueeze(-1), Rules(threshold=0.8)).squeeze(-1)
    counts = set()
    for pixel, row in enumerate(columns(probabilities)):
        assert one[0, :, pixel].nonzero().flatten().tolist() == [order(row)[0]]
        k = k_of(row, 0.8)
        assert fuzzy[0, :, pixel].nonzero().flatten().tolist() == sorted(order(row)[:k])
        counts.add(k)
    assert len(counts) >= 3
    fixed = fuzzy_classes(probabilities.unsqueeze(-1), Rules(strategy="fixed", fixed_k=4))
    assert (fixed.sum(1) == 4).all()


# Options.


def test_the_projector_has_the_published_size(run_file: Path) -> None:
    overrides = ["method.name=cac", "model.head_channels=256", "method.bank_size=10", "loss.kind=ce"]
    method = build(load_config(run_file, overrides=overrides))
    assert isinstance(method, Cac)
    layers = [type(layer) for layer in method.projector]
    assert layers == [nn.Conv2d, nn.ReLU, nn.Conv2d]
    assert sum(parameter.numel() for parameter in method.projector.parameters()) == 98_688
    assert sum(p.numel() for group in method.optimizers()["main"].param_groups for p in group["params"]) == sum(
        p.numel() for p in method.parameters()
    )


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["loss.kind=ce"], (False, 0.0)),
        (["loss.kind=fpl"], (False, 1.0)),
        (["loss.kind=soft"], (False, 1.0)),
        (["loss.kind=fpl", "method.fuzzy_negatives=true"], (True, 0.0)),
        (["loss.kind=fpl", "method.fuzzy_negatives=true", "method.consistency_weight=2"], (True, 2.0)),
        (["loss.kind=ce", "method.fuzzy_negatives=true"], (False, 0.0)),
        (["loss.kind=ce", "method.consistency_weight=0.5"], (False, 0.5)),
    ],
)
def test_a_kind_of_pixel_loss_gets_a_place(run_file: Path, overrides: list[str], expected: tuple[bool, float]) -> None:
    options = load_config(run_file, overrides=["method.name=cac", *overrides]).method
    assert isinstance(options, CacOptions)
    assert (options.fuzzy_negatives, options.consistency_weight) == expected


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["loss.kind=fpl", "method.consistency_weight=0"], ["method.consistency_weight = 0", "fuzzy_negatives = true"]),
        (["data.crop=[40,39]"], ["data.crop = [40, 39]", "40 or more"]),
        (["method.crop_scale=0.5"], ["method.crop_scale"]),
        (["method.temperature=0"], ["method.temperature"]),
        (["method.averaged_over=all"], ["method.averaged_over", "'kept'", "'overlap'"]),
    ],
)
def test_contradictions_are_refused(run_file: Path, overrides: list[str], words: list[str]) -> None:
    with pytest.raises(FplError) as raised:
        load_config(run_file, overrides=["method.name=cac", *overrides])
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["method.weight=0"], "method.weight = 0: the unlabeled images have no influence"),
        (["method.start=1"], "method.start = 1: the unlabeled images have no influence"),
        (["method.weight=0", "method.consistency_weight=1"], None),
        (["method.bank_size=199"], "a step has 200 features"),
        (["method.bank_size=200"], None),
        (["loss.kind=mse"], "method.consistency_weight = 1 with loss.kind = mse"),
        (["loss.kind=fpl"], None),
    ],
)
def test_what_is_rarely_meant_is_said(run_file: Path, overrides: list[str], words: str | None) -> None:
    config = load_config(run_file, overrides=["method.name=cac", "loss.kind=ce", *overrides])
    said = config.method.warnings(config)
    assert len(said) == (words is not None) and (words or "") in "".join(said)


@pytest.mark.parametrize("data", ["cityscapes", "voc", "camvid", "synthetic_city", "synthetic_voc"])
def test_recipes_are_published_in_the_setting_of_the_tables(data: str) -> None:
    path = BASE / f"{data}_cac.toml"
    config = load_config(path)
    options = config.method
    assert isinstance(options, CacOptions) and config.loss.kind == "ce" and not options.warnings(config)
    assert (options.weight, options.start, options.temperature) == (0.1, 0.0625, 0.1)
    assert not options.consistency_weight and options.averaged_over == "kept"
    fpl = load_config(path, overrides=["loss.kind=fpl"])
    assert fpl.loss.kind == "fpl" and not fpl.method.warnings(fpl)
    if data in ("cityscapes", "voc"):
        assert options.confidence_gate == 0.75 and options.projection_channels == 128
        other = load_config(BASE / f"{data}_cps.toml")
        for section in ("data", "model", "optim", "train", "eval"):
            assert getattr(config, section) == getattr(other, section)
        assert config.loss.supervised == other.loss.supervised
    if data == "voc":
        assert options.bank_size == 76_800
