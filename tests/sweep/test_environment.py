"""What stands beside published results names nobody's folders."""

from __future__ import annotations

import pytest

from fpl.sweep.environment import environment
from fpl.sweep.plan.capacity import processor_name


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("fpl reproduce --out runs/mini --publish /home/somebody/made/mini", "--out runs/mini --publish .../mini"),
        ("fpl reproduce --data-root=/data/sets table4.fpl_cps.t050", "--data-root=.../sets table4.fpl_cps.t050"),
        ("fpl reproduce data.split.fraction=1/8 ../there", "data.split.fraction=1/8 ../there"),
    ],
)
def test_of_absolute_paths_the_last_name_is_kept(typed: str, kept: str) -> None:
    line = environment(typed, 1.0, 1).splitlines()[0]
    assert line == f"command: fpl reproduce {kept}"


def test_the_machine_is_what_the_runs_were_on() -> None:
    assert f"machine: {processor_name()}, " in (here := environment("fpl", 1.0, 1)) and "\ncuda: " not in here
    there = environment("fpl", 1.0, 1, ["NVIDIA A100", "NVIDIA H100"], ["12.8"])
    assert "machine: NVIDIA A100, NVIDIA H100, " in there and "\ncuda: 12.8\n" in there
