"""Unlabeled images outside the loader, and their labels where diagnostics ask for them."""

from __future__ import annotations

import torch
from torch import Tensor

from fpl.config.schema import RunConfig
from fpl.data.augment import FOR_SAMPLE, Augmentation, Parameters, seeded
from fpl.data.images import Images
from fpl.data.spec import IGNORE
from fpl.data.splits import Split

# Streams of samples, by their numbers.
STREAMS = ("labeled", "unlabeled_0", "unlabeled_1", "paste", "chosen", "unlabeled_2", "unlabeled_3", "labeled_1")
CHOSEN = STREAMS.index("chosen")
DRAW_STREAMS = tuple(STREAMS.index(f"unlabeled_{number}") for number in range(4))
LABELED_AGAIN = (STREAMS.index("labeled_1"),)


class UnlabeledImages:
    """Unlabeled images that a method chooses by itself, read in the training process.

    Args:
        config: Its seed and the augmentation of its data section are used.
        split: Its unlabeled list is what indices point into.
        images: The training images.
    """

    def __init__(self, config: RunConfig, split: Split, images: Images) -> None:
        self.seed = config.seed
        self.ids = split.unlabeled
        self.images = images
        self.augmentation = Augmentation(config.data)

    @property
    def count(self) -> int:
        """Length of the unlabeled list."""
        return len(self.ids)

    def read(self, index: int, position: int) -> tuple[Tensor, Tensor]:
        """An augmented crop, uint8 [3, h, w], and where it shows image, bool [h, w].

        Args:
            index: Into the unlabeled list.
            position: What the augmentation is drawn for, apart from those of the loader's streams.
        """
        parameters = self._parameters(position)
        image, _, valid = self.augmentation.apply(self.images.image(self.ids[index]), None, parameters)
        return image, valid

    def truth(self, index: int, position: int) -> Tensor:
        """The label of what `read` gives, uint8 [h, w], 255 on padding or if there is none; for diagnostics alone."""
        return read_truth(self.augmentation, self.images, self.ids[index], self._parameters(position))

    def _parameters(self, position: int) -> Parameters:
        return self.augmentation.draw(seeded(self.seed, FOR_SAMPLE, CHOSEN, position))


def read_truth(augmentation: Augmentation, images: Images, image_id: str, parameters: Parameters) -> Tensor:
    """Label of an unlabeled image under an augmentation, uint8 [h, w]; 255 on padding, and all over without a label."""
    label = images.truth(image_id)
    if label is None:
        return torch.full(augmentation.crop, IGNORE, dtype=torch.uint8)
    _, truth, valid = augmentation.apply(images.image(image_id), label, parameters)
    assert truth is not None
    # What training counts padding as is no truth.
    return torch.where(valid, truth, IGNORE)
