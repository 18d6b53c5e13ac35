"""Odd tensors for the loss: a value and a gradient of the right shape, or a ValueError that names the argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fpl.losses import KINDS, STRATEGIES, WEIGHTS, PixelLoss, fuzzy_positive_loss
from fpl.losses.kernels import use

NUMBERS = st.floats() | st.integers(-3, 30) | st.sampled_from([math.inf, -math.inf, math.nan, 0.9, 2, 2.5, None, True])
KEYWORDS = st.fixed_dictionaries(
    {},
    optional={
        "threshold": NUMBERS,
        "strategy": st.sampled_from(STRATEGIES) | st.text(max_size=3),
        "weight": st.sampled_from(WEIGHTS) | st.text(max_size=3),
        "curvature": NUMBERS,
        "fixed_k": NUMBERS,
        "ratio": NUMBERS,
        "convex_coefficient": NUMBERS,
    },
)


@st.composite
def scores(draw: Callable[[Any], Any], shape: tuple[int, ...], finite: bool = True) -> Tensor:
    """Logits of a shape in any type, layout and view that torch has for it."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 9))))
    values = values * draw(st.sampled_from([0.0, 1.0, 60.0, 1e4]))
    values = values.to(draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])))
    view = draw(st.sampled_from(["plain", "transposed", "strided", "expanded", "negative", "inference"]))
    if view == "transposed" and values.ndim > 3:
        values = values.transpose(2, 3).contiguous().transpose(2, 3)
    elif view == "strided":
        values = torch.stack([values, values * 0 + 7], -1)[..., 0]
    elif view == "expanded" and values.ndim and values.shape[0]:
        values = values[:1].expand(shape)
    elif view == "negative" and values.dtype in (torch.float32, torch.float64):
        values = torch.complex(torch.zeros_like(values), -values).conj().imag
    elif view == "inference":
        with torch.inference_mode():
            values = values.clone()
    return values


SHAPES = st.tuples(
    st.integers(0, 2), st.sampled_from([0, 1, 2, 3, 19]), st.integers(0, 5), st.integers(0, 5)
) | st.lists(st.integers(0, 3), max_size=5).map(tuple)


def value_or_error(call: Callable[[], Tensor], *names: str) -> Tensor | None:
    try:
        return call()
    except ValueError as error:
        assert any(name in str(error) for name in names), str(error)
        return None


NAMES = ("student", "teacher", "threshold", "strategy", "weight", "curvature", "fixed_k", "ratio", "convex_coefficient")


@given(data=st.data(), keywords=KEYWORDS)
def test_any_arguments(data: st.DataObject, keywords: dict[str, Any]) -> None:
    shape = data.draw(SHAPES)
    student, teacher = data.draw(scores(shape)), data.draw(scores(shape))
    student = student.clone().requires_grad_()
    loss = value_or_error(lambda: fuzzy_positive_loss(student, teacher, **keywords), *NAMES)
    if loss is None:
        return
    assert loss.shape == () and torch.isfinite(loss)
    loss.backward()
    assert student.grad is not None and student.grad.shape == student.shape and torch.isfinite(student.grad).all()


@given(data=st.data())
def test_a_view_is_worth_what_its_copy_is(data: st.DataObject) -> None:
    """Kernel and tensors see through any layout: strides, expansion, the negative bit."""
    shape = data.draw(st.tuples(st.integers(1, 2), st.sampled_from([2, 3, 19]), st.integers(1, 5), st.integers(1, 5)))
    student, teacher = data.draw(scores(shape)), data.draw(scores(shape))
    copies = [torch.tensor(tensor.tolist(), dtype=tensor.dtype) for tensor in (student, teacher)]
    with use("tensor"):
        expected = fuzzy_positive_loss(*copies)
    torch.testing.assert_close(fuzzy_positive_loss(student, teacher), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_kind(kind: str, data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 4), st.integers(0, 4)))
    student, teacher = data.draw(scores(shape)), data.draw(scores(shape))
    weights = data.draw(st.none() | st.sampled_from([0.0, 1.0, 0.5]))
    weight_map = None if weights is None else torch.full((shape[0], *shape[2:]), weights)
    total = value_or_error(
        lambda: PixelLoss(kind)(student, teacher, weight_map).value, "student", "teacher", "weight_map"
    )
    assert total is None or (total.shape == () and torch.isfinite(total))
