"""What a run costs, counted on its own method: no method says what it costs, and none is known here by name.

A real step of the method is taken at a small size, and every pass through one of its networks, or through another
module with weights, is recorded. Each recorded pass is then counted on the real networks at the real crop, on torch's
`meta` device, where nothing is computed. What the step does beside its passes grows with the crop's area: two small
sizes say how fast.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fpl.config.schema import RunConfig
from fpl.config.sections import DataConfig, EvalConfig, LossConfig, SplitConfig, TrainConfig
from fpl.losses import kernels
from fpl.methods.base import Clock, Method
from fpl.methods.optimizers import owned
from fpl.sweep.plan.cost import Cost, Work
from fpl.sweep.plan.count_memory import count_memory
from fpl.sweep.plan.drawn import bare_method, prepared_step
from fpl.sweep.plan.record import Pass, Shapes, recorded
from fpl.sweep.plan.scale import META, Scale
from fpl.sweep.plan.tally import Counter, Tally, size_of, tensors_in
from fpl.train.step import take_step

# Sides of the two small crops: what networks accept, and what their strides divide.
SIDES = (48, 64)
SMALL = {
    "backbone": "tiny",
    "tiny_width": 8,
    "tiny_depth": 1,
    "head_channels": 8,
    "low_level_channels": 8,
    "aspp_rates": (1, 2, 3),
    "pretrained": "none",
    "pretrained_sha256": None,
}
CPU = torch.device("cpu")
# Passes that were counted in this process: few kinds of networks are in hundreds of cells.
_known: dict[tuple[Any, ...], Tally] = {}


@dataclass(frozen=True)
class Step:
    """What a step on tiny networks did.

    Attributes:
        config: Its run.
        passes: Its passes.
        beside: What was computed beside them.
        images: Images that were read, on average.
        states: Optimizer -> bytes that it keeps per byte of its parameters.
    """

    config: RunConfig
    passes: tuple[Pass, ...]
    beside: Tally
    images: float
    states: Mapping[str, float]


def count(config: RunConfig, window: tuple[int, int]) -> Cost:
    """Count a run's step on the global batch, and its network's look at one image of a validation.

    Args:
        config: The run.
        window: Height and width of what the network looks at in a validation.
    """
    smalls = [_small(config, side) for side in SIDES]
    first, second = (_small_step(small) for small in smalls)
    real = bare_method(config, META)
    weights = size_of(dict(real.state_dict()))
    state = sum(second.states[name] * size_of(owned(optimizer)) for name, optimizer in real.optimizers().items())
    passes = _passes_at(real, second, config.data.crop)
    more = second.beside - first.beside
    grown = math.prod(config.data.crop) / (SIDES[1] ** 2 - SIDES[0] ** 2)
    work = Work(
        calls=passes.calls + second.beside.calls,
        gflop=(passes.flops + more.flops * grown) / 1e9,
        gigabytes=more.bytes * grown / 1e9,
        images=second.images,
    )
    look = _look(real, window)
    return Cost(work, look, weights, round(state), count_memory(real, smalls, config.data.crop, window))


def _small(config: RunConfig, side: int) -> RunConfig:
    """The same method on tiny networks at a small crop, with as many images; of its loss only the kind matters.

    What has no part in it is as in every other: so few small steps answer for many runs.
    """
    loss, data = config.loss, config.data
    kept = max(1, loss.ohem_min_kept * side**2 // math.prod(data.crop))
    batch = {key: getattr(data, key) for key in ("labeled_batch", "unlabeled_batch", "groups", "num_classes")}
    sections = {
        "seed": 0,
        "model": config.model.model_copy(update=SMALL),
        "data": DataConfig(dataset="", split=SplitConfig(fraction="1"), crop=(side, side), **batch),
        "loss": LossConfig(kind=loss.kind, stride=loss.stride, supervised=loss.supervised, ohem_min_kept=kept),
        "optim": config.optim.model_copy(update={"lr": 1e-3}),
        "train": TrainConfig(steps=2, evaluate_every=2, concatenate=config.train.concatenate),
        "eval": EvalConfig(protocol="whole"),
    }
    return config.model_copy(update=sections)


@functools.cache
def _small_step(config: RunConfig) -> Step:
    """Take a step, the losses in plain PyTorch: what a fused one moves cannot be seen."""
    with torch.random.fork_rng(devices=[]), kernels.use("tensor"):
        torch.manual_seed(0)
        method, optimizers, batch, source = prepared_step(config, CPU)
        counter = Counter()
        with recorded(method) as passes, counter:
            # Not the first step: a method may begin with labels alone.
            take_step(method, optimizers, batch, Clock(1, 2), config.train, CPU)
        beside = counter.tally - _sum(method, passes, lambda item: item.shapes, _gone_both_ways)
    data, request = config.data, method.request
    images = data.labeled_batch * request.labeled_streams + data.unlabeled_batch * request.draws + source.reads
    # Not every slot is pasted into.
    pasted = request.paste.probability * data.labeled_batch if request.paste is not None else 0.0
    states = {name: _state_share(optimizer) for name, optimizer in optimizers.items()}
    return Step(config, tuple(passes), beside, images + pasted, states)


def _state_share(optimizer: torch.optim.Optimizer) -> float:
    return size_of(list(optimizer.state.values())) / max(1, size_of(owned(optimizer)))


def _sum(
    method: Method,
    passes: Iterable[Pass],
    scale: Callable[[Pass], Shapes],
    count_one: Callable[[nn.Module, Pass, Shapes], Tally],
) -> Tally:
    """What passes take together; equal ones are counted once in a process."""
    total = Tally()
    for item in passes:
        module = method.get_submodule(item.path).train(item.training)
        # The text of a module names all its layers: two networks of a kind take the same.
        trained = tuple(parameter.requires_grad for parameter in module.parameters())
        key = (count_one, str(module), trained, replace(item, path="", shapes=scale(item)))
        if key not in _known:
            _known[key] = count_one(module, item, scale(item))
        total += _known[key]
    return total


def _gone_both_ways(module: nn.Module, item: Pass, shapes: Shapes) -> Tally:
    """What a pass takes, carried out with its way back."""
    module.zero_grad(set_to_none=True)
    inputs = [torch.zeros(shape).requires_grad_(wanted) for shape, wanted in zip(shapes, item.wanted, strict=True)]
    counter = Counter()
    with torch.set_grad_enabled(item.differentiated), counter:
        found = tensors_in(getattr(module, item.function)(*inputs))
        # Beside its logits a network gives features that another pass may go on from.
        ends = [tensor for tensor in found if tensor.requires_grad][: 1 if item.function == "raw" else None]
        if ends:
            torch.autograd.backward(ends, [torch.empty_like(end) for end in ends])
    return counter.tally


def _gone_forward(module: nn.Module, item: Pass, shapes: Shapes) -> Tally:
    """Operations and calls of a pass on `meta`; its bytes are never asked for."""
    pairs = zip(shapes, item.wanted, strict=True)
    inputs = [torch.empty(shape, device=META, requires_grad=wanted) for shape, wanted in pairs]
    counter = Counter(ahead=item.differentiated)
    with torch.set_grad_enabled(item.differentiated), counter:
        getattr(module, item.function)(*inputs)
    return counter.tally


def _passes_at(method: Method, step: Step, crop: tuple[int, int]) -> Tally:
    """What the passes of a small step take in a method on `meta` at a crop."""
    for module in method.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            # It has neither a convolution nor a product in it, and nothing on `meta` takes longer.
            module.forward = lambda image: image  # type: ignore[method-assign, assignment]
    scale = Scale(step.config, method, crop)
    return _sum(
        method,
        step.passes,
        scale.all_of,
        _gone_forward,
    )


def _look(method: Method, window: tuple[int, int]) -> Work:
    """What the evaluated network takes for one image."""
    method.eval()
    with torch.no_grad(), Counter() as counter:
        method.predict(_image(1, window))
    return Work(calls=counter.calls, gflop=counter.flops / 1e9)


def _image(count: int, size: tuple[int, int]) -> Tensor:
    return torch.empty(count, 3, *size, device=META)
