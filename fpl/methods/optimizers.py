"""Optimizers: which kind, with which parameters, and at which learning rate at every step.

A method may have several, by name, each on its own parameters; what keeps them apart is that each objective is
differentiated by the parameters of its own optimizer alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from fpl.config.sections import OptimConfig
from fpl.models import SegmentationNetwork


@dataclass(frozen=True)
class OptimizerSpec:
    """All that is said of an optimizer but whose parameters it has.

    Attributes:
        lr: Learning rate of the first step. Absolute: no worker count ever enters.
        kind: "adam" adds the weight decay to the gradient, "adamw" shrinks the weights by it.
        schedule: "poly" is lr * (1 - step / total) ** power, "constant" is lr.
        power: Exponent of poly.
        head_lr_multiplier: Factor of the rate of everything that is no backbone of a segmentation network.
        momentum: Of SGD, 0 <= momentum < 1.
        betas: Of Adam and AdamW: decay of the mean gradient, and of its mean square.
        weight_decay: Of convolution and linear weights.
        decay_norm_and_bias: Whether all other parameters decay too.
    """

    lr: float
    kind: Literal["sgd", "adam", "adamw"] = "sgd"
    schedule: Literal["poly", "constant"] = "poly"
    power: float = 0.9
    head_lr_multiplier: float = 1.0
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    decay_norm_and_bias: bool = False

    @classmethod
    def of(cls, optim: OptimConfig, kind: Literal["sgd", "adam", "adamw"] = "sgd") -> OptimizerSpec:
        """Rate, poly schedule and decay as the `[optim]` table has them; its momentum is for SGD alone."""
        return cls(
            optim.lr,
            kind,
            power=optim.poly_power,
            head_lr_multiplier=optim.head_lr_multiplier,
            momentum=optim.momentum,
            weight_decay=optim.weight_decay,
            decay_norm_and_bias=optim.decay_norm_and_bias,
        )

    def rate(self, step: int, total: int) -> float:
        """Learning rate of a step, 0 <= step < total: a function of the step alone."""
        if self.schedule == "constant":
            return self.lr
        return float(self.lr * (1.0 - step / total) ** self.power)


def _bare(method: Callable[..., Any]) -> Any:
    """A method of an optimizer without what keeps torch's compiler out of it: that loads it, for two seconds."""
    return inspect.unwrap(method)


class Scheduled(torch.optim.Optimizer):
    """What every optimizer of a method is besides torch's: it knows its rate. Nothing of it is in the state dict."""

    spec: OptimizerSpec
    add_param_group = _bare(torch.optim.Optimizer.add_param_group)
    load_state_dict = _bare(torch.optim.Optimizer.load_state_dict)
    state_dict = _bare(torch.optim.Optimizer.state_dict)
    zero_grad = _bare(torch.optim.Optimizer.zero_grad)

    def set_rate(self, step: int, total: int) -> float:
        """Set the rates of all groups for a step, 0 <= step < total; returns the rate that they are multiples of."""
        rate = self.spec.rate(step, total)
        for group in self.param_groups:
            group["lr"] = rate * group["lr_multiplier"]
        return rate


class Sgd(Scheduled, torch.optim.SGD):
    """SGD with momentum."""

    step = torch.no_grad()(_bare(torch.optim.SGD.step))


class Adam(Scheduled, torch.optim.Adam):
    """Adam."""

    step = torch.no_grad()(_bare(torch.optim.Adam.step))


class AdamW(Scheduled, torch.optim.AdamW):
    """Adam with decoupled weight decay."""

    step = torch.no_grad()(_bare(torch.optim.AdamW.step))


def make_optimizer(spec: OptimizerSpec, modules: Iterable[nn.Module]) -> Scheduled:
    """Make an optimizer of all parameters of some modules that require a gradient.

    Parameters are in groups by their rate and weight decay, in the order of the modules. Each group carries
    `lr_multiplier`: the schedule's rate times it is the group's rate at every step (`Scheduled.set_rate`). Where all
    parameters allow it one fused kernel updates them; it takes a gradient to lie in memory as its parameter does, which
    autograd sees to.

    Args:
        spec: Which optimizer.
        modules: Networks, whose backbones have a rate of their own, and others, which are heads all over.
    """
    groups: list[dict[str, Any]] = []
    for parameters, multiplier in _parts(modules, spec.head_lr_multiplier):
        for decayed, members in _split_by_decay(parameters).items():
            decay = spec.weight_decay if decayed or spec.decay_norm_and_bias else 0.0
            groups.append({"params": members, "weight_decay": decay, "lr_multiplier": multiplier})
    groups = [group for group in groups if group["params"]]
    everything = [parameter for group in groups for parameter in group["params"]]
    fused = all(item.is_floating_point() and item.device.type in ("cpu", "cuda") for item in everything)
    optimizer: Sgd | Adam | AdamW
    if spec.kind == "sgd":
        optimizer = Sgd(groups, lr=spec.lr, momentum=spec.momentum, fused=fused or None)
        if fused and spec.momentum:
            _begin_momentum(optimizer, everything)
    else:
        kind = Adam if spec.kind == "adam" else AdamW
        optimizer = kind(groups, lr=spec.lr, betas=spec.betas, fused=fused or None)
        if fused:
            _begin_moments(optimizer, everything)
    optimizer.spec = spec
    optimizer.register_load_state_dict_pre_hook(_keep_kernel)
    return optimizer


def sgd(networks: Iterable[SegmentationNetwork], optim: OptimConfig) -> Scheduled:
    """SGD over backbones and heads as the `[optim]` table has it; see `make_optimizer`."""
    return make_optimizer(OptimizerSpec.of(optim), networks)


def _parts(modules: Iterable[nn.Module], head_multiplier: float) -> Iterator[tuple[Iterator[nn.Parameter], float]]:
    for module in modules:
        if isinstance(module, SegmentationNetwork):
            yield module.backbone_parameters(), 1.0
            yield module.head_parameters(), head_multiplier
        else:
            yield module.parameters(), head_multiplier


def _split_by_decay(parameters: Iterator[nn.Parameter]) -> dict[bool, list[nn.Parameter]]:
    """Convolution and linear weights (True) apart from biases and normalisation (False), by their dimensions."""
    split: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for parameter in parameters:
        if parameter.requires_grad:
            split[parameter.ndim > 1].append(parameter)
    return split


def _begin_momentum(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    # The first gradient then only adds to 0. Left to itself, the kernel cannot take a parameter whose first
    # gradient comes later than that of others.
    for parameter in parameters:
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def _begin_moments(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    # What Adam itself begins with at a parameter's first gradient. From the start, a checkpoint has it for every
    # parameter, and one that lacks some is told.
    for parameter in parameters:
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }


def owned(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """The parameters that an optimizer changes, group by group."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _keep_kernel(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Load a checkpoint without its choice of a kernel: that is up to this process and its device."""
    pairs = zip(state["param_groups"], optimizer.param_groups, strict=True)
    return {**state, "param_groups": [{**saved, "fused": own["fused"]} for saved, own in pairs]}
