from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fpl.cli.plan import plan as command
from fpl.config.campaign import Campaign, load_campaign
from fpl.config.identity import canonical
from fpl.config.sections import ModelConfig
from fpl.config.weights import tiny_file_name
from fpl.data.splits import split_folder
from fpl.store.write import failure_path, write_failure, write_run
from fpl.sweep.cluster import Cluster, Node
from fpl.sweep.execution import Execution
from fpl.sweep.places import Places
from fpl.sweep.plan import needs
from fpl.sweep.plan.campaign_plan import LAUNCHER_START, RAY_START, RUN_START, Plan, make_plan, misfits
from fpl.sweep.plan.capacity import Capacity, capacity, instruction_sets, known_capacity, makespan
from fpl.sweep.plan.costs import COSTS, Costs
from fpl.sweep.plan.memory import needed
from fpl.sweep.plan.needs import Needs
from fpl.sweep.plan.speed import CPU_CORE, V100, CostModel
from fpl.sweep.plan.wanted import Wanted
from fpl.train.pretrain import pretrain_tiny
from tests.store.test_store import named_run

TINY_FILE = tiny_file_name(16, 1)

TABLE = """
[about]
order = {order}
[table]
recipe = "cps"
name = "{name}"
number = "Table {order}"
caption = "A table."
dataset = "synthetic_city"
[[columns]]
key = "a"
header = "1/4"
[[columns]]
key = "b"
header = "1/4, longer"
set.train.steps = 12
[[rows]]
key = "other"
label = "Somebody's"
role = "cited"
values = [50.0, 51.0]
[[rows]]
key = "cps"
label = "CPS"
role = "baseline"
set.loss.kind = "ce"
values = [60.0, 61.0]
[[rows]]
key = "fpl"
label = "FPL"
role = "proposed"
threshold = 0.9
values = [62.0, "-"]
[[rows]]
key = "later"
label = "Later"
role = "baseline"
pending = "no such method yet"
values = [1.0, 2.0]
[[rows]]
key = "own"
label = "Supervised"
role = "control"
set.method.name = "supervised"
"""

SCALE = """
[scale]
name = "test"
seeds = 1
[launch]
launcher = "inline"
gang = ["two.fpl"]
gang_workers = 2
"""

# Cells that are run: cps.a, cps.b, fpl.a, own.a, own.b of each table, the same runs in both.
RUNS = 5


@pytest.fixture
def experiments(tmp_path: Path, run_file: Path) -> Path:
    folder = tmp_path / "experiments"
    for name in ("tables", "base", "scale"):
        (folder / name).mkdir(parents=True)
    for order, name in enumerate(("one", "two"), start=1):
        (folder / "tables" / f"{name}.toml").write_text(TABLE.format(order=order, name=name))
    (folder / "base" / "synthetic_city_cps.toml").write_text(run_file.read_text())
    (folder / "scale" / "test.toml").write_text(SCALE)
    return folder


@pytest.fixture
def campaign(experiments: Path) -> Campaign:
    return load_campaign(experiments, "test", rows="all")


def run_of(plan: Plan, cell: str) -> Wanted:
    return next(run for run in plan.wanted if cell in run.cells)


def record(out: Path, run: Wanted, *, pinned: bool = True) -> None:
    write_run(out, {**row_of(run, pinned), "miou_whole_best": 40.0}, [], [], [])


def row_of(run: Wanted, pinned: bool = True) -> dict[str, Any]:
    config = run.config
    if pinned:
        data = config.data.model_copy(update={"version": "0123456789abcdef"})
        config = config.model_copy(update={"data": data})
    return named_run("run", canonical(config))


# --- states ---------------------------------------------------------------------------------------------------------


def test_cells_and_distinct_runs(campaign: Campaign, places: Places) -> None:
    plan = make_plan(campaign, places)
    assert len(plan.wanted) == len(plan.missing) == RUNS and plan.cells_served == 2 * RUNS
    assert not (plan.done or plan.failed or plan.blocked)
    for table in plan.tables:
        # 2 cited, 2 of CPS, 1 of FPL beside a dash, 2 pending.
        assert (table.printed, table.measured, len(table.recipes)) == (7, 5, RUNS)
        assert dict(table.others) == {"cited": 2, "not in the paper": 1, "no such method yet": 2}
        assert table.pending == {"no such method yet": ["later"]}


