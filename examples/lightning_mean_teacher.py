"""The loss in a LightningModule: a network that follows the moving average of itself (mean teacher).

pip install lightning
python examples/lightning_mean_teacher.py --steps 200
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from drawn import IGNORE, draw
from lightning.pytorch.utilities import CombinedLoader
from plain import make_network
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

from fpl.losses import FuzzyPositiveLoss


class MeanTeacher(lightning.LightningModule):
    """Student, teacher and what a step minimises."""

    def __init__(self) -> None:
        super().__init__()
        self.student = make_network(0)
        self.teacher = AveragedModel(self.student, multi_avg_fn=get_ema_multi_avg_fn(0.99)).requires_grad_(False)
        self.fuzzy = FuzzyPositiveLoss(threshold=0.9, reduction="valid")
        self.history: list[float] = []

    def training_step(self, batch: dict[str, list[Tensor]], index: int) -> Tensor:
        """Cross-entropy of the labeled pictures and the fuzzy positive loss of the others."""
        (pictures, labels), (unlabeled, valid) = batch["labeled"], batch["unlabeled"]
        supervised = F.cross_entropy(self.student(pictures), labels, ignore_index=IGNORE)
        student = self.student(unlabeled + 0.1 * torch.randn_like(unlabeled))
        with torch.no_grad():
            teacher = self.teacher(unlabeled)
        unsupervised = self.fuzzy(student, teacher, valid)
        self.log_dict({"supervised": supervised, "unsupervised": unsupervised}, prog_bar=True)
        self.history.append((supervised + unsupervised).item())
        return supervised + unsupervised

    def on_train_batch_end(self, *_: Any) -> None:
        """Let the teacher follow."""
        self.teacher.update_parameters(self.student)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The student alone is optimised."""
        return torch.optim.AdamW(self.student.parameters(), lr=3e-3)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Train; the losses of the steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", default="runs/lightning")
    options = parser.parse_args(arguments)
    lightning.seed_everything(0)
    unlabeled, padding = draw(32, seed=1)
    loaders = {
        "labeled": DataLoader(TensorDataset(*draw(4)), batch_size=4),
        "unlabeled": DataLoader(TensorDataset(unlabeled, padding != IGNORE), batch_size=4, shuffle=True),
    }
    model = MeanTeacher()
    trainer = lightning.Trainer(
        max_steps=options.steps,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        default_root_dir=options.output,
    )
    trainer.fit(model, CombinedLoader(loaders, "max_size_cycle"))
    return model.history


if __name__ == "__main__":
    main()
