"""Every cell of every table is the run that the paper's table asks for, at every scale."""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from fpl.cli.main import app
from fpl.config.cells import Cell, Resolver, own_row
from fpl.config.checks import warnings_of, worker_problem
from fpl.config.compose import load_config
from fpl.config.experiment import Experiment, load_experiments, thresholds
from fpl.config.scale import read_scale
from fpl.config.schema import RunConfig
from fpl.data.spec import SPECS
from fpl.errors import FplError
from fpl.sweep.plan.wanted import distinct_runs
from tests.experiments.expected import (
    AEL_STEPS_PER_EPOCH,
    EXPECTED,
    PRINTED,
    T_CITYSCAPES,
    T_LOW_DATA,
    T_VOC,
    TRAINING_IMAGES,
    WRONG_ARROWS,
    Expected,
)

FOLDER = Path(__file__).parents[2] / "experiments"
SCALES = (None, "paper", "mini", "camvid")


class Small(NamedTuple):
    crop: tuple[int, int]
    batch: int
    steps: int
    lr: float
    weight: float
    backbone: str


# What the two small scales put in place of the paper's sizes.
SMALL = {
    "mini": Small((40, 40), 4, 50, 0.1, 1.0, "tiny"),
    "camvid": Small((96, 128), 4, 320, 0.025, 1.0, "efficientnet_lite0"),
}
SMALL_LOW_DATA = {"92": "1/16", "183": "1/8", "366": "1/4", "732": "1/2"}
DRAWN = {"cityscapes": "synthetic_city", "voc": "synthetic_voc"}


@functools.cache
def experiments() -> tuple[Experiment, ...]:
    return tuple(load_experiments(FOLDER / "tables"))


# Tables of this suite: no row is the paper's, and they run only when they are asked for.
OURS = ("length", "frameworks", "thresholds")


@functools.cache
def cells(scale: str | None = None) -> dict[str, Cell]:
    """All cells by name, controls included."""
    file = read_scale(FOLDER / "scale" / f"{scale}.toml") if scale else None
    resolver = Resolver(FOLDER / "base", file)
    return {cell.name: cell for experiment in experiments() for cell in resolver.cells(experiment)}


def config_of(name: str, scale: str | None = None) -> RunConfig:
    (config,) = cells(scale)[name].configs
    return config


def test_the_tables_stand_in_the_order_of_the_paper() -> None:
    assert [experiment.name for experiment in experiments()] == [*PRINTED, *OURS]
    # The file's name is what commands call it.
    assert {path.stem for path in (FOLDER / "tables").glob("*.toml")} == {*PRINTED, *OURS}
    for experiment in experiments():
        assert experiment.about["source"].startswith("this suite" if experiment.name in OURS else "paper, ")
        assert f" {experiment.name} --scale " in experiment.about["command"]


def known_row(name: str) -> bool:
    """Whether a cell is of a row that is expected to be run."""
    return name.rpartition(".")[0] in {each.rpartition(".")[0] for each in EXPECTED}


@pytest.mark.parametrize("scale", SCALES)
def test_exactly_the_cells_of_the_papers_own_rows_are_run(scale: str | None) -> None:
    run = {name for name, cell in cells(scale).items() if cell.configs}
    # Rows of ours beside those that are known here may be added: a method of one's own, say.
    assert run >= set(EXPECTED)
    others = {name: cells(scale)[name] for name in run - set(EXPECTED)}
    assert all(own_row(cell.experiment, cell.row) and not known_row(name) for name, cell in others.items())
    for name, cell in cells(scale).items():
        assert bool(cell.why_not) is not bool(cell.configs), name


def test_rows_that_are_not_run_say_why() -> None:
    for name, cell in cells().items():
        assert not cell.row.pending, name
        if cell.configs or cell.experiment.name in OURS:
            continue
        if cell.experiment.table.metric == "threshold":
            assert cell.why_not == "a setting", name
        elif cell.row.without:
            assert cell.row.role == "control" and cell.why_not == cell.row.without[cell.column.key], name
        else:
            assert cell.row.role == "cited" and "citing" in cell.row.source, name
            # A dash in the row of a system that is trained here.
            assert cell.why_not == ("not in the paper" if cell.row.recipe else "cited"), name


