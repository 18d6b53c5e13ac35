"""A rehearsal from its start to its printout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fpl.cli.main import app
from fpl.cli.rehearse import report
from fpl.config.schema import RunConfig
from fpl.config.shipped import experiments_folder
from fpl.errors import FplError
from fpl.sweep.places import Places
from fpl.sweep.plan.capacity import Capacity
from fpl.sweep.plan.cost import Cost, Memory, Work
from fpl.sweep.plan.costs import Costs
from fpl.sweep.rehearsal import carry_out, whole
from fpl.sweep.rehearsal.carry_out import Piece, rehearse
from fpl.sweep.rehearsal.child import Ended
from fpl.sweep.rehearsal.rows import DONE, NO_MEMORY, Row, read, write
from fpl.sweep.rehearsal.whole import Rehearsal, load_cells

CELL = "table1.cps_cutmix.r50_1_8"
OVERRIDES = [
    "model.pretrained=none",
    "data.split.fraction=1/4",
    "model.head_channels=8",
    "model.low_level_channels=8",
]


@pytest.fixture
def rehearsal(data_places: Places, tmp_path: Path) -> Rehearsal:
    """Of one cell at scale mini on twelve images."""
    experiments = experiments_folder().resolve()
    return Rehearsal(
        campaign=load_cells(experiments, "mini", [CELL], OVERRIDES),
        overrides=OVERRIDES,
        out=tmp_path / "out",
        user=data_places,
        lists=[],
        has=Capacity(2, cpu_name="a processor"),
        threads=1,
        workers=1,
        full=False,
        on_ray=False,
        say=lambda text: None,
        experiments=experiments,
    )


def test_trained_killed_continued_validated_and_predicted(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((row,), done) = rehearsal.carry_out()
    assert done
    assert (row.state, row.reason) == (DONE, "")
    assert row.checked == "killed at step 1, continued, validated, predicted"
    assert (row.labeled, row.unlabeled, row.groups, row.steps, row.validation_images) == (4, 4, 2, 2, 2)
    assert row.checkpoint_bytes > row.weights_bytes > 10_000
    assert row.peak_bytes > 10**8 and row.step_seconds > 0 and row.predict_seconds > 0
    assert row.data == "real" and not list((rehearsal.out / "pieces").glob("*/checkpoints"))
    told = "\n".join(report([row]))
    assert CELL in told and "4 + 4" in told and "1 run: killed at step 1" in told

    def never(*arguments: object) -> Row:
        raise AssertionError("rehearsed again")

    monkeypatch.setattr(whole, "rehearse", never)
    assert rehearsal.carry_out() == ([row], True)
    with pytest.raises(AssertionError, match="rehearsed again"):
        replace(rehearsal, threads=2).carry_out()


def piece(rehearsal: Rehearsal) -> Piece:
    costs = Costs()
    (config,) = (cell.configs[0] for cell in rehearsal.campaign.all_cells)
    made = rehearsal._piece(CELL, config, costs, True)
    return replace(made, shares=[replace(made.shares[0], labeled=6, unlabeled=6, groups=3), *made.shares])


def test_less_memory_fewer_images(rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def short(command: list[str], *arguments: object, **options: object) -> Ended:
        commands.append(command)
        return Ended(2, 1.0, "error: not enough memory\n  -> take less")

    monkeypatch.setattr(carry_out, "run", short)
    row = rehearse(piece(rehearsal), lambda text: None)
    assert [next(word for word in command if "labeled_batch" in word) for command in commands] == [
        "data.labeled_batch=6",
        "data.labeled_batch=4",
        "data.labeled_batch=2",
    ]
    assert (row.state, row.labeled) == (NO_MEMORY, 2)
    assert row.reason == "no checkpoint was written: exit code 2: error: not enough memory"


def test_two_workers_beside_one_gpu_are_tried_on_cores(rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "base_bytes", lambda: 7)
    monkeypatch.setattr(whole, "_costliest", lambda *_: set())
    has = Capacity(cores=2, gpus=1, cpu_name="a processor", gpu_name="a GPU")
    made = replace(rehearsal, has=has, on_ray=True)
    (config,) = (cell.configs[0] for cell in made.campaign.all_cells)
    alone, shared = (one.row for one in made._pieces({CELL: config}, Costs()))
    assert (alone.device, alone.base_bytes, alone.whole) == ("a GPU", 0, True)
    assert (shared.device, shared.base_bytes, shared.whole) == ("a processor", 7, False)


def test_a_run_that_fails_is_told_and_not_tried_smaller(rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carry_out, "run", lambda *arguments, **options: Ended(1, 1.0, "failed: RUN: it diverged"))
    row = rehearse(piece(rehearsal), lambda text: None)
    assert (row.state, row.labeled) == ("failed", 6)
    assert any(line.startswith("failed: ") and "it diverged" in line for line in report([row]))


def test_what_was_killed_without_a_checkpoint_was_not_killed_at_step_1(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Ended(-9, 6 * 3600.0, "", "killed: it took longer than 6 hours")
    monkeypatch.setattr(carry_out, "run", lambda *arguments, **options: late)
    row = rehearse(piece(rehearsal), lambda text: None)
    assert row.state == "failed"
    assert row.reason == "no checkpoint was written: killed: it took longer than 6 hours"


ROW = Row(
    cell="table1.cps.r101_1_8",
    key="k",
    code="c",
    state=DONE,
    dataset="cityscapes",
    data="drawn",
    weights="made",
    backbone="resnet101",
    crop_height=800,
    crop_width=800,
    whole=True,
    labeled=2,
    unlabeled=2,
    groups=2,
    precision="float32",
    device="a processor",
    threads=2,
    step_seconds=3.0,
    base_bytes=1 * 10**9,
    model_bytes=2 * 10**9,
    peak_bytes=11 * 10**9,
    paper_labeled=8,
    paper_unlabeled=8,
    paper_steps=1200,
    paper_workers=4,
)


def test_memory_of_a_gpu_grows_with_its_images() -> None:
    # 11 = 1 of the process + 2 of the networks + 8 of 4 images: 2 an image.
    assert [ROW.peak_at(workers) for workers in (8, 4, 2, 1)] == [6e9, 10e9, 18e9, 34e9]
    assert replace(ROW, whole=False).peak_at(4) is None and replace(ROW, state="failed").peak_at(4) is None
    # On workers, each of the two has half of the images.
    assert replace(ROW, processes=2, labeled=4, unlabeled=4).peak_at(4) == 10e9


def test_hours_are_those_of_the_gpus_that_were_rehearsed_on() -> None:
    # A worker of four has the 4 images of the rehearsal: 1,200 steps of 3 s.
    assert ROW.hours is None and replace(ROW, on_gpu=True).hours == pytest.approx(1.0)
    assert replace(ROW, on_gpu=True, labeled=1, unlabeled=1).hours == pytest.approx(2.0)


def test_what_was_done_is_not_lost_to_what_there_is_no_memory_for(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(state: str, threads: int) -> tuple[list[str], bool]:
        monkeypatch.setattr(whole, "rehearse", lambda piece, tell: replace(piece.row, state=state))
        # Other threads are another key, as another precision is.
        found, done = replace(rehearsal, threads=threads).carry_out()
        return [row.state for row in found], done

    assert ends(DONE, 1) == ([DONE], True)
    # What was asked for has failed all the same.
    assert ends(NO_MEMORY, 2) == ([DONE], False)
    assert [row.state for row in read(rehearsal.out)] == [DONE]
    assert ends("failed", 2) == (["failed"], False) and ends(NO_MEMORY, 2) == ([NO_MEMORY], False)
    assert ends(DONE, 2) == ([DONE], True)


def test_another_precision_is_told_and_offered_where_memory_lacks() -> None:
    lacking = replace(ROW, state=NO_MEMORY, reason="not enough memory")
    told = "\n".join(report([lacking, replace(ROW, cell="table1.cps.r50_1_8", precision="bf16")]))
    assert told.count("table1.cps.r50_1_8, bf16 ") == 2 and "table1.cps.r101_1_8 " in told
    assert "takes less of it with train.precision=bf16" in told
    for row in (replace(lacking, precision="bf16"), ROW):
        assert "train.precision=bf16" not in "\n".join(report([row]))


def test_rows_are_kept_as_they_are(tmp_path: Path) -> None:
    assert read(tmp_path) == []
    write(tmp_path, [ROW, replace(ROW, cell="other")])
    assert read(tmp_path) == [ROW, replace(ROW, cell="other")]
    lines = (tmp_path / "rehearsal.csv").read_text().splitlines()
    assert lines[0].startswith("cell,key,code,state") and lines[2].startswith("other,k,c,done")


class Counted(Costs):
    """Costs by the name of the backbone: what real ones are is not looked at here."""

    def of(self, config: RunConfig) -> Cost:
        gflop = float(config.model.backbone.removeprefix("resnet"))
        return Cost(Work(gflop=gflop), Work(), 1, 1, Memory(1, 1, 0, 1, 1))


def test_of_each_row_the_costliest_network_is_whole() -> None:
    campaign = load_cells(experiments_folder(), "paper", [], [])
    configs = {cell.name: cell.configs[0] for cell in campaign.all_cells}
    found = whole._costliest(configs, Counted())
    assert len(configs) == 20 and len(found) == 10 and all(".r101_" in name for name in found)


def test_a_scale_without_a_choice_asks_for_cells() -> None:
    with pytest.raises(FplError, match="does not say what stands for all of it"):
        load_cells(experiments_folder(), "mini", [], [])
    told = CliRunner().invoke(app, ["rehearse", "table1.cps.r7"])
    assert isinstance(told.exception, FplError) and "fits no cell" in told.exception.message


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["table1.u2pl.r50_1_8", "--scale", "mini"], "no run to rehearse: "),
        (["--weights", "nowhere"], "--weights or FPL_WEIGHTS nowhere: no such folder"),
        (["--data-root", "nowhere"], "--data-root nowhere: no such folder"),
        (["--lists", "nowhere"], "--lists nowhere: no such folder"),
        (["--lists", "there"], "--lists there: no published list is in it"),
        (["--out", "file"], "file: is a file, and a folder is needed"),
        (["--publish", "file"], "file: is a file, and a folder is needed"),
    ],
)
def test_what_is_named_and_not_there_is_refused_before_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes.txt").write_text("no list\n")
    words = ["rehearse", *arguments, "--experiments", str(experiments_folder().resolve())]
    told = CliRunner().invoke(app, words)
    assert isinstance(told.exception, FplError) and said in told.exception.message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there"]
