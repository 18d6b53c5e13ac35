"""The operators of `torch.library`: their schemas, fake tensors and gradients by torch's own check of operators."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fpl.losses import kernels
from fpl.losses.kernels import operators
from fpl.losses.kernels.contract import SUMS, Pixels, Settings, make_settings
from fpl.losses.rules import DEFAULTS

LAYOUTS = {
    "contiguous": lambda logits: logits,
    "channels_last": lambda logits: logits.contiguous(memory_format=torch.channels_last),
    "turned": lambda logits: logits.transpose(2, 3),
    "a slice": lambda logits: logits[..., 1:],
}


# Triton's interpreter, which stands for a GPU, is slow: one layout has to do.
CASES = [*(("cpu", layout) for layout in LAYOUTS), ("triton", "channels_last")]


def drawn(name: str, layout: str = "contiguous") -> tuple[Tensor, Tensor, Settings]:
    """Logits that want a gradient, logits that teach them, settings; skips without the implementation."""
    if not kernels.available(name):
        pytest.skip(f"no {name} kernel here")
    device = "cuda" if name == "triton" and torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(0)
    student, teacher = (3 * torch.randn(2, 5, 3, 4, generator=generator) for _ in range(2))
    student, teacher = (LAYOUTS[layout](logits.to(device)) for logits in (student, teacher))
    return student.detach().requires_grad_(), teacher, make_settings(5, DEFAULTS)


@pytest.mark.parametrize(("name", "layout"), CASES)
@pytest.mark.parametrize("size", [None, (7, 5)])
def test_summed(name: str, layout: str, size: tuple[int, int] | None) -> None:
    student, teacher, settings = drawn(name, layout)
    height, width = size or student.shape[2:]
    weight_map = torch.linspace(0, 1, 2 * height * width, device=student.device).view(2, height, width)
    pixels = Pixels(student, teacher, weight_map=weight_map, counted=weight_map > 0.2, size=size)
    scale = torch.full((), 0.5, device=student.device)
    arguments = (name, *pixels, scale, scale, None, True, True, *settings)
    torch.library.opcheck(operators.summed, arguments)
    value, sums, histogram, gradient = operators.summed(*arguments)
    assert (sums.shape, histogram.shape, gradient.shape) == ((len(SUMS),), (5,), student.shape)
    (found,) = torch.autograd.grad(value, student)
    assert torch.equal(found, gradient)


@pytest.mark.parametrize("name", ["cpu", "triton"])
def test_summed_without_a_gradient(name: str) -> None:
    student, teacher, settings = drawn(name)
    scale = torch.ones((), device=student.device)
    arguments = (name, *Pixels(student.detach(), teacher), scale, None, None, False, False, *settings)
    torch.library.opcheck(operators.summed, arguments)
    assert operators.summed(*arguments)[3].numel() == 0


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_mapped(name: str, layout: str) -> None:
    student, teacher, settings = drawn(name, layout)
    torch.library.opcheck(operators.mapped, (name, student, teacher, *settings))
    loss, _, _, *state = operators.mapped(name, student, teacher, *settings)
    upstream = torch.rand_like(loss)
    arguments = (name, student.detach(), teacher, *state, upstream, *settings)
    torch.library.opcheck(operators.mapped_gradient, arguments)
    (found,) = torch.autograd.grad(loss, student, upstream)
    assert torch.equal(found, operators.mapped_gradient(*arguments))


def test_a_second_backward_pass_scales_what_the_first_one_did() -> None:
    student, teacher, settings = drawn("cpu")
    scale = torch.ones(())
    value, *_ = operators.summed("cpu", *Pixels(student, teacher), scale, scale, None, False, True, *settings)
    (first,) = torch.autograd.grad(3 * value, student, retain_graph=True)
    (second,) = torch.autograd.grad(0.5 * value, student)
    torch.testing.assert_close(first, 6 * second)


def test_nobody_differentiates_twice() -> None:
    student, teacher, settings = drawn("cpu")
    scale = torch.ones(())
    value, *_ = operators.summed("cpu", *Pixels(student, teacher), scale, scale, None, False, True, *settings)
    (gradient,) = torch.autograd.grad(value, student, create_graph=True)
    with pytest.raises(RuntimeError, match="are differentiable once"):
        gradient.sum().backward()