def check_method(name: str, config: RunConfig, expected: Expected, weight: float | None) -> None:
    """What no scale changes, and the weight of the unsupervised term."""
    method, loss = config.method, config.loss
    assert (method.name, loss.kind) == (expected.method, expected.kind), name
    if method.name == "cps":
        assert (method.cutmix, method.weight) == (expected.cutmix, weight), name
        assert method.on_labeled is not expected.cutmix, name
        assert method.pair == "other", name
    if method.name == "ael":
        voc = expected.dataset == "voc"
        # What the paper keeps of AEL, FPL keeps, too: "only the loss is replaced".
        gate = 0.7 if voc and expected.gated else 0.0
        assert (method.fidelity, method.weight, method.confidence_gate) == ("paper", weight, gate), name
        assert method.sampling and method.copy_paste, name
        assert (method.paste_classes, method.paste_partner) == (1 if voc else 3, "other"), name
        assert (method.confidence_power, method.sampling_power) == (2.0, 1.0), name
        assert (method.paste_probability, method.paste_scales) == (0.5, (0.1, 2.0)), name
        assert (method.teacher_mode, method.ema_buffers) == ("train", False), name
        assert loss.auxiliary_weight == 0.4 and config.optim.decay_norm_and_bias, name
        assert (config.data.scale_sampling, config.data.padding_label) == ("balanced", 255), name
    assert config.model.network == ("ael" if expected.is_ael else "cps"), name
    if loss.kind == "fpl":
        assert (loss.strategy, loss.weight, loss.fidelity) == (expected.strategy, expected.shape, expected.fidelity)
        assert loss.balance is (expected.fidelity == "released"), name
        if expected.threshold is not None:
            assert loss.threshold == expected.threshold, name
        if expected.fixed_k is not None:
            assert loss.fixed_k == expected.fixed_k, name
    if loss.kind == "negative":
        assert loss.negative_threshold == 0.2, name


@pytest.mark.parametrize("scale", [None, "paper"])
def test_every_cell_at_the_papers_scale(scale: str | None) -> None:
    for name, expected in EXPECTED.items():
        config = config_of(name, scale)
        data, train = config.data, config.train
        check_method(name, config, expected, expected.weight)
        assert (data.dataset, data.num_classes) == (expected.dataset, 19 if expected.is_city else 21), name
        assert (data.split.family, data.split.fraction) == (expected.family, expected.fraction), name
        assert (data.split.index, data.downscale) == (0, 1), name
        assert data.crop == expected.crop, name
        assert data.labeled_batch == (16 if expected.is_ael else 8), name
        assert data.groups == (8 if expected.is_city or expected.is_ael else 4), name
        assert data.unlabeled_batch == (0 if expected.method == "supervised" else 8), name
        assert (config.model.backbone, config.model.pretrained) == (expected.backbone, "imagenet"), name
        assert (config.optim.lr, config.optim.weight_decay) == (expected.lr, expected.weight_decay), name
        assert (config.optim.momentum, config.optim.poly_power) == (0.9, 0.9), name
        assert config.loss.stride == 1, name
        assert train.steps == expected.steps, name
        # Validation after whole epochs.
        assert train.evaluate_every == expected.steps // expected.epochs * expected.validated_every, name
        assert expected.steps % expected.epochs == 0, name
        assert config.eval.crop is None, name
        assert config.method.name == "supervised" or config.method.ramp == 0.0, name
        if expected.is_ael:
            check_ael_at_the_papers_scale(name, config, expected)
        else:
            assert data.scales == (0.5, 0.75, 1.0, 1.5, 1.75, 2.0) and data.scale_sampling == "choice", name
            assert config.optim.head_lr_multiplier == 1.0 and not config.optim.decay_norm_and_bias, name
            assert config.loss.supervised == ("ohem" if expected.is_city else "ce"), name
            assert (config.eval.protocol, config.eval.combine, config.eval.absent) == ("sliding", "logits", "skip")


