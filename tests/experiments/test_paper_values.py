"""The printed numbers of the table files against a list of all 264 made apart from them, where that list is at hand."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from fpl.config.cells import Cell, Resolver
from fpl.config.experiment import load_experiments

ROOT = Path(__file__).parents[2]
VALUES = ROOT.parent / "shared" / "data" / "paper_values.csv"

# Row key -> method, CutMix and FPL in the list.
ROWS = {
    "mt": ("MT", "", "no"),
    "cct": ("CCT", "", "no"),
    "gct": ("GCT", "", "no"),
    "u2pl": ("U2PL", "", "no"),
    "cutmix_seg": ("CutMix-Seg", "", "no"),
    "cac": ("CAC", "", "no"),
    "advsemseg": ("AdvSemSeg", "", "no"),
    "vat": ("VAT", "", "no"),
    "pseudoseg": ("PseusoSeg", "", "no"),
    "pc2seg": ("PC2Seg", "", "no"),
    "cps": ("CPS", "no", "no"),
    "fpl_cps": ("CPS", "no", "yes"),
    "cps_cutmix": ("CPS", "yes", "no"),
    "fpl_cps_cutmix": ("CPS", "yes", "yes"),
    "soft_cps_cutmix": ("Soft.+CPS", "yes", "no"),
    "nega_cps_cutmix": ("Nega.+CPS", "yes", "no"),
    "ael": ("AEL", "adaptive", "no"),
    "fpl_ael": ("AEL", "adaptive", "yes"),
}
# Tables whose cells follow from T or the strategy: CutMix is not stated there.
ABLATIONS = ("Table 4", "Table 5", "Table A5")


def of_list(row: dict[str, str]) -> tuple[object, ...]:
    """Where a number of the list stands, and the number."""
    method = row["method"], row["cutmix"], row["fpl"]
    place: tuple[object, ...] = (row["split"], row["labeled_images"], row["backbone"])
    if row["table"] == "Table 4":
        place = (float(row["T"]),)
    elif row["table"] == "Table 5":
        place = (row["split"], row["labeled_images"], float(row["T"]))
    elif row["table"] == "Table A5":
        place = (row["role"].split(":")[1].casefold(),)
    elif row["table"] == "Table A6":
        place = (row["dataset"],)
    elif row["table"] in ("Table A1", "Table A2"):
        place = (row["split"], row["backbone"])
    elif row["table"] == "Table A3":
        place = (row["split"],)
    arrow = float(row["printed_improvement"]) if row["printed_improvement"] and row["table"] != "Table 4" else None
    bold = row["printed_bold"] in ("yes", "improvement")
    known = method if row["table"] not in ABLATIONS else None
    return row["table"], known, place, float(row["value"]), arrow, bold, row["source"] == "cited"


def of_cell(cell: Cell) -> tuple[object, ...]:
    """The same of a cell."""
    table, column = cell.experiment.table.number, cell.column
    split = column.header.split(" ")[0]
    labeled = "" if column.labeled is None else str(column.labeled)
    # Table A4 names the backbone in its caption.
    backbone = "ResNet-101" if table == "Table A4" else column.group
    place: tuple[object, ...] = (split, labeled, backbone)
    if table == "Table 4":
        place = (float(column.header),)
    elif table == "Table 5":
        place = (split, labeled, float(cell.row.label))
    elif table == "Table A5":
        place = (column.header.casefold(),)
    elif table == "Table A6":
        place = (column.header,)
    elif table in ("Table A1", "Table A2"):
        place = (split, column.group)
    elif table == "Table A3":
        place = (split,)
    known = ROWS[cell.row.key] if table not in ABLATIONS else None
    return table, known, place, cell.printed, cell.arrow, column.key in cell.row.bold, cell.row.role == "cited"


@pytest.fixture(scope="module")
def listed() -> list[dict[str, str]]:
    if not VALUES.is_file():
        pytest.skip("the list of the paper's values is not at hand")
    with VALUES.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def printed() -> list[Cell]:
    resolver = Resolver(ROOT / "experiments" / "base")
    papers = (item for item in load_experiments(ROOT / "experiments" / "tables") if not item.ours)
    found = (cell for item in papers for cell in resolver.cells(item))
    return [cell for cell in found if cell.printed is not None]


def test_every_printed_number_stands_in_its_cell_and_none_besides(
    listed: list[dict[str, str]], printed: list[Cell]
) -> None:
    wanted, found = Counter(map(of_list, listed)), Counter(map(of_cell, printed))
    assert found - wanted == Counter()
    assert wanted - found == Counter()
    assert wanted.total() == 264


def test_every_cell_trains_with_the_listed_threshold(listed: list[dict[str, str]], printed: list[Cell]) -> None:
    by_place = {of_cell(cell): cell for cell in printed}
    compared = 0
    for row in listed:
        cell = by_place[of_list(row)]
        if row["T"] and cell.configs:
            assert cell.configs[0].loss.threshold == float(row["T"]), cell.name
            compared += 1
    # 24 and 18 cells of FPL in Tables 1 and 2, and Tables 4, 5 and A4.
    assert compared == 24 + 18 + 6 + 9 + 3
