"""What a method remembers of earlier steps: features of pixels, in the order of their coming or by class.

Banks are made of buffers, so a checkpoint holds them and a resumed run goes on with them to the bit. The files of
weights that people keep do without them (`Method.kept_state`): nothing that predicts needs them, and they may be larger
than the networks. All workers remember the same: each takes in the features of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fpl.models.dropout import drawn_numbers

if TYPE_CHECKING:
    from fpl.methods.base import Workers

EMPTY = -1


class Bank(nn.Module):
    """Base class: its buffers are memory, in checkpoints alone."""


class QueueBank(Bank):
    """The last features with their labels; the oldest give way (CAC's negatives).

    Args:
        capacity: Number of features.
        channels: Numbers of each, D.

    Attributes:
        features: float32 [capacity, D], in no order to rely on; 0 where there is none yet.
        labels: int64 [capacity]; -1 where there is no feature yet, or one that does not count.
    """

    features: Tensor
    labels: Tensor
    position: Tensor

    def __init__(self, capacity: int, channels: int) -> None:
        super().__init__()
        self.register_buffer("features", torch.zeros(capacity, channels))
        self.register_buffer("labels", torch.full((capacity,), EMPTY))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, features: Tensor, labels: Tensor, workers: Workers) -> None:
        """Take in the features of all workers, in the order of their ranks; of too many the last ones.

        Args:
            features: [n, D] of this worker; n is equal on all of them.
            labels: int64 [n], 0 or more; -1 for a feature that takes a place and does not count.
            workers: All of them.
        """
        capacity = len(self.labels)
        features = workers.concatenate(features.detach().to(self.features.dtype))[-capacity:]
        labels = workers.concatenate(labels)[-capacity:]
        # The place to write at stays on the device: a GPU would be waited for.
        slots = (self.position + torch.arange(len(labels), device=labels.device)) % capacity
        self.features[slots] = features
        self.labels[slots] = labels
        self.position.copy_((self.position + len(labels)) % capacity)


class ClassBank(Bank):
    """The last features of each class; the oldest of a class give way (U2PL's queues of negatives).

    Args:
        capacities: Features of each class, C numbers of 1 or more.
        channels: Numbers of each, D.

    Attributes:
        features: float16 [sum of the capacities, D], class by class.
        counts: int64 [C], features that a class has, 0 to its capacity.
    """

    features: Tensor
    counts: Tensor
    positions: Tensor
    starts: Tensor

    def __init__(self, capacities: Sequence[int], channels: int) -> None:
        super().__init__()
        self.capacities = tuple(capacities)
        self.register_buffer("features", torch.zeros(sum(self.capacities), channels, dtype=torch.float16))
        self.register_buffer("counts", torch.zeros(len(self.capacities), dtype=torch.int64))
        self.register_buffer("positions", torch.zeros(len(self.capacities), dtype=torch.int64))
        # Where the features of a class begin; no memory.
        starts = torch.tensor(list(accumulate(self.capacities, initial=0))[:-1])
        self.register_buffer("starts", starts, persistent=False)

    @torch.no_grad()
    def push(self, features: Tensor, member: Tensor, workers: Workers) -> None:
        """Take in the features of all workers, in the order of their ranks; of too many for a class the last ones.

        Args:
            features: [n, D] of this worker, offered; n is equal on all of them.
            member: bool [n, C], the classes that get each of them: none, one or several.
            workers: All of them.
        """
        features = workers.concatenate(features.detach().to(self.features.dtype))
        # Not every backend exchanges bool.
        member = workers.concatenate(member.to(torch.uint8)).bool()
        for number, capacity in enumerate(self.capacities):
            chosen = features[member[:, number]][-capacity:]
            slots = (self.positions[number] + torch.arange(len(chosen), device=chosen.device)) % capacity
            self.features[self.starts[number] + slots] = chosen
            self.positions[number] = (self.positions[number] + len(chosen)) % capacity
            self.counts[number] = (self.counts[number] + len(chosen)).clamp(max=capacity)

    def sample(self, wanted: Tensor, uniform: Tensor) -> Tensor:
        """Features of the wanted classes, float32 [*wanted, k, D], drawn with replacement.

        Args:
            wanted: Classes int64 [...]; a class that has none gives zeros.
            uniform: Numbers [*wanted, k] in [0, 1) that decide.
        """
        counts = self.counts[wanted].unsqueeze(-1)
        slots = drawn_numbers(uniform, counts)
        return self.features[self.starts[wanted].unsqueeze(-1) + slots].float()
