"""The loss with segmentation_models_pytorch: a U-Net that learns from its own view of cleaner pictures (FixMatch).

pip install segmentation-models-pytorch
python examples/smp_unet.py --steps 100
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import segmentation_models_pytorch as smp
import torch
from drawn import CLASSES, IGNORE, draw

from fpl.losses import fuzzy_positive_loss


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Train; the losses of the steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    # encoder_weights="imagenet" for pictures that are not drawn.
    model = smp.Unet(
        "resnet18", encoder_weights=None, encoder_depth=3, decoder_channels=(32, 16, 16), classes=len(CLASSES)
    )
    supervised = smp.losses.DiceLoss("multiclass", ignore_index=IGNORE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    pictures, labels = draw(4)
    history = []
    for number in range(options.steps):
        weak, _ = draw(4, seed=1 + number)
        strong = weak + 0.2 * torch.randn_like(weak)
        logits, student = model(torch.cat([pictures, strong])).chunk(2)
        with torch.no_grad():
            teacher = model(weak)
        loss = supervised(logits, labels) + fuzzy_positive_loss(student, teacher, threshold=0.9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        if number % 10 == 0:
            print(f"step {number}: loss {history[-1]:.3f}")
    return history


if __name__ == "__main__":
    main()
