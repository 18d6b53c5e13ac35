"""What stands beside published results names nobody's folders."""

from __future__ import annotations

import pytest
import torch

from fpl.sweep.environment import environment


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("fpl reproduce --out runs/mini --publish /home/somebody/made/mini", "--out runs/mini --publish .../mini"),
        ("fpl reproduce --data-root=/data/sets table4.fpl_cps.t050", "--data-root=.../sets table4.fpl_cps.t050"),
        ("fpl reproduce data.split.fraction=1/8 ../there", "data.split.fraction=1/8 ../there"),
    ],
)
def test_of_absolute_paths_the_last_name_is_kept(typed: str, kept: str) -> None:
    line = environment(typed, 1.0, 1, torch.device("cpu")).splitlines()[0]
    assert line == f"command: fpl reproduce {kept}"
