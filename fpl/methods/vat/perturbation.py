"""The perturbation of virtual adversarial training: its direction by one power iteration, and its length.

Miyato et al. 2018, equations 6 to 9 and appendix A; the released code of French et al., `train_seg_semisup_vat_mt.py`,
functions `vat_direction` and `vat_perburbation`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fpl.losses.alternatives import soft_loss


def unit_length(images: Tensor) -> Tensor:
    """Each image [B, C, H, W] divided by its Euclidean length, to which 1e-12 is added as released."""
    lengths = images.square().sum((1, 2, 3), keepdim=True).sqrt()
    return images / (lengths + 1e-12)


def adversarial_direction(logits: Callable[[Tensor], Tensor], target: Tensor, image: Tensor, start: Tensor) -> Tensor:
    """Find the direction in which a network's output moves away from a target fastest.

    No parameter gets a gradient: the distance is differentiated by the perturbation alone.

    Args:
        logits: The network: images [B, 3, H, W] -> logits [B, C, *spatial].
        target: Logits of the same shape as it gives, a constant.
        image: float32 or float64 [B, 3, H, W].
        start: Small random perturbation d of the same shape.

    Returns:
        Unit vectors [B, 3, H, W] along the gradient of SUM KL(q || p(image + d)) by d, a constant.
    """
    with torch.enable_grad():
        perturbation = start.detach().clone().requires_grad_()
        distance = soft_loss(logits(image + perturbation), target).sum()
        (gradient,) = torch.autograd.grad(distance, perturbation)
    return unit_length(gradient)


def adaptive_radius(image: Tensor, radius: float) -> Tensor:
    """Lengths [B, 1, 1, 1] by how much neighbouring pixels of an image [B, C, H, W] differ.

    R |grad image|: central differences (x[i + 1] - x[i - 1]) / 2 along both axes, the Euclidean length of all of them.
    For a pixel the most similar other input is the image moved by a pixel.
    """
    down, right = image[:, :, 2:] - image[:, :, :-2], image[..., 2:] - image[..., :-2]
    squares = down.square().sum((1, 2, 3)) + right.square().sum((1, 2, 3))
    return radius * squares.sqrt().view(-1, 1, 1, 1) * 0.5


def fixed_radius(image: Tensor, radius: float) -> float:
    """Length R sqrt(C H W) of the perturbation of any image [B, C, H, W]."""
    return float(radius * image[0].numel() ** 0.5)
