"""Options of a contrast of unreliable pixels: for `fpl.methods.contrast`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from fpl.config.section import AboveZero, Count, Fraction, Length, NotNegative, Section, Width

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig

Rank = Annotated[int, Field(ge=1, le=255)]


class ContrastOptions(Section):
    """Pixels draw near the centre of their class, and away from pixels that are surely none of it.

    From U2PL (Wang et al., CVPR 2022): "paper" is theirs; "released" is the branch main of their code, `train_semi.py`
    and `compute_contra_memobank_loss`, and "with_AEL" its branch of that name. Where only one is named the others
    agree, or have nothing to say.
    """

    # Which pixels are anchors, centres and negatives. "released" is what the released code computes, where that is not
    # the paper's: anchors of unlabeled images are the surest pixels alone instead of all reliable ones; a centre is the
    # mean of all candidates instead of the anchors; negatives of a class must carry its label, so that none come from
    # labeled images; and anchors and queues are paired by their places in two lists, which belong to one class only
    # while no class before it is absent (issues 111 and 171 of the code). Both take the mean over the classes that a
    # group of images shows.
    definition: Literal["paper", "released"] = "paper"
    # Of the loss; 0 is none, and nothing of it is built. Paper, by its author (issue 57 of the code), and with_AEL;
    # released: 1, never set.
    weight: NotNegative = 0.1
    # Divides the weight. Both branches divide this loss by the number of their processes once more than all others: 8
    # (Cityscapes) or 4 (VOC).
    divisor: Count = 1
    # Share of training after which it counts and its queues fill: with_AEL 20 of 200 epochs.
    start: Fraction = 0.0
    # Share of the pixels of unlabeled images, those of the highest entropy, that is unreliable (alpha_0); the others
    # are reliable. It falls linearly over training to 0, here at every step, elsewhere at every epoch; with_AEL: it
    # stays.
    unreliable: Fraction = 0.2
    falling: bool = True
    # Anchors of each class and step (M), drawn with replacement in every group of images; negatives of each anchor (N).
    anchors: Count = 256
    negatives: Count = 50
    temperature: AboveZero = 0.5
    # An anchor's class has a larger probability than this (delta_p).
    anchor_confidence: Fraction = 0.3
    # Ranks of a class among a pixel's probabilities, from 0. Below the first (r_l) it is too likely to be ruled out on
    # unlabeled images, and likely enough to be confused with the label on labeled ones; from the second (r_h) on it is
    # too unlikely to teach anything.
    low_rank: Rank = 3
    high_rank: Rank = 20
    # Negatives that are remembered of each class, and of class 0, the most frequent. Unset: five thirds of `queue`.
    queue: Length = 30_000
    first_queue: Length | None = None
    # Of the representations, and of the two layers in front of them.
    channels: Width = 256
    # Share of the channels that are dropped in these layers.
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1

    @model_validator(mode="after")
    def _normalise(self) -> ContrastOptions:
        if not self.weight:
            self._forget(*(name for name in type(self).model_fields if name != "weight"))
        if self.first_queue is None:
            self._set(first_queue=max(1, round(self.queue * 5 / 3)))
        if not self.unreliable:
            self._forget("falling")
        if self.low_rank >= self.high_rank:
            raise ValueError(
                f"low_rank = {self.low_rank} is not below high_rank = {self.high_rank}: no unlabeled pixel would be a "
                "negative of any class; lower low_rank"
            )
        return self

    def share_unreliable(self, progress: float) -> float:
        """Share of unreliable pixels when a share of training is over, both 0..1."""
        return self.unreliable * (1.0 - progress) if self.falling else self.unreliable

    def capacities(self, classes: int) -> tuple[int, ...]:
        """Sizes of the queues of so many classes."""
        assert self.first_queue is not None
        return (self.first_queue, *[self.queue] * (classes - 1))

    def problems(self, key: str, config: RunConfig) -> list[str]:
        """Ranks that no class has.

        Args:
            key: Name of this table in the configuration, such as `method.contrast`.
            config: The run.
        """
        classes = config.data.num_classes
        if not self.weight or self.low_rank < classes:
            return []
        return [
            f"{key}.low_rank = {self.low_rank} is no rank among data.num_classes = {classes}: no class of an unlabeled "
            f"pixel would be ruled out. Ways out: {key}.low_rank = 1 to {classes - 1}, or {key}.weight = 0"
        ]

    def warnings(self, key: str) -> list[str]:
        """What is allowed but rarely meant; `key` is that of `problems`."""
        if not self.weight:
            return []
        found = []
        if self.start >= 1.0:
            found.append(f"{key}.start = {self.start:g}: the contrast never counts; {key}.weight = 0 builds none")
        if not self.unreliable:
            found.append(
                f"{key}.unreliable = 0: no pixel of an unlabeled image is a negative of any class, so the contrast "
                "learns from the confusions of labeled ones alone"
            )
        return found
