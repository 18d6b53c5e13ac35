"""Counting what PyTorch computes: operations of layers, their number, and the bytes that everything moves."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

BACKWARD = torch.ops.aten.convolution_backward
# Operations that only look at memory in another way, or ask for some.
STILL = {
    "_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "empty", "empty_like", "empty_strided", "expand",
    "new_empty", "permute", "reshape", "select", "slice", "split", "squeeze", "t", "transpose", "unbind", "unsqueeze",
    "view",
}  # fmt: skip


@dataclass(frozen=True)
class Tally:
    """Amounts; they are subtracted from one another.

    Attributes:
        calls: Convolutions and matrix products; a backward pass of one is a call per gradient.
        flops: Their arithmetic: two for a multiplication and an addition.
        bytes: What all operations read and write.
    """

    calls: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))

    def __sub__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, item.name) - getattr(other, item.name) for item in fields(self)))


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation. It need not be kept from torch's compiler, which would have to be loaded for that."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Counter(Watching):  # type: ignore[no-untyped-call]
    """Counts, while it is entered, what is computed on any device; on `meta` nothing is, and it counts all the same.

    Args:
        ahead: Count the way back of an operation along with it, for a pass that is not gone back: as much again for
            every gradient that is wanted.
    """

    def __init__(self, *, ahead: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ahead = ahead
        self.calls, self.flops, self.bytes = 0, 0, 0

    @property
    def tally(self) -> Tally:
        """What was counted so far."""
        return Tally(self.calls, self.flops, self.bytes)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out one operation, and count it."""
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        operation = function.overloadpacket
        if operation in flop_registry:
            # A bias has one dimension, and costs nothing worth counting.
            factors = [tensor for tensor in tensors_in(args) if tensor.ndim > 1]
            times = 1 + sum(factor.requires_grad for factor in factors) if self.ahead else 1
            self.flops += times * flop_registry[operation](*args, **kwargs, out_val=result)
            # The last argument says of which the gradients are wanted: input, weight, bias.
            self.calls += sum(args[-1][:2]) if operation is BACKWARD else times
        if operation.__name__ not in STILL:
            self.bytes += size_of((args, tuple(kwargs.values()), result))
        return result


def size_of(value: Any) -> int:
    """Bytes of the tensors in nested lists, tuples and dictionaries."""
    return sum(tensor.nbytes for tensor in tensors_in(value))


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dictionaries, in their order."""
    found: list[Tensor] = []
    _gather(value, found)
    return found


def _gather(value: Any, found: list[Tensor]) -> None:
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):  # not their union, which takes three times as long
        for each in value:
            _gather(each, found)
    elif isinstance(value, dict):
        _gather(list(value.values()), found)
