"""What decides positives, weight and so the loss of a pixel: the keywords that all functions of this package share."""

from __future__ import annotations

import math
from typing import NamedTuple

from fpl.losses.checks import LEAST, MOST, check_choice, check_range, check_whole

STRATEGIES = ("n-1", "n", "fixed", "step", "ratio", "soft")
FIDELITIES = ("paper", "released")
# As a float32.
LARGEST_BELOW_1 = 1 - 2**-24
WEIGHTS = ("concave", "linear", "convex", "none")


class Rules(NamedTuple):
    """Keywords of :func:`fpl.losses.fuzzy_positive_loss`, which explains them, with its defaults."""

    threshold: float = 0.9
    strategy: str = "n-1"
    weight: str = "concave"
    curvature: float = 50.0
    fidelity: str = "paper"
    fixed_k: int = 2
    ratio: float = 0.5
    progress: float = 0.0
    convex_coefficient: float | None = None

    @property
    def bound(self) -> float:
        """What running sums of probabilities are compared with in place of T.

        No sum of fewer than all probabilities reaches 1, but rounded ones do and pass it: of T = 1 the bound is
        infinite, so that n = C everywhere, under both comparisons. Of a T below 1 that float32 rounds to 1 it is the
        largest number below 1.
        """
        return math.inf if self.threshold >= 1 else min(self.threshold, LARGEST_BELOW_1)

    def checked(self) -> Rules:
        """Return these rules.

        Raises:
            ValueError: A value that no number of classes would make right.
        """
        check_choice("strategy", self.strategy, STRATEGIES)
        check_choice("fidelity", self.fidelity, FIDELITIES)
        check_choice("weight", self.weight, WEIGHTS)
        check_range("threshold", self.threshold, "0 < threshold <= 1", lambda value: 0 < value <= 1)
        check_whole("fixed_k", self.fixed_k, "a whole number >= 1", lambda value: value >= 1)
        check_range("ratio", self.ratio, "0 < ratio < 1", lambda value: 0 < value < 1)
        check_range("progress", self.progress, "0 <= progress <= 1", lambda value: 0 <= value <= 1)
        allowed = f"{LEAST} <= curvature <= {MOST}"
        check_range("curvature", self.curvature, allowed, lambda value: LEAST <= value <= MOST)
        if self.convex_coefficient is not None:
            allowed = f"0 <= convex_coefficient <= {MOST}, or None"
            check_range("convex_coefficient", self.convex_coefficient, allowed, lambda value: 0 <= value <= MOST)
        return self


# The published ones.
DEFAULTS = Rules()