def test_what_the_store_holds_is_done_whatever_its_pins(campaign: Campaign, places: Places) -> None:
    first = make_plan(campaign, places)
    record(places.out, first.wanted[0])
    record(places.out, first.wanted[1], pinned=False)
    plan = make_plan(campaign, places)
    assert [run.recipe for run in plan.done] == [run.recipe for run in first.wanted[:2]]
    assert [run.recipe for run in plan.missing] == [run.recipe for run in first.wanted[2:]]


def test_failed_runs_have_their_reason_until_they_succeed(campaign: Campaign, places: Places) -> None:
    run = make_plan(campaign, places).wanted[1]
    run_id = row_of(run)["run_id"]
    row = {"run_id": run_id, "recipe": run.recipe, "seed": 0, "reason": "loss is nan", "log": "logs/x.log"}
    write_failure(places.out, row)
    plan = make_plan(campaign, places)
    assert [(found.recipe, reason) for found, reason in plan.failed] == [(run.recipe, "loss is nan (log: logs/x.log)")]
    assert len(plan.missing) == RUNS - 1 and run in plan.ready
    # A store with failures alone is one, too; success removes the failure.
    record(places.out, run)
    assert not failure_path(places.out, run_id).exists()
    plan = make_plan(campaign, places)
    assert not plan.failed and [found.recipe for found in plan.done] == [run.recipe]


def test_runs_on_data_that_only_a_download_gives_are_blocked(experiments: Path, places: Places) -> None:
    base = experiments / "base" / "synthetic_city_cps.toml"
    base.write_text(base.read_text().replace('"synthetic_city"', '"cityscapes"'))
    plan = make_plan(load_campaign(experiments, "test", rows="all"), places)
    assert len(plan.blocked) == RUNS and not plan.missing and not plan.to_make
    # One reason for all: that the split, made by rule, is missing as well helps nobody.
    ((reason, count),) = plan.obstacles.items()
    assert count == RUNS and plan.blocked[0][1] == reason
    assert reason.startswith(f"data set cityscapes not found in {places.data_root} -> make it of the archives")


def test_a_done_run_is_done_without_its_data(campaign: Campaign, places: Places, tmp_path: Path) -> None:
    run = make_plan(campaign, places).wanted[0]
    record(places.out, run)
    elsewhere = Places(places.out, tmp_path / "nothing", tmp_path / "no splits")
    plan = make_plan(campaign, elsewhere)
    assert [found.recipe for found in plan.done] == [run.recipe]


def test_what_reproduce_makes_itself_blocks_nothing(campaign: Campaign, tmp_path: Path) -> None:
    plan = make_plan(campaign, Places(tmp_path / "out", tmp_path / "nothing", tmp_path / "splits"))
    assert len(plan.missing) == RUNS
    assert plan.to_make == {"drawn data sets": ["synthetic_city"], "splits": ["synthetic_city every-nth 1/4"]}


def test_lists_that_no_rule_gives_block(experiments: Path, places: Places, tmp_path: Path) -> None:
    folders = Places(places.out, places.data_root, tmp_path / "splits")
    overrides = ["data.split.family=imported", "data.split.fraction=7"]
    imported = load_campaign(experiments, "test", rows="all", overrides=overrides)
    plan = make_plan(imported, folders)
    (reason,) = plan.obstacles
    assert len(plan.blocked) == RUNS and "no split file labeled.txt for fraction 7" in reason
    damaged = split_folder(folders.splits_root, "synthetic_city", "imported", "7")
    damaged.mkdir(parents=True)
    (damaged / "labeled.txt").write_text("one\none\n")
    (damaged / "unlabeled.txt").write_text("two\n")
    (reason,) = make_plan(imported, folders).obstacles
    assert "one" in reason and "no split file" not in reason


# --- weights --------------------------------------------------------------------------------------------------------


def lacking(places: Places, model: dict[str, object], weights: Path | None) -> tuple[list[str], Needs]:
    from fpl.config.compose import load_config

    found = Needs(Places(places.out, places.data_root, places.splits_root, weights))
    config = load_config(Path(__file__).parents[3] / "experiments/base/synthetic_city_cps.toml")
    data = config.data.model_copy(update={"split": config.data.split.model_copy(update={"fraction": "1/4"})})
    chosen = ModelConfig.model_validate({"pretrained": "imagenet", **model})
    return found.lacking(config.model_copy(update={"data": data, "model": chosen})), found


