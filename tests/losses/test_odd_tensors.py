"""Odd tensors and numbers: the right value, or a ValueError that names the keyword."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fpl.losses import (
    KINDS,
    STRATEGIES,
    FuzzyPositiveLoss,
    PixelLoss,
    adaptive_weight,
    assign,
    cross_entropy,
    fuzzy_positive_gradient,
    fuzzy_positive_loss,
    fuzzy_positive_terms,
    kernels,
    ohem_cross_entropy,
)
from fpl.losses.diagnostics import diagnose, diagnose_maps
from fpl.losses.rules import Rules
from tests.losses.test_pixel_tensors import IMPLEMENTATIONS, need

from .reference import normal

EMPTY = pytest.mark.parametrize("shape", [(0, 5, 3, 4), (2, 5, 0, 4), (2, 5, 3, 0), (0, 5, 7), (0, 5)])


def zero_gradient(loss: Tensor, leaf: Tensor) -> None:
    assert loss.item() == 0 and loss.ndim == 0
    (gradient,) = torch.autograd.grad(loss, leaf)
    assert gradient.shape == leaf.shape and not gradient.any()


@IMPLEMENTATIONS
@EMPTY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_fuzzy_loss_of_no_pixels_is_0(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    need(name)
    student, teacher = torch.zeros(shape, dtype=dtype, requires_grad=True), torch.zeros(shape, dtype=dtype)
    pixels = (shape[0], *shape[2:])
    with kernels.use(name):
        for reduction in ("mean", "sum"):
            zero_gradient(fuzzy_positive_loss(student, teacher, reduction=reduction), student)
            zero_gradient(FuzzyPositiveLoss(reduction=reduction)(student, teacher, torch.ones(pixels)), student)
        assert fuzzy_positive_loss(student, teacher, reduction="none").shape == pixels
        assert fuzzy_positive_gradient(student, teacher).shape == shape
        assert {each.shape for each in fuzzy_positive_terms(student, teacher)} == {torch.Size(pixels)}
        found = diagnose(student, teacher, ground_truth=torch.zeros(pixels, dtype=torch.uint8))
        assert all(not value.any() for value in found.values())
        maps = diagnose_maps(student, teacher, ground_truth=torch.zeros(pixels, dtype=torch.uint8), rules=Rules())
        assert {each.shape for each in maps.values()} == {torch.Size(pixels)}
    k = assign(teacher)
    assert k.shape == adaptive_weight(teacher, k).shape == pixels


@IMPLEMENTATIONS
@EMPTY
@pytest.mark.parametrize("kind", KINDS)
def test_the_pixel_loss_of_no_pixels_is_0(name: str, shape: tuple[int, ...], kind: str) -> None:
    need(name)
    student = torch.zeros(shape, requires_grad=True)
    pixel = PixelLoss(kind, balance=kind == "fpl")
    pixel.collect = pixel.diagnose = True
    pixels = (shape[0], *shape[2:])
    for groups in (1, 2):
        with kernels.use(name):
            weighted = pixel(student, torch.zeros(shape), torch.ones(pixels), groups=groups)
            term = pixel(student, torch.zeros(shape), groups=groups)
        for each in (term, weighted):
            zero_gradient(pixel.total([each]), student)
            assert each.mean.item() == 0 and each.cross_entropy is not None and each.cross_entropy.item() == 0
            assert all(not value.any() for value in each.statistics.values())


@EMPTY
@pytest.mark.parametrize("function", [cross_entropy, ohem_cross_entropy])
@pytest.mark.parametrize("groups", [1, 2])
def test_the_supervised_loss_of_no_pixels_is_0(shape: tuple[int, ...], function: Any, groups: int) -> None:
    logits = torch.zeros(shape, requires_grad=True)
    loss, count = function(logits, torch.zeros(shape[0], *shape[2:], dtype=torch.int64), groups=groups)
    zero_gradient(loss, logits)
    assert count.item() == 0


@pytest.mark.parametrize("call", [PixelLoss("fpl"), PixelLoss("ce"), diagnose])
def test_nothing_cannot_be_enlarged_but_no_image_can(call: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"size is \(6, 6\) with logits of shape \[2, 5, 0, 3\]"):
        call(torch.zeros(2, 5, 0, 3), torch.zeros(2, 5, 0, 3), size=(6, 6))
    found = call(torch.zeros(0, 5, 3, 3), torch.zeros(0, 5, 3, 3), size=(6, 6))
    if not isinstance(found, dict):
        assert found.value.item() == 0


def negative(values: Tensor) -> Tensor:
    """The same numbers, kept with the opposite sign and a bit that says so."""
    result = torch.complex(torch.zeros_like(values), -values).conj().imag
    assert result.is_neg() and torch.equal(result, values)
    return result


def expanded(values: Tensor) -> Tensor:
    """The first image in place of all, by a stride of 0."""
    return values[:1].expand_as(values)


def behind_an_offset(values: Tensor) -> Tensor:
    store = torch.full((values.numel() + 7,), torch.nan, dtype=values.dtype)
    result = store[7:].view(values.shape)
    return result.copy_(values)


def every_other(values: Tensor) -> Tensor:
    store = torch.full((*values.shape[:-1], 2 * values.shape[-1]), torch.nan, dtype=values.dtype)
    store[..., ::2] = values
    return store[..., ::2]


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "negative": negative,
    "expanded": expanded,
    "offset": behind_an_offset,
    "strided": every_other,
    "channels_last": lambda values: values.contiguous(memory_format=torch.channels_last),
    "transposed": lambda values: values.transpose(-1, -2).contiguous().transpose(-1, -2),
}


def everything(student: Tensor, teacher: Tensor, second: Tensor, weight: Tensor, size: tuple[int, int] | None) -> Any:
    """What all functions that kernels serve say, and gradients with respect to the student's storage."""
    pixel = PixelLoss("fpl", threshold=0.7, balance=True)
    pixel.collect = True
    inside = weight > 0.5
    term = pixel(student, teacher, weight, second=second, inside=inside, size=size, groups=2)
    found = [pixel.total([term]), *term.statistics.values(), torch.autograd.grad(term.value, student)[0]]
    found += diagnose(student, teacher, second=second, inside=inside, size=size, counted=inside).values()
    if size is None:
        loss = fuzzy_positive_loss(student, teacher, threshold=0.7, weight_map=weight)
        terms = fuzzy_positive_terms(student, teacher, rules=Rules(threshold=0.7))
        # The gradient that comes back is kept with a sign bit as well.
        signed = torch.complex(torch.zeros_like(terms.loss), terms.loss).conj().imag
        found += [loss, *terms, torch.autograd.grad(signed.sum(), student)[0]]
        found += [torch.autograd.grad(negative(weight.double()).float()[0, 0, 0] * loss, student)[0]]
    return found


