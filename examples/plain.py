"""The loss in a plain training loop: two networks teach each other on unlabeled pictures (CPS).

    python examples/plain.py --steps 200
    python examples/plain.py --steps 200 --compile

Needs torch and `fpl.losses`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from drawn import CLASSES, IGNORE, draw
from torch import Tensor, nn

from fpl.losses import FuzzyPositiveLoss


def make_network(seed: int) -> nn.Module:
    """A few convolutions, pictures [B, 3, H, W] to logits [B, C, H, W]."""
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 16, 3, padding=2, dilation=2), nn.ReLU()),
        nn.Conv2d(16, len(CLASSES), 1),
    )


class CrossPseudoSupervision(nn.Module):
    """Two networks, and what one step of training them minimises."""

    def __init__(self) -> None:
        super().__init__()
        self.networks = nn.ModuleList(make_network(seed) for seed in (0, 1))
        # Mean over the pixels that count, as F.cross_entropy has it with an ignore_index.
        self.fuzzy = FuzzyPositiveLoss(threshold=0.9, reduction="valid")

    def forward(self, pictures: Tensor, labels: Tensor, unlabeled: Tensor, valid: Tensor) -> Tensor:
        """Loss of a batch; `valid` is bool [B, H, W], False where an unlabeled picture was padded."""
        both = torch.cat([pictures, unlabeled])
        (first, one), (second, other) = (network(both).split(len(pictures)) for network in self.networks)
        supervised = sum(F.cross_entropy(logits, labels, ignore_index=IGNORE) for logits in (first, second))
        # Teachers are detached by the loss.
        return supervised + self.fuzzy(one, other, valid) + self.fuzzy(other, one, valid)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Train; the losses of the steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--compile", action="store_true", help="one graph of forward and backward, the loss in it")
    options = parser.parse_args(arguments)
    model = CrossPseudoSupervision()
    step = torch.compile(model, fullgraph=True) if options.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    pictures, labels = draw(4)
    history = []
    for number in range(options.steps):
        # The edges of these were padded, too; nothing else is known of them.
        unlabeled, padding = draw(4, seed=1 + number)
        loss = step(pictures, labels, unlabeled, padding != IGNORE)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        if number % 10 == 0:
            print(f"step {number}: loss {history[-1]:.3f}")
    return history


if __name__ == "__main__":
    main()
