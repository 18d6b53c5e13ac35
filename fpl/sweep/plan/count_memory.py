"""How much memory a step and a look of a validation take on a device, counted on the method itself.

As the work is (`fpl.sweep.plan.count`): two small steps say which passes are alive at one time, and how what they
compute beside their passes grows with the crop; the passes themselves are counted on the real networks at the real
crop, there and back, on `meta`. The fuzzy positive loss is taken to be the fused one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fpl.config.schema import RunConfig
from fpl.data.batch import tensors
from fpl.losses import kernels
from fpl.methods.base import Clock, Method
from fpl.methods.optimizers import owned
from fpl.sweep.plan.alive import BESIDE, Alive, Phase
from fpl.sweep.plan.cost import Memory
from fpl.sweep.plan.drawn import prepared_step
from fpl.sweep.plan.fused import Fused
from fpl.sweep.plan.record import Pass, recorded
from fpl.sweep.plan.scale import META, Scale
from fpl.sweep.plan.tally import size_of, tensors_in
from fpl.train.step import take_step

HALF = torch.bfloat16


@dataclass(frozen=True)
class Lived:
    """What was alive in a step on tiny networks.

    Attributes:
        passes: Its passes.
        phases: What happened before, in and after each of them.
        left: Bytes that each pass left alive when it was over.
        batch: Bytes of the batch.
    """

    passes: tuple[Pass, ...]
    phases: tuple[Phase, ...]
    left: tuple[int, ...]
    batch: int


@dataclass(frozen=True)
class Held:
    """Bytes of one pass on the real networks.

    Attributes:
        left: That it leaves alive: its results, and what its way back needs.
        there: At its fullest on the way there.
        back: By how much more than `left` they are on the way back, at its fullest.
        copies: Of the weights, in half precision, that its way back needs.
    """

    left: int
    there: int
    back: int
    copies: int


# Passes that were counted in this process, as in `fpl.sweep.plan.count`.
_known: dict[tuple[Any, ...], Held] = {}


def count_memory(real: Method, smalls: Sequence[RunConfig], crop: tuple[int, int], window: tuple[int, int]) -> Memory:
    """Count the memory of a step on the global batch, and of a look at one window.

    Args:
        real: The method on `meta`; it is of no other use afterwards.
        smalls: The same method on tiny networks at two crops, square and growing.
        crop: Of the run.
        window: Height and width of what the network looks at in a validation.
    """
    steps = [_small_step(small) for small in smalls]
    _forget_norms(real)
    areas = [math.prod(small.data.crop) for small in smalls]
    scale = Scale(smalls[-1], real, crop)
    peaks = []
    look = _look(real, window)
    real.train()
    for dtype in (torch.float32, HALF):
        real.to(dtype)
        held = [_held(real, item, scale, dtype) for item in steps[-1].passes]
        peaks.append(_peak(steps, areas, math.prod(crop), held))
    trained = {id(parameter): parameter for each in real.optimizers().values() for parameter in owned(each)}
    gradients = sum(4 * parameter.numel() for parameter in trained.values())
    (step, _), (step_bf16, copies) = peaks
    return Memory(step, step_bf16, copies, gradients, look)


@functools.cache
def _small_step(config: RunConfig) -> Lived:
    """Take a step and follow what is alive in it."""
    with torch.random.fork_rng(devices=[]), kernels.use(Fused()):
        torch.manual_seed(0)
        method, optimizers, batch, _ = prepared_step(config, torch.device("cpu"))
        alive = Alive()
        left: list[int] = []

        def border(number: int | None) -> None:
            if number is None:
                left.append(alive.now[len(left)])
            alive.enter(BESIDE if number is None else number)

        with recorded(method, border) as passes, alive:
            # Not the first step: a method may begin with labels alone.
            take_step(method, optimizers, batch, Clock(1, 2), config.train, torch.device("cpu"))
    return Lived(tuple(passes), tuple(alive.phases), tuple(left), size_of(list(tensors(batch))))


def _peak(steps: Sequence[Lived], areas: Sequence[int], area: int, held: Sequence[Held]) -> tuple[int, int]:
    """The fullest moment of a step: bytes that grow with the batch, and copies of weights, which do not.

    Of a phase the most of each owner is taken, as if all had theirs at once: so it is when a way back begins.
    """
    moments = []
    for first, second in zip(*(step.phases for step in steps), strict=True):
        # What does not grow with the crop, such as samples of pixels, is taken once in each group of images.
        slope = (second.most[BESIDE] - first.most[BESIDE]) / (areas[1] - areas[0])
        grown, copies = max(0.0, second.most[BESIDE] + slope * (area - areas[1])), 0.0
        for number, item in enumerate(held):
            if number == second.under_way:
                grown += item.there
            elif number in second.most:
                share = second.most[number] / max(1, steps[1].left[number])
                grown += share * item.left
                copies += share * item.copies
        if second.backward:
            grown += max((item.back for item in held), default=0)
        moments.append((grown, copies))
    grown, copies = max(moments, key=sum)
    return round(grown + steps[1].batch / areas[1] * area), round(copies)


def _held(method: Method, item: Pass, scale: Scale, dtype: torch.dtype) -> Held:
    """The memory of a pass, there and back; equal ones are counted once in a process."""
    module = method.get_submodule(item.path).train(item.training)
    shapes = scale.all_of(item)
    trained = tuple(parameter.requires_grad for parameter in module.parameters())
    key = (dtype, str(module), trained, replace(item, path="", shapes=shapes))
    if key not in _known:
        _known[key] = _there_and_back(module, replace(item, shapes=shapes), dtype)
    return _known[key]


def _there_and_back(module: nn.Module, item: Pass, dtype: torch.dtype) -> Held:
    pairs = zip(item.shapes, item.wanted, strict=True)
    inputs = [torch.empty(shape, dtype=dtype, device=META, requires_grad=wanted) for shape, wanted in pairs]
    # Gradients of parameters are counted elsewhere: they stay from one step to the next.
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    hooks = [each.register_post_accumulate_grad_hook(_drop) for each in trained]  # type: ignore[no-untyped-call]
    alive = Alive()
    with torch.set_grad_enabled(item.differentiated), alive:
        found = getattr(module, item.function)(*inputs)
        left, there = alive.total, alive.peak
        # Beside its logits a network gives features that another pass may go on from.
        ends = [tensor for tensor in tensors_in(found) if tensor.requires_grad][: 1 if item.function == "raw" else None]
        if ends:
            torch.autograd.backward(ends, [torch.empty_like(end) for end in ends])
    for hook in hooks:
        hook.remove()
    halves = dtype == HALF and item.differentiated
    copies = sum(2 * each.numel() for each in module.parameters() if each.ndim > 1) if halves else 0
    return Held(left, there, max(0, alive.peak - left) if ends else 0, copies)


def _drop(parameter: Tensor) -> None:
    parameter.grad = None


class _Kept(torch.autograd.Function):
    """Batch norm as far as memory goes: its way back needs what goes in, and its result is as large."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, weight: Tensor | None) -> Tensor:
        ctx.save_for_backward(image, weight)
        return torch.empty_like(image)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor | None]:
        _, weight = ctx.saved_tensors
        return torch.empty_like(upstream), None if weight is None else torch.empty_like(weight)


def _forget_norms(method: Method) -> None:
    """Let batch norm layers compute nothing: on `meta` nothing takes longer."""
    for module in method.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.forward = functools.partial(_normalised, module)  # type: ignore[method-assign]


def _normalised(layer: nn.Module, image: Tensor) -> Tensor:
    found: Tensor = _Kept.apply(image, layer.weight)
    return found


def _look(method: Method, window: tuple[int, int]) -> int:
    """The most bytes alive while the evaluated network looks at one image."""
    method.eval()
    image = torch.empty(1, 3, *window, device=META)
    with torch.no_grad(), Alive() as alive:
        method.predict(image)
    return int(alive.peak)