@IMPLEMENTATIONS
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [None, (5, 9)])
def test_every_layout_of_every_tensor_has_its_value(name: str, layout: str, size: tuple[int, int] | None) -> None:
    need(name)
    if name == "triton" and size is not None and layout != "negative":
        pytest.skip("minutes in Triton's interpreter")
    plain = [(2 * normal(2, 4, 3, 5, seed=seed)).float() for seed in range(3)]
    if name == "triton" and size is not None:
        plain, size = [each[..., :2, :2] for each in plain], (3, 3)
    weight = torch.rand(2, *(size or (3, 5)), generator=torch.Generator().manual_seed(0)) + 0.1
    change = LAYOUTS[layout]
    # A map has no channels.
    changed = [0, 1, 2] if layout == "channels_last" else [0, 1, 2, 3]
    # All at once in Triton's interpreter, whose every call takes long.
    for places in [changed] if name == "triton" else [[place] for place in changed]:
        tensors = [each.clone() for each in (*plain, weight)]
        odd = list(tensors)
        for place in places:
            odd[place] = change(tensors[place].clone())
            tensors[place] = odd[place].resolve_neg().contiguous().clone()
        results = []
        for given in (tensors, odd):
            with kernels.use(name):
                results.append(everything(given[0].detach().requires_grad_(), *given[1:], size))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one.resolve_neg(), other.resolve_neg(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "call", [fuzzy_positive_loss, fuzzy_positive_terms, PixelLoss("fpl"), PixelLoss("ce"), diagnose]
)
def test_tensors_without_strides_are_refused(call: Callable[..., Any]) -> None:
    plain = torch.randn(2, 4, 3)
    for odd, kind in ((plain.to_sparse(), "torch.sparse_coo"), (plain.to_mkldnn(), "torch._mkldnn")):
        with pytest.raises(ValueError, match=f"student_logits has layout {kind}; allowed: torch.strided"):
            call(odd, plain)
        with pytest.raises(ValueError, match=f"teacher_logits has layout {kind}"):
            call(plain, odd)
    if call is not diagnose and call is not fuzzy_positive_terms:
        with pytest.raises(ValueError, match=r"weight_map has layout torch\.sparse_coo"):
            call(plain, plain, weight_map=torch.ones(2, 3).to_sparse())
    # What forward-mode differentiation stands for zeros with: reading it ended the process.
    with pytest.raises(ValueError, match="teacher_logits is a zero of autograd's without memory"):
        call(plain, torch._efficientzerotensor(plain.shape))
    quantized = torch.quantize_per_tensor(plain, 0.1, 0, torch.qint8)
    with pytest.raises(ValueError, match=r"student_logits has dtype torch\.qint8; allowed: floating point"):
        call(quantized, plain)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 2.0, 1.5, True, "2", None])
