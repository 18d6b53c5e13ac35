"""`torch.compile(fullgraph=True)` of code with the losses: the values and gradients of eager code.

Most cases are traced without generating code (`aot_eager`), which has the same graph of forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.losses import REDUCTIONS, FuzzyPositiveLoss, PixelLoss, fuzzy_positive_terms, kernels
from fpl.losses.rules import Rules
from tests.losses.kernels.cases import needs_cpu_kernel

IMPLEMENTATIONS = ["tensor", pytest.param("cpu", marks=needs_cpu_kernel)]
Function = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Which implementation computes is asked when code is traced: nothing traced may stay."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def logits(*shape: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weights(*shape: int) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(2)) - 0.3).clamp(min=0)


def run(function: Function, student: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    leaf = student.detach().clone().requires_grad_()
    value = function(leaf, *others)
    (gradient,) = torch.autograd.grad(0.37 * value.sum(), leaf)
    return value.detach(), gradient


def compare(implementation: str, function: Function, *inputs: Any, backend: str = "aot_eager") -> None:
    with kernels.use(implementation):
        expected = run(function, *inputs)
        found = run(torch.compile(function, fullgraph=True, backend=backend), *inputs)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        # The kernels are opaque to the compiler: the same bits. What it traces itself it may put in another order.
        tolerance = {"rtol": 0, "atol": 0} if implementation == "cpu" and inputs[0].dtype != torch.float64 else {}
        torch.testing.assert_close(one, other, **tolerance)


# Of plain tensors the loss of each pixel is looked at in `test_terms`, and a mean is a sum.
@pytest.mark.parametrize(
    ("implementation", "reduction"),
    [
        *(pytest.param("cpu", name, marks=needs_cpu_kernel) for name in REDUCTIONS),
        ("tensor", "mean"),
        ("tensor", "valid"),
    ],
)
def test_reductions(implementation: str, reduction: str) -> None:
    loss = FuzzyPositiveLoss(reduction=reduction)
    compare(implementation, loss, logits(2, 5, 4, 3), logits(2, 5, 4, 3, seed=1), weights(2, 4, 3))


@needs_cpu_kernel
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("shape", [(7, 5), (2, 5, 6), (2, 5, 3, 2, 2)], ids=str)
def test_dtypes_and_shapes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    loss = FuzzyPositiveLoss(reduction="valid", threshold=1.0)
    others = logits(*shape, seed=1).to(dtype), weights(shape[0], *shape[2:]).bool()
    compare("cpu", loss, logits(*shape).to(dtype), *others)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_turned_logits(implementation: str) -> None:
    student, teacher = (logits(2, 5, 4, 3, seed=seed).transpose(2, 3) for seed in (0, 1))
    compare(implementation, FuzzyPositiveLoss(), student, teacher)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("strategy", ["n-1", "soft"])
def test_terms(implementation: str, strategy: str) -> None:
    def loss(student: Tensor, teacher: Tensor) -> Tensor:
        terms = fuzzy_positive_terms(student, teacher, Rules(strategy=strategy))
        return terms.loss * terms.weight / terms.k

    compare(implementation, loss, logits(2, 5, 4), logits(2, 5, 4, seed=1))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_slot_with_two_teachers_enlarging_groups_and_balance(implementation: str) -> None:
    slot = PixelLoss("fpl", balance=True)
    slot.collect = True
    inside = torch.zeros(2, 7, 5, dtype=torch.bool)
    inside[:, 2:5, 1:4] = True

    def loss(student: Tensor, teacher: Tensor, second: Tensor) -> Tensor:
        return slot.total([slot(student, teacher, second=second, inside=inside, size=(7, 5), groups=2)])

    compare(implementation, loss, *(logits(2, 5, 4, 3, seed=seed) for seed in range(3)))


class Step(nn.Module):
    """What one step minimises: labels on some images, the loss on others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network = nn.Conv2d(3, 5, 3)
        self.fuzzy = FuzzyPositiveLoss(reduction="valid")

    def forward(self, images: Tensor, label: Tensor, teacher: Tensor, valid: Tensor) -> Tensor:
        known, unknown = self.network(images).chunk(2)
        return F.cross_entropy(known, label, ignore_index=255) + self.fuzzy(unknown, teacher, valid)


@needs_cpu_kernel
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_training_step(backend: str) -> None:
    step = Step()
    label = torch.randint(0, 5, (1, 4, 4), generator=torch.Generator().manual_seed(0))
    label[:, 0] = 255
    inputs = logits(2, 3, 6, 6), label, logits(1, 5, 4, 4, seed=1), label != 255
    found = []
    for function in (step, torch.compile(step, fullgraph=True, backend=backend)):
        step.zero_grad()
        value = function(*inputs)
        value.backward()
        found.append((value.detach(), *(parameter.grad.clone() for parameter in step.parameters())))
    torch.testing.assert_close(*found)


@needs_cpu_kernel
def test_backward_twice() -> None:
    loss = torch.compile(FuzzyPositiveLoss(), fullgraph=True, backend="aot_eager")
    student = logits(2, 5, 4).requires_grad_()
    value = loss(student, logits(2, 5, 4, seed=1))
    (first,) = torch.autograd.grad(3 * value, student, retain_graph=True)
    (second,) = torch.autograd.grad(0.5 * value, student)
    torch.testing.assert_close(first, 6 * second)


@needs_cpu_kernel
def test_nothing_is_recorded_without_a_gradient() -> None:
    loss = FuzzyPositiveLoss(reduction="valid")
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    student, teacher = logits(2, 5, 4), logits(2, 5, 4, seed=1)
    assert torch.equal(compiled(student, teacher), loss(student, teacher))
    with torch.no_grad():
        assert not compiled(student.requires_grad_(), teacher).requires_grad


@needs_cpu_kernel
def test_other_sizes_and_other_progress_are_not_compiled_anew() -> None:
    traced = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    loss = FuzzyPositiveLoss(reduction="valid")
    compiled = torch.compile(loss, fullgraph=True, backend=traced, dynamic=True)
    for number, side in enumerate((5, 6, 8)):
        loss.progress = number / 3
        inputs = logits(2, 3, side, side), logits(2, 3, side, side, seed=1), weights(2, side, side)
        for one, other in zip(run(compiled, *inputs), run(loss, *inputs), strict=True):
            assert torch.equal(one, other)
    # The first one may be taken for a constant.
    assert traced.frame_count <= 2


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("reduction", ["mean", "valid"])
def test_other_sizes_are_traced_as_well(implementation: str, reduction: str) -> None:
    """From the second on their numbers are symbols, which no check of a value can read."""
    loss = FuzzyPositiveLoss(reduction=reduction)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    with kernels.use(implementation):
        for height in (4, 5, 7):
            inputs = (logits(2, 5, height, 3), logits(2, 5, height, 3, seed=1), weights(2, height, 3))
            torch.testing.assert_close(compiled(*inputs), loss(*inputs))
