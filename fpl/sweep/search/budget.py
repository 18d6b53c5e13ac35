"""What a search may spend: whether another trial may begin, and when running ones have to stop.

Imports neither torch nor Ray.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from fpl.config.defaults import MOST_HOURS, MOST_TRIALS
from fpl.errors import FplError
from fpl.text import plural, shortened

if TYPE_CHECKING:
    from fpl.store.trials import TrialRow

Kind = Literal["trials", "device", "wall"]

# Unit -> kind, what one of it is in the kind's own unit (trials, hours), and its name in sentences.
UNITS: dict[str, tuple[Kind, float, str]] = {
    "trials": ("trials", 1.0, "trial"),
    "gpuh": ("device", 1.0, "GPU-hour"),
    "coreh": ("device", 1.0, "core-hour"),
    "h": ("wall", 1.0, "hour"),
    "min": ("wall", 1 / 60, "minute"),
}
ALLOWED = "40trials, 200gpuh or 50coreh (of the devices that runs use), 6h or 90min (of wall time)"
# Sums of hours that are equal on paper differ in the last digits.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Spent:
    """What a study has used up, all calls together.

    Attributes:
        trials: Trials begun, running ones included.
        device_hours: GPU-hours or core-hours, those of running trials so far included.
        wall_hours: Hours since the start, those of earlier calls included.
    """

    trials: int = 0
    device_hours: float = 0.0
    wall_hours: float = 0.0

    @classmethod
    def of(cls, rows: Sequence[TrialRow], wall_hours: float) -> Spent:
        """What the rows of a study say; the final run of a holdout search is no trial, and its row has no hours."""
        trials = sum(row.state != "final" for row in rows)
        return cls(trials, sum(row.device_hours for row in rows), wall_hours)


@dataclass(frozen=True)
class Budget:
    """What may be spent.

    Attributes:
        kind: `trials`, `device` (device-hours) or `wall` (wall time).
        amount: Trials, or hours of devices or of wall time.
        unit: As it was written: a key of `UNITS`.
    """

    kind: Kind
    amount: float
    unit: str

    @property
    def words(self) -> str:
        """`40 trials`, `200 GPU-hours`, `90 minutes`."""
        _, each, name = UNITS[self.unit]
        return plural(self.amount / each, name, spec=",.10g")

    def share(self, number: int, count: int) -> Budget:
        """The part of one study: equal parts, and of trials whole ones, of which the first studies have one more.

        Args:
            number: Of the study, from 0.
            count: Studies.
        """
        if self.kind != "trials":
            return replace(self, amount=self.amount / count)
        each, rest = divmod(int(self.amount), count)
        return replace(self, amount=float(each + (number < rest)))

    def admits(self, spent: Spent, running_hours: float, trial_hours: float, trial_wall_hours: float) -> bool:
        """Whether another trial may begin.

        Args:
            spent: What has been used up.
            running_hours: Device-hours that running trials are still expected to take.
            trial_hours: Device-hours that the new one is expected to take.
            trial_wall_hours: Its expected hours of wall time.
        """
        if self.kind == "trials":
            return spent.trials + 1 <= self.amount
        if self.kind == "device":
            return spent.device_hours + running_hours + trial_hours <= self.amount * (1 + ROUNDING)
        return spent.wall_hours + trial_wall_hours <= self.amount * (1 + ROUNDING)

    def over(self, spent: Spent) -> bool:
        """Whether running trials have to stop at their next report; never where trials are counted."""
        if self.kind == "trials":
            return False
        return (spent.device_hours if self.kind == "device" else spent.wall_hours) >= self.amount


def parse_budget(text: str) -> Budget:
    """Read `40trials`, `200gpuh`, `50coreh`, `6h` or `90min`.

    Raises:
        FplError: Anything else, an amount of nothing, or a part of a trial.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]+)", text.strip())
    unit = "trials" if found and found[2] == "trial" else found[2] if found else ""
    if found is None or unit not in UNITS:
        raise FplError(f"{text!r} is no budget", where="--budget", hint=ALLOWED)
    kind, each, _ = UNITS[unit]
    number = float(found[1])
    if not 0 < number < math.inf:
        raise FplError(f"a budget of {text}", where="--budget", hint=f"more than nothing: {ALLOWED}")
    most = MOST_TRIALS if kind == "trials" else MOST_HOURS
    if number * each > most:
        raise FplError(
            f"a budget of {shortened(text, 40)}",
            where="--budget",
            hint=f"up to {MOST_TRIALS:,} trials or {MOST_HOURS:,} hours",
        )
    if kind == "trials" and number != int(number):
        raise FplError(f"{text} are no whole trials", where="--budget", hint=ALLOWED)
    return Budget(kind, number * each, unit)


def study_budget(budget: Budget | None, number: int, count: int, trials: int) -> Budget:
    """What one study may spend.

    Args:
        budget: Of all studies of the search; None: `trials` for each.
        number: Of the study, from 0.
        count: Studies.
        trials: What its search file says.
    """
    return budget.share(number, count) if budget else Budget("trials", float(trials), "trials")


def check_budget(budget: Budget, on_gpu: bool) -> None:
    """Refuse hours of a device that the runs do not use.

    Raises:
        FplError: GPU-hours for runs on cores, or the other way round; names the unit that is meant.
    """
    if budget.kind == "device" and (right := "gpuh" if on_gpu else "coreh") != budget.unit:
        uses = "use GPUs" if on_gpu else "use no GPU"
        hint = f"--budget {budget.amount:g}{right}"
        raise FplError(f"a budget in {budget.unit}, but these runs {uses}", where="--budget", hint=hint)
