"""The systems that the paper cites and this suite trains: what their rows resolve to, written down a second time."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from fpl.config.campaign import load_campaign
from fpl.config.cells import Cell

FOLDER = Path(__file__).parents[2] / "experiments"


class System(NamedTuple):
    """As its publication, or the re-implementation that the numbers come from, weighs its unsupervised term."""

    method: str
    weight: float
    kind: str


SYSTEMS = {
    "mt": System("mean_teacher", 100.0, "mse"),
    "cct": System("cct", 30.0, "mse"),
    "gct": System("gct", 100.0, "mse"),
    "cutmix_seg": System("cutmix_seg", 1.0, "mse"),
    "vat": System("vat", 0.1, "soft"),
    "advsemseg": System("advsemseg", 0.1, "ce"),
}
ROWS = {
    "table1": {"mt", "cct", "gct"},
    "table2": {"mt", "cct", "gct", "cutmix_seg"},
    "table3": {"mt", "cct", "gct", "cutmix_seg", "vat", "advsemseg"},
}


def cells(scale: str) -> dict[str, Cell]:
    return {cell.name: cell for cell in load_campaign(FOLDER, scale, rows="all").all_cells}


@pytest.fixture(scope="module")
def papers() -> dict[str, Cell]:
    return cells("paper")


def test_every_number_of_these_systems_has_a_run_beside_it(papers: dict[str, Cell]) -> None:
    for name, cell in papers.items():
        table, row, _ = name.split(".")
        if cell.row.role == "cited":
            assert bool(cell.configs) == (row in ROWS.get(table, set()) and cell.printed is not None), name
            assert not cell.configs or cell.row.note, f"{name}: whose recipe it is stands nowhere"


def test_they_are_trained_as_published_in_the_setting_of_cps(papers: dict[str, Cell]) -> None:
    for name, cell in papers.items():
        table, row, column = name.split(".")
        if cell.row.role != "cited" or not cell.configs:
            continue
        config, cps = cell.configs[0], papers[f"{table}.cps_cutmix.{column}"].configs[0]
        method = config.method
        assert SYSTEMS[row] == System(method.name, getattr(method, "weight", -1.0), config.loss.kind), name
        for section in ("data", "model", "optim", "train", "eval"):
            assert getattr(config, section) == getattr(cps, section), f"{name}: {section}"
        assert config.loss.supervised == cps.loss.supervised, name
        # No confidence gate is lost on the way, and none has come in.
        assert getattr(method, "confidence_gate", 0.0) == (0.97 if row in ("cutmix_seg", "vat") else 0.0), name


@pytest.mark.parametrize("scale", ["mini", "camvid"])
def test_small_scales_keep_the_distance(scale: str) -> None:
    for name, cell in cells(scale).items():
        _, row, _ = name.split(".")
        if cell.row.role == "cited" and cell.configs:
            config = cell.configs[0]
            assert (config.method.name, config.loss.kind) == (SYSTEMS[row].method, SYSTEMS[row].kind), name
            assert not config.method.warnings(config), name


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_recipe_for_camvid_is_the_run_of_a_cell(system: str) -> None:
    """What `fpl train experiments/base/camvid_mt.toml` trains is a cell of a table at that scale, and trained once."""
    from fpl.config.compose import load_config

    table, column = ("table2", "r101_1_8") if system in ROWS["table2"] else ("table3", "n183")
    cell = cells("camvid")[f"{table}.{system}.{column}"]
    assert cell.configs[0] == load_config(FOLDER / "base" / f"camvid_{system}.toml")
