"""Recording which passes a step makes through a method's modules, without asking the method."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from fpl.methods.base import Method
from fpl.models import SegmentationNetwork
from fpl.sweep.plan.tally import tensors_in

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Pass:
    """One pass of a step through a module with weights, at a small crop.

    Attributes:
        path: The module's name in the method.
        function: Its function: `raw` of a network, or `__call__`.
        shapes: Of the tensors that went in.
        wanted: Of which of these the gradient is wanted.
        differentiated: Whether any gradient is.
        training: Whether the module was in training mode.
        first: Name of the first layer in it that says how many channels it takes; empty for none.
    """

    path: str
    function: str
    shapes: Shapes
    wanted: tuple[bool, ...]
    differentiated: bool
    training: bool
    first: str = ""


@contextlib.contextmanager
def recorded(method: Method, border: Callable[[int | None], None] = lambda number: None) -> Iterator[list[Pass]]:
    """Within this context the passes through the method's modules are put into the list, those inside others not.

    Args:
        method: Whose passes.
        border: Called with the number of each pass when it begins, and with None when it is over.
    """
    names = {module: name for name, module in method.named_modules() if any(True for _ in module.parameters())}
    names.pop(method)
    passes: list[Pass] = []
    depth = 0

    def enter(module: nn.Module, inputs: tuple[Any, ...], function: str = "__call__") -> None:
        nonlocal depth
        if module not in names:
            return
        depth += 1
        if depth == 1:
            passes.append(_pass(module, names[module], function, inputs))
            border(len(passes) - 1)
        elif not passes[-1].first and channels_of(module) is not None:
            passes[-1] = replace(passes[-1], first=names[module])

    def leave(module: nn.Module, *_: Any) -> None:
        nonlocal depth
        if module not in names:
            return
        depth -= 1
        if depth == 0:
            border(None)

    def wrapped(network: SegmentationNetwork) -> Callable[[Tensor], Any]:
        raw = network.raw

        def counted(image: Tensor) -> Any:
            enter(network, (image,), "raw")
            found = raw(image)
            leave(network)
            return found

        return counted

    networks = [module for module in names if isinstance(module, SegmentationNetwork)]
    with contextlib.ExitStack() as stack:
        for network in networks:
            network.raw = wrapped(network)  # type: ignore[method-assign, assignment]
            stack.callback(delattr, network, "raw")
        stack.callback(register_module_forward_pre_hook(enter).remove)
        stack.callback(register_module_forward_hook(leave).remove)
        yield passes


def _pass(module: nn.Module, path: str, function: str, inputs: tuple[Any, ...]) -> Pass:
    tensors = list(tensors_in(inputs))
    wanted = tuple(torch.is_grad_enabled() and tensor.requires_grad for tensor in tensors)
    trained = any(parameter.requires_grad for parameter in module.parameters())
    return Pass(
        path,
        function,
        shapes=tuple(tuple(tensor.shape) for tensor in tensors),
        wanted=wanted,
        differentiated=any(wanted) or (trained and torch.is_grad_enabled()),
        training=module.training,
        first=path if channels_of(module) is not None else "",
    )


def channels_of(module: nn.Module) -> int | None:
    """How many channels a layer takes; None where it does not say."""
    for name in ("in_channels", "in_features", "num_features"):
        if isinstance(found := getattr(module, name, None), int):
            return found
    return None
