"""Normalisation layers: which one a network gets, and batch norm over the worker processes of a CPU run.

All kinds share the state-dict keys of `nn.BatchNorm2d` (the frozen kind lacks the batch counter), so a checkpoint
written by one worker loads into a network built for several, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from fpl.losses.once import differentiable_once

NormLayer = Callable[[int], nn.Module]


def norm_layer(kind: Literal["batch", "frozen"], device_type: str = "cpu", world_size: int = 1) -> NormLayer:
    """Choose the layer that normalises a feature map over all images of the global batch.

    Args:
        kind: "batch" for batch statistics, "frozen" for fixed statistics and fixed affine parameters.
        device_type: `torch.device.type` on which the network trains, such as "cpu" or "cuda".
        world_size: Number of worker processes that share one global batch, 1 or more.

    Returns:
        A class to be called with the number of channels; eps is 1e-5 and momentum 0.1 throughout.
    """
    chosen: NormLayer
    if kind == "frozen":
        # torchvision doubles the start-up time of a process, and most runs of the small networks do without it.
        from torchvision.ops import FrozenBatchNorm2d

        chosen = FrozenBatchNorm2d
    elif world_size == 1:
        chosen = nn.BatchNorm2d
    elif device_type == "cuda":
        chosen = nn.SyncBatchNorm
    else:
        chosen = CrossProcessBatchNorm2d
    return chosen


def fit_norms(
    module: nn.Module, kind: Literal["batch", "frozen"], device_type: str = "cpu", world_size: int = 1
) -> None:
    """Exchange every plain `nn.BatchNorm2d` of a module for the layer that `norm_layer` gives, in place.

    What a method adds to its networks (projectors, discriminators) may so be written with `nn.BatchNorm2d`, and is
    normalised like the networks. Parameters stay the same objects; frozen layers have none, but buffers of the same
    values. Layers of any other class stay as they are.

    Args:
        module: Not compiled, and not yet prepared for sub-batches.
        kind: This and the others are those of `norm_layer`.
        device_type: Where it will train.
        world_size: Number of workers.
    """
    chosen = norm_layer(kind, device_type, world_size)
    if chosen is nn.BatchNorm2d:
        return
    for name, layer in list(module.named_modules()):
        if type(layer) is nn.BatchNorm2d:
            fitted = chosen(layer.num_features)
            fitted.load_state_dict(layer.state_dict())
            if kind == "batch":
                fitted.weight, fitted.bias = layer.weight, layer.bias
            module.set_submodule(name, fitted.train(layer.training))


def hold_statistics(module: nn.Module) -> None:
    """Put every batch norm of a module into eval mode, in place, until the module's next `train`.

    Passes of training normalise by the running statistics, which stay as they are; weights and biases are trained.
    """
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.eval()


class CrossProcessBatchNorm2d(nn.BatchNorm2d):
    """Batch norm whose training statistics cover the batches of all processes of the default process group.

    `nn.SyncBatchNorm` does this on CUDA devices only. Outputs, running statistics and gradients equal those of
    `nn.BatchNorm2d` on the concatenated batch, if each process backpropagates its own loss L_r: the input gradient
    is that of the sum of all L_r, parameter gradients are the local share of it, to be averaged by the caller (as
    `DistributedDataParallel` does). Processes may hold different numbers of images. Without a process group,
    and in eval mode, it is a plain `nn.BatchNorm2d`.

    Every process must run the layer equally often in training mode, because each pass exchanges statistics.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input` [B, C, H, W]; the result has its shape and dtype.

        Statistics of bfloat16 and float16 inputs are taken in float32.

        Raises:
            ValueError: In training mode, if all processes together hold a single value per channel.
        """
        if not self.training or not dist.is_initialized() or dist.get_world_size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        output, mean, variance, count = _CrossProcessBatchNorm.apply(input, self.weight, self.bias, self.eps)
        if self.track_running_stats:
            self._update_running_statistics(mean, variance * count / (count - 1))
        normalised: Tensor = output
        return normalised

    @torch.no_grad()
    def _update_running_statistics(self, mean: Tensor, unbiased_variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        # momentum = None asks for the plain average over all batches seen, as in nn.BatchNorm2d.
        step = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), step)
        self.running_var.lerp_(unbiased_variance.to(self.running_var.dtype), step)


class _CrossProcessBatchNorm(torch.autograd.Function):
    """Normalise by global statistics: one exchange in the forward pass, one in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, image: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values = _at_least_float32(image)
        mean, variance, count = _global_statistics(values)
        if count <= 1:
            raise ValueError(f"batch norm needs more than 1 value per channel in training, got {tuple(image.shape)}")
        inverse_deviation = torch.rsqrt(variance + eps)
        output = F.batch_norm(values, mean, variance, _like(weight, values), _like(bias, values), eps=eps)
        ctx.save_for_backward(image, weight, mean, inverse_deviation, count)
        ctx.mark_non_differentiable(mean, variance, count)
        return output.to(image.dtype), mean, variance, count

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_output: Tensor, *_: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        image, weight, mean, inverse_deviation, count = ctx.saved_tensors
        needs_image, needs_weight, needs_bias, _eps = ctx.needs_input_grad
        grad = _at_least_float32(grad_output)
        normalised = (_at_least_float32(image) - _per_channel(mean)) * _per_channel(inverse_deviation)
        sums = torch.stack([grad.sum((0, 2, 3)), (grad * normalised).sum((0, 2, 3))])
        grad_bias = sums[0].clone() if needs_bias else None
        grad_weight = sums[1].clone() if needs_weight else None
        grad_image = None
        # Exchanged even where this process needs no input gradient: another one may wait for it.
        dist.all_reduce(sums)
        if needs_image:
            shared_bias, shared_weight = sums / count
            centred = grad - _per_channel(shared_bias) - normalised * _per_channel(shared_weight)
            scale = inverse_deviation if weight is None else inverse_deviation * weight
            grad_image = (centred * _per_channel(scale)).to(image.dtype)
        return grad_image, _like(grad_weight, weight), _like(grad_bias, weight), None


def _global_statistics(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean [C], biased variance [C] and number of values per channel (scalar) over all processes.

    Means and squared deviations of the processes are merged pairwise-exactly (Chan, Golub, LeVeque 1979): no
    difference of large sums, and the same bits on every process since all of them merge in rank order.
    """
    channels = values.shape[1]
    count = values.new_tensor([values.numel() // channels])
    mean = values.mean((0, 2, 3)) if values.numel() else values.new_zeros(channels)
    deviation = (values - _per_channel(mean)).square().sum((0, 2, 3))
    local = torch.cat([mean, deviation, count])
    gathered = [torch.empty_like(local) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, local)
    every = torch.stack(gathered)
    means, deviations, counts = every[:, :channels], every[:, channels : 2 * channels], every[:, 2 * channels :]
    total = counts.sum()
    global_mean = (means * counts).sum(0) / total
    global_deviation = (deviations + counts * (means - global_mean).square()).sum(0)
    return global_mean, global_deviation / total, total


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def _like(tensor: Tensor | None, other: Tensor | None) -> Tensor | None:
    return tensor if tensor is None or other is None else tensor.to(other.dtype)


def _per_channel(vector: Tensor) -> Tensor:
    return vector[:, None, None]