def test_weights(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FPL_WEIGHTS", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    folder = tmp_path / "weights"
    (reason,), _ = lacking(places, {"backbone": "tiny"}, None)
    assert f"{TINY_FILE} not found" in reason and "fpl pretrain tiny --width 16 --depth 1" in reason
    problems, found = lacking(places, {"backbone": "tiny"}, folder)
    assert not problems and found.to_make == {"tiny networks' weights": [TINY_FILE]}
    (reason,), _ = lacking(places, {"backbone": "resnet50"}, folder)
    assert "does not exist" in reason
    folder.mkdir()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (reason,), _ = lacking(places, {"backbone": "resnet50"}, folder)
    assert "resnet50_v1c.pth" in reason and str(folder) in reason
    monkeypatch.setenv("FPL_WEIGHTS", str(folder))
    (folder / "resnet50_v1c.pth").touch()
    (reason,), _ = lacking(places, {"backbone": "resnet50"}, None)
    assert "resnet50_v1c.pth: cannot be read as plain tensors" in reason
    pretrain_tiny(folder, steps=1)
    problems, found = lacking(places, {"backbone": "tiny"}, None)
    assert not problems and not found.to_make and not found.to_download


def test_weights_that_can_be_downloaded_block_nothing(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: object())
    problems, found = lacking(places, {"backbone": "resnet101"}, tmp_path)
    assert not problems and found.to_download == ["resnet101"]
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: None)
    (reason,), _ = lacking(places, {"backbone": "efficientnet_lite0"}, tmp_path)
    assert ".[backbones]" in reason


# --- capacity and cost ----------------------------------------------------------------------------------------------


def test_too_few_gpus_or_cores_block(campaign: Campaign, places: Places) -> None:
    execution = Execution(launcher="train", workers=4, gpus_per_worker=1, cpus_per_worker=2)
    for has, text in (
        (Capacity(cores=64, gpus=2), "4 GPUs needed for a run with 4 workers, 2 here"),
        (Capacity(cores=7, gpus=8), "8 CPUs needed for a run with 4 workers, 7 here"),
    ):
        plan = make_plan(campaign, places, has, execution)
        assert plan.blocked and all(text in reason for run, reason in plan.blocked if not run.gang)
    assert not make_plan(campaign, places, Capacity(cores=8, gpus=4), execution).blocked
    # What Ray will say is not foretold.
    assert not make_plan(campaign, places, None, execution).blocked


def test_workers_that_cannot_share_the_batch_block(campaign: Campaign, places: Places) -> None:
    plan = make_plan(campaign, places, None, Execution(launcher="train", workers=3))
    reasons = {reason for run, reason in plan.blocked if not run.gang}
    (reason,) = reasons
    assert "data.labeled_batch = 4 cannot be shared equally by 3 workers" in reason


def test_what_cannot_fit_into_a_gpu_blocks(campaign: Campaign, places: Places) -> None:
    execution = Execution(launcher="train", workers=1, gpus_per_worker=1)
    roomy = make_plan(campaign, places, Capacity(cores=8, gpus=8, gpu_memory=80e9), execution)
    assert not roomy.blocked and not roomy.tight()
    assert all(plan_bytes > 1e9 for plan_bytes in map(roomy.gpu_bytes, roomy.wanted))
    # Less than any of these small networks takes with its images.
    full = make_plan(campaign, places, Capacity(cores=8, gpus=8, gpu_memory=1e6), execution)
    assert len(full.blocked) == len(full.wanted)
    assert all(" of memory needed on " in reason and " MB there" in reason for _, reason in full.blocked)
    # All fit as counted, none with what CUDA needs besides.
    tight = make_plan(campaign, places, Capacity(cores=8, gpus=8, gpu_memory=0.9e9), execution)
    assert not tight.blocked and len(tight.tight()) == len(tight.ready)
    # Half of a GPU has half of the room.
    config, costs = run_of(roomy, "one.cps.a").config, roomy.gpu_model.costs
    has = Capacity(cores=8, gpus=1, gpu_memory=1.5 * needed(costs.of(config), config).least)
    assert not misfits(config, execution, has, costs)
    assert len(misfits(config, Execution(gpus_per_worker=0.5), has, costs)) == 1
    # On cores nobody asks.
    assert not make_plan(campaign, places, Capacity(cores=8, gpu_memory=1e6)).blocked