def check_ael_at_the_papers_scale(name: str, config: RunConfig, expected: Expected) -> None:
    method, loss, model = config.method, config.loss, config.model
    assert method.name == "ael"
    assert config.data.scales == (0.5, 2.0), name
    assert (model.aspp_rates, model.head_channels, model.low_level_channels) == ((12, 24, 36), 256, 256), name
    assert model.dropout == 0.1, name
    assert (method.confidence_momentum, method.ema_decay) == (0.999, 0.99), name
    assert method.paste_excluded == (0, 1, 2, 8, 10), name
    assert (method.component_area, method.bank_area) == ((0.005, 0.01) if expected.is_city else (0.03, 0.03)), name
    assert (loss.supervised, loss.ohem_threshold, loss.ohem_min_kept) == ("ohem", 0.7, 100_000)
    assert config.optim.head_lr_multiplier == 10.0, name
    assert config.eval.protocol == ("sliding" if expected.is_city else "center"), name
    assert config.eval.combine == ("probabilities" if expected.is_city else config.eval.combine), name
    assert (config.eval.absent, config.eval.subsample) == ("zero", None), name
    if expected.is_city:
        assert math.isclose(config.eval.stride_rate, 2 / 3), name


def test_an_epoch_of_ael_is_a_sixteenth_of_the_unlabeled_list() -> None:
    for dataset, steps in AEL_STEPS_PER_EPOCH.items():
        for fraction, per_epoch in steps.items():
            every = int(fraction.removeprefix("1/"))
            unlabeled = TRAINING_IMAGES[dataset] - math.ceil(TRAINING_IMAGES[dataset] / every)
            # Each of 8 GPUs is given its share, rounded up, and takes whole batches of two.
            assert per_epoch == math.ceil(unlabeled / 8) // 2
            assert abs(per_epoch - unlabeled / 16) <= 1


@pytest.mark.parametrize("scale", SMALL)
def test_every_cell_at_a_small_scale(scale: str) -> None:
    small = SMALL[scale]
    for name, expected in EXPECTED.items():
        config = config_of(name, scale)
        data = config.data
        half = 0.5 if ".cps_half." in name else 1.0
        # The factor comes after the scale: half of the scale's weight, not half of the paper's replaced by it.
        check_method(name, config, expected, 0.3 if expected.is_ael else small.weight * half)
        assert data.dataset == ("camvid" if scale == "camvid" else DRAWN[expected.dataset]), name
        assert data.split.fraction == SMALL_LOW_DATA.get(expected.fraction, expected.fraction), name
        low_data_family = "clean-nth" if scale == "mini" else "every-nth"
        assert data.split.family == (low_data_family if expected.fraction in SMALL_LOW_DATA else "every-nth"), name
        assert (data.crop, data.labeled_batch, data.groups) == (small.crop, small.batch, 2), name
        assert (config.train.steps, config.optim.lr) == (small.steps, small.lr), name
        assert config.optim.weight_decay == 1e-4, name
        assert config.model.backbone == small.backbone, name
        assert config.loss.supervised == "ce", name
        # One measure for all rows of a table.
        assert (config.eval.protocol, config.eval.combine, config.eval.absent) == ("whole", "logits", "skip"), name
        assert config.optim.head_lr_multiplier == (1.0 if scale == "mini" else 2.0), name
        if config.method.name == "ael":
            # Memories within the run.
            assert (config.method.ema_decay, config.method.confidence_momentum) == (0.9, 0.9)
            assert worker_problem(config, 2) is None and warnings_of(config) == [], name
            frequent = (0, 1, 3, 4, 5) if scale == "camvid" else (0, 1, 2, 8, 10)
            assert config.method.paste_excluded == frequent, name
        if scale == "mini":
            assert config.model.tiny_depth == {"resnet50": 1, "resnet101": 2}[expected.backbone], name


def test_a_cell_at_the_scale_of_camvid_is_the_recipe_for_camvid() -> None:
    for row, recipe in {"cps_cutmix": "camvid_cps", "ael": "camvid_ael"}.items():
        assert config_of(f"table1.{row}.r50_1_8", "camvid") == load_config(FOLDER / "base" / f"{recipe}.toml")
    fpl_ael = load_config(FOLDER / "base" / "camvid_fpl_ael.toml")
    assert config_of("table1.fpl_ael.r50_1_8", "camvid") == fpl_ael


def test_camvids_frequent_classes_are_not_pasted() -> None:
    config = load_config(FOLDER / "base" / "camvid_ael.toml")
    assert config.method.name == "ael"
    names = [SPECS["camvid"].class_names[number] for number in config.method.paste_excluded]
    assert names == ["sky", "building", "road", "sidewalk", "tree"]


