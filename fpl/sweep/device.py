"""The device of this process: whether a run can be trained on it, found out before it is, and its memory."""

from __future__ import annotations

import resource

import torch

from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.losses import kernels
from fpl.sweep.plan.costs import Costs
from fpl.sweep.plan.memory import memory_problem
from fpl.train.runtime import Workers


def check_loss(device: torch.device) -> None:
    """Find out before training whether the loss can be computed as the environment wants it to be.

    Raises:
        FplError: It cannot.
    """
    try:
        kernels.check_chosen(device.type)
    except ValueError as error:
        hint = f"unset {kernels.VARIABLE} to take the fastest that this machine has; `fpl doctor` says which that is"
        raise FplError(str(error), hint=hint) from None


def check_memory(config: RunConfig, workers: Workers, device: torch.device, costs: Costs) -> None:
    """Refuse, before training, a run that cannot fit into the memory of its GPU; on a CPU nothing is asked.

    Raises:
        FplError: Says what is needed, what is there, and what would fit.
    """
    if device.type != "cuda":
        return
    there = torch.cuda.get_device_properties(device).total_memory
    if problem := memory_problem(costs.of(config), config, workers.world_size, there):
        what, _, hint = problem.partition(" -> ")
        raise FplError(what, where=str(device), hint=hint)


def peak_bytes(device: torch.device) -> int:
    """Most that this process has had so far: allocated by torch on a GPU, resident on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
