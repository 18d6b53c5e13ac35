"""The paper's sentences about its figures, and ours about our own, as checks on our runs, with the numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from fpl.config.campaign import Campaign
from fpl.config.figure import OURS, Claim, Figure, Series
from fpl.errors import FplError
from fpl.files import write_changed
from fpl.report.claims import picture_checks as claim_pictures
from fpl.report.claims import pixel_checks as claim_checks
from fpl.report.claims import series_checks as claim_series
from fpl.report.claims.measure import Outcome, State
from fpl.report.figures.series import Source, find_series
from fpl.report.spreadsheet import csv_bytes
from fpl.report.tables.markdown import escape
from fpl.report.template import render
from fpl.text import meant

CHECKS: dict[str, Callable[..., Outcome]] = {**claim_checks.CHECKS, **claim_series.CHECKS, **claim_pictures.CHECKS}
# Option of any claim: cells that it is decided on, instead of the figure's.
SERIES = "series"
NAME = "claims"
MARKS: dict[State, str] = {"holds": "✓", "does not hold": "✗", "not run": "–"}
# Of a claim that holds by its formula, and so is nothing that was found.
BY_FORMULA = "≡"
CLASSES: dict[State, str] = {"holds": "up", "does not hold": "down", "not run": "word"}
# What a reader of the numbers should know.
READING = (
    "Means of the K statistics count every pixel once, over both directions of the loss, the logged steps and all "
    "seeds. A claim about several series holds if it holds in each. ≡ marks claims that hold by their formula, or "
    "nearly so, whatever the runs are: checked, and not counted among what was found."
)


@dataclass(frozen=True)
class Verdict:
    """What the runs say about one claim.

    Attributes:
        figure: Name of the figure that it stands under.
        number: The figure as the paper counts.
        name: Name of the claim.
        says: The claim.
        source: Where the paper says it.
        state: Whether it holds.
        numbers: What was measured, of how many runs and steps: one line.
        by_formula: Whether the claim holds by its formula whatever the runs are: then it is no finding.
    """

    figure: str
    number: str
    name: str
    says: str
    source: str
    state: State
    numbers: str
    by_formula: bool = False

    @property
    def expected(self) -> bool:
        """Whether it holds as its formula says it must; one that does not is shown as any other."""
        return self.by_formula and self.state == "holds"

    @property
    def mark(self) -> str:
        """Its sign."""
        return BY_FORMULA if self.expected else MARKS[self.state]

    @property
    def word(self) -> str:
        """Its state in words."""
        if not self.by_formula or self.state == "not run":
            return self.state
        return "holds by its formula" if self.expected else f"{self.state}, though its formula says it should"


def check_claims(figure: Figure, source: Source) -> list[Verdict]:
    """Decide every claim of a figure.

    Args:
        figure: With its claims.
        source: Its runs (`fpl.report.figures.series.make_source`).

    Raises:
        FplError: A claim of an unknown check, or with options that its check does not have.
    """
    return [_check(figure, claim, source) for claim in figure.claims]


def check_of(figure: Figure, claim: Claim) -> Callable[..., Outcome]:
    """The check of a claim that has the options it needs and no others.

    Raises:
        FplError: No such check, or other options.
    """
    where = f"figure {figure.name}, claim {claim.name}"
    if claim.check not in CHECKS:
        guess = meant(claim.check, CHECKS)
        raise FplError(f"no check {claim.check!r}", where=where, hint=f"{guess}there are: {', '.join(sorted(CHECKS))}")
    check = CHECKS[claim.check]
    signature = inspect.signature(check)
    try:
        signature.bind(None, **_options(claim))
    except TypeError as error:
        known = ", ".join(list(signature.parameters)[1:])
        raise FplError(f"{claim.check}: {error}", where=where, hint=f"its options: {known or 'none'}") from None
    return check


def _options(claim: Claim) -> dict[str, object]:
    return {name: value for name, value in claim.options.items() if name != SERIES}


def _check(figure: Figure, claim: Claim, source: Source) -> Verdict:
    check = check_of(figure, claim)
    if SERIES in claim.options:
        other = figure.model_copy(update={"series": tuple(Series(cells=name) for name in claim.options[SERIES])})
        source = replace(source, found=tuple(find_series(other, source.campaign, source.lookup)))
    outcome = check(source, **_options(claim))
    about = (figure.name, figure.figure.number, claim.name, claim.says, claim.source)
    return Verdict(*about, outcome.state, outcome.numbers, claim.by_formula)


def count_text(verdicts: Sequence[Verdict]) -> str:
    """`claims of the paper: 12 found to hold, 3 not, 5 by their formula (checked), 4 not run`, and ours if any are."""
    paper, ours = ([item for item in verdicts if (item.source == OURS) == own] for own in (False, True))
    counts = [f"claims of the paper: {_counts(paper)}"]
    return "; ".join([*counts, f"of this suite: {_counts(ours)}"] if ours else counts)


def _counts(verdicts: Sequence[Verdict]) -> str:
    hold = sum(verdict.state == "holds" and not verdict.by_formula for verdict in verdicts)
    do_not, waiting = (sum(verdict.state == state for verdict in verdicts) for state in ("does not hold", "not run"))
    formula = sum(verdict.expected for verdict in verdicts)
    return f"{hold} found to hold, {do_not} not, {formula} by their formula (checked), {waiting} not run"


def claims_html(verdicts: Sequence[Verdict]) -> Markup:
    """The claims of one figure as a list for a page; nothing for none."""
    return render("claims.html", verdicts=verdicts, classes=CLASSES)


def claims_markdown(verdicts: Sequence[Verdict]) -> str:
    """The claims as a Markdown list below the count, figure by figure, what the numbers are at the end."""
    parts = [f"{count_text(verdicts)}."]
    for number, group in groupby(verdicts, key=lambda verdict: verdict.number):
        items = [
            f"- {verdict.mark} **{verdict.word}**: {escape(verdict.says)} ({escape(verdict.source)}): "
            f"{escape(verdict.numbers)}"
            for verdict in group
        ]
        parts += [f"**{escape(number)}**", "\n".join(items)]
    return "\n\n".join([*parts, READING]) + "\n"


def scale_note(campaign: Campaign) -> list[str]:
    """What runs of this scale can and cannot show; nothing for one that measures what the paper does."""
    scale = campaign.scale
    if scale.comparable:
        return []
    notes = [f"Runs at scale {scale.name}, {len(campaign.seeds)} per setting (by seed)."]
    if scale.proves:
        notes.append(f"They can show {scale.proves}.")
    if scale.proves_not:
        notes.append(
            f"They cannot show {scale.proves_not}: what is said of a final mIoU holds of these runs and no further."
        )
    return [" ".join(notes)]


def claims_frame(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """One row a claim: `figure`, `number`, `name`, `state`, `by_formula`, `says`, `source`, `numbers`."""
    columns = ["figure", "number", "name", "state", "by_formula", "says", "source", "numbers"]
    return pd.DataFrame([[getattr(verdict, name) for name in columns] for verdict in verdicts], columns=columns)


def write_claims(folder: Path, verdicts: Sequence[Verdict], notes: Sequence[str] = ()) -> None:
    """Write `claims.md`, with what is to be known about the scale on top, and `claims.csv`."""
    head = "".join(f"{escape(note)}\n\n" for note in notes)
    write_changed(folder / f"{NAME}.md", f"# Claims\n\n{head}{claims_markdown(verdicts)}".encode())
    write_changed(folder / f"{NAME}.csv", csv_bytes(claims_frame(verdicts)))