def test_the_recipes_by_themselves_are_cells() -> None:
    for name, recipe in {"table1": "cityscapes_cps", "table2": "voc_cps"}.items():
        assert config_of(f"{name}.cps_cutmix.r101_1_8") == load_config(FOLDER / "base" / f"{recipe}.toml")
        ael = load_config(FOLDER / "base" / f"{recipe.replace('cps', 'ael')}.toml")
        assert config_of(f"{name}.ael.r101_1_8") == ael


def test_thresholds_are_those_of_the_appendix() -> None:
    tables = {"a1": ("table1", T_CITYSCAPES), "a2": ("table2", T_VOC), "a3": ("table3", T_LOW_DATA)}
    by_name = {experiment.name: experiment for experiment in experiments()}
    for short, (used_in, rows) in tables.items():
        settings, used = by_name[f"table_{short}"], by_name[used_in]
        assert {row.key for row in settings.rows} == set(rows)
        for row in settings.rows:
            assert row.of == f"{used_in}.{row.key}"
            assert tuple(row.values) == tuple(thresholds(experiments(), row)) == rows[row.key]
            resolved = [config_of(f"{row.of}.{column.key}").loss.threshold for column in used.columns]
            assert tuple(resolved) == rows[row.key]
    assert by_name["table_a6"].row("fpl_ael").threshold == [0.85, 0.9]


def test_printed_numbers_add_up() -> None:
    for experiment in experiments():
        if experiment.name in OURS:
            continue
        values = [value for row in experiment.rows for value in row.values if value != "-"]
        count, total = PRINTED.get(experiment.name, (0, 0.0))
        assert len(values) == count, experiment.name
        assert math.isclose(sum(values), total, abs_tol=1e-6), experiment.name
    assert sum(count for count, _ in PRINTED.values()) == 264


def test_printed_improvements_are_those_of_the_numbers_but_for_the_known_errors() -> None:
    arrows = {name: cell for name, cell in cells().items() if cell.arrow is not None}
    assert len(arrows) == 24 + 18 + 4 + 9
    wrong = {}
    for name, cell in arrows.items():
        table, row, column = cell.experiment.name, cell.row.over, cell.column.key
        if table == "table5":
            table, column = "table1", column.replace("c1", "r50_1")
        baseline, printed = cells()[f"{table}.{row}.{column}"].printed, cell.printed
        assert baseline is not None and printed is not None and cell.arrow is not None
        if round(printed - baseline, 2) != cell.arrow:
            wrong[name] = (cell.arrow, round(printed - baseline, 2))
    assert wrong == WRONG_ARROWS
    # Each of them has its footnote.
    for name, (printed, right) in wrong.items():
        notes = " ".join(cells()[name].experiment.table.footnotes)
        assert f"{printed:.2f}" in notes and f"{right:.2f}" in notes


def test_numbers_that_the_paper_prints_twice_are_equal_and_so_are_their_runs() -> None:
    twice = {
        "table4.fpl_cps.t090": "table1.fpl_cps.r50_1_16",
        "table4.fpl_cps.t085": "table5.t085.c1_16",
        "table4.fpl_cps.t095": "table5.t095.c1_16",
        "table5.t095.c1_32": "table1.fpl_cps.r50_1_32",
        "table5.t090.c1_16": "table1.fpl_cps.r50_1_16",
        "table5.t090.c1_8": "table1.fpl_cps.r50_1_8",
        "table_a5.fpl_cps.n_1": "table2.fpl_cps.r50_1_16",
    }
    for row in ("cps_cutmix", "fpl_cps_cutmix"):
        twice |= {f"table_a4.{row}.c1_{n}": f"table1.{row}.r101_1_{n}" for n in (16, 8, 4)}
    for one, other in twice.items():
        assert cells()[one].printed == cells()[other].printed is not None
        for scale in SCALES:
            assert cells(scale)[one].recipes == cells(scale)[other].recipes, (one, scale)
    for row in ("supervised", "cps", "fpl_cps", "cps_cutmix", "fpl_cps_cutmix"):
        for scale in SCALES:
            assert cells(scale)[f"length.{row}.one"].recipes == cells(scale)[f"table1.{row}.r50_1_16"].recipes
    for dataset, table in {"cityscapes": "table1", "voc": "table2"}.items():
        for row in ("cps_cutmix", "fpl_cps_cutmix", "ael", "fpl_ael"):
            for scale in SCALES:
                timed = cells(scale)[f"table_a6.{row}.{dataset}"]
                assert timed.recipes == cells(scale)[f"{table}.{row}.r101_1_8"].recipes, (timed.name, scale)
    for name in ("table4.fpl_cps.t085", "table4.fpl_cps.t099"):
        assert cells()[name].recipes != cells()["table4.fpl_cps.t090"].recipes


