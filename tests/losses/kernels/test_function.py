"""Autograd over the fused CPU implementation: scales, second backward passes, half precision, the pixel slot."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fpl.losses import PixelLoss, fuzzy_positive_loss, fuzzy_positive_terms, kernels
from tests.losses.kernels.cases import needs_cpu_kernel

pytestmark = needs_cpu_kernel


def pair(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    student, teacher = (2 * torch.randn(*shape, generator=generator) for _ in range(2))
    return student.requires_grad_(), teacher


def gradient_in_float64(student: Tensor, teacher: Tensor, factor: float = 1.0) -> Tensor:
    exact = student.detach().double().requires_grad_()
    (factor * fuzzy_positive_loss(exact, teacher.double())).backward()
    assert exact.grad is not None
    return exact.grad


def test_a_second_backward_pass_has_its_own_scale() -> None:
    student, teacher = pair(2, 5, 7, 9)
    value = fuzzy_positive_loss(student, teacher)
    (first,) = torch.autograd.grad(3 * value, student, retain_graph=True)
    kept = first.clone()
    (second,) = torch.autograd.grad(0.5 * value, student, retain_graph=True)
    (third,) = torch.autograd.grad(value, student)
    assert torch.equal(first, kept)
    for found, factor in ((first, 3), (second, 0.5), (third, 1)):
        torch.testing.assert_close(found.double(), gradient_in_float64(student, teacher, factor), rtol=2e-6, atol=1e-9)


def test_float16_gradients_do_not_underflow() -> None:
    student, teacher = pair(1, 4, 64, 64)
    half = student.detach().half().requires_grad_()
    # A mean over 4,096 pixels under the usual first loss scale.
    (65536 * fuzzy_positive_loss(half, teacher.half())).backward()
    expected = gradient_in_float64(half.detach().float(), teacher.half().float(), 65536)
    assert half.grad is not None
    torch.testing.assert_close(half.grad.double(), expected, rtol=2e-3, atol=1e-3)


def test_nothing_is_recorded_without_a_gradient() -> None:
    student, teacher = pair(1, 4, 5, 5)
    with torch.no_grad():
        assert not fuzzy_positive_loss(student, teacher).requires_grad
    assert not fuzzy_positive_loss(student.detach(), teacher).requires_grad


@pytest.mark.parametrize("fidelity", ["paper", "released"])
@pytest.mark.parametrize("balance", [False, True])
def test_the_slot_gives_what_tensors_give(fidelity: str, balance: bool) -> None:
    student, teacher = pair(2, 6, 11, 5)
    weight_map = torch.rand(2, 11, 5, generator=torch.Generator().manual_seed(1))
    weight_map[:, :4] = 0
    slot = PixelLoss("fpl", fidelity=fidelity, balance=balance)
    slot.collect = True
    for arguments in ({}, {"weight_map": weight_map}, {"weight_map": weight_map, "denominator": 7.0}):
        found = {}
        for name in ("cpu", "tensor"):
            with kernels.use(name):
                term = slot(student, teacher, **arguments)
                value = slot.total([term])
                (gradient,) = torch.autograd.grad(value, student)
            found[name] = (value, gradient, term.mean, term.cross_entropy, *term.statistics.values())
            assert term.statistics["k_histogram"].dtype == torch.int64
        for ours, expected in zip(*found.values(), strict=True):
            torch.testing.assert_close(ours.double(), expected.double(), rtol=1e-5, atol=1e-8)


def test_low_resolution_and_two_teachers_are_those_of_doing_it_before() -> None:
    student, first = pair(2, 4, 6, 5)
    _, second = pair(2, 4, 6, 5, seed=3)
    inside = torch.rand(2, 21, 17, generator=torch.Generator().manual_seed(2)) > 0.5

    def large(logits: Tensor) -> Tensor:
        return F.interpolate(logits.double(), size=(21, 17), mode="bilinear", align_corners=True)

    exact = student.detach().double().requires_grad_()
    teacher = torch.where(inside.unsqueeze(1), large(second), large(first))
    expected = PixelLoss("fpl")(large(exact), teacher)
    (gradient,) = torch.autograd.grad(expected.value, exact)
    for name in ("cpu", "tensor"):
        with kernels.use(name):
            term = PixelLoss("fpl")(student, first, second=second, inside=inside, size=(21, 17))
            (found,) = torch.autograd.grad(term.value, student)
        torch.testing.assert_close(term.value.double(), expected.value, rtol=1e-6, atol=0)
        torch.testing.assert_close(found.double(), gradient, rtol=1e-5, atol=1e-8)


def test_other_kinds_enlarge_and_mix_too() -> None:
    student, first = pair(1, 4, 3, 3)
    _, second = pair(1, 4, 3, 3, seed=3)
    inside = torch.zeros(1, 8, 8, dtype=torch.bool)
    inside[:, 2:5, 1:7] = True

    def large(logits: Tensor) -> Tensor:
        return F.interpolate(logits, size=(8, 8), mode="bilinear", align_corners=True)

    teacher = torch.where(inside.unsqueeze(1), large(second), large(first))
    expected = F.cross_entropy(large(student), teacher.max(1).indices)
    term = PixelLoss("ce")(student, first, second=second, inside=inside, size=(8, 8))
    torch.testing.assert_close(term.value, expected)


def test_what_does_not_fit_is_refused() -> None:
    student, teacher = pair(1, 4, 3, 3)
    inside = torch.zeros(1, 8, 8, dtype=torch.bool)
    slot = PixelLoss("fpl")
    with pytest.raises(ValueError, match="second and inside go together"):
        slot(student, teacher, inside=inside, size=(8, 8))
    with pytest.raises(ValueError, match=r"inside has shape \[1, 8, 8\]; allowed: .*\[1, 3, 3\]"):
        slot(student, teacher, second=teacher, inside=inside)
    with pytest.raises(ValueError, match=r"inside has dtype torch.int64"):
        slot(student, teacher, second=teacher, inside=inside.long(), size=(8, 8))
    with pytest.raises(ValueError, match="size is"):
        slot(student, teacher, size=(0, 8))
    with pytest.raises(ValueError, match=r"weight_map has shape"):
        slot(student, teacher, torch.ones(1, 3, 3), size=(8, 8))


def test_mixed_precisions_meet_in_float32() -> None:
    student, teacher = pair(1, 4, 5, 5)
    mixed = fuzzy_positive_loss(student, teacher.bfloat16())
    torch.testing.assert_close(mixed, fuzzy_positive_loss(student, teacher.bfloat16().float()))


def test_terms_take_any_gradient() -> None:
    student, teacher = pair(2, 5, 4, 3)
    upstream = torch.rand(2, 4, 3, generator=torch.Generator().manual_seed(1))
    terms = fuzzy_positive_terms(student, teacher)
    (found,) = torch.autograd.grad(terms.loss, student, upstream)
    exact = student.detach().double().requires_grad_()
    expected = fuzzy_positive_terms(exact, teacher.double())
    (gradient,) = torch.autograd.grad(expected.loss, exact, upstream.double())
    assert torch.equal(terms.k, expected.k)
    assert not terms.weight.requires_grad
    torch.testing.assert_close(terms.loss.double(), expected.loss, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(found.double(), gradient, rtol=1e-6, atol=1e-7)


def test_a_float64_teacher_decides_in_float64() -> None:
    student, teacher = pair(1, 4, 5, 5)
    inside = torch.zeros(1, 5, 5, dtype=torch.bool)
    for half in (student, student.detach().bfloat16().requires_grad_()):
        found = {}
        for name in ("cpu", "tensor"):
            with kernels.use(name):
                loss = fuzzy_positive_loss(half, teacher.double())
                terms = fuzzy_positive_terms(half, teacher.double())
                term = PixelLoss("fpl")(half, teacher, second=teacher.double(), inside=inside)
                (gradient,) = torch.autograd.grad(loss, half)
            found[name] = [loss, *terms, term.value, gradient]
        for ours, expected in zip(*found.values(), strict=True):
            assert ours.dtype == expected.dtype
            assert torch.equal(ours, expected)


@pytest.mark.parametrize("name", ["cpu", "tensor"])
def test_what_comes_from_inference_mode_teaches(name: str) -> None:
    student, teacher = pair(1, 4, 5, 5)
    weight_map = torch.rand(1, 5, 5, generator=torch.Generator().manual_seed(0))
    inside = weight_map > 0.5
    truth = inside.long()
    with torch.inference_mode():
        frozen = [one.clone() for one in (teacher, weight_map, inside, truth)]
    assert frozen[0].is_inference()
    found = []
    slot = PixelLoss("fpl", balance=True)
    slot.collect = slot.diagnose = True
    with kernels.use(name):
        for logits, weights, mask, classes in (frozen, (teacher, weight_map, inside, truth)):
            term = slot(student, logits, weights, None, mask, second=logits.flip(1), inside=mask, ground_truth=classes)
            values = [
                slot.total([term]),
                fuzzy_positive_loss(student, logits, weight_map=weights),
                fuzzy_positive_terms(student, logits).loss.sum(),
            ]
            found.append([*values, *(torch.autograd.grad(value, student)[0] for value in values)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["cpu", "tensor"])
def test_a_weight_map_is_a_constant(name: str) -> None:
    student, teacher = pair(1, 4, 5, 5)
    weight_map = torch.ones(1, 5, 5, requires_grad=True)
    with kernels.use(name):
        for reduction in ("mean", "none"):
            fuzzy_positive_loss(student, teacher, weight_map=weight_map, reduction=reduction).sum().backward()
        for kind in ("fpl", "ce"):
            PixelLoss(kind)(student, teacher, weight_map).value.backward()
    assert weight_map.grad is None
    assert student.grad is not None


@pytest.mark.parametrize("size", [None, (64, 64)])
@pytest.mark.parametrize("mass", [1.0, 1e-4, 1e6])
def test_float16_gradients_survive_small_weights(mass: float, size: tuple[int, int] | None) -> None:
    """Weights that add up to 1 and a denominator of 1, as in AEL, under the usual first loss scale."""
    low = (64, 64) if size is None else (32, 32)
    student, teacher = (one.detach().half() for one in pair(1, 4, *low))
    weight_map = torch.rand(1, 64, 64, generator=torch.Generator().manual_seed(1))
    weight_map = weight_map / weight_map.sum() * mass
    upstream = 65536 / mass
    slot = PixelLoss("fpl")
    expected = student.double().requires_grad_()
    (upstream * slot(expected, teacher.double(), weight_map.double(), 1.0, size=size).value).backward()
    assert expected.grad is not None
    leaf = student.clone().requires_grad_()
    value = slot(leaf, teacher, weight_map, 1.0, size=size).value
    for keep in (True, False):
        # A second backward pass computes the gradient anew.
        (found,) = torch.autograd.grad(upstream * value, leaf, retain_graph=keep)
        assert found.dtype == torch.float16
        torch.testing.assert_close(found.double(), expected.grad, rtol=3e-3, atol=1e-4 * expected.grad.abs().max())
    assert value.item() == pytest.approx(
        slot(student.float(), teacher.float(), weight_map, 1.0, size=size).value.item()
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("size", [None, (9, 17)])
@pytest.mark.parametrize("name", ["cpu", "tensor", "triton"])
def test_a_scale_that_is_no_number_spares_the_pixels_that_do_not_count(
    name: str, size: tuple[int, int] | None, dtype: torch.dtype
) -> None:
    if name == "triton":
        pytest.importorskip("triton")
    student, teacher = (one.detach().to(dtype) for one in pair(1, 4, 5, 9))
    teacher[0, 1, 1, 1] = torch.nan
    weight_map = torch.ones(1, *(size or (5, 9)))
    weight_map[..., weight_map.shape[2] // 2 :] = 0
    slot = PixelLoss("fpl", balance=True)
    leaf = student.requires_grad_()
    with kernels.use(name):
        total = slot.total([slot(leaf, teacher, weight_map, size=size)])
        assert total.isnan()
        total.backward()
    assert leaf.grad is not None
    assert leaf.grad[..., :4].isnan().all()
    assert (leaf.grad[..., 5:] == 0).all()