def test_seconds_follow_layout_and_device(campaign: Campaign, places: Places) -> None:
    plan = make_plan(campaign, places, Capacity(cores=4))
    alone, gang = run_of(plan, "one.cps.a"), run_of(plan, "two.fpl.a")
    assert gang.gang and not alone.gang
    cpu = CostModel(CPU_CORE)
    assert plan.seconds(alone) == pytest.approx(cpu.run_seconds(alone.config) + RUN_START["inline"])
    assert plan.seconds(gang) == pytest.approx(cpu.run_seconds(gang.config, 2) + RUN_START["gang"])
    gpus, cores = plan.device_hours([alone, gang])
    assert gpus == 0 and cores == pytest.approx((plan.seconds(alone) + 2 * plan.seconds(gang)) / 3600)
    execution = Execution(launcher="train", workers=2, gpus_per_worker=1)
    plan = make_plan(campaign, places, Capacity(cores=8, gpus=8), execution)
    assert plan.seconds(alone) == pytest.approx(CostModel(V100).run_seconds(alone.config, 2) + RUN_START["train"])
    gpus, cores = plan.device_hours([alone])
    assert cores == 0 and gpus == pytest.approx(2 * plan.seconds(alone) / 3600)


def test_wall_time_is_that_of_the_executor(campaign: Campaign, places: Places) -> None:
    plan = make_plan(campaign, places, Capacity(cores=2))
    ordinary = sorted((plan.seconds(run) for run in plan.wanted if not run.gang), reverse=True)
    gang = sum(plan.seconds(run) for run in plan.wanted if run.gang)
    # Four runs on two cores, the longest first; then the gang, which takes both.
    slots = [ordinary[0], ordinary[1] + ordinary[2]]
    slots[slots.index(min(slots))] += ordinary[3]
    expected = RAY_START + LAUNCHER_START["inline"] + max(slots) + LAUNCHER_START["gang"] + gang
    assert plan.wall_seconds() == pytest.approx(expected)
    # With no CPUs of its own the gang is one more job on each core, and its start too.
    beside = make_plan(
        campaign, places, Capacity(cores=2), Execution.of_scale(campaign.scale.launch, gang_cpus_per_worker=0)
    )
    work = [*ordinary, *[LAUNCHER_START["gang"] + gang] * 2]
    total = beside.wall_seconds()
    assert total is not None and total <= expected + 1e-6
    assert total == pytest.approx(RAY_START + LAUNCHER_START["inline"] + makespan(work, 2))
    assert beside.device_hours(beside.wanted) == plan.device_hours(plan.wanted)
    assert make_plan(campaign, places).wall_seconds() is None
    local = make_plan(campaign, places, Capacity(cores=2), Execution.of_scale(campaign.scale.launch, local=True))
    # No Ray, no gang: one process.
    model = CostModel(CPU_CORE)
    expected = sum(model.run_seconds(run.config) + RUN_START["inline"] for run in local.wanted)
    assert local.wall_seconds() == pytest.approx(expected)


