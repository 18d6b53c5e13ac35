"""The `[method]` table of virtual adversarial training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fpl.config.consistency import ConsistencyOptions
from fpl.config.section import AboveZero, NotNegative

if TYPE_CHECKING:
    from fpl.config.schema import RunConfig

# Of images, which are normalised to a variance of about 1: float32 has 1e-7 between neighbouring values near 1.
LEAST_START = 1e-6


class VatOptions(ConsistencyOptions):
    """Virtual adversarial training (Miyato et al.) of a segmentation network.

    Defaults are those with which French et al. run it beside CutMix-Seg (cutmix-semisup-seg,
    `train_seg_semisup_vat_mt.py` and the scripts' REG_VAT_ADARAD1_CW01). Miyato's own has no teacher (ema_decay = 0),
    neither a gate nor other colours, and its weight is 1.
    """

    implementation: ClassVar[str] = "fpl.methods.vat.method:Vat"
    native_kind: ClassVar[str] = "soft"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"confidence_gate": 0.08},
        # A start that float32 can tell from none: where colours are equal, the direction hangs on it.
        {"confidence_gate": 0.08, "direction": "student", "strong_colours": False, "adaptive_radius": False}
        | {"radius": 0.5, "start": 1000.0, "optimizer": "adam"},
    )

    name: Literal["vat"]
    # Weight of the consistency.
    weight: NotNegative = 0.1
    # Whose output the perturbation is to move most. "student" as in Miyato's; the released code has an option for it,
    # which leaves the student in eval mode for the rest of an epoch; not so here.
    direction: Literal["teacher", "student"] = "teacher"
    # Length of the perturbation of an image: with an adaptive radius in lengths of the image's gradient, else in
    # sqrt(3 H W). The scripts: 1 and adaptive; without that the released code's default is 0.5.
    adaptive_radius: bool = True
    radius: AboveZero = 1.0
    # Length of the random start of the power iteration, in 1e-9 H W (released: 1e-6 * H * W / 1000, as a constant).
    start: AboveZero = 1.0

    @property
    def label(self) -> str:
        """What captions call it."""
        return "VAT"

    def start_length(self, height: int, width: int) -> float:
        """Euclidean length of the start for a crop of that size."""
        return self.start * 1e-9 * height * width

    def warnings(self, config: RunConfig) -> list[str]:
        """Also a direction that would be rounding noise."""
        found = super().warnings(config)
        height, width = config.data.crop
        change = self.start_length(height, width) / math.sqrt(3 * height * width)
        if not self.strong_colours and change < LEAST_START:
            found.append(
                f"method.start = {self.start:g} with method.strong_colours = false changes a pixel by {change:.1g}, "
                "which float32 cannot tell from none beside values of 1, and the direction found from there is that of "
                f"rounding errors; method.start = {self.start * LEAST_START / change:.2g} is the least that it can"
            )
        return found