# Paper, per seed, CPS: of Tables 1-3, 4, 5, A4, A5 and Figure A6; AEL and FPL+AEL: 8 and 6 columns of Tables 1 and 2,
# those of Table A6 among them.
PAPERS_OWN = (32 + 24 + 8) + 5 + 4 + 6 + 4 + 3 + 2 * (8 + 6)
# Controls: four rows of 8, 6 and 4 columns, two of Table 2 without AEL's gate, and soft K.
WITH_CONTROLS = PAPERS_OWN + 4 * (8 + 6 + 4) + 2 * 6 + 1
# CamVid has one backbone and one data set, but AEL's gate, areas and number of pasted classes stay those of the table:
# beside the runs of CPS 4 + 3 of AEL and, with their distinct T, 8 + 5 of FPL+AEL.
ON_CAMVID = 44 + (4 + 3) + (8 + 5)


@pytest.mark.parametrize(
    ("scale", "without", "all_rows"),
    [
        *((scale, PAPERS_OWN, WITH_CONTROLS) for scale in (None, "paper", "mini")),
        ("camvid", ON_CAMVID, ON_CAMVID + 40),
    ],
)
def test_number_of_runs(scale: str | None, without: int, all_rows: int) -> None:
    found = [cell for name, cell in cells(scale).items() if known_row(name)]
    assert len(distinct_runs(found)) == all_rows
    assert len(distinct_runs(cell for cell in found if cell.row.role != "control")) == without


def test_the_numbers_of_runs_are_those_that_are_said() -> None:
    """Of parts in the order of the sentence: what a part shares with one before it is counted there."""

    def part(cell: Cell) -> str:
        if cell.experiment.name in OURS:
            return cell.experiment.name
        return cell.row.role if cell.row.role in ("control", "cited") else "paper"

    counts: dict[str, dict[str, int]] = {}
    for scale in ("paper", "mini"):
        run, seen, before = [cell for cell in cells(scale).values() if cell.configs], list[Cell](), 0
        counts[scale] = {}
        for name in ("paper", "control", "length", "frameworks", "thresholds", "cited"):
            seen += [cell for cell in run if part(cell) == name]
            counts[scale][name] = len(distinct_runs(seen)) - before
            before += counts[scale][name]
        assert before == len(distinct_runs(run))
    paper, mini = counts["paper"], counts["mini"]
    assert mini == paper | {"frameworks": mini["frameworks"]}
    asked = sum(part(cell) == "paper" for cell in cells("paper").values() if cell.configs)
    said = (
        f"the paper's tables ask for {asked} cells (three of them a baseline that Table 5 does not print) and "
        f"{paper['paper']} runs a seed, the suite's own control rows for {paper['control']} more, the table Length for "
        f"{paper['length']}, the table Frameworks for {paper['frameworks']}, the table Thresholds for "
        f"{paper['thresholds']}, and the cited systems that it trains for {paper['cited']}: {sum(paper.values())} at "
        f"scale paper, and {sum(mini.values())} at scale mini, where the table Frameworks has {mini['frameworks']}."
    )
    assert said in " ".join((FOLDER / "README.md").read_text().split())


def test_two_seeds_are_twice_the_runs() -> None:
    resolver = Resolver(FOLDER / "base", seeds=(0, 1))
    found = [cell for experiment in experiments() for cell in resolver.cells(experiment) if known_row(cell.name)]
    runs = distinct_runs(found)
    assert len(runs) == 2 * WITH_CONTROLS
    assert sorted({run.config.seed for run in runs}) == [0, 1]


@pytest.mark.parametrize("table", ["table1", "table2"])
def test_controls_with_cutmix_differ_from_its_baseline_in_one_thing(table: str) -> None:
    for column in ("r50_1_16", "r101_1_4"):
        base = config_of(f"{table}.cps_cutmix.{column}", "mini")
        half = config_of(f"{table}.cps_cutmix_half.{column}", "mini")
        assert half == base.model_copy(update={"method": base.method.model_copy(update={"weight": 0.5})})
        k_1 = config_of(f"{table}.cutmix_weight_only.{column}", "mini")
        fixed = base.loss.model_copy(update={"kind": "fpl", "strategy": "fixed", "fixed_k": 1})
        assert k_1 == base.model_copy(update={"loss": fixed})


