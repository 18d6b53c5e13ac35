"""Strategy ``soft`` in the fused implementations, against the tensor implementation in float64 with autograd."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses import FIDELITIES, WEIGHTS, class_rank, fuzzy_positive_gradient, fuzzy_positive_terms, kernels
from fpl.losses.kernels.contract import SUMS, Implementation, Pixels, make_settings
from fpl.losses.rules import Rules

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
FAMILIES = ("random", "flat", "ties", "equal", "peaked", "offset", "sure")
# Triton's interpreter takes its time.
INPUTS = [("cpu", family, classes) for family in FAMILIES for classes in (2, 5, 21)]
INPUTS += [("triton", family, 5) for family in FAMILIES] + [("triton", "random", classes) for classes in (2, 21)]
SETTINGS = [("cpu", *each) for each in itertools.product(WEIGHTS, FIDELITIES)]
SETTINGS += [("triton", weight, FIDELITIES[number % 2]) for number, weight in enumerate(WEIGHTS)]


@pytest.fixture(params=["cpu", "triton"])
def fused(request: pytest.FixtureRequest) -> Implementation:
    if not kernels.available(request.param):
        pytest.skip(f"no {request.param} kernel here")
    return kernels.by_name(request.param)


def on(fused: Implementation, values: Tensor | None) -> Tensor | None:
    return values if values is None or fused.NAME == "cpu" or not torch.cuda.is_available() else values.cuda()


def logits(family: str, classes: int, seed: int, shape: tuple[int, ...] = (3, 7)) -> Tensor:
    """Float32 [2, C, *shape]."""
    normal = torch.randn(2, classes, *shape, generator=torch.Generator().manual_seed(seed + 100 * classes))
    return {
        "random": normal * 2,
        "flat": normal * 0.01,
        "ties": normal.round(),
        "equal": torch.zeros_like(normal),
        "peaked": normal * 6,
        # Multiples of 1/256 stay exact when 5000 is added.
        "offset": (normal * 512).round() / 256 + 5e3,
        "sure": torch.cat([normal[:, :1] + 9, normal[:, 1:]], 1),
    }[family]


class Known:
    """What each pixel has to give, and how far float32 may be from it."""

    def __init__(self, student: Tensor, teacher: Tensor, rules: Rules) -> None:
        leaf, scores = student.double().requires_grad_(), teacher.double()
        self.terms = fuzzy_positive_terms(leaf, scores, rules)
        self.cross_entropy = F.cross_entropy(leaf.detach(), class_rank(scores).eq(0).int().argmax(1), reduction="none")
        self.gradient = fuzzy_positive_gradient(leaf, scores, rules)
        (autograd,) = torch.autograd.grad(self.terms.loss.sum(), leaf)
        torch.testing.assert_close(self.gradient, autograd, rtol=1e-12, atol=1e-15)
        # A sum is off by up to 1e-6, the membership so much more as the class is improbable, and the loss by the
        # difference between the two sets.
        probs = scores.softmax(1).sort(1, descending=True).values
        sums = probs.cumsum(1)
        whole = (sums <= rules.threshold).sum(1, keepdim=True).clamp(max=probs.shape[1] - 1)
        self.spread = 1e-6 / probs.gather(1, whole).squeeze(1)
        wider, fewer = (
            fuzzy_positive_terms(leaf.detach(), scores, rules._replace(strategy=each)).loss for each in ("n", "n-1")
        )
        self.loss_error = 1e-6 + self.spread * (wider - fewer).abs()
        # Where the first class exceeds T alone, this is below 0.
        whole.clamp_(min=1)
        part = ((rules.threshold - sums.gather(1, whole - 1)) / probs.gather(1, whole)).squeeze(1)
        # Whose nearest K float32 may see on the other side.
        self.sure = (part - 0.5).abs() > self.spread


def close(found: Tensor, known: Tensor, error: Tensor) -> None:
    assert ((found.cpu().double() - known).abs() <= error).all()


def compare(fused: Implementation, student: Tensor, teacher: Tensor, rules: Rules) -> None:
    classes = student.shape[1]
    settings, known = make_settings(classes, rules), Known(student, teacher, rules)
    moved = [on(fused, one) for one in (student, teacher)]
    assert moved[0] is not None and moved[1] is not None
    found = fused.mapped(settings, *moved)
    loss, weight = known.terms.loss.detach(), known.terms.weight
    close(found.loss, loss, known.loss_error + 3e-6 * loss)
    close(found.weight, weight, 6e-6 + 20 * known.spread)
    assert torch.equal(found.k.cpu()[known.sure], known.terms.k[known.sure])
    upstream = torch.rand(loss.shape, generator=torch.Generator().manual_seed(1))
    mapped = fused.mapped_gradient(settings, *moved, found.state, on(fused, upstream))
    error = (3e-6 + 2 * known.spread).unsqueeze(1)
    close(mapped, known.gradient * upstream.double().unsqueeze(1), error)

    pixels = Pixels(*moved, counted=on(fused, known.sure))
    summed = fused.summed(settings, pixels, scale=None, cross_entropy=True, gradient=True)
    exact = {
        "pixels": known.sure.double(),
        "value": loss * weight,
        "weighted_loss": loss * weight,
        "loss": loss,
        "weight": weight,
        "cross_entropy": known.cross_entropy,
    }
    spare = (known.loss_error + loss * (6e-6 + 20 * known.spread))[known.sure].sum().item()
    for name, value in zip(SUMS, summed.sums.tolist(), strict=True):
        assert value == pytest.approx(exact[name][known.sure].sum().item(), rel=3e-6, abs=spare + 3e-6), name
    histogram = torch.bincount(known.terms.k[known.sure] - 1, minlength=classes)
    assert summed.histogram.tolist() == histogram.tolist()
    assert summed.gradient is not None
    wanted = torch.where(known.sure.unsqueeze(1), known.gradient * weight.unsqueeze(1), 0)
    close(summed.gradient, wanted, error + 20 * known.spread.unsqueeze(1))


@pytest.mark.parametrize(("fused", "family", "classes"), INPUTS, indirect=["fused"])
def test_every_kind_of_logits(fused: Implementation, family: str, classes: int) -> None:
    shape = (3, 7) if fused.NAME == "triton" else (13, 31)
    student, teacher = (logits(family, classes, seed, shape) for seed in (0, 1))
    for threshold in (0.9,) if fused.NAME == "triton" else (0.5, 0.75, 0.9, 0.97):
        compare(fused, student, teacher, Rules(threshold, "soft"))


@pytest.mark.parametrize(("fused", "weight", "fidelity"), SETTINGS, indirect=["fused"])
def test_weights_and_fidelities(fused: Implementation, weight: str, fidelity: str) -> None:
    student, teacher = (logits("random", 6, seed) for seed in (0, 1))
    compare(fused, student, teacher, Rules(0.85, "soft", weight, fidelity=fidelity))


def test_the_kinds_of_pixels_are_there() -> None:
    """Most pixels are compared: many of them have a member in part, and some are cross-entropy."""
    known = Known(logits("random", 21, 0, (13, 31)), logits("random", 21, 1, (13, 31)), Rules(0.9, "soft"))
    assert known.sure.double().mean() > 0.99 and len(known.terms.k.unique()) > 6
    sure = logits("sure", 21, 1)
    assert (Known(sure, sure, Rules(0.9, "soft")).terms.k == 1).double().mean() > 0.5


@pytest.mark.parametrize("size", [(5, 6)])
def test_enlarged_logits_and_two_teachers(fused: Implementation, size: tuple[int, int]) -> None:
    student, teacher, second = (logits("random", 5, seed, (3, 3)) for seed in (0, 1, 2))
    inside = torch.rand(2, *size, generator=torch.Generator().manual_seed(3)) > 0.5
    rules = Rules(0.9, "soft")

    def large(values: Tensor) -> Tensor:
        return F.interpolate(values, size=size, mode="bilinear", align_corners=True)

    leaf = student.double().requires_grad_()
    mixed = torch.where(inside.unsqueeze(1), large(second.double()), large(teacher.double()))
    terms = fuzzy_positive_terms(large(leaf), mixed, rules)
    value = (terms.loss * terms.weight).sum()
    (gradient,) = torch.autograd.grad(value, leaf)
    tensors: list[Any] = [on(fused, each) for each in (student, teacher, second, inside)]
    found = fused.summed(
        make_settings(5, rules), Pixels(*tensors, size=size), scale=None, cross_entropy=False, gradient=True
    )
    assert found.sums[SUMS.index("value")].item() == pytest.approx(value.item(), rel=1e-4)
    assert found.gradient is not None
    torch.testing.assert_close(found.gradient.cpu().double(), gradient, rtol=0, atol=3e-4)


def test_weight_map_scale_and_bad_pixels(fused: Implementation) -> None:
    student, teacher = logits("random", 5, 0), logits("random", 5, 1)
    factor = torch.rand(2, 3, 7, generator=torch.Generator().manual_seed(4))
    settings, scale = make_settings(5, Rules(strategy="soft")), torch.tensor(0.3)

    def summed(student: Tensor, teacher: Tensor, counted: Tensor | None = None) -> Any:
        tensors: list[Any] = [on(fused, each) for each in (student, teacher, factor, counted, scale)]
        pixels = Pixels(tensors[0], tensors[1], weight_map=tensors[2], counted=tensors[3])
        return fused.summed(settings, pixels, scale=tensors[4], cross_entropy=True, gradient=True)

    found, known = summed(student, teacher), Known(student, teacher, Rules(strategy="soft"))
    weighted = known.terms.weight * factor.double()
    assert found.sums[SUMS.index("value")].item() == pytest.approx((known.terms.loss * weighted).sum().item(), rel=1e-4)
    scaled = known.gradient * (0.3 * weighted).unsqueeze(1)
    torch.testing.assert_close(found.gradient.cpu().double(), scaled, rtol=0, atol=1e-4)
    for number, broken in enumerate(((student.clone(), teacher), (student, teacher.clone()))):
        broken[number][1, 3, 2, 5] = torch.nan
        bad = summed(*broken)
        assert bad.sums[SUMS.index("loss")].isnan() and bad.sums[SUMS.index("cross_entropy")].isnan()
        assert bad.gradient.isnan().any(1).nonzero().tolist() == [[1, 2, 5]]
        assert bad.gradient[1, :, 2, 5].isnan().all()
        counted = torch.ones(2, 3, 7, dtype=torch.bool)
        counted[1, 2, 5] = False
        left = summed(*broken, counted)
        clean = summed(student, teacher, counted)
        assert torch.equal(left.sums, clean.sums) and torch.equal(left.gradient, clean.gradient)
        mapped = fused.mapped(settings, *(on(fused, each) for each in broken))  # type: ignore[arg-type]
        assert mapped.loss.isnan().nonzero().tolist() == [[1, 2, 5]]
