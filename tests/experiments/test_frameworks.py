"""The table Frameworks: what stands in the place of a pixel loss is all in which its columns differ, at every scale."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from fpl.cli.main import app
from fpl.config.campaign import load_campaign
from fpl.config.cells import Cell
from fpl.config.checks import warnings_of
from fpl.config.layers import flatten
from fpl.config.registry import all_options

FOLDER = Path(__file__).parents[2] / "experiments"
SCALES = ("paper", "mini", "camvid")
# Row -> its method, and the key of its gate with its published value on VOC.
ROWS: dict[str, tuple[str, tuple[str, float] | None]] = {
    "cps": ("cps", None),
    "cps_cutmix": ("cps", None),
    "ael": ("ael", ("confidence_gate", 0.7)),
    "mt": ("mean_teacher", None),
    "cutmix_seg": ("cutmix_seg", ("confidence_gate", 0.97)),
    "vat": ("vat", ("confidence_gate", 0.97)),
    "cct": ("cct", None),
    "gct": ("gct", None),
    "advsemseg": ("advsemseg", None),
    "u2pl": ("u2pl", ("unreliable", 0.2)),
    "pseudoseg": ("pseudoseg", None),
    "unimatch": ("unimatch", ("confidence_gate", 0.95)),
    "fixmatch": ("unimatch", ("confidence_gate", 0.95)),
}
LOSSES = {"ce": "ce", "half": "ce", "ce_open": "ce", "fpl": "fpl", "k1": "fpl", "fpl_open": "fpl"}


@functools.cache
def cells(scale: str) -> dict[str, Cell]:
    found = load_campaign(FOLDER, scale, ["frameworks"]).all_cells
    return {cell.name.removeprefix("frameworks."): cell for cell in found}


def settings(scale: str, name: str) -> dict[str, Any]:
    return flatten(cells(scale)[name].configs[0].model_dump(mode="json"))


def changed(scale: str, one: str, other: str) -> set[str]:
    first, second = settings(scale, one), settings(scale, other)
    return {key for key in first | second if first.get(key) != second.get(key)}


@pytest.mark.parametrize("scale", SCALES)
def test_columns_differ_in_the_loss_its_weight_and_the_gate_alone(scale: str) -> None:
    for row, (method, gate) in ROWS.items():
        assert settings(scale, f"{row}.own")["method.name"] == method
        assert settings(scale, f"{row}.own")["loss.kind"] == all_options()[method].native_kind
        allowed = {"loss.kind", "method.weight"}
        if row == "gct":  # where a network is its own target, only the squared difference is 0
            allowed.add("method.own_target")
        for column, kind in LOSSES.items():
            cell = cells(scale)[f"{row}.{column}"]
            if column.endswith("_open"):
                assert bool(cell.configs) is (gate is not None), cell.name
                if gate is None:
                    assert cell.why_not in ("no gate", "no such gate")
                    continue
                own = {f"method.{gate[0]}"}
                assert settings(scale, cell.name.partition(".")[2])[f"method.{gate[0]}"] == 0.0
            else:
                own = set()
            found = settings(scale, f"{row}.{column}")
            assert found["loss.kind"] == kind
            own |= {"loss.threshold", "loss.strategy", "loss.fixed_k"} if kind == "fpl" else set()
            # AEL says of its gate that it stays under FPL.
            own |= {"method.gate_under_fpl"} if row == "ael" else set()
            assert changed(scale, f"{row}.own", f"{row}.{column}") <= allowed | own, cell.name
            if kind == "fpl":
                # K = 1 is cross-entropy and no T decides anything; all else of FPL has one T.
                key, value = ("loss.fixed_k", 1) if column == "k1" else ("loss.threshold", 0.9)
                assert (found["loss.strategy"], found[key]) == ("fixed" if column == "k1" else "n-1", value)


@pytest.mark.parametrize("scale", SCALES)
def test_weights_are_matched_by_the_factor_and_halved_in_one_column(scale: str) -> None:
    for row in ROWS:
        own, ce = (settings(scale, f"{row}.{column}") for column in ("own", "ce"))
        factor = cells(scale)[f"{row}.own"].row.matched_weight
        assert (factor != 1.0) is (own["loss.kind"] != "ce"), row
        assert ce["method.weight"] == pytest.approx(factor * own["method.weight"])
        assert settings(scale, f"{row}.half")["method.weight"] == pytest.approx(0.5 * ce["method.weight"])
        for column in ("fpl", "k1", "ce_open", "fpl_open"):
            if cells(scale)[f"{row}.{column}"].configs:
                assert settings(scale, f"{row}.{column}")["method.weight"] == ce["method.weight"]
        same = cells(scale)[f"{row}.own"].recipes == cells(scale)[f"{row}.ce"].recipes
        assert same is (own["loss.kind"] == "ce"), f"{row}: cross-entropy is trained once"


def test_gates_are_the_published_ones_and_those_that_leave_fpl_nothing_are_told() -> None:
    for row, (_, gate) in ROWS.items():
        if gate is not None:
            assert settings("paper", f"{row}.fpl")[f"method.{gate[0]}"] == gate[1]
        said = [text for text in warnings_of(cells("paper")[f"{row}.fpl"].configs[0]) if "K = 1" in text]
        assert bool(said) is (gate is not None and gate[1] >= 0.9), row
        opened = cells("paper")[f"{row}.fpl_open"]
        assert not opened.configs or not any("K = 1" in text for text in warnings_of(opened.configs[0]))


def test_factors_are_those_that_were_measured() -> None:
    frame = pd.read_csv(FOLDER.parent / "results" / "benchmarks" / "weights.csv").set_index("row")
    factors = {row: cells("mini")[f"{row}.own"].row.matched_weight for row in ROWS}
    assert {row: factor for row, factor in factors.items() if factor != 1.0} == frame["factor"].to_dict()
    page = (FOLDER.parent / "docs" / "frameworks.md").read_text()
    columns = ["framework", "own", "factor", "lowest", "highest"]
    for values in frame[columns].itertuples(index=False):
        assert f"| {' | '.join(map(str, values))} |" in page


@pytest.mark.parametrize(("scale", "runs"), [("paper", 70), ("mini", 66), ("camvid", 66)])
def test_as_many_runs_as_the_file_says(scale: str, runs: int) -> None:
    found = cells(scale)
    assert len({cell.recipes for cell in found.values() if cell.configs}) == runs
    assert str(runs) in found["cps.own"].experiment.about["cost"]
    assert {name.partition(".")[0] for name in found} == {*ROWS, "unimatch_best", "unimatch_last"}


def test_it_is_no_part_of_the_paper() -> None:
    assert "frameworks" not in load_campaign(FOLDER, "mini").cells
    assert "frameworks" in load_campaign(FOLDER, "mini", rows="all").cells
    plan = CliRunner().invoke(app, ["plan", "frameworks.u*", "--scale", "mini", "--experiments", str(FOLDER)])
    assert plan.exit_code == 0, plan.output
    (line,) = (line.split() for line in plan.output.splitlines() if line.split()[:1] == ["frameworks"])
    # Its cited numbers are none that the paper printed.
    assert line[1:3] == ["0", "14"]


def test_cited_numbers_are_those_of_one_log() -> None:
    best, last = (cells("paper")[f"unimatch_{which}.own"] for which in ("best", "last"))
    assert (best.printed, last.printed) == (72.48, 71.19) and not best.configs
    ours = settings("paper", "unimatch.own")
    # The log's network, crop, labels and pool, and its 80 epochs.
    assert (ours["model.backbone"], ours["data.crop"]) == ("resnet50", [321, 321])
    assert (ours["data.split.family"], ours["data.split.fraction"]) == ("pseudoseg-10582", "183")
    assert ours["train.steps"] == 80 * ((10582 - 183) // 8)