def test_mini_runs_some_cells_in_groups_of_workers() -> None:
    launch = read_scale(FOLDER / "scale" / "mini.toml").launch
    for pattern in launch["gang"]:
        runs = [run for run in distinct_runs(cells("mini").values(), {"gang": [pattern]}) if run.gang]
        assert runs, f"{pattern} fits no run"
    gang = [run for run in distinct_runs(cells("mini").values(), launch) if run.gang]
    assert [run.cells[0] for run in gang] == ["table1.ael.r50_1_8"]


def test_the_run_that_measures_noise_exists() -> None:
    assert read_scale(FOLDER / "scale" / "mini.toml").shown["noise"] in EXPECTED


def test_k_of_one_has_no_threshold() -> None:
    base = cells()["table1.weight_only.r50_1_16"]
    other = Resolver(FOLDER / "base", overrides=["loss.threshold=0.5"]).cells(base.experiment)
    (same,) = [cell for cell in other if cell.name == base.name]
    assert same.recipes == base.recipes
    (fuzzy,) = [cell for cell in other if cell.name == "table1.fpl_cps.r50_1_16"]
    assert fuzzy.recipes != cells()[fuzzy.name].recipes


FOOTNOTE_OVERRIDE = re.compile(r"(?:((?:table|figure)[a-z0-9_]*\.\S+) )?((?:[a-z_]+\.[a-z_.]+=\S+ ?)+)")


def overrides_in(text: str) -> list[tuple[str, list[str]]]:
    found = FOOTNOTE_OVERRIDE.findall(text)
    return [(cell, [item.rstrip(".,;:") for item in settings.split()]) for cell, settings in found]


def test_overrides_in_footnotes_work() -> None:
    seen = 0
    for experiment in experiments():
        notes = [*experiment.table.footnotes, *(row.note for row in experiment.rows)]
        for name, settings in (item for note in notes for item in overrides_in(note)):
            seen += 1
            changed = {cell.name: cell for cell in Resolver(FOLDER / "base", overrides=settings).cells(experiment)}
            pattern = re.compile(name.replace(".", r"\.").replace("*", "[^.]*") + r"(\..*)?") if name else None
            meant = [cell for cell in changed.values() if cell.configs and (not pattern or pattern.match(cell.name))]
            assert meant, (experiment.name, name)
            assert any(cell.recipes != cells()[cell.name].recipes for cell in meant), (experiment.name, settings)
    assert seen >= 20


def test_scales_say_what_they_prove() -> None:
    shown = {name: read_scale(FOLDER / "scale" / f"{name}.toml").shown for name in ("paper", "mini", "camvid")}
    assert {name: table["comparable"] for name, table in shown.items()} == {
        "paper": True,
        "mini": False,
        "camvid": False,
    }
    assert all(table["proves"] and table["proves_not"] for name, table in shown.items() if name != "paper")
    paper = read_scale(FOLDER / "scale" / "paper.toml")
    assert (paper.layer, paper.where) == ({}, ())


@pytest.mark.parametrize("path", sorted((FOLDER / "tables").glob("*.toml")), ids=lambda path: path.stem)
def test_every_file_refuses_an_unknown_key_by_its_name(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    for old, new in (('number = "', 'nmuber = "'), ("values = ", "valeus = "), ("header = ", "haeder = ")):
        text = path.read_text(encoding="utf-8")
        if old not in text:
            continue
        copy.write_text(text.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(FplError) as caught:
            load_experiments(tmp_path)
        assert caught.value.where == str(copy)
        assert new.partition(" ")[0] in caught.value.what


def test_a_gate_that_switches_fpl_off_is_told_by_the_plan() -> None:
    line = ["plan", "table2.fpl_ael.r50_*", "table2.ael.r50_*", "method.confidence_gate=0.95", "--scale", "paper"]
    result = CliRunner().invoke(app, [*line, "--experiments", str(FOLDER)])
    assert result.exit_code == 0, result.output
    # T is 0.95 in these three columns; AEL without FPL has no K.
    assert "warning: 3 runs: method.confidence_gate = 0.95 is not below loss.threshold = 0.95" in result.output
