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
    "cac": System("cac", 0.1, "ce"),
    "pseudoseg": System("pseudoseg", 1.0, "soft"),
    "pc2seg": System("pc2seg", 1.0, "mse"),
    "u2pl": System("u2pl", 1.0, "ce"),
    "ael_u2pl": System("ael", 1.0, "ce"),
}
# On AEL's network, in settings of their own.
ON_AEL = {"u2pl", "ael_u2pl"}
ROWS = {
    "table1": {"mt", "cct", "gct", "ael_u2pl"},
    "table2": {"mt", "cct", "gct", "cutmix_seg", "cac"},
    "table3": {"mt", "cct", "gct", "cutmix_seg", "vat", "advsemseg", "pseudoseg", "pc2seg", "u2pl"},
    "table_a4": {"ael_u2pl"},
}


def cells(scale: str) -> dict[str, Cell]:
    return {cell.name: cell for cell in load_campaign(FOLDER, scale, rows="all").all_cells}


@pytest.fixture(scope="module")
def papers() -> dict[str, Cell]:
    return cells("paper")


def system_of(name: str) -> str:
    """U2PL's numbers in tables on Cityscapes are of U2PL on AEL."""
    table, row, _ = name.split(".")
    return "ael_u2pl" if row == "u2pl" and table in ("table1", "table_a4") else row


def trained(found: dict[str, Cell]) -> dict[str, Cell]:
    return {name: cell for name, cell in found.items() if cell.row.role == "cited" and cell.configs}


def test_every_number_of_these_systems_has_a_run_beside_it(papers: dict[str, Cell]) -> None:
    seen: dict[str, set[str]] = {}
    for name, cell in papers.items():
        if cell.row.role == "cited" and not cell.experiment.ours:
            assert bool(cell.configs) == (cell.printed is not None), f"{name}: a number that is cited alone"
            assert not cell.configs or cell.row.note, f"{name}: whose recipe it is stands nowhere"
            seen.setdefault(name.split(".")[0], set()).add(system_of(name))
    assert seen == ROWS


def test_they_are_trained_as_published_in_the_setting_of_cps(papers: dict[str, Cell]) -> None:
    for name, cell in trained(papers).items():
        config, system = cell.configs[0], system_of(name)
        method = config.method
        assert SYSTEMS[system] == System(method.name, getattr(method, "weight", -1.0), config.loss.kind), name
        # No confidence gate is lost on the way, and none has come in.
        gates = {"cutmix_seg": 0.97, "vat": 0.97, "cac": 0.75}
        assert getattr(method, "confidence_gate", 0.0) == gates.get(system, 0.0), name
        if system in ON_AEL:
            continue
        table, _, column = name.split(".")
        cps = papers[f"{table}.cps_cutmix.{column}"].configs[0]
        for section in ("data", "model", "optim", "train", "eval"):
            assert getattr(config, section) == getattr(cps, section), f"{name}: {section}"
        assert config.loss.supervised == cps.loss.supervised, name


def test_u2pl_on_ael_is_ael_with_a_contrast(papers: dict[str, Cell]) -> None:
    for name, cell in trained(papers).items():
        if system_of(name) != "ael_u2pl":
            continue
        column = name.split(".")[2].replace("c1_", "r101_1_")
        ours, ael = (found.model_dump() for found in (cell.configs[0], papers[f"table1.ael.{column}"].configs[0]))
        contrast = ours["method"].pop("contrast")
        ael["method"].pop("contrast", None)
        assert ours == ael, name
        # Its code: contra_weight 0.1, divided by 8 processes once more, from epoch 20 of 200 on, 20 % throughout.
        told = {key: contrast[key] for key in ("definition", "weight", "divisor", "start", "unreliable", "falling")}
        assert told == {
            "definition": "paper", "weight": 0.1, "divisor": 8, "start": 0.1, "unreliable": 0.2, "falling": False
        }, name  # fmt: skip


def test_u2pl_has_its_published_setting(papers: dict[str, Cell]) -> None:
    """`experiments/pascal` of its code: 80 epochs, 16 + 16 crops of 513, 0.001 and 0.01, 20 % dropped at first."""
    for labeled in (92, 183, 366, 732):
        config = papers[f"table3.u2pl.n{labeled}"].configs[0]
        assert config.train.steps == 80 * ((10582 - labeled) // 16)
        assert (config.data.labeled_batch, config.data.unlabeled_batch, config.data.crop) == (16, 16, (513, 513))
        assert (config.optim.lr, config.optim.head_lr_multiplier, config.optim.weight_decay) == (0.001, 10.0, 1e-4)
        assert (config.model.network, config.loss.supervised, config.loss.auxiliary_weight) == ("ael", "ce", 0.0)
        method = config.method.model_dump()
        assert (method["unreliable"], method["ema_decay"], method["contrast"]["weight"]) == (0.2, 0.99, 0.1)


@pytest.mark.parametrize("scale", ["mini", "camvid"])
def test_small_scales_keep_the_distance(scale: str) -> None:
    for name, cell in trained(cells(scale)).items():
        config, system = cell.configs[0], SYSTEMS[system_of(name)]
        assert (config.method.name, config.loss.kind) == (system.method, system.kind), name
        assert not config.method.warnings(config), name


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_recipe_for_camvid_is_the_run_of_a_cell(system: str) -> None:
    """What `fpl train experiments/base/camvid_mt.toml` trains is a cell of a table at that scale, and trained once."""
    from fpl.config.compose import load_config

    columns = {"table1": "r101_1_8", "table2": "r101_1_8", "table3": "n183"}
    table = next(table for table in ("table2", "table3", "table1") if system in ROWS[table])
    cell = cells("camvid")[f"{table}.{system.removeprefix('ael_')}.{columns[table]}"]
    assert cell.configs[0] == load_config(FOLDER / "base" / f"camvid_{system}.toml")
