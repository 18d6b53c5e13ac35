"""One of two processes of test_gradients.py: averages its gradients of three steps.

Usage: python gradients_worker.py FOLDER RANK.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fpl.train.runtime import Gradients, Workers


def parameters() -> list[nn.Parameter]:
    """Two dtypes, a channels_last weight, a scalar."""
    return [
        nn.Parameter(torch.zeros(4, 3, 3, 3).to(memory_format=torch.channels_last)),
        nn.Parameter(torch.zeros(5, dtype=torch.float64)),
        nn.Parameter(torch.zeros(())),
        nn.Parameter(torch.zeros(2, 7)),
        nn.Parameter(torch.zeros(3, 2, dtype=torch.float64)),
    ]


def gradient_of(parameter: nn.Parameter, index: int, step: int, rank: int) -> Tensor | None:
    """What a worker's loss gives a parameter at a step; parameter 2 takes part in the second step alone."""
    if index == 2 and step != 1:
        return None
    generator = torch.Generator().manual_seed(100 * index + 10 * step + rank)
    return torch.empty_like(parameter).copy_(torch.randn(parameter.shape, generator=generator))


def main(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=2)
    own = parameters()
    gradients = Gradients(own, Workers(rank, 2))
    steps: list[list[Tensor | None]] = []
    storages: dict[str, list[int]] = {}
    for step in range(3):
        for index, parameter in enumerate(own):
            parameter.grad = None
            if (factor := gradient_of(parameter, index, step, rank)) is not None:
                (parameter * factor).sum().backward()
        gradients.average()
        steps.append([None if parameter.grad is None else parameter.grad.clone() for parameter in own])
        for parameter in own:
            if parameter.grad is not None:
                storages.setdefault(str(parameter.dtype), []).append(parameter.grad.untyped_storage().data_ptr())
    torch.save({"steps": steps, "storages": storages}, folder / f"rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
