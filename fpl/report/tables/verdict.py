"""What one cell says about the paper, in one word and one sign."""

from __future__ import annotations

from dataclasses import dataclass

from fpl.report.statistics import TIE

# Fewer seeds than this make a verdict provisional: seeds differ by points where labels are few.
ENOUGH_SEEDS = 3


@dataclass(frozen=True)
class Verdict:
    """A cell's verdict.

    Attributes:
        text: In words; empty where there is nothing to compare.
        mark: One sign for narrow tables, of `LEGEND`; empty where there is nothing to compare.
        provisional: Whether fewer than `ENOUGH_SEEDS` seeds stand behind it.
    """

    text: str = ""
    mark: str = ""
    provisional: bool = False

    def __str__(self) -> str:
        return f"{self.text} (provisional)" if self.provisional else self.text


WITHIN, ABOVE, BELOW = Verdict("within noise", "≈"), Verdict("above", ">"), Verdict("below", "<")
UNKNOWN = Verdict("one run, noise unknown", "?")
SAME_SIGN, OTHER_SIGN = Verdict("same sign as the paper", "✓"), Verdict("other sign than the paper", "✗")
NO_DIFFERENCE = Verdict("no difference", "=")
SAME_THRESHOLD, OTHER_THRESHOLD = Verdict("same T", "✓"), Verdict("another T", "✗")

LEGEND = {
    WITHIN.mark: "within noise of the paper's number",
    ABOVE.mark: "above it",
    BELOW.mark: "below it",
    UNKNOWN.mark: "one run whose noise is unknown",
    SAME_SIGN.mark: "our improvement has the sign of the paper's",
    OTHER_SIGN.mark: "it has the other sign",
    NO_DIFFERENCE.mark: "no difference",
}
LEGEND_OF_THRESHOLDS = {
    SAME_THRESHOLD.mark: "(tables of T) our run uses the paper's",
    OTHER_THRESHOLD.mark: "(tables of T) it uses another",
}


def not_run(reason: str) -> Verdict:
    """The verdict of a cell without a run."""
    return Verdict(f"not run: {reason}")


def against_paper(difference: float, margin: float | None, seeds: int) -> Verdict:
    """Our mean against the paper's number.

    Args:
        difference: Ours - printed.
        margin: What noise explains (`statistics.margin`), or None if that is unknown.
        seeds: Measured seeds.
    """
    if margin is None:
        return UNKNOWN
    found = WITHIN if abs(difference) <= margin + TIE else ABOVE if difference > 0 else BELOW
    return Verdict(found.text, found.mark, provisional=seeds < ENOUGH_SEEDS)


def of_arrow(ours: float | None, printed: float | None) -> Verdict:
    """Whether our improvement over the baseline has the sign of the paper's; empty where either is missing or 0."""
    if ours is None or printed is None or abs(printed) <= TIE:
        return Verdict()
    if abs(ours) <= TIE:
        return NO_DIFFERENCE
    return SAME_SIGN if (ours > 0) == (printed > 0) else OTHER_SIGN


def of_threshold(ours: float, printed: float) -> Verdict:
    """Whether our runs use the paper's T."""
    return SAME_THRESHOLD if abs(ours - printed) <= TIE else OTHER_THRESHOLD
