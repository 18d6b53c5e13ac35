"""One training step: the losses of a batch, their gradients, the update. The loop and `fpl plan` both take it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from fpl.config.sections import TrainConfig
from fpl.data.batches import Batch
from fpl.errors import FplError
from fpl.methods.base import Clock, Losses, Method
from fpl.methods.optimizers import Scheduled, owned
from fpl.train.runtime import Gradients, autocast


def take_step(
    method: Method,
    optimizers: Mapping[str, Scheduled],
    batch: Batch,
    clock: Clock,
    train: TrainConfig,
    device: torch.device,
    *,
    gradients: Gradients | None = None,
    before_backward: Callable[[Losses], None] | None = None,
) -> Losses:
    """Take one step.

    Every objective is differentiated by the parameters of its own optimizer alone. A method may leave an objective out
    of a step: its optimizer then does nothing. A parameter that an objective does not reach has no gradient and stays.

    Args:
        method: In training mode, on `device`.
        optimizers: By the names of the method's objectives.
        batch: This worker's share of the global batch, wherever it lies.
        clock: The step that is taken; it sets the learning rates.
        train: Its precision.
        device: Where it is computed.
        gradients: Averages over the workers that share the step; None for one that is alone.
        before_backward: Sees the losses while their graph is whole.

    Returns:
        The losses; the graph behind them is gone.

    Raises:
        FplError: The method returns an objective that no optimizer is for.
    """
    for optimizer in optimizers.values():
        optimizer.set_rate(clock.step, clock.total)
        optimizer.zero_grad(set_to_none=True)
    method.pixel_loss.progress = clock.progress
    labeled = method.labeled_threshold
    if labeled is not None:
        method.pixel_loss.threshold = labeled.value
    with autocast(train, device):
        losses = method.losses(batch.to(device), clock)
    if labeled is not None:
        losses.terms["threshold"] = losses.supervised.new_tensor(method.pixel_loss.threshold)
    if before_backward is not None:
        before_backward(losses)
    if unknown := losses.objectives.keys() - optimizers.keys():
        raise FplError(
            f"no optimizer has the objective {', '.join(sorted(unknown))}: nothing would learn from it",
            where=f"losses() of {type(method).__name__}",
            hint=f"there are: {', '.join(optimizers)}",
        )
    stepped = {name: optimizer for name, optimizer in optimizers.items() if name in losses.objectives}
    for name, optimizer in stepped.items():
        losses.objectives[name].backward(inputs=owned(optimizer))  # type: ignore[no-untyped-call]
    if gradients is not None:
        gradients.average()
    for optimizer in stepped.values():
        optimizer.step()
    with torch.no_grad():
        method.after_step(clock)
        if labeled is not None:
            labeled.update(method.workers.average)
    return losses
