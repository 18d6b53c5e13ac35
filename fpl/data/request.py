"""What a method asks of the loader."""

from __future__ import annotations

from dataclasses import dataclass

from fpl.data.unlabeled import DRAW_STREAMS, LABELED_AGAIN
from fpl.errors import FplError

PAIRS = ("other", "same")


@dataclass(frozen=True)
class PasteRequest:
    """Which labeled images a method pastes from; at most one per labeled slot.

    Attributes:
        probability: Chance of a slot to get one, 0..1.
        scales: Smallest and largest factor of both sides; half of the draws lie below 1, half above ("balanced").
        partner: "other" draws any labeled image, as the released AEL code does, so now and then the slot's own;
            "same" always takes the slot's own, as FPL's released VOC code does.
    """

    probability: float
    scales: tuple[float, float]
    partner: str = "other"


@dataclass(frozen=True)
class BatchRequest:
    """What a method wants of the loader in every step.

    Attributes:
        draws: Independent unlabeled images per slot of the batch, 0 to 4 (`Batch.unlabeled`).
        pair: Draws after the first: "other" images, never the first's own if there are two, or the "same" images under
            another augmentation, which is what the released CPS loaders deliver.
        crop_scale: Both sides of the unlabeled crops, in sides of the labeled ones.
        labeled_streams: Labeled images per slot, 1 or 2; the second walks through the list in an order of its own
            (`Batch.more_labeled`).
        paste: Labeled images to paste from (`Batch.partner`); None for none.

    What one of them asks for does not depend on the others.
    """

    draws: int = 0
    pair: str = "other"
    crop_scale: float = 1.0
    labeled_streams: int = 1
    paste: PasteRequest | None = None

    def unlabeled_crop(self, crop: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the unlabeled crops beside labeled ones of this size."""
        return round(crop[0] * self.crop_scale), round(crop[1] * self.crop_scale)

    def check(self) -> None:
        """Refuse what the loader does not have.

        Raises:
            FplError: Names the field.
        """
        if self.pair not in PAIRS:
            raise FplError(f"pair = '{self.pair}'", hint=f"allowed: {', '.join(PAIRS)}")
        if not 0 <= self.draws <= len(DRAW_STREAMS):
            raise FplError(f"draws = {self.draws}", hint=f"0 to {len(DRAW_STREAMS)} are allowed")
        if not 1 <= self.labeled_streams <= 1 + len(LABELED_AGAIN):
            raise FplError(
                f"labeled_streams = {self.labeled_streams}", hint=f"1 to {1 + len(LABELED_AGAIN)} are allowed"
            )
        if not 0.1 <= self.crop_scale <= 10:
            raise FplError(f"crop_scale = {self.crop_scale}", hint="0.1 to 10 are allowed")
        if self.paste is not None and self.paste.partner not in PAIRS:
            raise FplError(f"partner = '{self.paste.partner}'", hint=f"allowed: {', '.join(PAIRS)}")