def test_gpus_are_those_that_the_driver_names_and_this_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf 'GPU A, 32510\\nGPU A, 16280\\nGPU A, 32510\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    has = capacity(cores=6)
    # The smallest decides.
    assert (has.cores, has.gpus, has.gpu_name, has.gpu_memory) == (6, 3, "GPU A", 16280 * 2**20)
    assert has.words() == "3 GPUs (GPU A, 17 GB each), 6 cores"
    for visible, count in (("0,2", 2), ("", 0), ("-1", 0), ("0,-1,2", 1), ("0,7,2", 1), ("GPU-5c, GPU-7d", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert capacity().gpus == count
    for visible, size in (("1", 16280), ("2,0", 32510)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert capacity().gpu_memory == size * 2**20
    assert capacity(gpus=8, gpu_name="A100").words().startswith("8 GPUs (A100")
    assert capacity(gpus=8).gpus == 8 and capacity(gpus=1, gpu_memory=24e9).gpu_memory == 24e9
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    # A tool without a driver.
    tool.write_text("#!/bin/sh\necho 'no devices were found'\nexit 9\n")
    assert capacity().gpus == 0


def test_without_ray_it_is_this_machine_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert known_capacity(Execution(), 2, 0) is None
    assert known_capacity(Execution(local=True), 2, 0) == capacity(2, 0)


def test_makespan() -> None:
    assert makespan([3.0, 1.0, 2.0], 1) == 6
    assert makespan([3.0, 3.0, 2.0, 2.0, 2.0], 2) == 7
    assert makespan([1.0], 8) == 1


def test_slots() -> None:
    has = Capacity(cores=64, gpus=16)
    assert has.slots(Execution(launcher="train", workers=8, gpus_per_worker=1)) == 2
    assert has.slots(Execution(launcher="train", workers=8, gpus_per_worker=1, cpus_per_worker=6)) == 1
    assert Capacity(cores=2).slots(Execution(cpus_per_worker=0.1)) == 20
    assert has.slots(Execution(concurrency=5)) == 5 and has.slots(Execution(concurrency=500)) == 64
    assert has.slots(Execution(local=True)) == 1 and Capacity(cores=1).slots(Execution(cpus_per_worker=2)) == 0
    gang = Execution(gang_workers=3).of_run(gang=True)
    assert (gang.launcher, gang.workers, gang.cpus_per_worker) == ("gang", 3, 1.0)
    own = Execution(gang_workers=3, gang_cpus_per_worker=0, cpus_per_worker=2)
    gang = own.of_run(gang=True)
    assert gang.cpus_per_worker == 0 and own.of_run(gang=False).cpus_per_worker == 2
    assert gang.beside and Capacity(cores=1).slots(gang) == 1 and not Capacity(cores=1).shortage(gang)


def test_disk_counts_every_run_once(campaign: Campaign, places: Places) -> None:
    plan = make_plan(campaign, places, Capacity(cores=2))
    kept, running = plan.disk_bytes()
    costs = Costs()
    assert kept == sum(costs.of(run.config).kept_bytes for run in plan.wanted)
    # Two of the runs with two networks at once.
    assert running == 2 * costs.of(run_of(plan, "one.cps.a").config).running_bytes
    record(places.out, first := plan.wanted[0])
    rest = make_plan(campaign, places, Capacity(cores=2)).disk_bytes()[0]
    assert rest == kept - costs.of(first.config).kept_bytes


# --- command --------------------------------------------------------------------------------------------------------


def call(experiments: Path, places: Places, *more: str) -> str:
    app = typer.Typer()
    app.command()(command)
    folders = ["--out", str(places.out), "--data-root", str(places.data_root), "--splits", str(places.splits_root)]
    result = CliRunner(env={"RAY_ADDRESS": None}).invoke(
        app, ["--scale", "test", "--rows", "all", "--experiments", str(experiments), *folders, *more]
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_command_prints_everything(experiments: Path, places: Places, campaign: Campaign) -> None:
    record(places.out, make_plan(campaign, places).wanted[0])
    text = call(experiments, places, "--cores", "2", "--gpus", "0")
    lines = text.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.split()[0] in ("one", "two", "distinct")}
    assert rows["one"][:-1] == rows["two"][:-1] == ["7", "5", "2", "2", "1", "5", "1", "0", "0", "4"]
    assert rows["distinct"][:-1] == ["14", "10", "4", "4", "2", "5", "1", "0", "0", "4"]
    assert "pending: one.later, two.later: no such method yet" in lines
    assert "5 distinct runs serve 10 cells with 1 seed each; store: " + str(places.out) in lines
    assert any(line.startswith("core-hours to come: ") and "(assumed: " in line for line in lines)
    assert any(line.startswith("capacity: 2 cores") and "wall time" in line for line in lines)
    assert lines[-1].startswith("test: 5 runs: 1 done, 0 failed, 0 blocked, 4 missing, ")
    assert "noise floor" not in text  # the scale names no run to repeat


def test_command_counts_the_noise_floor(experiments: Path, places: Places) -> None:
    scale = experiments / "scale" / "test.toml"
    scale.write_text(scale.read_text().replace("[scale]\n", '[scale]\nnoise = "one.cps.a"\n'))
    whole = call(experiments, places, "--gpus", "0")
    assert "beside these, for the noise floor: one.cps.a 3 times, " in whole
    # What is a part of the campaign does not measure it.
    for part in (["one"], ["--seeds", "2"]):
        assert "noise floor" not in call(experiments, places, *part, "--gpus", "0")
    scale.write_text(scale.read_text().replace("seeds = 1\n", "seeds = 2\n"))
    assert call(experiments, places, "--gpus", "0").count("noise floor") == 1


def test_command_names_tables_seeds_and_overrides(experiments: Path, places: Places) -> None:
    text = call(experiments, places, "one.cps", "train.steps=9", "--seeds", "3", "--rows", "paper")
    # One step count, so that the two columns share their runs.
    assert "3 distinct runs serve 2 cells with 3 seeds each" in text


class Growing(Cluster):
    """A node with four CPUs and one GPU, and an autoscaler that may add two of eight and two."""

    @property
    def nodes(self) -> list[Node]:
        return [Node("a", "10.0.0.1", 4, 1)]

    @property
    def to_come(self) -> list[Node]:
        return [Node("", "to come", 8, 2)] * 2


def test_command_asks_a_cluster_what_it_has_and_what_may_come(
    experiments: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def joined(address: str) -> Iterator[Cluster]:
        assert address == "auto"
        yield Growing(shared=True)

    monkeypatch.setattr("fpl.sweep.session.ray_session", joined)
    text = call(experiments, places, "--address", "auto")
    told = "4 CPUs, 1 GPU on 1 node; more may come, 16 CPUs, 4 GPUs on 2 nodes"
    assert f"capacity: {told}; wall time of what is ready: about " in text
    # Nowhere more than two GPUs at one place, five in all.
    has = Growing(shared=True).capacity()
    assert has.slots(Execution(gpus_per_worker=1)) == 5 and has.slots(Execution(cpus_per_worker=3)) == 5
    assert has.slots(Execution(launcher="gang", workers=2, cpus_per_worker=3)) == 2
    assert has.shortage(Execution(cpus_per_worker=8)) == ""
    assert has.shortage(Execution(cpus_per_worker=9)).endswith(f"room for 0 on {told} -> ask for less, or add nodes")


def test_command_calibrates_and_says_so(experiments: Path, places: Places) -> None:
    text = call(experiments, places, "one", "--calibrate", "1", "--gpus", "0")
    assert "calibration of 3 kinds of steps in" in text and "(measured on " in text
    assert (places.out / "calibration.parquet").is_file()
    assert "(measured on " in call(experiments, places, "one", "--gpus", "0")


def test_a_plan_is_made_without_torch_and_ray(experiments: Path, places: Places, campaign: Campaign) -> None:
    first = make_plan(campaign, places)
    first.count_costs()
    record(places.out, first.wanted[0])
    arguments = {
        "names": None,
        "scale": "test",
        "out": f"Path({str(places.out)!r})",
        "data_root": f"Path({str(places.data_root)!r})",
        "splits": f"Path({str(places.splits_root)!r})",
        "experiments": f"Path({str(experiments)!r})",
    }
    given = ", ".join(
        f"{name}={value if str(value).startswith('Path') else repr(value)}" for name, value in arguments.items()
    )
    # What it costs is known from the first plan.
    assert (places.out / COSTS).is_file()
    program = (
        "import sys\nfrom pathlib import Path\nfrom fpl.cli.plan import plan\n"
        f"plan({given})\nprint(sorted({{'torch', 'ray', 'optuna'}} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[]" and "1 done" in printed


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("flags\t\t: fpu sse2 fma avx f16c avx2 smep smap amx_bf16 avx512f", "amx_bf16 avx avx2 avx512f f16c fma"),
        ("Features\t: fp asimd sve sme2 bf16 i8mm", "asimd bf16 i8mm sme2 sve"),
        ("model name\t: none", ""),
    ],
)
def test_instruction_sets(line: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}\n\nprocessor\t: 1\n{line}\n")
    assert instruction_sets(tmp_path / "cpuinfo") == found
    assert instruction_sets(tmp_path / "none") == ""
