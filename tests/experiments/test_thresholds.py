"""The table Thresholds: its rows differ in the loss and T's rule alone, and T by hand is that of Table 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from fpl.config.campaign import load_campaign
from fpl.config.layers import flatten

FOLDER = Path(__file__).parents[2] / "experiments"
# Row of this table -> rows of Table 1 with cross-entropy and with FPL.
SAME = {"cps": ("cps", "fpl_cps"), "cps_cutmix": ("cps_cutmix", "fpl_cps_cutmix"), "ael": ("ael", "fpl_ael")}


@pytest.mark.parametrize("scale", ["paper", "mini", "camvid"])
def test_two_rows_are_table_1_and_the_third_has_another_rule(scale: str) -> None:
    cells = {
        cell.name: cell.configs[0]
        for cell in load_campaign(FOLDER, scale, ["thresholds", "table1"]).all_cells
        if cell.configs
    }
    for row, others in SAME.items():
        for column in ("r50_1_16", "r50_1_8", "r50_1_4"):
            ours = [cells[f"thresholds.{key}.{column}"] for key in (row, f"fpl_{row}", f"fpl_{row}_labeled")]
            assert ours[:2] == [cells[f"table1.{other}.{column}"] for other in others]
            hand, labeled = (flatten(config.model_dump(mode="json")) for config in ours[1:])
            assert labeled == {**hand, "loss.threshold_rule": "labeled"}
