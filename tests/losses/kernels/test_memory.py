"""Gradients' memory is used again, and never while any tensor still looks at it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from fpl.losses import fuzzy_positive_loss
from fpl.losses.kernels import memory, use
from fpl.losses.kernels.memory import empty_like
from tests.losses.kernels.cases import needs_cpu_kernel

LARGE = torch.empty(2, 3, 300, 301)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    memory._kept.clear()
    yield
    memory._kept.clear()


def test_memory_comes_back() -> None:
    first = empty_like(LARGE)
    place = first.data_ptr()
    assert (first.shape, first.stride(), first.dtype) == (LARGE.shape, LARGE.stride(), LARGE.dtype)
    del first
    gc.collect()
    assert len(memory._kept) == 1
    assert empty_like(LARGE).data_ptr() == place


@pytest.mark.parametrize("share", ["view", "detached", "grad"])
def test_memory_in_use_stays_away(share: str) -> None:
    first = empty_like(LARGE).fill_(1)
    place = first.data_ptr()
    if share == "view":
        rest = first[1, 1:, ::2]
    elif share == "detached":
        rest = first.detach()
    else:
        parameter = torch.zeros_like(LARGE).requires_grad_()
        parameter.grad = first
        rest = parameter.grad
        del parameter
    del first
    gc.collect()
    other = empty_like(LARGE).fill_(2)
    assert other.data_ptr() != place
    assert (rest == 1).all()
    del rest
    gc.collect()
    assert empty_like(LARGE).data_ptr() == place


def test_one_block_of_a_fitting_size_is_kept() -> None:
    sizes = [torch.empty(1, 3, 300, 300), torch.empty(1, 3, 1000, 1000)]
    tensors = [empty_like(size) for size in sizes]
    del tensors
    gc.collect()
    assert len(memory._kept) == 1
    small = empty_like(sizes[0])
    assert small.untyped_storage().nbytes() <= 2 * sizes[0].nbytes


def test_layouts_and_small_tensors() -> None:
    last = torch.empty(2, 3, 300, 301, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    assert empty_like(last).stride() == last.stride()
    assert empty_like(last).dtype == torch.bfloat16
    memory._kept.clear()
    assert empty_like(torch.empty(2, 3)).shape == (2, 3)
    assert not memory._kept


@needs_cpu_kernel
def test_gradients_of_successive_steps_do_not_disturb_each_other() -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(1, 5, 250, 260, generator=generator) for _ in range(2))
    found = []
    for factor in (1, 2, 3):
        leaf = student.clone().requires_grad_()
        with use("cpu"):
            (factor * fuzzy_positive_loss(leaf, teacher)).backward()
        assert leaf.grad is not None
        found.append(leaf.grad)
    for factor, gradient in enumerate(found, start=1):
        torch.testing.assert_close(gradient, factor * found[0])
