"""What a rehearsal says of itself."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from fpl.cli.rehearse import report
from fpl.sweep.rehearsal.rows import read
from fpl.sweep.rehearsal.whole import _Clock, _expected

COMMITTED = Path(__file__).parents[3] / "results" / "rehearsal"


def test_the_end_that_is_foretold_is_the_one_that_came() -> None:
    """On the pieces of a rehearsal that was, the quickest first; planned and real seconds differ there by 1.1 to 4."""
    rows = sorted(read(COMMITTED), key=_expected)
    told: list[str] = []
    clock = _Clock(told.append, rows)
    shares = []
    for number, row in enumerate(rows):
        clock.begin(row)
        real = sum(later.wall_seconds for later in rows[number:])
        if found := re.search(r"about (?:(\d+):)?(\d+):(\d\d) left", told[-1]):
            hours, minutes, seconds = (int(part or 0) for part in found.groups())
            shares.append((3600 * hours + 60 * minutes + seconds) / real)
        clock.end(row)
    assert len(shares) == len(rows) - 1
    assert min(shares) > 0.7 and max(shares) < 1.5


def test_a_validation_below_a_second_was_one() -> None:
    row = replace(read(COMMITTED)[0], validation_seconds=0.0)
    assert " <1 " in "\n".join(report([row]))
    assert " <1 " not in "\n".join(report([replace(row, state="failed", reason="killed")]))