def test_a_number_of_classes_is_whole(value: Any) -> None:
    for call in (lambda: PixelLoss("fpl", strategy="fixed", fixed_k=value), lambda: Rules(fixed_k=value).checked()):
        with pytest.raises(ValueError, match=r"fixed_k is .*; allowed: a whole number >= 1"):
            call()
    with pytest.raises(ValueError, match=r"groups is .*; allowed: a divisor of the batch size 2"):
        cross_entropy(torch.zeros(2, 3, 4), torch.zeros(2, 4, dtype=torch.int64), groups=value)
    with pytest.raises(ValueError, match=r"min_kept is .*; allowed: a whole number >= 0"):
        ohem_cross_entropy(torch.zeros(2, 3, 4), torch.zeros(2, 4, dtype=torch.int64), min_kept=value)


@pytest.mark.parametrize(
    "keyword", ["threshold", "ratio", "progress", "curvature", "convex_coefficient", "negative_threshold"]
)
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, True, "0.5"])
def test_a_setting_is_a_finite_number(keyword: str, value: Any) -> None:
    logits = torch.zeros(1, 3, 4)
    with pytest.raises(ValueError, match=rf"{keyword} is .*; allowed: "):
        if keyword == "negative_threshold":
            PixelLoss("negative", negative_threshold=value)
        else:
            fuzzy_positive_loss(logits, logits, **{keyword: value})
    if keyword == "threshold":
        with pytest.raises(ValueError, match="threshold is"):
            ohem_cross_entropy(logits, torch.zeros(1, 4, dtype=torch.int64), threshold=value)
    for denominator in (math.inf, math.nan, True):
        with pytest.raises(ValueError, match=r"denominator is .*; allowed: 0, or 1e-30 \.\. 1e\+30"):
            PixelLoss("ce")(logits, logits, denominator=denominator)


@pytest.mark.parametrize("function", [cross_entropy, ohem_cross_entropy])
@pytest.mark.parametrize(
    ("dtype", "value"), [(torch.int64, 3), (torch.int64, -1), (torch.uint8, 254), (torch.int32, -100)]
)
@pytest.mark.parametrize("spatial", [(4,), (2, 2)])
def test_a_label_is_a_class(function: Any, dtype: torch.dtype, value: int, spatial: tuple[int, ...]) -> None:
    label = torch.zeros(2, *spatial, dtype=dtype)
    label.flatten()[5] = value
    label.flatten()[0] = 2
    with pytest.raises(ValueError, match=rf"label holds {value}; allowed: 0 \.\. C - 1 = 2, or ignore_index = 255"):
        function(torch.zeros(2, 3, *spatial), label)


@pytest.mark.parametrize("value", [0, -1, 4, 2**40])
def test_a_k_is_a_number_of_classes(value: int) -> None:
    k = torch.tensor([[1, 3, value]])
    with pytest.raises(ValueError, match=rf"k holds {value}; allowed: 1 \.\. C = 3"):
        adaptive_weight(torch.full((1, 3, 3), 1 / 3), k)


def test_numbers_without_end_are_refused() -> None:
    student, teacher = torch.randn(1, 5, 2, 2), torch.randn(1, 5, 2, 2)
    for call, word in (
        (lambda: PixelLoss("fpl")(student, teacher, size=(2**64 + 5, 2**64 + 5)), "size"),
        (lambda: PixelLoss("fpl")(student, teacher, size=(2**70, 2)), "size"),
        (lambda: PixelLoss("fpl")(student, teacher, denominator=torch.tensor(math.inf)), "denominator"),
        (lambda: fuzzy_positive_loss(student, teacher, threshold=10**400), "threshold"),
    ):
        with pytest.raises(ValueError, match=word):
            call()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("precise", ["student", "teacher"])
def test_one_of_the_two_in_float64(strategy: str, precise: str) -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 2, 6, 3, 4, generator=generator).unbind()
    mixed = (student.double(), teacher) if precise == "student" else (student, teacher.double())
    for call in (fuzzy_positive_loss, fuzzy_positive_gradient_of):
        found, wanted = call(*mixed, strategy=strategy), call(student.double(), teacher.double(), strategy=strategy)
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
    assert diagnose(*mixed, rules=Rules(strategy=strategy)) is not None


def fuzzy_positive_gradient_of(student: torch.Tensor, teacher: torch.Tensor, strategy: str) -> torch.Tensor:
    return fuzzy_positive_gradient(student, teacher, Rules(strategy=strategy))
