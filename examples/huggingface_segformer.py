"""The loss in Hugging Face's Trainer: a SegFormer that follows the moving average of itself (mean teacher).

    pip install transformers accelerate
    python examples/huggingface_segformer.py --steps 100

The network is made from a config; `SegformerForSemanticSegmentation.from_pretrained("nvidia/mit-b0")` takes its place.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch
from drawn import CLASSES, IGNORE, draw
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import SegformerConfig, SegformerForSemanticSegmentation, Trainer, TrainingArguments

from fpl.losses import fuzzy_positive_loss


class Pictures(torch.utils.data.Dataset[dict[str, Tensor]]):
    """A labeled and an unlabeled picture in each item."""

    def __init__(self, number: int) -> None:
        self.pictures, self.labels = draw(number)
        self.unlabeled, _ = draw(number, seed=1)

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {
            "pixel_values": self.pictures[index],
            "labels": self.labels[index],
            "unlabeled": self.unlabeled[index],
        }


class MeanTeacherTrainer(Trainer):
    """Trainer whose loss has an unsupervised part."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        teacher = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)
        self.teacher = teacher.requires_grad_(False).eval()

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **keywords: Any
    ) -> Tensor | tuple[Tensor, Any]:
        """Cross-entropy of the labeled pictures, by the model itself, and the fuzzy positive loss of the others."""
        unlabeled = inputs.pop("unlabeled")
        outputs = model(**inputs)
        if not model.training:
            return (outputs.loss, outputs) if return_outputs else outputs.loss
        # Logits are a quarter of the picture's size; the loss takes them as they are.
        student = model(pixel_values=unlabeled + 0.1 * torch.randn_like(unlabeled)).logits
        with torch.no_grad():
            teacher = self.teacher(pixel_values=unlabeled).logits
        loss = outputs.loss + fuzzy_positive_loss(student, teacher, threshold=0.9)
        return (loss, outputs) if return_outputs else loss

    def training_step(self, *arguments: Any, **keywords: Any) -> Tensor:
        """Let the teacher follow what the last step made of the student, and take the next one."""
        self.teacher.update_parameters(self.accelerator.unwrap_model(self.model))
        return super().training_step(*arguments, **keywords)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Train; the losses that the Trainer logged."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output", default="runs/huggingface")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    config = SegformerConfig(
        num_labels=len(CLASSES),
        semantic_loss_ignore_index=IGNORE,
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        decoder_hidden_size=32,
    )
    training = TrainingArguments(
        output_dir=options.output,
        max_steps=options.steps,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        logging_steps=max(1, options.steps // 10),
        # Else the Trainer drops what the model's forward does not name.
        remove_unused_columns=False,
        save_strategy="no",
        report_to="none",
    )
    trainer = MeanTeacherTrainer(
        model=SegformerForSemanticSegmentation(config), args=training, train_dataset=Pictures(16)
    )
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    main()
